#include "rig.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cuda.h"
#include "device/host.h"
#include "support/this_build.h"

namespace gshm::core::io::test {
namespace {

template <typename T>
T must(Result<T> result) {
    if (!result) {
        fprintf(stderr, "%s\n", result.error().message.c_str());
        std::abort();
    }
    return std::move(*result);
}

void must(const Status& status) {
    if (!status) must(Result<int>(std::unexpected(status.error())));
}

}  // namespace

Device& host_device() {
    static Device* device = must(HostDevice::create(uint64_t{4} << 30)).release();
    return *device;
}

Device& cuda_device() {
    static Device* device = [] {
        setenv("FAKECUDA_DEVICES", "2", 0);
        setenv("FAKECUDA_FABRIC", "1", 0);
        if (dlopen(core::test::fakecuda_path().c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) std::abort();
        return must(CudaDevice::create(0)).release();
    }();
    return *device;
}

Memory::Memory(Device& device, uint64_t size) {
    const uint64_t unit = device.info().granularity_bytes;
    extent_ = must(device.allocate((size + unit - 1) / unit * unit, {}));
}

void Memory::put(uint64_t offset, const std::string& bytes) {
    must(extent_->copy_in(offset, std::as_bytes(std::span(bytes))));
}

std::string Memory::get(uint64_t offset, uint64_t bytes) const {
    std::string got(bytes, '\0');
    must(extent_->copy_out(offset, std::as_writable_bytes(std::span(got))));
    return got;
}

void Memory::clear(char value) {
    must(extent_->fill(0, extent_->size(), static_cast<uint8_t>(value)));
}

TestFile::TestFile(const std::string& content, int flags) {
    std::string path = (std::filesystem::temp_directory_path() / "gshm-io-XXXXXX").string();
    auto made = UniqueFd::adopt(mkstemp(path.data()));
    if (!made) std::abort();
    for (size_t done = 0; done < content.size();) {
        const ssize_t wrote =
            pwrite(made.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
        if (wrote <= 0) std::abort();
        done += static_cast<size_t>(wrote);
    }
    fd_ = UniqueFd::adopt(open(path.c_str(), flags | O_CLOEXEC));
    unlink(path.c_str());
    open_again();
}

void TestFile::open_again() {
    file_ = must(File::create(must(UniqueFd::clone(fd()))));
}

uint64_t TestFile::size() const {
    struct stat status = {};
    fstat(fd(), &status);
    return static_cast<uint64_t>(status.st_size);
}

std::string TestFile::content() const {
    std::string got(size(), '\0');
    for (size_t done = 0; done < got.size();) {
        const ssize_t moved = pread(fd(), got.data() + done, got.size() - done, static_cast<off_t>(done));
        if (moved <= 0) break;
        done += static_cast<size_t>(moved);
    }
    return got;
}

void TestFile::evict() const {
    fdatasync(fd());
    posix_fadvise(fd(), 0, 0, POSIX_FADV_DONTNEED);
}

void TestTransfer::done(Result<uint64_t> bytes) {
    if (when_done) when_done();
    std::lock_guard lock(source->mutex_);
    result = std::move(bytes);
    is_done = true;
    source->done_.notify_all();
}

TestSource::TestSource(Engine& engine) : engine_(engine), bell_(UniqueFd::adopt(eventfd(0, EFD_CLOEXEC))) {
    must(engine_.add(*this));
}

TestSource::~TestSource() {
    leave();
}

void TestSource::leave() {
    if (added_) engine_.remove(*this);
    added_ = false;
}

void TestSource::put(TestTransfer& transfer) {
    std::lock_guard lock(mutex_);
    transfer.source = this;
    transfer.is_done = false;
    waiting_.push_back(&transfer);
    if (asleep_) eventfd_write(bell_.get(), 1);
}

void TestSource::wait(TestTransfer& transfer) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return transfer.is_done; });
}

Result<uint64_t> TestSource::run(TestTransfer& transfer) {
    put(transfer);
    wait(transfer);
    return transfer.result;
}

bool TestSource::poll() {
    ++polls_;
    std::vector<TestTransfer*> taken;
    {
        std::lock_guard lock(mutex_);
        taken.swap(waiting_);
    }
    for (TestTransfer* transfer : taken) engine_.start(*transfer);
    return !taken.empty();
}

void TestSource::sleep(bool asleep) {
    std::lock_guard lock(mutex_);
    asleep_ = asleep;
}

void IoSuite::SetUp() {
    auto staging = Staging::create(device(), kStagingBytes);
    ASSERT_TRUE(staging) << staging.error().message;
    staging_ = std::move(*staging);
    auto engine = make_engine();
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
    if (GetParam().uring && !engine_->uses_uring()) GTEST_SKIP() << "io_uring is refused here";
    ASSERT_EQ(engine_->uses_uring(), GetParam().uring);
    source_ = std::make_unique<TestSource>(*engine_);
}

Result<std::unique_ptr<Engine>> IoSuite::make_engine(Engine::Options options, std::shared_ptr<Staging> staging) {
    options.allow_uring = GetParam().uring;
    return Engine::create(staging != nullptr ? std::move(staging) : staging_, options);
}

Result<std::unique_ptr<Engine>> IoSuite::make_wrapped(Engine::Options options, Wrap wrap) {
    const bool uring = GetParam().uring;
    return EngineCore::create(staging_, options,
                              [options, uring, wrap = std::move(wrap)]() -> Result<std::unique_ptr<Queue>> {
                                  return wrap(TRY(uring ? make_uring_queue(options.depth, options.threads)
                                                        : make_thread_queue(options.threads)));
                              });
}

}  // namespace gshm::core::io::test

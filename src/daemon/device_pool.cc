#include "daemon/device_pool.h"

#include <charconv>
#include <future>
#include <optional>

#include "base/log.h"
#include "base/size.h"
#include "device/cuda.h"

namespace gshm {

Result<std::unique_ptr<DevicePool>> DevicePool::create(EventLoop& loop, const std::vector<std::string>& specs,
                                                       uint64_t limit_bytes, UniqueFd host_folder) {
    std::unique_ptr<DevicePool> pool(new DevicePool(loop));
    pool->old_host_folder_ = std::move(host_folder);
    for (const auto& spec : specs) TRY(pool->add(spec, limit_bytes));
    if (specs.empty()) {
        if (auto added = pool->add_all_cuda(limit_bytes); !added) log_info("no GPU: {}", added.error().message);
        TRY(pool->add_host(limit_bytes));
    }
    return pool;
}

Status DevicePool::add(const std::string& spec, uint64_t limit_bytes) {
    std::string_view rest = spec;
    auto next = [&rest] {
        size_t colon = rest.find(':');
        std::string_view part = rest.substr(0, colon);
        rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
        return part;
    };
    auto bad = [&] {
        return fail(EINVAL, "'{}' is not a device (examples: cuda, cuda:0, cuda:0:40G, host, host:4G)", spec);
    };
    auto read_limit = [&] {
        auto size = parse_size(next());
        if (size) limit_bytes = *size;
        return size.has_value() && limit_bytes > 0 && rest.empty();
    };
    std::string_view kind = next();
    if (kind == "host") {
        if (spec.ends_with(':') || (!rest.empty() && !read_limit())) return bad();
        return add_host(limit_bytes);
    }
    if (kind != "cuda" || spec.ends_with(':')) return bad();
    if (rest.empty()) return add_all_cuda(limit_bytes);
    std::string_view number = next();
    int ordinal = -1;
    auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ordinal);
    if (error != std::errc() || end != number.data() + number.size() || ordinal < 0) return bad();
    if (!rest.empty() && !read_limit()) return bad();
    return add_cuda(ordinal, limit_bytes);
}

Status DevicePool::add_host(uint64_t limit_bytes) {
    // The limit may be more than half of the memory if someone says so.
    auto host = TRY(HostDevice::create(limit_bytes, std::move(old_host_folder_)));
    host_ = host.get();
    return add_slot(std::move(host), limit_bytes);
}

Status DevicePool::add_all_cuda(uint64_t limit_bytes) {
    int count = TRY(CudaDevice::count());
    if (count == 0) return fail(ENODEV, "the CUDA driver sees no GPU");
    // One that cannot even be asked what it is must not take the others along.
    std::optional<Error> first;
    size_t added = 0;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        auto status = add_cuda(ordinal, limit_bytes);
        if (status) ++added;
        if (status) continue;
        log_error("cuda:{} is left out: {}", ordinal, status.error().message);
        if (!first) first = status.error();
    }
    if (added == 0 && first) return std::unexpected(std::move(*first));
    return {};
}

Status DevicePool::add_cuda(int ordinal, uint64_t limit_bytes) {
    auto device = TRY(CudaDevice::create(ordinal));
    auto context = device->context();
    TRY(add_slot(std::move(device), limit_bytes));
    if (!context) {
        slots_.back().failure = context.error().message;
        log_error("cuda:{} cannot be used: {}", ordinal, context.error().message);
    }
    return {};
}

Status DevicePool::add_slot(std::unique_ptr<Device> device, uint64_t limit_bytes) {
    if (find(device->info().name)) return fail(EINVAL, "device {} is named twice", device->info().name);
    slots_.push_back({std::make_unique<LimitDevice>(std::move(device), limit_bytes), std::make_unique<Worker>(),
                      std::make_unique<Worker>(), {}});
    return {};
}

std::vector<DeviceInfo> DevicePool::infos() const {
    std::vector<DeviceInfo> infos;
    for (const auto& slot : slots_) infos.push_back(slot.device->info());
    return infos;
}

Result<DeviceIndex> DevicePool::find(std::string_view name) const {
    if (name.empty() && !slots_.empty()) return 0;
    std::string names;
    for (DeviceIndex i = 0; i < slots_.size(); ++i) {
        if (info(i).name == name) return i;
        names += (names.empty() ? "" : ", ") + info(i).name;
    }
    return fail(ENODEV, "there is no device \"{}\"; gshmd has: {}", name, names);
}

Status DevicePool::check(DeviceIndex index) const {
    if (slots_[index].failure.empty()) return {};
    return fail(ENODEV, "{} has failed and is refused until gshmd is started again: {}", info(index).name,
                slots_[index].failure);
}

void DevicePool::report(DeviceIndex index, const Error& error) {
    if (!error.device_lost || !slots_[index].failure.empty()) return;
    slots_[index].failure = error.message;
    log_error("{} has failed: {}", info(index).name, error.message);
}

void DevicePool::submit(DeviceIndex index, Work work, Done done) {
    submit_to(*slots_[index].worker, index, std::move(work), std::move(done));
}

void DevicePool::submit_reclaim(DeviceIndex index, Work work, Done done) {
    submit_to(*slots_[index].reclaimer, index, std::move(work), std::move(done));
}

void DevicePool::wait_for_reclaimed(DeviceIndex index) {
    std::promise<void> reached;
    slots_[index].reclaimer->submit([&] { reached.set_value(); });
    reached.get_future().wait();
    if (also_wait_) also_wait_();
}

std::optional<int> DevicePool::host_folder() {
    return host_ == nullptr ? std::nullopt : host_->folder();
}

void DevicePool::submit_to(Worker& worker, DeviceIndex index, Work work, Done done) {
    worker.submit([this, index, device = slots_[index].device.get(), work = std::move(work), done = std::move(done)]() mutable {
        Status status = work(*device);
        work = nullptr;  // release what it holds in this thread: it may be an extent
        loop_.post([this, index, status = std::move(status), done = std::move(done)]() mutable {
            if (!status) report(index, status.error());
            if (done) done(std::move(status));
        });
    });
}

}  // namespace gshm

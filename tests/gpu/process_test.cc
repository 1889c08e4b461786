// Effects of the library on its process: CUDA contexts, and when CUDA is started.
#include "fixture.h"

namespace gshm::core::test {
namespace {

class GpuProcess : public GpuTest {
protected:
    // Null if this thread has none.
    cuda::CUcontext current() {
        cuda::CUcontext context = nullptr;
        if (const auto get = FurtherCalls::get().ctx_get_current) {
            EXPECT_EQ(get(&context), cuda::kSuccess);
        } else if (gpu().driver().ctx_pop(&context) == cuda::kSuccess) {
            gpu().driver().ctx_push(context);
        } else {
            context = nullptr;
        }
        return context;
    }
    // Makes every call that reaches the driver.
    void use_everything(const std::string& name) {
        const auto object = create_filled(name, 4 * kMiB, 40);
        const auto second = connect();
        const auto reader = open_object(second.get(), name);
        EXPECT_EQ(copy_of(reader.get()), pattern(4 * kMiB, 40));
        int fd = -1;
        gshm_handle_info info = {};
        info.struct_size = sizeof info;
        EXPECT_EQ(gshm_export_fd(reader.get(), &fd, &info), 0) << gshm_last_error();
        gshm_object* imported = nullptr;
        EXPECT_EQ(gshm_import_fd(where().c_str(), fd, &info, 0, &imported), 0) << gshm_last_error();
        gshm_close(imported);
        ::close(fd);
        gshm_object* own = nullptr;
        EXPECT_EQ(gshm_allocate(where().c_str(), kMiB, 0, &own), 0) << gshm_last_error();
        EXPECT_EQ(gshm_fill(own, 0, kMiB, 1), 0) << gshm_last_error();
        gshm_close(own);
    }
};
GSHM_FOR_EACH_GPU(GpuProcess);

TEST_P(GpuProcess, CudaStartsWhenAPointerIsWantedAndNotBefore) {
    const auto object = create_filled("some", 4 * kMiB, 41);
    const auto result = run_role("watch_context", {dir(), "some", where()});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

TEST_P(GpuProcess, AThreadWithoutAContextStaysWithoutOne) {
    std::thread([&] {  // independent of the state that other tests left in this thread
        ASSERT_EQ(current(), nullptr);
        use_everything("without");
        EXPECT_EQ(current(), nullptr);
        EXPECT_TRUE(gpu().primary_context_is_active());
    })
        .join();
}

TEST_P(GpuProcess, TheCallersContextStaysCurrent) {
    const auto& driver = gpu().driver();
    ASSERT_EQ(driver.ctx_push(gpu().context()), cuda::kSuccess);
    use_everything("primary");
    EXPECT_EQ(current(), gpu().context());
    cuda::CUcontext popped = nullptr;
    ASSERT_EQ(driver.ctx_pop(&popped), cuda::kSuccess);
    EXPECT_EQ(popped, gpu().context());

    const auto& calls = FurtherCalls::get();
    if (calls.ctx_create == nullptr) GTEST_SKIP() << "this driver makes no further contexts";
    cuda::CUcontext own = nullptr;
    ASSERT_EQ(calls.ctx_create(&own, 0, gpu().device()), cuda::kSuccess);  // and makes it current
    use_everything("own");
    EXPECT_EQ(current(), own);
    EXPECT_EQ(calls.ctx_destroy(own), cuda::kSuccess);
}

TEST_P(GpuProcess, TheCommandNeverStartsCuda) {
    const auto data = pattern(6 * kMiB, 42);
    const std::string text(reinterpret_cast<const char*>(data.data()), data.size());
    auto created = run_cli({"create", "cli/x", "--size", std::to_string(data.size()), "--device", where()});
    ASSERT_EQ(created.exit_code, 0) << created.err;
    // It holds the object and waits for input: at this moment its loaded libraries are inspected.
    ChildProcess writer;
    ASSERT_TRUE(writer.spawn(cli_argv({"write", "cli/x"}), {"CUDA_VISIBLE_DEVICES="}));
    gshm_holder holder = {};
    holder.struct_size = sizeof holder;
    size_t count = 0;
    ASSERT_TRUE(eventually([&] {
        return gshm_holders(client_.get(), "cli/x", &holder, 1, &count) == 0 && count == 1 &&
               holder.pid == writer.pid();
    }));
    std::ifstream maps("/proc/" + std::to_string(writer.pid()) + "/maps");
    const std::string mapped{std::istreambuf_iterator<char>(maps), {}};
    EXPECT_NE(mapped.find("libgshm"), std::string::npos);
    EXPECT_EQ(mapped.find("libcuda"), std::string::npos);
    const auto written = writer.finish(text);
    ASSERT_EQ(written.exit_code, 0) << written.err;
    const auto read = run_cli({"cat", "cli/x"}, {}, {"CUDA_VISIBLE_DEVICES="});
    EXPECT_EQ(read.exit_code, 0) << read.err;
    EXPECT_TRUE(read.out == text) << read.out.size() << " bytes";
    EXPECT_EQ(copy_of(open("cli/x").get()), data);
}

}  // namespace
}  // namespace gshm::core::test

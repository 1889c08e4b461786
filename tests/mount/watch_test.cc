// Changes of files are reported to watches.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount/client_fixture.h"

namespace gshm::core::test {
namespace {

class MountWatch : public MountClientTest {
protected:
    static std::string by_user(const std::function<std::string()>& body) { return run_as(mount_user(), body); }
    static std::string text_of(const Result<Event>& event) {
        if (!event) return event.error().message;
        std::string text = std::string(kind_text(event->kind)) + " " + event->name;
        return event->old_name.empty() ? text : text + " from " + event->old_name;
    }
};
INSTANTIATE_TEST_SUITE_P(Ways, MountWatch, ::testing::Values(Way::passthrough, Way::through, Way::user, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(MountWatch, HearsWhatIsDoneToFiles) {
    auto watch = Watch::create(client_, "d/");
    ASSERT_TRUE(watch) << watch.error().message;
    ASSERT_EQ(by_user([&]() -> std::string {
                  if (mkdir(at("d").c_str(), 0755) != 0) return "mkdir";
                  if (!write_file(at("d/f"), "bytes", O_CREAT)) return "write";
                  if (link(at("d/f").c_str(), at("d/hard").c_str()) != 0) return "link";
                  if (symlink("f", at("d/soft").c_str()) != 0) return "symlink";
                  if (set_attribute(at("d/f"), "user.state", "sealed") != 0) return "seal";
                  if (rename(at("d/f").c_str(), at("d/g").c_str()) != 0) return "rename";
                  if (rename(at("d/hard").c_str(), at("d/soft").c_str()) != 0) return "rename over";
                  if (mkdir(at("d/sub").c_str(), 0755) != 0) return "mkdir sub";
                  if (!write_file(at("d/sub/in"), "x", O_CREAT)) return "write in";
                  if (renameat2(AT_FDCWD, at("d/sub").c_str(), AT_FDCWD, at("d/g").c_str(), RENAME_EXCHANGE) != 0)
                      return "exchange";
                  if (rename(at("d/g").c_str(), at("elsewhere").c_str()) != 0) return "rename away";
                  if (unlink(at("d/soft").c_str()) != 0) return "unlink";
                  if (unlink(at("d/sub").c_str()) != 0) return "unlink sub";
                  return {};
              }),
              "");
    for (const char* expected :
         {"created d/f", "created d/hard", "created d/soft", "sealed d/f", "sealed d/hard", "renamed d/g from d/f",
          "replaced d/soft from d/hard", "created d/sub", "created d/sub/in", "deleted d/sub/in", "replaced d/g",
          "created d/g/in", "replaced d/sub", "deleted d/g", "deleted d/g/in", "deleted d/soft", "deleted d/sub"}) {
        ASSERT_EQ(text_of(watch->next(std::chrono::seconds(30))), expected);
    }
    EXPECT_EQ(watch->next(std::chrono::milliseconds(20)).error().code, ETIMEDOUT);
}

TEST_P(MountWatch, WaitsUntilAFileIsGone) {
    ASSERT_EQ(by_user([&]() -> std::string { return write_file(at("f"), "x", O_CREAT) ? "" : "write"; }), "");
    std::thread remover([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_EQ(by_user([&]() -> std::string { return unlink(at("f").c_str()) == 0 ? "" : "unlink"; }), "");
    });
    auto gone = client_.wait("f", WaitFor::kGone);
    EXPECT_TRUE(gone) << gone.error().message;
    remover.join();
}

}  // namespace
}  // namespace gshm::core::test

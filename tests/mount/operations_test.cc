// Every operation has the same effect by every interface, the library, the mount and the command line: times, rights
// and names in the kernel's view, events of a watch, errors, limits. Necessary differences are exceptions in the table
// (operations_rows.cc), with their reasons.
#include <unistd.h>

#include "mount/client_fixture.h"
#include "mount/operations_scene.h"

namespace gshm::core::test {
namespace {

class OperationsTable : public MountClientTest {
protected:
    // The events since the watch was created. A name that is created now marks the end.
    std::string events_of(Watch& watch, const std::string& folder) {
        const std::string end = folder + "/~end";
        auto made = client_.make_directory(end);
        EXPECT_TRUE(made) << made.error().message;
        std::string text;
        auto shorter = [&](const std::string& name) {
            return name.starts_with(folder + "/") ? name.substr(folder.size() + 1) : name;
        };
        for (;;) {
            auto event = watch.next();
            EXPECT_TRUE(event) << event.error().message;
            if (!event || event->name == end) break;
            text += std::string(text.empty() ? "" : "; ") + kind_text(event->kind) + " " + shorter(event->name);
            if (!event->old_name.empty()) text += " from " + shorter(event->old_name);
        }
        return text;
    }
    // The kernel's file times are coarse. Waits until they have advanced, so that a new time is later than the old one.
    static void pass_a_tick() {
        timespec now = {}, coarse = {};
        clock_gettime(CLOCK_REALTIME, &now);
        do {
            usleep(500);
            clock_gettime(CLOCK_REALTIME_COARSE, &coarse);
        } while (coarse.tv_sec < now.tv_sec || (coarse.tv_sec == now.tv_sec && coarse.tv_nsec <= now.tv_nsec));
    }

    // "EEXIST", or all changes. The kernel is notified of the library's changes asynchronously, so it is polled until
    // it shows the expected state.
    std::string outcome(const Row& row, Column column, const std::string& folder, const std::string& expected) {
        Scene scene(*this, folder);
        EXPECT_EQ(mkdir(at(folder).c_str(), 0777), 0);
        EXPECT_EQ(chmod(at(folder).c_str(), 0777), 0);
        if (row.prepare) row.prepare(scene);
        pass_a_tick();
        auto watch = Watch::create(client_, folder + "/");
        EXPECT_TRUE(watch) << watch.error().message;
        const Sights before = look_at(at(folder), true);
        const std::string answer = run_as(row.user, [&] {
            std::string said;
            const int code = row.ways.at(column)(scene, said);
            return std::to_string(code) + " " + said;
        });
        const int code = std::stoi(answer);
        const std::string said = answer.substr(answer.find(' ') + 1);
        const char* name = code == 0 ? "" : strerrorname_np(code);
        const std::string begin = code != 0 ? (name != nullptr ? name : answer) : said;
        std::string text;
        for (int i = 0; i < 12'000; ++i, usleep(10'000)) {
            text = begin;
            const std::string changed = difference(before, look_at(at(folder), false));
            if (!changed.empty()) text += (text.empty() ? "" : "; ") + changed;
            if (expected == text || expected.starts_with(text + " | ")) break;
        }
        scene.close_files();
        const std::string events = events_of(*watch, folder);
        return events.empty() ? text : text + " | " + events;
    }
};
INSTANTIATE_TEST_SUITE_P(Ways, OperationsTable, ::testing::Values(Way::passthrough, Way::through, Way::cuda),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(OperationsTable, AreTheSameByEveryWay) {
    int number = 0;
    for (const Row& row : operation_rows()) {
        ++number;
        for (const auto& [column, operation] : row.ways) {
            auto exception = row.exceptions.find(column);
            const std::string& expected = exception == row.exceptions.end() ? row.expected : exception->second.expected;
            EXPECT_EQ(outcome(row, column, "r" + std::to_string(number) + name_of(column), expected), expected)
                << row.name << " by the " << name_of(column);
        }
    }
}

// An exception without a difference is outdated.
TEST(OperationsRows, ExceptionsDiffer) {
    for (const Row& row : operation_rows()) {
        for (const auto& [column, exception] : row.exceptions) {
            EXPECT_NE(exception.expected, row.expected) << row.name;
            EXPECT_FALSE(exception.reason.empty()) << row.name;
            EXPECT_TRUE(row.ways.contains(column)) << row.name;
        }
    }
}

}  // namespace
}  // namespace gshm::core::test

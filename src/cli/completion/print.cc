#include <csignal>
#include <string_view>
#include <sys/time.h>
#include <unistd.h>

#include "cli/completion/bash_line.h"
#include "cli/completion/candidates.h"
#include "cli/completion/complete.h"
#include "cli/support/streams.h"

namespace gshm::cli {
namespace {

constexpr suseconds_t kMost_us = 500'000;  // a person waits

// A gshmd that does not answer delays the shell no longer than this.
void limit_time() {
    std::signal(SIGALRM, [](int) { ::_exit(0); });
    const itimerval limit = {{}, {0, kMost_us}};
    ::setitimer(ITIMER_REAL, &limit, nullptr);
}

void append(std::string& out, std::string_view text) {
    out += text;
    out += '\0';
}

void print(const Completion& completion) {
    std::string out;
    append(out, completion.paths == Paths::files ? "files" : completion.paths == Paths::folders ? "folders" : "none");
    for (const auto& [text, description] : completion.candidates) {
        append(out, text);
        append(out, description);
    }
    write_stdout(out);
}

// "files" or "folders" leaves the word to readline. Where names may be meant as well, the paths are candidates.
int print_for_bash(std::string_view text, std::string_view breaks) {
    const auto line = BashLine::parse(text, breaks);
    Completion completion;
    if (line.is_redirected) {
        completion.paths = Paths::files;
    } else if (line.words.size() > 1) {
        completion = complete({line.words.begin() + 1, line.words.end()});
        if (line.is_expanded) completion.candidates.clear();  // it would be replaced by other text
    }
    if (completion.paths != Paths::none && !completion.candidates.empty()) {
        for (auto& path : path_candidates(line.words.back(), completion.paths == Paths::folders))
            completion.candidates.push_back({std::move(path), {}});
        completion.paths = Paths::none;
    }
    for (auto& candidate : completion.candidates) candidate.text = line.inserted(candidate.text);
    print(completion);
    return 0;
}

}  // namespace

int print_completion(int argc, const char* const* argv) {
    const std::string_view shell = argc > 0 ? argv[0] : "";
    limit_time();
    if (shell == "bash" && argc == 3) return print_for_bash(argv[1], argv[2]);
    if (shell == "words" && argc > 1) {
        print(complete({argv + 1, argv + argc}));
        return 0;
    }
    write_all(STDERR_FILENO, "gshm: --complete is for the completions of shells\n", 50, "standard error");
    return 2;
}

}  // namespace gshm::cli

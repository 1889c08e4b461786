#include "cli/completion/complete.h"

#include <algorithm>
#include <string_view>

#include "cli/completion/candidates.h"
#include "cli/outline.h"

namespace gshm::cli {
namespace {

class Completer {
public:
    explicit Completer(const std::vector<std::string>& words) : words_(words), current_(words.back()) {}

    Completion complete() {
        for (size_t i = 0; i + 1 < words_.size(); ++i) read(words_[i]);
        if (waiting_ != nullptr) {
            add_values(*waiting_, 0, "", current_);
        } else if (!only_positionals_ && current_.starts_with('-')) {
            const size_t equals = current_.find('=');
            const auto flag = current_.substr(0, equals);
            if (equals == current_.npos) add_flags();
            else if (const auto* option = find(flag); option != nullptr && !option->is_switch())
                add_values(*option, 0, flag + "=", current_.substr(equals + 1));
        } else if (command_ == nullptr) {
            if (positionals_.empty()) add_commands();
        } else {
            add_positionals();
        }
        std::ranges::sort(result_.candidates, {}, &Candidate::text);
        const auto same = std::ranges::unique(result_.candidates, {}, &Candidate::text);
        result_.candidates.erase(same.begin(), same.end());
        return std::move(result_);
    }

private:
    // A word before the one that is completed.
    void read(const std::string& word) {
        if (waiting_ != nullptr) {
            note_value(*waiting_, word);
            waiting_ = nullptr;
        } else if (only_positionals_ || !word.starts_with('-') || word == "-") {
            if (command_ != nullptr || !positionals_.empty()) positionals_.push_back(word);
            else if (command_ = outline_.find(word); command_ == nullptr) positionals_.push_back(word);
        } else if (word == "--") {
            only_positionals_ = true;
        } else {
            const size_t equals = word.find('=');
            const auto* option = find(word.substr(0, equals));
            if (option == nullptr || option->is_switch()) return;
            if (equals == word.npos) waiting_ = option;
            else note_value(*option, word.substr(equals + 1));
        }
    }
    void note_value(const Argument& option, const std::string& value) {
        if (std::ranges::find(option.flags, "--dir") != option.flags.end()) dir_ = value;
    }
    const Argument* find(std::string_view flag) const {
        if (command_ != nullptr) return command_->find(flag);
        return outline_.program.find(flag);
    }

    void add(std::string text, std::string description = {}) {
        if (text.starts_with(current_)) result_.candidates.push_back({std::move(text), std::move(description)});
    }
    void add_all(std::vector<std::string> texts, const std::string& before = {}) {
        for (auto& text : texts) add(before + text);
    }
    void add_flags() {
        for (const auto& argument : (command_ == nullptr ? outline_.program : *command_).arguments) {
            for (const auto& flag : argument.flags) {
                // A letter that has a long form is not offered beside it.
                if (flag.starts_with("--") || argument.flags.back() == flag || current_ == flag)
                    add(flag, argument.text);
            }
        }
    }
    void add_commands() {
        for (const auto& command : outline_.commands) add(command.name, command.text);
    }
    void add_positionals() {
        const auto arguments = command_->positionals();
        size_t at = positionals_.size();
        for (const auto* argument : arguments) {
            const bool last = argument == arguments.back();
            if (argument->values.size() > 1) {  // "SOURCE... NAME": the first ones, then either
                add_values(*argument, 0, "", current_);
                if (at > 0) add_values(*argument, 1, "", current_);
                return;
            }
            if (at == 0 || (last && argument->repeats)) return add_values(*argument, 0, "", current_);
            --at;
        }
    }
    // `before` is a part of the word that precedes the value: "--dir=".
    void add_values(const Argument& argument, size_t which, const std::string& before, const std::string& value) {
        switch (argument.values.empty() ? Values::none : argument.values[which]) {
            case Values::none: break;
            case Values::command: add_commands(); break;
            case Values::object: add_objects(before, value); break;
            case Values::device: add_all(device_candidates(dir_), before); break;
            case Values::attribute:
                if (!positionals_.empty()) add_all(attribute_candidates(dir_, positionals_[0]), before);
                break;
            case Values::user: add_all(user_candidates(), before); break;
            case Values::group: add_all(group_candidates(), before); break;
            case Values::sharer: {
                const size_t comma = value.rfind(',');
                const auto others = before + value.substr(0, comma == value.npos ? 0 : comma + 1);
                add_all(user_candidates(), others);
                add_all(group_candidates(), others + "@");
                break;
            }
            case Values::file: add_paths(false, before); break;
            case Values::folder:
                if (command_ != nullptr && command_->name == "umount" && argument.is_positional())
                    add_all(mount_candidates(dir_));
                else add_paths(true, before);
                break;
        }
    }
    void add_objects(const std::string& before, const std::string& value) {
        for (auto& name : object_candidates(dir_, value)) {
            // Such a name is taken for an option, unless it follows --.
            if (before.empty() && name.starts_with('-') && !only_positionals_) continue;
            add(before + name);
        }
    }
    // By the shell where it can: a part of a word is no path for it.
    void add_paths(bool folders_only, const std::string& before) {
        if (before.empty()) result_.paths = folders_only ? Paths::folders : Paths::files;
        else add_all(path_candidates(std::string_view(current_).substr(before.size()), folders_only), before);
    }

    const std::vector<std::string>& words_;
    const std::string& current_;
    const Outline outline_ = outline();
    const Command* command_ = nullptr;
    bool only_positionals_ = false;
    const Argument* waiting_ = nullptr;  // an option whose value comes next
    std::vector<std::string> positionals_;
    std::string dir_;
    Completion result_;
};

}  // namespace

Completion complete(const std::vector<std::string>& words) {
    return Completer(words).complete();
}

}  // namespace gshm::cli

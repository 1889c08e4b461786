#include <algorithm>
#include <cerrno>
#include <fnmatch.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/support/context.h"
#include "cli/support/lifetime.h"
#include "cli/support/progress.h"
#include "cli/support/text.h"
#include <gshm/tensors.hpp>

namespace gshm::cli {
namespace {

// The tensors that one of the patterns matches.
std::vector<TensorChoice> choose(const std::vector<TensorInfo>& tensors, const std::vector<std::string>& patterns) {
    std::vector<TensorChoice> choices;
    for (const auto& tensor : tensors) {
        const auto matches = [&](const std::string& pattern) {
            return ::fnmatch(pattern.c_str(), tensor.name.c_str(), 0) == 0;
        };
        if (std::ranges::any_of(patterns, matches)) choices.push_back({.name = tensor.name});
    }
    return choices;
}

Record part_record(const ModelPart& part) {
    Record record;
    uint64_t bytes = 0;
    for (const auto& tensor : part.tensors) bytes += tensor.bytes;
    record.add("name", part.name)
        .add("file", part.file)
        .add("device", part.device)
        .add("tensors", uint64_t{part.tensors.size()})
        .add("bytes", bytes)
        .add("read_bytes", part.read_bytes)
        .add("shared", part.shared);
    return record;
}

[[noreturn]] void throw_failure(const Error& error, const LoadArgs& args) {
    switch (error.code) {
        case ENODATA:
        case EBUSY: throw Failure(EIO, error.message, "load it again when it is complete");
        case ENOENT:
            throw Failure(ENOENT, error.message,
                          error.message.ends_with("has no safetensors files")
                              ? "other formats are converted with safetensors.torch.save_file(torch.load(FILE, "
                                "weights_only=True), FILE)"
                              : "");
        case EXDEV:
        case EBADMSG: throw Failure::of_file(error.code, error.message);
        default: throw Failure::of_error(error, args.path);
    }
}

}  // namespace

// Runs with default signal handling: the incomplete objects of a process end with it.
int cmd_load(Context& context, const LoadArgs& args) {
    if (::access(args.path.c_str(), R_OK) != 0) throw Failure::of_errno(args.path);
    LoadOptions options{.path = args.path,
                        .name = without_trailing_slashes(args.name.value_or("")),
                        .device = args.device,
                        .mode = args.mode.value_or(0),
                        .map = false,
                        .existing = false,
                        .ttl = std::chrono::milliseconds(args.lifetime.ttl_ms),
                        .ttl_unused = args.lifetime.ttl_unused,
                        .ephemeral = args.lifetime.ephemeral,
                        .evictable = args.evictable};
    if (args.name && options.name.empty()) throw Failure::usage("the name is empty", "leave it out, or give one");
    if (args.timeout_ms >= 0) options.timeout = std::chrono::milliseconds(args.timeout_ms);
    if (!args.filters.empty()) {
        auto table = Tensors::of_path(args.path);
        if (!table) throw_failure(table.error(), args);
        options.choices = choose(check(table->list(), args.path), args.filters);
        if (options.choices->empty())
            throw Failure(ENOENT, fmt::format("{} has no tensor that matches", printable(args.path)),
                          "patterns are those of the shell: '*.layers.0.*'");
    }
    std::optional<Progress> line;
    options.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
        if (!line) line.emplace(args.path, total_bytes, !context.json());
        line->update(done_bytes);
        return true;
    };
    const auto begin = std::chrono::steady_clock::now();
    const auto model = Model::load(context.client(), options);
    line.reset();
    if (!model) throw_failure(model.error(), args);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::vector<Record> records;
    std::vector<std::string> loaded;
    std::string names;
    uint64_t read_bytes = 0;
    for (const auto& part : model->parts()) {
        records.push_back(part_record(part));
        loaded.push_back(part.name);
        names += part.name + '\n';
        read_bytes += part.read_bytes;
    }
    if (context.json()) {
        Record record;
        record.add("objects", std::move(records)).add("read_bytes", read_bytes).add("seconds", seconds.count());
        context.print(record);
    } else {
        context.print(names);
    }
    if (args.lifetime.ephemeral) hold_until_interrupted(context, loaded);
    return 0;
}

}  // namespace gshm::cli

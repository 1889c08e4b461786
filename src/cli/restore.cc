#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <unistd.h>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/snapshot/format.h"
#include "cli/snapshot/restore_names.h"
#include "cli/snapshot/restore_object.h"
#include "cli/snapshot/tree.h"
#include "cli/support/context.h"
#include "cli/support/job.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

Manifest read_snapshot(const SnapshotFolder& folder) {
    if (auto manifest = take(core::read_manifest(folder.path()))) return std::move(*manifest);
    const bool begun = !take(folder.data_files()).empty();
    throw Failure(ENOENT, fmt::format("{} has no {}snapshot", printable(folder.path()), begun ? "complete " : ""),
                  begun ? "run the interrupted `gshm snapshot` again" : "");
}

// Keeps only the entries at or below the names, and the directories above them. Returns the names without an entry.
std::set<std::string> select(Manifest& manifest, const std::vector<std::string>& given) {
    if (given.empty()) return {};
    std::set<std::string> missing;
    std::vector<std::string> names;
    for (const auto& name : given) names.push_back(without_trailing_slashes(name));
    missing.insert(names.begin(), names.end());
    const auto chosen = [&](const std::string& entry) {
        bool any = false;
        for (const auto& name : names) {
            if (!is_at_or_below(entry, name)) continue;
            missing.erase(name);
            any = true;
        }
        return any;
    };
    for (auto& object : manifest.objects) std::erase_if(object.names, [&](const auto& name) { return !chosen(name); });
    std::erase_if(manifest.objects, [](const auto& object) { return object.names.empty(); });
    for (auto& link : manifest.symlinks) std::erase_if(link.names, [&](const auto& name) { return !chosen(name); });
    std::erase_if(manifest.symlinks, [](const auto& link) { return link.names.empty(); });
    std::erase_if(manifest.left_out, [&](const auto& entry) { return !chosen(entry.name); });
    std::erase_if(manifest.directories, [&](const auto& directory) {
        const bool on_the_way =
            std::ranges::any_of(names, [&](const auto& name) { return is_at_or_below(name, directory.name); });
        return !chosen(directory.name) && !on_the_way;
    });
    return missing;
}

struct Task {
    RestoreObject* object;
    uint64_t chunk;
};

class Restore {
public:
    Restore(Context& context, const RestoreArgs& args, const SnapshotFolder& folder, const Manifest& manifest, Job& job)
        : context_(context),
          args_(args),
          manifest_(manifest),
          job_(job),
          files_(take(ChunkFiles::open(folder, manifest.files))),
          owned_(::geteuid() == 0) {}

    void run() {
        check_devices();
        RestoreNames names(context_.client(), manifest_, {args_.device, owned_, args_.replace}, job_);
        names.make_directories();
        for (const auto& saved : manifest_.objects)
            objects_.push_back(std::make_unique<RestoreObject>(saved, place_of(saved)));
        const unsigned threads = thread_count(args_.threads);
        TaskList<RestoreObject*> unknown(job_);
        for (const auto& object : objects_) unknown.push(object.get());
        job_.run(threads, [&](unsigned) { compare(unknown); });
        TaskList<Task> missing(job_);
        push_tasks(missing, threads);
        job_.run(threads, [&](unsigned) { load(missing); });
        for (const auto& object : objects_)
            if (!object->failed) names.add_names(object->saved().names);
        names.make_symlinks();
        names.finish_directories();
    }

    Record result(const std::string& folder) const {
        uint64_t restored = 0;
        uint64_t there = 0;
        uint64_t bytes = 0;
        std::vector<std::string> failed;
        for (const auto& object : objects_) {
            if (object->failed) {
                failed.push_back(object->saved().name());
            } else if (object->there) {
                ++there;
            } else {
                ++restored;
                bytes += object->saved().size_bytes();
            }
        }
        Record record;
        record.add("dir", folder)
            .add("objects", restored)
            .add("bytes", bytes)
            .add("already_there", there)
            .add("failed", std::move(failed))
            .add("read_chunks", read_chunks_.load())
            .add("seconds", job_.seconds());
        return record;
    }

private:
    // Runs before anything is created.
    void check_devices() {
        devices_ = context_.devices();
        std::string all;
        for (const auto& device : devices_) all += (all.empty() ? "" : ", ") + std::string(device.name);
        const auto check_device = [&](const std::string& device, std::string_view what) {
            if (device.empty() || find_device(device) != nullptr) return;
            throw Failure(ENODEV, fmt::format("{}{}, which gshmd does not have: it has {}", what, device, all),
                          "--device DEVICE puts everything there");
        };
        check_device(args_.device, "there is no device ");
        if (!args_.device.empty()) return;
        for (const auto& object : manifest_.objects)
            check_device(object.device, fmt::format("\"{}\" was on ", printable(object.name())));
        for (const auto& directory : manifest_.directories)
            check_device(directory.device, fmt::format("the directory \"{}\" is for ", printable(directory.name)));
    }

    const DeviceInfo* find_device(const std::string& name) const {
        const auto found = std::ranges::find_if(devices_, [&](const auto& device) { return device.name == name; });
        return found == devices_.end() ? nullptr : &*found;
    }

    RestorePlace place_of(const SavedObject& saved) const {
        RestorePlace place{args_.device.empty() ? saved.device : args_.device,
                           saved.flags & (GSHM_COMPRESSIBLE | GSHM_DEDICATED), owned_, args_.replace};
        if (find_device(place.device)->compressible == 0) place.flags &= ~uint32_t{GSHM_COMPRESSIBLE};
        return place;
    }

    void compare(TaskList<RestoreObject*>& queue) {
        ObjectReader reader(context_.connect());
        while (const auto task = queue.take()) {
            RestoreObject& object = **task;
            attempt(object, [&] {
                object.there = object.is_there(reader);
                if (object.there) job_.advance(object.saved().size_bytes());
            });
            queue.done();
        }
    }

    // Interleaves the chunks of a few objects, since the kernel lets only one thread at a time write to an object's
    // memory. The group is small, since objects that are incomplete when a restore is killed are restored again from
    // the start.
    void push_tasks(TaskList<Task>& queue, unsigned at_once) const {
        std::vector<RestoreObject*> group;
        const auto push_group = [&] {
            for (uint64_t i = 0; !group.empty(); ++i) {
                for (auto* object : group) queue.push({object, i});
                // An empty object also has one task, which creates it.
                std::erase_if(group, [&](auto* object) { return i + 1 >= object->saved().chunks.size(); });
            }
        };
        for (const auto& object : objects_) {
            if (object->there || object->failed) continue;
            group.push_back(object.get());
            if (group.size() == at_once) push_group();
        }
        push_group();
    }

    void load(TaskList<Task>& queue) {
        const Client client = context_.connect();
        ChunkReader reader(files_);
        while (const auto task = queue.take()) {
            RestoreObject& object = *task->object;
            attempt(object, [&] {
                if (object.saved().size_bytes() > 0) load_chunk(*task, client, reader);
            });
            // The last task finishes the object. An empty object has a task, but no chunk.
            if (object.left == 0 || --object.left == 0) {
                attempt(object, [&] { object.finish(client); });
                if (object.failed) object.drop(client);
            }
            queue.done();
        }
    }

    // A failed object is skipped.
    template <typename Body>
    void attempt(RestoreObject& object, Body&& body) {
        if (object.failed) return;
        try {
            body();
        } catch (const Failure& failure) {
            if (!object.failed.exchange(true)) job_.fail(failure);
        }
    }

    void load_chunk(const Task& task, const Client& client, ChunkReader& reader) {
        const SavedObject& saved = task.object->saved();
        const uint64_t offset = task.chunk * kSnapshotChunkBytes;
        const uint32_t raw_bytes = raw_bytes_of(saved.size_bytes(), task.chunk);
        const auto bytes = take(reader.read(saved.chunks[task.chunk], raw_bytes, saved.name(), offset));
        ++read_chunks_;
        task.object->write(client, offset, bytes);
        job_.advance(raw_bytes);
    }

    Context& context_;
    const RestoreArgs& args_;
    const Manifest& manifest_;
    Job& job_;
    ChunkFiles files_;
    bool owned_;
    std::vector<DeviceInfo> devices_;
    std::vector<std::unique_ptr<RestoreObject>> objects_;
    std::atomic<uint64_t> read_chunks_ = 0;
};

// Reads and checks every chunk, and reports all damaged ones.
Record verify(const RestoreArgs& args, const SnapshotFolder& folder, const Manifest& manifest, Job& job) {
    struct Piece {
        const SavedObject* object;
        uint64_t chunk;
    };
    const auto files = take(ChunkFiles::open(folder, manifest.files));
    TaskList<Piece> queue(job);
    uint64_t chunks = 0;
    std::atomic<uint64_t> damaged = 0;
    for (const auto& object : manifest.objects) {
        chunks += object.chunks.size();
        for (uint64_t i = 0; i < object.chunks.size(); ++i) queue.push({&object, i});
    }
    job.run(thread_count(args.threads), [&](unsigned) {
        ChunkReader reader(files);
        while (const auto piece = queue.take()) {
            const auto& [object, chunk] = *piece;
            const uint32_t raw_bytes = raw_bytes_of(object->size_bytes(), chunk);
            const auto bytes =
                reader.read(object->chunks[chunk], raw_bytes, object->name(), chunk * kSnapshotChunkBytes);
            if (!bytes) {
                ++damaged;
                job.fail(Failure::of_file(bytes.error().code, bytes.error().message));
            }
            job.advance(raw_bytes);
            queue.done();
        }
    });
    Record record;
    record.add("dir", folder.path())
        .add("objects", manifest.objects.size())
        .add("bytes", manifest.size_bytes())
        .add("chunks", chunks)
        .add("damaged_chunks", damaged.load())
        .add("left_out", left_out_records(manifest.left_out))
        .add("seconds", job.seconds());
    return record;
}

}  // namespace

int cmd_restore(Context& context, const RestoreArgs& args) {
    const auto folder = open_folder(args.folder, SnapshotFolder::Use::read);
    auto manifest = read_snapshot(folder);
    if (!args.dry_run) context.client();
    const auto missing = select(manifest, args.names);
    Job job(context, args.dry_run ? "checking" : "restore", manifest.size_bytes());
    if (const size_t count = manifest.left_out.size(); count > 0 && !context.json())
        context.warn(
            fmt::format("the snapshot is without {} name{} that could not be saved (--dry-run --json lists them)",
                        count, count == 1 ? "" : "s"));
    for (const auto& name : missing)
        job.fail(Failure(ENOENT, fmt::format("the snapshot has no \"{}\"", printable(name))));
    if (args.dry_run) {
        const auto result = verify(args, folder, manifest, job);
        if (context.json()) context.print(result);
        else if (job.exit_code() == 0)
            context.print(fmt::format("{}: {} objects, {}, all whole\n", printable(folder.path()),
                                      manifest.objects.size(), size_text(manifest.size_bytes())));
        return job.exit_code();
    }
    Restore restore(context, args, folder, manifest, job);
    try {
        restore.run();
    } catch (const Interrupted&) {
        context.warn("interrupted; restored objects are kept, and the same command continues with the rest");
        throw;
    }
    if (context.json()) context.print(restore.result(folder.path()));
    return job.exit_code();
}

}  // namespace gshm::cli

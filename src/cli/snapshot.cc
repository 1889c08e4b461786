#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <set>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/snapshot/format.h"
#include "cli/snapshot/object_io.h"
#include "cli/snapshot/tree.h"
#include "cli/support/context.h"
#include "cli/support/job.h"
#include "cli/support/text.h"

namespace gshm::cli {
namespace {

constexpr int kAttempts = 3;  // for an object that changes while it is read

constexpr const char* kGoOn = "saved chunks are kept; run the same command again to continue";
constexpr const char* kMakeRoom = "saved chunks are kept; make room and run the same command again to continue";

// An object that is being saved.
struct Item {
    SavedObject* saved = nullptr;
    std::atomic<uint64_t> left = 0;     // chunks left in this attempt
    std::atomic<bool> lost = false;     // it cannot be read and is left out
    std::string reason;                 // why it is lost; written once, before its last chunk is done
    std::atomic<bool> shorter = false;  // than at the start of this attempt
    int attempts = 1;
};

struct Task {
    Item* item;
    uint64_t chunk;
};

class Snapshot {
public:
    Snapshot(Context& context, const SnapshotArgs& args, const SnapshotFolder& folder, Manifest manifest,
             const std::optional<Manifest>& earlier, Job& job)
        : context_(context),
          args_(args),
          folder_(folder),
          manifest_(std::move(manifest)),
          job_(job),
          queue_(job),
          files_(take(ChunkFiles::open(folder, take(folder.data_files())))),
          index_(take(ChunkIndex::scan(files_))),
          run_(take(folder.next_run())) {
        if (!earlier) return;
        for (const auto& object : earlier->objects)
            for (const auto& name : object.names) earlier_[name] = object.identity;
    }

    void run() {
        for (auto& object : manifest_.objects) {
            items_.push_back(std::make_unique<Item>());
            items_.back()->saved = &object;
            begin(*items_.back());
        }
        const unsigned threads = thread_count(args_.threads);
        manifest_.files = files_.names();
        for (unsigned i = 0; i < threads; ++i) manifest_.files.push_back(SnapshotFolder::data_file(run_, i));
        job_.run(threads, [this](unsigned thread) { work(thread); });
        commit();
    }

    Record result() const {
        Record record;
        record.add("dir", folder_.path())
            .add("objects", manifest_.objects.size())
            .add("directories", manifest_.directories.size())
            .add("symlinks", manifest_.symlinks.size())
            .add("bytes", manifest_.size_bytes())
            .add("stored_bytes", stored_bytes_)
            .add("written_bytes", written_bytes_.load())
            .add("written_chunks", written_chunks_.load())
            .add("reused_chunks", reused_chunks_.load())
            .add("left_out", left_out_records(manifest_.left_out))
            .add("changing", changing_)
            .add("seconds", job_.seconds());
        return record;
    }

private:
    void begin(Item& item) {
        const uint64_t count = chunk_count(item.saved->size_bytes());
        item.saved->chunks.assign(count, {});
        item.left = count;
        item.shorter = false;
        for (uint64_t i = 0; i < count; ++i) queue_.push({&item, i});
    }

    void work(unsigned thread) {
        ObjectReader reader(context_.connect());
        ChunkReader old(files_);
        const auto file = static_cast<uint32_t>(files_.names().size() + thread);
        ChunkWriter writer(folder_.path_of(manifest_.files[file]), file, args_.level);
        while (auto task = queue_.take()) {
            save(*task, reader, old, writer);
            if (--task->item->left == 0 && !job_.stopping()) finish(*task->item, reader);
            queue_.done();
        }
        // Also after an interruption: complete chunks need not be written again.
        take(writer.finish());
        written_bytes_ += writer.written_bytes();
    }

    void save(const Task& task, ObjectReader& reader, ChunkReader& old, ChunkWriter& writer) {
        Item& item = *task.item;
        if (item.lost) return;
        const SavedObject& object = *item.saved;
        const uint64_t offset = task.chunk * kSnapshotChunkBytes;
        const uint32_t raw_bytes = raw_bytes_of(object.size_bytes(), task.chunk);
        ChunkPlace& ret_place = item.saved->chunks[task.chunk];

        const auto* found = find_old(object, offset);
        if (found != nullptr && found->raw_bytes != raw_bytes) found = nullptr;
        // The bytes of a sealed object never change. Those of an open object are read and compared.
        const bool same = found != nullptr && object.sealed && found->object == object.identity;
        if (same && is_whole(*found, object, offset, old)) return reuse(*found, ret_place, raw_bytes);

        const auto raw = writer.room(raw_bytes);
        if (!read(item, offset, raw, reader)) return;
        const auto checksum = checksum_of(raw);
        if (found != nullptr && !same && found->place.checksum == checksum && is_whole(*found, object, offset, old))
            return reuse(*found, ret_place, raw_bytes);
        ret_place = take(writer.append({Codec::raw, raw_bytes, raw_bytes, chunk_identity(object), offset, checksum}));
        ++written_chunks_;
        job_.advance(raw_bytes);
    }

    // Nothing shows that the bytes of an open object are unchanged: writes to mapped memory change no time, and neither
    // does sealing. So its chunks are never reused for the sealed object.
    static Identity chunk_identity(const SavedObject& object) {
        constexpr int64_t kOpen = INT64_MIN;
        Identity identity = object.identity;
        if (!object.sealed) identity.modified_ns = kOpen;
        return identity;
    }

    // By the object's identity, else by its name: the snapshot may be from another daemon.
    const ChunkIndex::Found* find_old(const SavedObject& object, uint64_t offset) const {
        if (const auto* found = index_.find(object.identity.instance, object.identity.id, offset)) return found;
        const auto earlier = earlier_.find(object.name());
        return earlier == earlier_.end() ? nullptr : index_.find(earlier->second.instance, earlier->second.id, offset);
    }

    static bool is_whole(const ChunkIndex::Found& found, const SavedObject& object, uint64_t offset, ChunkReader& old) {
        // A damaged chunk is written again.
        return old.read(found.place, found.raw_bytes, object.name(), offset).has_value();
    }

    void reuse(const ChunkIndex::Found& found, ChunkPlace& ret_place, uint32_t raw_bytes) {
        ret_place = found.place;
        ++reused_chunks_;
        job_.advance(raw_bytes);
    }

    bool read(Item& item, uint64_t offset, std::span<std::byte> ret_bytes, ObjectReader& reader) {
        try {
            reader.open(item.saved->identity.id, item.saved->name());
            if (reader.read(offset, ret_bytes)) return true;
            reader.close();
            item.shorter = true;
            std::ranges::fill(ret_bytes, std::byte{0});
            return true;
        } catch (const Failure& failure) {
            lose(item, failure);
            return false;
        }
    }

    void lose(Item& item, const Failure& failure) {
        if (item.lost.exchange(true)) return;
        if (failure.code() == ENOENT) {
            item.reason = "it was removed meanwhile";
            job_.warn(fmt::format("{} was removed meanwhile, and is left out", printable(item.saved->name())));
        } else {
            item.reason = failure.what();
            job_.fail(failure);
        }
    }

    // Called when all chunks are saved. If the object has changed meanwhile, its chunks are inconsistent and are saved
    // again.
    void finish(Item& item, ObjectReader& reader) {
        SavedObject& object = *item.saved;
        if (item.lost || object.sealed) return;
        try {
            reader.close();
            const auto now = reader.stat(object.identity.id, object.name());
            const Identity identity{object.identity.instance, now.id, now.size_bytes, now.modified_ns};
            const bool sealed = now.state == GSHM_STATE_SEALED;
            if (identity == object.identity && sealed == object.sealed && !item.shorter) return;
            if (item.attempts++ < kAttempts) {
                object.identity = identity;
                object.sealed = sealed;
                return begin(item);
            }
            object.changing = true;
            job_.warn(fmt::format("{} changes all the time: its copy may be a mixture", printable(object.name())));
        } catch (const Failure& failure) {
            lose(item, failure);
        }
    }

    void commit() {
        std::vector<SavedObject> kept;
        std::set<uint32_t> used;
        for (auto& item : items_) {
            if (item->lost) {
                for (const auto& name : item->saved->names) manifest_.left_out.push_back({name, item->reason});
                continue;
            }
            if (item->saved->changing) changing_.push_back(item->saved->name());
            for (const auto& chunk : item->saved->chunks) {
                used.insert(chunk.file);
                stored_bytes_ += chunk.stored_bytes;
            }
            kept.push_back(std::move(*item->saved));
        }
        manifest_.objects = std::move(kept);
        keep_files(used);
        manifest_.created_ns =
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
                .count();
        take(core::sync_folder(folder_.path()));
        take(core::write_manifest(folder_.path(), manifest_));
        for (const auto& file : take(folder_.data_files()))
            if (std::ranges::find(manifest_.files, file) == manifest_.files.end()) take(folder_.remove(file));
    }

    // Keeps only the files that a chunk refers to, and renumbers them in the chunks.
    void keep_files(const std::set<uint32_t>& used) {
        std::map<uint32_t, uint32_t> numbers;
        std::vector<std::string> names;
        for (const uint32_t file : used) {
            numbers[file] = static_cast<uint32_t>(names.size());
            names.push_back(manifest_.files[file]);
        }
        for (auto& object : manifest_.objects)
            for (auto& chunk : object.chunks) chunk.file = numbers[chunk.file];
        manifest_.files = std::move(names);
    }

    Context& context_;
    const SnapshotArgs& args_;
    const SnapshotFolder& folder_;
    Manifest manifest_;
    Job& job_;
    TaskList<Task> queue_;
    ChunkFiles files_;  // of earlier runs
    ChunkIndex index_;
    unsigned run_;
    std::map<std::string, Identity> earlier_;
    std::vector<std::unique_ptr<Item>> items_;
    std::atomic<uint64_t> written_bytes_ = 0;
    std::atomic<uint64_t> written_chunks_ = 0;
    std::atomic<uint64_t> reused_chunks_ = 0;
    uint64_t stored_bytes_ = 0;
    std::vector<std::string> changing_;
};

std::optional<Manifest> read_earlier(Context& context, const SnapshotFolder& folder, bool update) {
    try {
        auto earlier = take(core::read_manifest(folder.path()));
        if (earlier && !update)
            throw Failure(EEXIST,
                          fmt::format("{} has a snapshot already, of {}", printable(folder.path()),
                                      time_text(earlier->created_ns).substr(0, 19)),
                          "choose another folder, or bring it up to date with --update");
        return earlier;
    } catch (const Failure& failure) {
        if (failure.code() != EIO) throw;
        if (!update) throw Failure(EIO, failure.what(), "--update writes a new one with the current objects of gshmd");
        context.warn(fmt::format("{}; a new one is written", failure.what()));
        return std::nullopt;
    }
}

}  // namespace

int cmd_snapshot(Context& context, const SnapshotArgs& args) {
    context.client();
    const auto folder = open_folder(args.folder, SnapshotFolder::Use::write);
    const auto earlier = read_earlier(context, folder, args.update);
    int exit_code = 0;
    const auto remember = [&](ExitCode code) {
        if (exit_code == 0) exit_code = static_cast<int>(code);
    };
    auto manifest =
        gather_tree(context, args.names,
                    {[&](const Failure& failure) {
                         context.report(failure);
                         remember(failure.exit_code());
                     },
                     [&](const LeftOut& left_out) {
                         context.warn(fmt::format("left out: {}: {}", printable(left_out.name), left_out.reason));
                         remember(ExitCode::incomplete);
                     },
                     [&](const std::string& message) { context.warn(message); }});
    if (!args.names.empty() && !manifest.left_out.empty() && manifest.objects.empty() && manifest.symlinks.empty())
        return exit_code;

    Job job(context, "snapshot", manifest.size_bytes());
    Snapshot snapshot(context, args, folder, std::move(manifest), earlier, job);
    try {
        snapshot.run();
    } catch (const Failure& failure) {
        const auto* hint = failure.exit_code() == ExitCode::no_space ? kMakeRoom : kGoOn;
        throw Failure(failure.code(), failure.exit_code(), failure.what(),
                      failure.hint().empty() ? hint : failure.hint() + "; " + hint);
    } catch (const Interrupted&) {
        context.warn(std::string("interrupted; ") + kGoOn);
        throw;
    }
    if (context.json()) context.print(snapshot.result());
    return exit_code != 0 ? exit_code : job.exit_code();
}

}  // namespace gshm::cli

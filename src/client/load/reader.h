// Reads ranges of files into objects, through one ring: many ranges are under way at the same time, also of several
// objects.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/load/gather.h"
#include "client/load/plan.h"
#include "client/ring/ring.h"

namespace gshm::core::client {

class Reader {
public:
    static Result<Reader> create(const std::shared_ptr<Core>& core);
    Reader(Reader&&) = default;
    Reader& operator=(Reader&&) = default;
    ~Reader();

    // `key` identifies the object in step(). Object and file stay open until then. The runs stay valid.
    Status add(size_t key, gshm_object& object, const SourceFile& file, const std::vector<Run>& runs);
    // The number of objects of which ranges are still to begin.
    size_t waiting() const { return tasks_.size(); }
    bool is_idle() const { return tasks_.empty() && under_way_ == 0 && complete_.empty(); }
    uint64_t done_bytes() const { return done_bytes_; }

    // Waits for completions, up to a tenth of a second, and returns the keys of complete objects. ENODATA: a file is too
    // short.
    Result<std::vector<size_t>> step();
    // Begins nothing more, and waits for ranges under way; not for long if a file does not respond.
    void stop();

private:
    struct Task {
        size_t key = 0;
        gshm_object* object = nullptr;
        const SourceFile* file = nullptr;
        uint32_t ring_file = 0;
        const std::vector<Run>* runs = nullptr;
        size_t run = 0;
        uint64_t row = 0;         // in the run
        uint64_t row_offset = 0;  // in the range
        size_t under_way = 0;
        bool is_begun = false;  // all its ranges are
    };
    struct Slot {
        Task* task = nullptr;
        uint64_t bytes = 0;
        std::optional<uint32_t> buffer;  // of gathered ranges
    };
    enum class Begun { some, all, none };

    Reader() = default;
    Status fill();
    // none: no buffer is free.
    Result<Begun> begin_next(Task& task);
    Result<Begun> begin_gathered(Task& task);
    Status prepare(Task& task, uint32_t file, uint64_t file_offset, const gshm_range& range,
                   std::optional<uint32_t> buffer);
    static Begun advance(Task& task, uint64_t rows);
    Error failure(const Task& task, int code) const;
    void end_if_complete(Task& task);

    std::unique_ptr<Ring> ring_;
    std::vector<std::unique_ptr<Task>> all_;
    std::deque<Task*> tasks_;  // with ranges to begin
    std::vector<Slot> slots_;
    std::vector<uint32_t> free_slots_;
    std::vector<size_t> complete_;
    std::optional<GatherBuffers> gather_;
    uint32_t gather_file_ = 0;  // in the ring
    size_t under_way_ = 0;
    uint64_t under_way_bytes_ = 0;
    uint64_t done_bytes_ = 0;
    bool is_stopped_ = false;
};

}  // namespace gshm::core::client

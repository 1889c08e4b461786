// One object that `gshm put` makes. Until finish() nobody else has it: it goes with the session if that ends before,
// however that comes about.
#pragma once

#include <cstdint>

#include "cli/copy/copies.h"
#include "cli/copy/put_plan.h"

namespace gshm::cli {

class PutObject {
public:
    // Throws a Failure, as all here.
    PutObject(gshm_client* client, const PutItem& item, uint64_t size_bytes, bool replace);

    gshm_object* get() const { return object_.get(); }
    // Sealed and, in place of what has the name if that is asked for, under its name. The way it came is noted with it.
    void finish(uint32_t path);

private:
    gshm_client* client_;
    const PutItem& item_;
    bool replace_;
    Object object_;
};

// A file becomes an object.
Copied put_file(gshm_client* client, const PutItem& item, bool replace, CopyWatch& watch);

// What comes from standard input or a pipe does. An object has its size from the beginning, a pipe tells its at the
// end: so it is read to the end first, into memory if it is small and into a file without a name if not; memory stays
// bounded, and nothing is left behind even by SIGKILL. With size_bytes the bytes go straight into the object.
Copied put_stream(gshm_client* client, const PutItem& item, bool replace, std::optional<uint64_t> size_bytes,
                  CopyWatch& watch);

}  // namespace gshm::cli

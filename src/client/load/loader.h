// gshm_load(): finds the objects that have a part's tensors, or makes them. docs/adr/0023 has the reasons.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "client/files/transfer.h"
#include "client/load/plan.h"
#include "client/load/reader.h"
#include "client/load/tables.h"
#include "client/load/trees.h"

struct gshm_model {
    struct Part {
        gshm::core::client::ObjectHandle object;
        std::unique_ptr<gshm_tensors> tensors;
        std::string name;
        std::string file;
        std::string device;
        bool is_shared = false;
        uint64_t read_bytes = 0;
    };
    std::vector<Part> parts;
};

namespace gshm::core::client {

class Loader {
public:
    Loader(gshm_client* client, const gshm_load_spec& spec, Source source, std::vector<Part> parts);
    ~Loader();  // removes the incomplete objects of a failed load
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    Result<std::unique_ptr<gshm_model>> run();

private:
    using Clock = std::chrono::steady_clock;
    // A place where the part's object may be. The caller's own tree is the first; an explicit name has two places, with the
    // device and without.
    struct Place {
        std::string name;
        std::string claim;
    };
    struct Work {
        std::vector<Place> places;
        size_t own = 0;            // the place to load to
        ObjectHandle claimed;      // while it is loaded
        bool is_replaced = false;  // the name leads to another version
        std::string awaited;       // the claim of another process
    };
    enum class Found {
        nothing,
        same,       // the object that is wanted
        another,    // another version, or an object that is not trusted
        elsewhere,  // the same file on another device
        foreign,    // an object that is no loaded file: never replaced
    };

    std::vector<uid_t> trusted(const SourceFile& file) const;
    bool is_trusted(const SourceFile& file, uid_t uid) const;
    std::string facts_of(const Part& part) const;
    Status set_places();

    Result<Found> look(size_t index, const Place& place);
    // Opens an object that is there already; claims the name otherwise. False: another process loads it.
    Result<bool> acquire(size_t index);
    // Looks at all places, and chooses that to load to. True: one has the wanted object, which is open.
    Result<bool> look_at_all(size_t index);
    Result<bool> find(size_t index);
    // False: the name exists.
    Result<bool> claim(size_t index);
    Result<ObjectHandle> create_claim(size_t index);
    Status make_tree();
    void drop_claim(Work& work);
    Status load(size_t index);
    // Gives the complete object its name, and opens it for reading.
    Status finish(size_t index);
    // False: another process has loaded the same meanwhile, and its object is open.
    Result<bool> publish(size_t index);
    Status await(const std::string& claim);
    // Reports progress. ECANCELED, ETIMEDOUT.
    Status tick();

    gshm_client* client_;
    const gshm_load_spec spec_;
    const Source source_;
    const std::vector<Part> parts_;
    const std::string nonce_;
    const Clock::time_point deadline_;
    Trees trees_;
    std::vector<Work> work_;
    std::unique_ptr<gshm_model> model_;
    std::deque<size_t> pending_;
    std::deque<size_t> elsewhere_;  // loaded by other processes
    std::optional<Reader> reader_;
    uint64_t total_bytes_ = 0;
    uint64_t shared_bytes_ = 0;
    bool has_tree_ = false;      // there is a tree of the caller
    bool is_tree_made_ = false;  // by this load, unless it was there
    bool has_several_devices_ = false;
};

}  // namespace gshm::core::client

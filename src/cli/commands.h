// The commands. Each has a file and a function, which returns the exit code or throws a Failure. options.cc fills the
// arguments. Names and paths are exactly as the user typed them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gshm::cli {

class Context;

// Of new objects.
struct LifetimeArgs {
    uint64_t ttl_ms = 0;  // 0: none
    bool ttl_unused = false;
    bool ephemeral = false;  // the command goes on until it is interrupted
};

struct CreateArgs {
    std::string name;
    uint64_t size_bytes = 0;
    std::string device;  // empty: the daemon's first device
    uint32_t mode = 0;   // 0: the daemon's default
    std::optional<uint8_t> fill;
    bool compressible = false;
    bool dedicated = false;
    LifetimeArgs lifetime;
    bool evictable = false;
};

struct LsArgs {
    std::string path;
    bool details = false;
    bool recursive = false;
    bool exact_bytes = false;
};

struct MountArgs {
    std::optional<std::string> path;  // none: list the mounts
    bool read_only = false;
    std::string subdirectory;
    std::string source;
};

struct UmountArgs {
    std::optional<std::string> path;  // none: the only one
    bool all = false;
    bool lazy = false;
};

// An account with limits.
struct AccountArgs {
    std::optional<std::string> user;
    std::optional<std::string> group;
    std::optional<std::string> directory;
    std::string device;  // empty: all devices together; in lists all of them
    bool exact_bytes = false;
};

struct LimitArgs {
    AccountArgs account;
    std::optional<uint64_t> bytes;
    std::optional<uint64_t> soft_bytes;
    std::optional<uint64_t> objects;
    std::optional<uint64_t> soft_objects;
    std::optional<uint64_t> grace_s;
    std::optional<std::string> reserve;
};

struct MkdirArgs {
    std::vector<std::string> names;
    uint32_t mode = 0;  // 0: the default
};

struct QuotaArgs {
    AccountArgs account;
    bool all = false;
};

struct ShutdownArgs {
    bool keep = false;
};

struct StatArgs {
    std::vector<std::string> names;
    bool all = false;  // tensors, however many
};

struct TtlArgs {
    std::string name;
    std::optional<uint64_t> ttl_ms;  // 0: none; without a value it is shown
    bool unused = false;
};

struct NamesArgs {  // seal, unload, pin, unpin, promote, demote
    std::vector<std::string> names;
};

struct HoldersArgs {
    std::optional<std::string> name;  // none: all unlinked objects that are still held
    bool exact_bytes = false;
};

struct WriteArgs {
    std::string name;
    uint64_t offset = 0;
};

struct CatArgs {
    std::string name;
    uint64_t offset = 0;
    std::optional<uint64_t> length;
};

struct PutArgs {
    std::vector<std::string> sources_and_name;  // the last one is the object's name
    std::string device;
    std::optional<uint32_t> mode;
    std::optional<uint64_t> size_bytes;  // expected size of standard input or a pipe
    bool replace = false;
    bool recursive = false;
    bool verify = false;
    LifetimeArgs lifetime;
    bool evictable = false;
};

struct GetArgs {
    std::vector<std::string> names_and_file;  // the last one is the file
    bool recursive = false;
    bool verify = false;
};

struct LoadArgs {
    std::string path;                 // file or folder
    std::optional<std::string> name;  // none: made from the path
    std::string device;
    std::vector<std::string> filters;  // patterns of tensors' names
    std::optional<uint32_t> mode;
    int timeout_ms = -1;  // -1: no timeout
    LifetimeArgs lifetime;
    bool evictable = false;
};

struct SnapshotArgs {
    std::string folder;
    std::vector<std::string> names;  // none: everything
    unsigned threads = 0;            // 0: chosen by the number of processors
    int level = 1;                   // of zstd; 0: no compression
    bool update = false;
};

struct RestoreArgs {
    std::string folder;
    std::vector<std::string> names;  // none: everything
    unsigned threads = 0;
    std::string device;  // empty: the device that each object was on
    bool replace = false;
    bool dry_run = false;
};

struct MvArgs {
    std::string from;
    std::optional<std::string> to;
    std::string device;
    bool keep_holders = false;
    bool no_replace = false;
};

struct ShareArgs {  // share, unshare
    std::vector<std::string> names;
    std::vector<std::string> with;  // users and groups as typed; none: show, or with everybody
    bool write = false;
    bool recursive = false;
    bool parents = false;
};

struct RmArgs {
    std::vector<std::string> names;
    bool recursive = false;
    bool force = false;
};

struct WaitArgs {
    std::string name;
    bool sealed = false;
    bool gone = false;
    int timeout_ms = -1;  // -1: no timeout
};

struct WatchArgs {
    std::string prefix;
    bool existing = false;
    bool exact_bytes = false;
    unsigned count = 0;   // 0: no limit
    int timeout_ms = -1;  // -1: no timeout
};

struct AttrArgs {
    std::string name;
    std::optional<std::string> key;
    std::optional<std::string> value;
    bool remove = false;
    bool hex = false;
};

struct MetricsArgs {
    bool openmetrics = false;
    std::string output;  // a file; empty: standard output
};

struct DfArgs {  // df, devices
    bool exact_bytes = false;
};

int cmd_ping(Context& context);
int cmd_doctor(Context& context);
int cmd_limit(Context& context, const LimitArgs& args);
int cmd_mkdir(Context& context, const MkdirArgs& args);
int cmd_quota(Context& context, const QuotaArgs& args);
int cmd_reload(Context& context);
int cmd_metrics(Context& context, const MetricsArgs& args);
int cmd_devices(Context& context, const DfArgs& args);
int cmd_tiers(Context& context, const DfArgs& args);
int cmd_promote(Context& context, const NamesArgs& args);
int cmd_demote(Context& context, const NamesArgs& args);
int cmd_create(Context& context, const CreateArgs& args);
int cmd_ls(Context& context, const LsArgs& args);
int cmd_stat(Context& context, const StatArgs& args);
int cmd_write(Context& context, const WriteArgs& args);
int cmd_cat(Context& context, const CatArgs& args);
int cmd_put(Context& context, const PutArgs& args);
int cmd_get(Context& context, const GetArgs& args);
int cmd_load(Context& context, const LoadArgs& args);
int cmd_unload(Context& context, const NamesArgs& args);
int cmd_snapshot(Context& context, const SnapshotArgs& args);
int cmd_restore(Context& context, const RestoreArgs& args);
int cmd_pin(Context& context, const NamesArgs& args);
int cmd_unpin(Context& context, const NamesArgs& args);
int cmd_ttl(Context& context, const TtlArgs& args);
int cmd_seal(Context& context, const NamesArgs& args);
int cmd_mv(Context& context, const MvArgs& args);
int cmd_rm(Context& context, const RmArgs& args);
int cmd_holders(Context& context, const HoldersArgs& args);
int cmd_df(Context& context, const DfArgs& args);
int cmd_share(Context& context, const ShareArgs& args);
int cmd_unshare(Context& context, const ShareArgs& args);
int cmd_wait(Context& context, const WaitArgs& args);
int cmd_watch(Context& context, const WatchArgs& args);
int cmd_attr(Context& context, const AttrArgs& args);
int cmd_shutdown(Context& context, const ShutdownArgs& args);
int cmd_mount(Context& context, const MountArgs& args);
int cmd_umount(Context& context, const UmountArgs& args);

}  // namespace gshm::cli

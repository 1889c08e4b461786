/* gshm: /dev/shm for GPU memory. The C interface; gshm.hpp wraps it for C++.
 * Why this file is long: it is the complete interface, with the contract of every call.
 *
 * Conventions
 *  1. Functions that can fail return 0 or a negative errno. gshm_last_error() then returns a sentence for people. It
 *     belongs to the calling thread and is valid until the next failing call of that thread.
 *  2. Output parameters are named ret_... and are not written on failure.
 *  3. Strings are UTF-8 and end in NUL. A name is a relative path such as "models/llama/w0": components of 1 to 255
 *     bytes, no "." or "..", at most 4095 bytes in all. A bad name gives -EINVAL, -ENAMETOOLONG or, if it is not UTF-8,
 *     -EILSEQ. Missing directories are made when an object is created and removed with the last object in them.
 *  4. Structs that may grow begin with struct_size. Initialise them with their ..._INIT macro, or with zeros and
 *     struct_size = sizeof (fields are then zero, not their defaults). They grow at their end, so programs and
 *     libraries of different versions work together:
 *       input: fields that an older, smaller struct does not have get the value of the ..._INIT macro. A larger struct
 *       is accepted if the fields that this library does not know are zero, otherwise -E2BIG.
 *       output: only the bytes of the caller's struct are written. Fields that this library does not know become zero.
 *       A struct smaller than its first version gives -EINVAL, one above 4096 bytes -E2BIG. In arrays the size in the
 *       first element applies to all.
 *     Structs without struct_size never change: gshm_attribute, gshm_range, gshm_completion, gshm_acl_entry.
 *  5. Flags: every call has an enum of the flags that it knows. Any other bit gives -EINVAL. Unknown values of other
 *     enumerations give -EINVAL too. Fields named `reserved` are 0. Values that the library reports may become more: ignore those that are not known.
 *  6. Ownership, unless stated otherwise: a handle returned through ret_... belongs to the caller until it is passed to
 *     its close, free, destroy or disconnect function. Strings, structs, buffers and descriptors passed to a call stay
 *     with the caller and are not used after the call returns. A pointer that a function such as gshm_data() returns
 *     belongs to the handle and is valid as long as the handle.
 *  7. Threads, unless stated otherwise: every function may be called from any thread. Several threads may use one
 *     client, pool, listing or attribute list at the same time. Other handles (object, mirror, fence, ring, watch) are
 *     used by one thread at a time. A handle is ended when no other call uses it. Objects may outlive their client. No
 *     function may be called in a signal handler, and no thread may be cancelled inside of one.
 *  8. No function throws a C++ exception, and callbacks must not throw any. A lack of memory is -ENOMEM.
 *  9. When gshmd dies, mapped memory stays valid. Calls wait for the next gshmd (up to timeout_ms of the connection).
 *     It restores the state, so handles stay valid. A request that must not run twice (create, rename, unlink, ...) and
 *     was in progress gives -ECONNRESET: it may have taken effect. Handles of a daemon that has freed everything give
 *     -ESTALE.
 * 10. After fork() the child must connect again. Every call with an inherited client or object gives -ECHILD there;
 *     closing the handle frees the copy of the child only.
 * 11. CUDA is started (the device's primary context is retained) only by calls that return a device pointer: create,
 *     open, allocate and import without GSHM_NO_MAP on a cuda device. Copies with handles opened with GSHM_NO_MAP go
 *     through the daemon.
 *
 * Rights. Every object has an owner, a group and mode bits, and so have the directories above it. The daemon checks
 * each call against the credentials that the kernel reports for the caller. On `host` a read-only open yields memory
 * that cannot be written. CUDA has no read-only sharing: on cuda devices a process that may open an object can also
 * write to it by bypassing this library. */
#ifndef GSHM_GSHM_H
#define GSHM_GSHM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* After every declaration: C++ programs know that the library throws nothing. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define GSHM_NOEXCEPT noexcept
#elif defined(__cplusplus)
#define GSHM_NOEXCEPT throw()
#else
#define GSHM_NOEXCEPT
#endif

typedef struct gshm_client gshm_client; /* a connection to gshmd; reconnects by itself */
typedef struct gshm_object gshm_object; /* an open object (a lease), or memory allocated or imported without a daemon */
typedef struct gshm_listing gshm_listing;               /* the result of a list call */
typedef struct gshm_attribute_list gshm_attribute_list; /* the result of gshm_get_attributes() */
typedef struct gshm_limit_list gshm_limit_list;         /* the result of gshm_limits() */
typedef struct gshm_mirror gshm_mirror;                 /* a copy of an object's bytes for the CPU */
typedef struct gshm_fence gshm_fence;                   /* tells readers when an object's bytes are complete */
typedef struct gshm_watch gshm_watch;                   /* events for changes of names */
typedef struct gshm_pool gshm_pool;                     /* allocations of any size, cut from objects */
typedef struct gshm_tensors gshm_tensors;               /* a table of tensors: names, types, shapes, places */
typedef struct gshm_model gshm_model;                   /* the result of gshm_load() */

/* "major.minor.patch" of the library. */
const char* gshm_version(void) GSHM_NOEXCEPT;
/* The message of this thread's last failing call; "" if none failed. Never NULL. */
const char* gshm_last_error(void) GSHM_NOEXCEPT;

enum gshm_log_level { GSHM_LOG_DEBUG = 1, GSHM_LOG_INFO = 2, GSHM_LOG_WARNING = 3, GSHM_LOG_ERROR = 4 };
/* The message is one line without a newline, valid during the call. Any thread may call the function, also one of the
 * library, but only one at a time. It must not call functions of the library. */
typedef void (*gshm_log_function)(void* context, int level, const char* message);
/* Hands the messages of this level and above to the function, instead of stderr. They tell what no call can return:
 * changes of a mirror that are lost, a failed gshm_malloc(), memory that cannot be pinned. NULL: to stderr again. It is
 * one setting for the process, GSHM_LOG_INFO to stderr at first. The former function is not called any more when this
 * one returns. -EINVAL: no such level. Since 0.2. */
int gshm_set_log(gshm_log_function function, void* context, int level) GSHM_NOEXCEPT;

/* ---- Flags, an enum for each call ------------------------------------------------------------------------------- */

/* The names of 0.1 for the flags of several calls. The enums below say which call knows which. */
enum {
    GSHM_KEEP = 1u << 0,
    GSHM_COMPRESSIBLE = 1u << 1,
    GSHM_DEDICATED = 1u << 2,
    GSHM_REPLACE = 1u << 3,
    GSHM_UNNAMED = 1u << 4,
    GSHM_OWNER = 1u << 5,
    GSHM_EMPTY = 1u << 6,
    GSHM_NO_MAP = 1u << 8,
    GSHM_WRITE = 1u << 9,
    GSHM_SEALED_ONLY = 1u << 10,
    GSHM_RECURSIVE = 1u << 11,
    GSHM_LAZY = 1u << 12,
    GSHM_FORMER = 1u << 13,
    GSHM_EVICTABLE = 1u << 15,  /* since 0.2 */
    GSHM_ANY_DEVICE = 1u << 17, /* since 0.2 */
};
enum gshm_create_flags {
    GSHM_CREATE_KEEP = GSHM_KEEP,                 /* outlives this session although it is not sealed */
    GSHM_CREATE_COMPRESSIBLE = GSHM_COMPRESSIBLE, /* compressible memory; -EOPNOTSUPP if the device has none */
    GSHM_CREATE_DEDICATED = GSHM_DEDICATED, /* an extent of its own even if small: no other object shares its memory */
    GSHM_CREATE_UNNAMED = GSHM_UNNAMED,     /* no name until gshm_publish() or gshm_replace() gives it one; see there */
    GSHM_CREATE_OWNER = GSHM_OWNER,   /* owner and group are the spec's uid and gid; -EPERM unless the caller is root */
    GSHM_CREATE_EMPTY = GSHM_EMPTY,   /* size_bytes is 0: an object without memory, like an empty file of the mount */
    GSHM_CREATE_NO_MAP = GSHM_NO_MAP, /* returns no pointer: gshm_data() is NULL, copies go through the daemon */
    GSHM_CREATE_EVICTABLE = GSHM_EVICTABLE, /* leaves a full device for a tier while nothing uses it; docs/tiers.md */
    /* ends with this session even if it is sealed; not with GSHM_CREATE_KEEP. Since 0.2 */
    GSHM_CREATE_EPHEMERAL = 1u << 18,
    GSHM_CREATE_TTL_UNUSED = 1u << 19, /* ttl_ms counts from the last use, see gshm_set_ttl(). Since 0.2 */
};
enum gshm_open_flags {
    GSHM_OPEN_NO_MAP = GSHM_NO_MAP, /* as above */
    /* for writing too; -EPERM if sealed. -EBUSY if it shares its extent with sealed objects and another process holds
     * it; GSHM_OPEN_NO_MAP then works, and objects made with GSHM_CREATE_DEDICATED are not affected */
    GSHM_OPEN_WRITE = GSHM_WRITE,
    GSHM_OPEN_SEALED_ONLY = GSHM_SEALED_ONLY, /* -EBUSY unless sealed */
    /* an object that a tier has may be opened where it is; else it first returns to its device. See gshm_device() */
    GSHM_OPEN_ANY_DEVICE = GSHM_ANY_DEVICE,
};
enum gshm_rename_flags { GSHM_RENAME_REPLACE = GSHM_REPLACE };   /* replaces an existing object */
enum gshm_publish_flags { GSHM_PUBLISH_REPLACE = GSHM_REPLACE }; /* likewise */
enum gshm_list_flags { GSHM_LIST_RECURSIVE = GSHM_RECURSIVE };   /* all objects below the directory */
enum gshm_shutdown_flags { GSHM_SHUTDOWN_KEEP = GSHM_KEEP };     /* everything stays for the next gshmd */
enum gshm_unmount_flags { GSHM_UNMOUNT_LAZY = GSHM_LAZY };       /* also while files are open */
enum gshm_make_flags {
    GSHM_MAKE_KEEP = GSHM_KEEP,   /* the directory stays when empty */
    GSHM_MAKE_OWNER = GSHM_OWNER, /* as GSHM_CREATE_OWNER */
};
/* in the spec of gshm_put_file() and gshm_put_fd() */
enum gshm_put_flags {
    GSHM_PUT_KEEP = GSHM_KEEP, /* these as GSHM_CREATE_... */
    GSHM_PUT_COMPRESSIBLE = GSHM_COMPRESSIBLE,
    GSHM_PUT_DEDICATED = GSHM_DEDICATED,
    GSHM_PUT_OWNER = GSHM_OWNER,
    GSHM_PUT_REPLACE = GSHM_REPLACE, /* replaces an existing object */
    GSHM_PUT_EVICTABLE = GSHM_EVICTABLE,
    GSHM_PUT_EPHEMERAL = GSHM_CREATE_EPHEMERAL,
    GSHM_PUT_TTL_UNUSED = GSHM_CREATE_TTL_UNUSED,
};
enum gshm_fence_flags { GSHM_FENCE_WRITE = GSHM_WRITE };                     /* to publish */
enum gshm_allocate_flags { GSHM_ALLOCATE_COMPRESSIBLE = GSHM_COMPRESSIBLE }; /* compressible memory */
enum gshm_import_flags { GSHM_IMPORT_WRITE = GSHM_WRITE };                   /* for writing too */
/* only reported */
enum gshm_stat_flags {
    GSHM_STAT_KEEP = GSHM_KEEP, /* of a directory: it stays when empty */
    GSHM_STAT_COMPRESSIBLE = GSHM_COMPRESSIBLE,
    GSHM_STAT_DEDICATED = GSHM_DEDICATED,
    GSHM_STAT_FORMER = GSHM_FORMER, /* by gshm_list_unlinked() */
    GSHM_STAT_EVICTABLE = GSHM_EVICTABLE,
    GSHM_STAT_EPHEMERAL = GSHM_CREATE_EPHEMERAL,
    GSHM_STAT_TTL_UNUSED = GSHM_CREATE_TTL_UNUSED,
    GSHM_STAT_PINNED = 1u << 20, /* see gshm_pin() */
    GSHM_STAT_ACL = 1u << 24,    /* it has an ACL: see gshm_acl_get() */
    GSHM_STAT_DEFAULT_ACL = 1u << 25,
};

/* ---- Connection ------------------------------------------------------------------------------------------------ */

typedef struct gshm_connect_options {
    uint32_t struct_size;
    int32_t timeout_ms; /* limit for connecting and reconnecting; 0: one attempt */
    const char* dir;    /* runtime folder; NULL: $GSHM_DIR, else /run/gshm for root, else $XDG_RUNTIME_DIR/gshm */
} gshm_connect_options;
#define GSHM_CONNECT_OPTIONS_INIT {sizeof(gshm_connect_options), 2000, NULL}

/* The daemon's socket in its runtime folder. */
#define GSHM_SOCKET_NAME "gshm.sock"
/* Its socket for metrics there, which speaks HTTP (docs/metrics.md). */
#define GSHM_METRICS_SOCKET_NAME "metrics.sock"

/* options may be NULL. -ECONNREFUSED: no daemon runs there. -EPROTO: the daemon speaks another protocol. -ETIMEDOUT: it
 * does not answer. */
int gshm_connect(const gshm_connect_options* options, gshm_client** ret_client) GSHM_NOEXCEPT;
/* Writes the default runtime folder of gshm_connect(), with a terminating NUL. -ENOENT: none of the variables is set.
 * -ERANGE: capacity is too small. */
int gshm_runtime_dir(char* ret_dir, size_t capacity) GSHM_NOEXCEPT;
/* Finds the daemon whose mount contains the path (a file or a folder). Writes its runtime folder, for the `dir` of the
 * options, with a terminating NUL. -EINVAL: the path is in no such mount. -ERANGE: capacity is too small. */
int gshm_find_daemon(const char* path, char* ret_dir, size_t capacity) GSHM_NOEXCEPT;
/* Ends the session: its leases end, and unsealed objects created without GSHM_KEEP are reclaimed. NULL is ignored. */
void gshm_disconnect(gshm_client* client) GSHM_NOEXCEPT;

/* Writes the runtime folder that the client uses, as it was given to gshm_connect() or found by it, with a terminating
 * NUL. -ERANGE: capacity is too small. Since 0.2. */
int gshm_client_dir(gshm_client* client, char* ret_dir, size_t capacity) GSHM_NOEXCEPT;

int gshm_ping(gshm_client* client) GSHM_NOEXCEPT;

typedef struct gshm_daemon_info {
    uint32_t struct_size;
    uint32_t protocol; /* protocol version in use */
    int32_t pid;
    uint32_t sessions;
    uint64_t instance; /* identifies the set of objects; another instance has other objects */
    uint64_t objects;
    uint64_t extents;
    char version[32];
    char mountpoint[256]; /* where objects are visible as files; "": no mount */
    int32_t keeper;       /* pid of the keeper, which holds the memory if the daemon dies; 0: none, or systemd */
    uint32_t reserved;
} gshm_daemon_info;
#define GSHM_DAEMON_INFO_INIT {sizeof(gshm_daemon_info), 0, 0, 0, 0, 0, 0, "", "", 0, 0}
int gshm_daemon(gshm_client* client, gshm_daemon_info* ret_info) GSHM_NOEXCEPT;

/* Ends the daemon and frees its objects. With GSHM_KEEP everything stays for the next gshmd: objects, the mount, and
 * memory that clients map. Permitted to root and the daemon's own user. */
int gshm_shutdown(gshm_client* client, uint32_t flags) GSHM_NOEXCEPT;
/* Ends all mounts. Objects and clients are not affected. -EBUSY while files are open there. With GSHM_LAZY a mount
 * disappears from the tree at once and ends with the last open file. -EINVAL: nothing is mounted. */
int gshm_unmount(gshm_client* client, uint32_t flags) GSHM_NOEXCEPT;

/* Mounts of one gshmd show the same files, with the same inode numbers, locks and caches. Since 0.2; a gshmd of 0.1
 * gives -EOPNOTSUPP. */
enum gshm_mount_flags { GSHM_MOUNT_READ_ONLY = 1 }; /* the kernel refuses changes through this mount, with EROFS */
typedef struct gshm_mount_options {
    uint32_t struct_size;
    uint32_t flags;           /* gshm_mount_flags */
    const char* subdirectory; /* a directory of the store as the root of the mount; NULL or "": the whole store */
    const char* source;       /* shown by mount(8) and df(1); NULL or "": "gshm" */
} gshm_mount_options;
#define GSHM_MOUNT_OPTIONS_INIT {sizeof(gshm_mount_options), 0, NULL, NULL}
/* Mounts at a directory, in addition to other mounts. The path is absolute, and gshmd looks it up. The mount outlives
 * gshmd as its objects do. options may be NULL. Permitted to root and the daemon's own user. -EBUSY: a gshmd is mounted
 * there. -EOPNOTSUPP: a gshmd that root has not started has one mount, of the whole store. */
int gshm_mount(gshm_client* client, const char* path, const gshm_mount_options* options) GSHM_NOEXCEPT;
/* As gshm_unmount(), which ends all mounts, for the mount at that path. -EINVAL: nothing is mounted there. */
int gshm_unmount_at(gshm_client* client, const char* path, uint32_t flags) GSHM_NOEXCEPT;

typedef struct gshm_mount_info {
    uint32_t struct_size;
    uint32_t flags;          /* gshm_mount_flags */
    char path[1024];         /* longer texts are cut */
    char subdirectory[1024]; /* "": the whole store */
    char source[256];
} gshm_mount_info;
#define GSHM_MOUNT_INFO_INIT {sizeof(gshm_mount_info), 0, "", "", ""}
/* Lists the mounts that gshmd can see, also those made with mount(8). Writes at most capacity entries; *ret_count is
 * the number of mounts. ret_mounts may be NULL if capacity is 0. */
int gshm_mounts(gshm_client* client, gshm_mount_info* ret_mounts, size_t capacity, size_t* ret_count) GSHM_NOEXCEPT;

enum gshm_option_flags { GSHM_OPTION_NEEDS_RESTART = 1 }; /* the former value stays until gshmd is started again */
typedef struct gshm_option_change {
    uint32_t struct_size;
    uint32_t flags;   /* gshm_option_flags */
    char option[64];  /* without dashes, as in gshm.toml */
    char former[256]; /* as text, cut if longer */
    char value[256];
} gshm_option_change;
#define GSHM_OPTION_CHANGE_INIT {sizeof(gshm_option_change), 0, "", "", ""}
/* gshmd reads its configuration again. Writes at most capacity of the options that differ; *ret_count is their number.
 * ret_changes may be NULL if capacity is 0. Permitted to root and the daemon's own user. -EBADMSG: a file is wrong,
 * and nothing has changed; gshm_last_error() has file and line. Since 0.2. */
int gshm_reload(gshm_client* client, gshm_option_change* ret_changes, size_t capacity, size_t* ret_count) GSHM_NOEXCEPT;

/* ---- Devices --------------------------------------------------------------------------------------------------- */

enum {
    GSHM_HANDLE_POSIX_FD = 1,
    GSHM_HANDLE_FABRIC = 2,
    GSHM_HANDLE_DMABUF = 4,
    GSHM_HANDLE_IPC = 8, /* CUDA's older handles, for memory from cudaMalloc; never for gshm's own memory */
};

typedef struct gshm_device_info {
    uint32_t struct_size;
    uint32_t handle_kinds; /* GSHM_HANDLE_..., or-ed */
    char name[16];         /* "host", "cuda:0" */
    char uuid[48];         /* "GPU-…", "MIG-…"; "" for host */
    char model[96];
    /* bytes that gshm may use; in the list of gshm_devices() at most used_bytes and what the device itself has free */
    uint64_t capacity_bytes;
    uint64_t used_bytes;   /* in extents */
    uint64_t object_bytes; /* in objects: used_bytes without slack and free slab space */
    uint64_t granularity_bytes;
    uint64_t unlinked_bytes; /* in objects that have no name but are still held */
    uint32_t compressible;   /* 1: GSHM_COMPRESSIBLE works */
    uint32_t failed;         /* 1: the device has failed; requests for it fail */
    char failure[128];       /* the reason */
    /* since 0.2 */
    uint64_t evictable_bytes; /* of object_bytes: may leave for a tier */
    uint64_t evicted_bytes;   /* in tiers; not of object_bytes */
    uint64_t evicted_objects;
} gshm_device_info;
#define GSHM_DEVICE_INFO_INIT {sizeof(gshm_device_info), 0, "", "", "", 0, 0, 0, 0, 0, 0, 0, "", 0, 0, 0}

/* Lists the daemon's devices. Writes at most capacity entries; *ret_count is the number of devices. ret_devices may be
 * NULL if capacity is 0. */
int gshm_devices(gshm_client* client, gshm_device_info* ret_devices, size_t capacity, size_t* ret_count) GSHM_NOEXCEPT;
/* Lists the devices of this process, without a daemon. Starts the CUDA driver (cuInit) but makes no context. */
int gshm_local_devices(gshm_device_info* ret_devices, size_t capacity, size_t* ret_count) GSHM_NOEXCEPT;

/* ---- Limits: docs/limits.md; everything in this part is since 0.2 ------------------------------------------------- */

/* What a user, a group or the objects below a directory may have, in bytes and objects, on one device or on all devices
 * together. An object counts for its owner, for its group, and for each directory with limits in which it has a name.
 * Memory without a name counts until it is freed. A call that would exceed a hard limit fails with -EDQUOT. A soft limit
 * may be exceeded for a while (grace_s); afterwards it is a hard one, until less is used again. */
enum gshm_limit_kind {
    GSHM_LIMIT_USER = 1,
    GSHM_LIMIT_GROUP = 2,
    GSHM_LIMIT_DIRECTORY = 3,
    GSHM_LIMIT_RESERVE = 4, /* bytes of a device that stay free for programs outside of gshm */
};
/* the fields that gshm_limit_set() changes */
enum gshm_limit_fields {
    GSHM_LIMIT_BYTES = 1u << 0, /* of a reserve: bytes and percent */
    GSHM_LIMIT_SOFT_BYTES = 1u << 1,
    GSHM_LIMIT_OBJECTS = 1u << 2,
    GSHM_LIMIT_SOFT_OBJECTS = 1u << 3,
    GSHM_LIMIT_GRACE = 1u << 4,
};
typedef struct gshm_limit {
    uint32_t struct_size;
    uint32_t kind;      /* gshm_limit_kind */
    uint32_t id;        /* uid or gid */
    uint32_t fields;    /* gshm_limit_fields */
    const char* path;   /* of the directory; else NULL */
    const char* device; /* "cuda:0", "host"; NULL: all devices together */
    uint64_t bytes;     /* 0: no limit, as in the next three */
    uint64_t soft_bytes;
    uint64_t objects;
    uint64_t soft_objects;
    uint64_t grace_s; /* how long the soft limits may be exceeded; 0: 7 days */
    uint32_t percent; /* of a reserve: of the device's memory, in place of bytes; at most 90 */
    uint32_t reserved;
    /* only reported */
    uint64_t used_bytes;
    uint64_t used_objects;
    uint64_t unlinked_bytes;  /* of used_bytes: memory without a name that is still held */
    int64_t bytes_until_ns;   /* the soft limit of bytes is exceeded, and a hard one from this time on; 0: it is not */
    int64_t objects_until_ns; /* likewise of objects */
} gshm_limit;
#define GSHM_LIMIT_INIT {sizeof(gshm_limit), 0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Changes a limit. A limit below the present use refuses what would add to it. Permitted to root and the daemon's own
 * user. The limits outlive gshmd as its objects do; that of a directory ends with the directory. */
int gshm_limit_set(gshm_client* client, const gshm_limit* limit) GSHM_NOEXCEPT;

enum gshm_limits_flags {
    GSHM_LIMITS_USED = 1u << 0, /* also users and groups that have objects and no limit */
    GSHM_LIMITS_ID = 1u << 1,   /* only this kind and id, or path; also if it has neither */
    GSHM_LIMITS_OWN = 1u << 2,  /* only what concerns the caller, also for root */
};
/* Lists limits, ordered by kind, id and device. `which` selects a kind (0: all), a device (NULL: all) and, with
 * GSHM_LIMITS_ID, one account; NULL: everything. Other users than root and the daemon's own get their own limits, those
 * of their groups, those of directories that they may list, and the reserves. */
int gshm_limits(gshm_client* client, const gshm_limit* which, uint32_t flags, gshm_limit_list** ret_list) GSHM_NOEXCEPT;
size_t gshm_limit_list_count(const gshm_limit_list* list) GSHM_NOEXCEPT;
/* Valid until the list is freed. NULL past the end. */
const gshm_limit* gshm_limit_list_item(const gshm_limit_list* list, size_t index) GSHM_NOEXCEPT;
void gshm_limit_list_free(gshm_limit_list* list) GSHM_NOEXCEPT;

/* ---- Tiers: docs/tiers.md; everything in this part is since 0.2 --------------------------------------------------- */

enum gshm_tier_flags { GSHM_TIER_KEEP = GSHM_KEEP }; /* its objects outlive the machine's restart */
typedef struct gshm_tier_info {
    uint32_t struct_size;
    uint32_t flags;  /* gshm_tier_flags */
    char name[1024]; /* "host", or the path of a folder */
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t objects;
    char failure[256]; /* the reason why the tier gets no further objects; "": none */
} gshm_tier_info;
#define GSHM_TIER_INFO_INIT {sizeof(gshm_tier_info), 0, "", 0, 0, 0, ""}
/* Lists the tiers of the daemon, in the order in which objects enter them. Writes at most capacity entries; *ret_count
 * is the number of tiers. ret_tiers may be NULL if capacity is 0. Since 0.2. */
int gshm_tiers(gshm_client* client, gshm_tier_info* ret_tiers, size_t capacity, size_t* ret_count) GSHM_NOEXCEPT;

/* ---- Objects by name ------------------------------------------------------------------------------------------- */

typedef struct gshm_attribute {
    const char* name; /* 1 to 255 bytes */
    const void* value;
    /* at most 64 KiB; a create call takes about 100 KiB of attributes in all, more can be set later */
    size_t value_bytes;
} gshm_attribute;

typedef struct gshm_create_spec {
    uint32_t struct_size;
    uint32_t mode; /* permission bits; 0 means 0600, or what the directory's default ACL gives */
    const char* name;
    uint64_t size_bytes;
    const char* device; /* "cuda:0", "host"; NULL: the daemon's first */
    uint32_t flags;     /* GSHM_CREATE_... */
    uint32_t reserved;
    const gshm_attribute* attributes;
    size_t attribute_count;
    uint32_t uid; /* with GSHM_OWNER */
    uint32_t gid;
    uint64_t ttl_ms; /* the object expires after this time, see gshm_set_ttl(); 0: never. Since 0.2 */
} gshm_create_spec;
#define GSHM_CREATE_SPEC_INIT {sizeof(gshm_create_spec), 0, NULL, 0, NULL, 0, 0, NULL, 0, 0, 0, 0}

/* Creates an object filled with zeros and opens it for writing. -EEXIST: the name exists. The object is reclaimed with
 * this session unless it is sealed first or made with GSHM_KEEP. */
int gshm_create(gshm_client* client, const gshm_create_spec* spec, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Opens for reading (or with GSHM_WRITE). Takes one round trip, and no driver call if the extent is already mapped. */
int gshm_open(gshm_client* client, const char* name, uint32_t flags, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Needs the rights of an open by one of the object's names. -ENOENT: no object has the id, or the caller may not read
 * the object; the two are not told apart. An object without a name has no such rights, and is not opened by its id. */
int gshm_open_id(gshm_client* client, uint64_t id, uint32_t flags, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Opens the object behind a file of a gshm mount. With client NULL the library connects to the daemon of the mount,
 * which it finds by the path, for as long as the object is open. -EINVAL: the path is not in such a mount. -EXDEV: the
 * mount belongs to a daemon other than the client's. If the file is resized later, the handle keeps its size and, on
 * host, its pages; see docs/mount.md. An empty file has no memory: gshm_data() is NULL. */
int gshm_open_path(gshm_client* client, const char* path, uint32_t flags, gshm_object** ret_object) GSHM_NOEXCEPT;

/* Batches. Each element succeeds or fails independently: ret_status[i] is 0 or -errno, and ret_objects[i] is the handle
 * or NULL. Both arrays are always written unless the arguments are invalid. The return value is 0 or the status of the
 * first failing element. GSHM_NO_MAP must be the same for all elements of a batch. */
int gshm_create_batch(gshm_client* client, const gshm_create_spec* specs, size_t count, gshm_object** ret_objects,
                      int* ret_status) GSHM_NOEXCEPT;
int gshm_open_batch(gshm_client* client, const char* const* names, size_t count, uint32_t flags,
                    gshm_object** ret_objects, int* ret_status) GSHM_NOEXCEPT;
/* By id, as gshm_open_id(). Since 0.2. */
int gshm_open_ids(gshm_client* client, const uint64_t* ids, size_t count, uint32_t flags, gshm_object** ret_objects,
                  int* ret_status) GSHM_NOEXCEPT;

/* Ends the lease and invalidates the pointer. NULL is ignored. */
void gshm_close(gshm_object* object) GSHM_NOEXCEPT;
void gshm_close_batch(gshm_object* const* objects, size_t count) GSHM_NOEXCEPT;

/* Makes the bytes immutable; attributes can still change. Needs a handle open for writing. -EBUSY: another process has
 * the object open for writing. Pointers and descriptors that were handed out before keep their access. The
 * modification time is unchanged. */
int gshm_seal(gshm_object* object) GSHM_NOEXCEPT;
int gshm_seal_batch(gshm_object* const* objects, size_t count, int* ret_status) GSHM_NOEXCEPT;
int gshm_seal_name(gshm_client* client, const char* name) GSHM_NOEXCEPT;
/* Also removes an empty directory, which the mount may have made; -EISDIR if it has entries. */
int gshm_unlink(gshm_client* client, const char* name) GSHM_NOEXCEPT;
/* A batch, in the order of the names: a directory may follow its last entry. Since 0.2. */
int gshm_unlink_batch(gshm_client* client, const char* const* names, size_t count, int* ret_status) GSHM_NOEXCEPT;
/* Atomic. With GSHM_REPLACE an existing object is replaced, and its holders keep it; a directory may replace an empty
 * directory (-ENOTEMPTY if it has entries). Otherwise an existing name gives -EEXIST. */
int gshm_rename(gshm_client* client, const char* from, const char* to, uint32_t flags) GSHM_NOEXCEPT;
enum gshm_move_flags { GSHM_MOVE_KEEP_HOLDERS = 1u << 0 };
/* Moves the bytes of an object to memory of another device ("cuda:0", "host"). Permitted to its owner and root, sealed
 * or not. The object keeps its id, names, state, attributes and times, except the time of its last change. At every
 * moment it is complete on one of the two devices. -ENOSPC: the device is full. -ENODEV: no such device. -EBUSY: the
 * object is open in the mount and one of the devices is `host`, or a process holds the object and so maps its old
 * memory. With GSHM_MOVE_KEEP_HOLDERS a holder keeps the old memory until it closes the object; -EBUSY if it has write
 * access (see gshm_holders()). */
int gshm_move(gshm_client* client, const char* name, const char* device, uint32_t flags) GSHM_NOEXCEPT;
/* Moves an object into the first tier that has room, and one in the tier `host` on to the folder; or back to its device.
 * Permitted to its owner and root, whether the object is evictable or not; no effect if it is there already. flags: 0.
 * -EBUSY: the object is used. -EOPNOTSUPP: gshmd has no tier. Since 0.2. */
int gshm_demote(gshm_client* client, const char* name, uint32_t flags) GSHM_NOEXCEPT;
int gshm_promote(gshm_client* client, const char* name, uint32_t flags) GSHM_NOEXCEPT;
/* Publishes a new version of an object that others may be reading: seals the object and gives it the name, atomically,
 * in place of the object or symbolic link that has the name. An open of the name yields the complete old or the
 * complete new version. Holders of the old version keep it until they close it. Needs a handle open for writing.
 * Rights, and errors such as -EISDIR, are those of renaming over the name; -EBUSY is that of sealing.
 *   Create the object with GSHM_UNNAMED: it then has no name, so a writer that dies leaves the old version unchanged.
 *   The name in its spec is the intended name (rights are checked at once, directories are made at the end) and may
 *   exist. An object created with a name loses that name (-EMLINK if it has several).
 *   -ESTALE: the connection was lost earlier; nothing was replaced and the new version is gone. -ECONNRESET: the
 *   connection was lost during the call; compare the id of gshm_stat() to find out whether the object was replaced. */
int gshm_replace(gshm_object* object, const char* name) GSHM_NOEXCEPT;
/* The same, but without GSHM_REPLACE an existing name gives -EEXIST, and the object is unchanged. With GSHM_REPLACE it is
 * gshm_replace(). */
int gshm_publish(gshm_object* object, const char* name, uint32_t flags) GSHM_NOEXCEPT;

/* Opening an object by name follows symbolic links. Pipes, sockets and device files can be made in the mount only. */
enum { GSHM_KIND_OBJECT = 1, GSHM_KIND_DIRECTORY = 2, GSHM_KIND_SYMLINK = 3, GSHM_KIND_SPECIAL = 4 };
enum { GSHM_STATE_OPEN = 1, GSHM_STATE_SEALED = 2 };

typedef struct gshm_stat_info {
    uint32_t struct_size;
    uint32_t kind;  /* GSHM_KIND_... */
    uint32_t state; /* GSHM_STATE_...; 0 for other kinds */
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    uint64_t id;
    uint64_t size_bytes;       /* object: bytes; directory: entries */
    uint64_t allocation_bytes; /* size of the object's extent */
    uint64_t extent;           /* id of that extent */
    uint64_t extent_offset;    /* offset of the object in the extent */
    int64_t created_ns;        /* since the epoch */
    int64_t modified_ns;
    uint32_t leases;
    uint32_t flags; /* GSHM_STAT_... */
    /* the device that the object belongs to; of a directory: device for new objects in it; "": not set */
    char device[16];
    char tier[16];   /* where a tier has the object: "host", "disk"; "": it is on its device. Since 0.2 */
    uint64_t ttl_ms; /* see gshm_set_ttl(); 0: none. Since 0.2 */
    /* when the ttl will end by the present time of day, since the epoch; later if the object is used meanwhile and
     * GSHM_STAT_TTL_UNUSED is set. 0: no ttl, pinned, or in use with GSHM_STAT_TTL_UNUSED. Since 0.2 */
    int64_t expires_ns;
} gshm_stat_info;
#define GSHM_STAT_INFO_INIT {sizeof(gshm_stat_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", "", 0, 0}

int gshm_stat(gshm_client* client, const char* name, gshm_stat_info* ret_info) GSHM_NOEXCEPT;
int gshm_stat_batch(gshm_client* client, const char* const* names, size_t count, gshm_stat_info* ret_infos,
                    int* ret_status) GSHM_NOEXCEPT;
int gshm_stat_object(gshm_object* object, gshm_stat_info* ret_info) GSHM_NOEXCEPT;

/* Lists the entries of a directory ("" is the root), sorted by name. With GSHM_RECURSIVE it lists all objects below the
 * directory, and only objects. If path names an object, the listing has that one entry, with its full path. */
int gshm_list(gshm_client* client, const char* path, uint32_t flags, gshm_listing** ret_listing) GSHM_NOEXCEPT;
size_t gshm_listing_count(const gshm_listing* listing) GSHM_NOEXCEPT;
const char* gshm_listing_name(const gshm_listing* listing,
                              size_t index) GSHM_NOEXCEPT; /* relative to the listed path; NULL past end */
int gshm_listing_stat(const gshm_listing* listing, size_t index, gshm_stat_info* ret_info) GSHM_NOEXCEPT;
void gshm_listing_free(gshm_listing* listing) GSHM_NOEXCEPT;

typedef struct gshm_holder {
    uint32_t struct_size;
    int32_t pid;
    uint32_t uid;
    uint32_t leases;
    uint32_t writable; /* 1: at least one lease is for writing */
    char command[32];  /* as in /proc/PID/comm */
} gshm_holder;
#define GSHM_HOLDER_INIT {sizeof(gshm_holder), 0, 0, 0, 0, ""}
/* Lists the processes that hold leases. Writes at most capacity entries (ret_holders may be NULL if it is 0).
 * *ret_count is the number of holders, of which the daemon names at most 1,000. */
int gshm_holders(gshm_client* client, const char* name, gshm_holder* ret_holders, size_t capacity,
                 size_t* ret_count) GSHM_NOEXCEPT;

/* Lists memory that has no name but is still held: one entry per object, ordered by id. The name of an entry is the
 * last name of the object ("" if it never had one); the size is that of the memory. The flag GSHM_FORMER marks memory
 * that a file had before it was resized and that processes still map; the object itself may still have its name. Root
 * and the daemon's user see all entries. Other users see entries of their own objects, and what they hold themselves
 * (of others' objects without the name and without the leases of other users). */
int gshm_list_unlinked(gshm_client* client, gshm_listing** ret_listing) GSHM_NOEXCEPT;
/* Lists the holders of an entry of gshm_list_unlinked(); empty for other listings. As gshm_holders(). */
int gshm_listing_holders(const gshm_listing* listing, size_t index, gshm_holder* ret_holders, size_t capacity,
                         size_t* ret_count) GSHM_NOEXCEPT;

/* ---- Directories, symbolic links, hard links, rights ------------------------------------------------------------ */

typedef struct gshm_make_spec {
    uint32_t struct_size;
    uint32_t kind; /* GSHM_KIND_DIRECTORY or GSHM_KIND_SYMLINK */
    const char* name;
    const char* target; /* of a symbolic link: its target, 1 to 4095 bytes; it need not exist */
    const char* device; /* of a directory: the default device for new objects in it; NULL: inherited from its parent */
    uint32_t mode;      /* of a directory, 07777; 0 means 0755, or what the directory's default ACL gives */
    uint32_t flags;     /* GSHM_MAKE_... */
    uint32_t uid;
    uint32_t gid;
} gshm_make_spec;
#define GSHM_MAKE_SPEC_INIT {sizeof(gshm_make_spec), 0, NULL, NULL, NULL, 0, GSHM_KEEP, 0, 0}

/* Makes a directory or a symbolic link. -EEXIST: the name exists. Missing directories are made as for objects. */
int gshm_make(gshm_client* client, const gshm_make_spec* spec) GSHM_NOEXCEPT;
/* Reads the target of a symbolic link; sizes as for attributes, without a terminating NUL. -EINVAL: not a symbolic
 * link. */
int gshm_read_link(gshm_client* client, const char* name, char* ret_target, size_t capacity,
                   size_t* ret_bytes) GSHM_NOEXCEPT;
/* Adds a hard link to an object or a symbolic link. -EPERM for directories, and for objects of other users that the
 * caller may not both read and write. */
int gshm_link(gshm_client* client, const char* name, const char* new_name) GSHM_NOEXCEPT;

enum gshm_change_flags {
    GSHM_CHANGE_MODE = 1,  /* by the owner and root */
    GSHM_CHANGE_OWNER = 2, /* by root */
    GSHM_CHANGE_KEEP = 4,  /* treat as if made with GSHM_KEEP; by the owner and root */
};
typedef struct gshm_changes {
    uint32_t struct_size;
    uint32_t what; /* GSHM_CHANGE_..., or-ed */
    uint32_t mode; /* 07777 */
    uint32_t uid;
    uint32_t gid;
} gshm_changes;
#define GSHM_CHANGES_INIT {sizeof(gshm_changes), 0, 0, 0, 0}
/* Changes an object, a directory or a symbolic link itself. -EPERM: the caller may not. Changing the rights of a small
 * object closes its extent to everyone but the owner, unless the object was made with GSHM_DEDICATED. */
int gshm_change(gshm_client* client, const char* name, const gshm_changes* changes) GSHM_NOEXCEPT;

/* ---- Lifetimes: docs/lifetimes.md ------------------------------------------------------------------------------- */

enum gshm_ttl_flags { GSHM_TTL_UNUSED = GSHM_CREATE_TTL_UNUSED }; /* counts from the last use */
/* Sets the time to live of an object, from now on: when it has passed, the object loses all its names, and its memory is
 * freed with the last lease, as by gshm_unlink(). With GSHM_TTL_UNUSED the time counts from the last use, which is an
 * open or the end of a lease, and does not pass while the object is held. In gshm_create_spec the time counts from the
 * creation, or from the object's first name. ttl_ms 0: the object never expires. Permitted to the owner and root; else
 * -EPERM. -EINVAL: more than 100 years. Directories have none (-EISDIR). Since 0.2, as the whole part. */
int gshm_set_ttl(gshm_client* client, const char* name, uint64_t ttl_ms, uint32_t flags) GSHM_NOEXCEPT;
/* A pinned object does not expire, and never leaves its device to make room. Permitted to root and the user who runs gshmd;
 * also to the owner, whose pinned objects may have a share of each device, `gshmd --pin-share`: else -EDQUOT.
 * -EPERM: another user. */
int gshm_pin(gshm_client* client, const char* name) GSHM_NOEXCEPT;
/* An object whose ttl has passed meanwhile expires at once. -EPERM: the caller is neither root nor the user who runs gshmd
 * nor the owner, or is the owner and one of the others has pinned the object. */
int gshm_unpin(gshm_client* client, const char* name) GSHM_NOEXCEPT;

/* ---- Sharing with single users and groups: docs/sharing.md. Since 0.2 -------------------------------------------- */

/* A gshmd of 0.1 gives -EOPNOTSUPP for all calls of this part. */

/* An entry of an ACL as in acl(5): the rights of the owner, of a user, ... */
enum gshm_acl_tag {
    GSHM_ACL_OWNER = 1,
    GSHM_ACL_USER = 2, /* `id` is a uid */
    GSHM_ACL_OWNING_GROUP = 4,
    GSHM_ACL_GROUP = 8, /* `id` is a gid */
    GSHM_ACL_MASK = 16, /* limits the rights of users and groups */
    GSHM_ACL_OTHER = 32,
};
typedef struct gshm_acl_entry {
    uint16_t tag;    /* gshm_acl_tag */
    uint16_t rights; /* 4: read; 2: write; 1: search a directory; or-ed */
    uint32_t id;     /* 0 for the other tags */
} gshm_acl_entry;

/* The default ACL of a directory is inherited by what is made in it. */
enum gshm_acl_flags { GSHM_ACL_DEFAULT = 1u << 0 };
/* Reads the ACL of an object or a directory ("": the root directory), or the default ACL of a directory. Without an
 * ACL these are the three entries of the mode; without a default ACL there are none. Writes at most capacity entries;
 * *ret_count is their number. ret_entries may be NULL if capacity is 0. */
int gshm_acl_get(gshm_client* client, const char* name, uint32_t flags, gshm_acl_entry* ret_entries, size_t capacity,
                 size_t* ret_count) GSHM_NOEXCEPT;
/* Replaces it, in one step. Entries may be in any order. Missing ones for the owner, the owning group and others are
 * those of the mode, and a missing mask limits nothing. count 0 removes the ACL: the rights of the owner, the owning
 * group and others stay. Permitted to the owner and root (-EPERM). -EINVAL: an entry occurs twice, or has an unknown tag. -E2BIG: more than 511 entries. -EACCES: a default ACL of what is no directory. As with
 * gshm_change(), processes that have the object open keep it. */
int gshm_acl_set(gshm_client* client, const char* name, uint32_t flags, const gshm_acl_entry* entries,
                 size_t count) GSHM_NOEXCEPT;

enum gshm_share_flags {
    GSHM_SHARE_PARENTS = 1u << 0, /* also lets them search the directories above */
    GSHM_SHARE_WRITE = GSHM_WRITE,
    GSHM_SHARE_RECURSIVE = GSHM_RECURSIVE, /* also all that is below the directory */
};
typedef struct gshm_share_info {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t changed; /* number of objects and directories that were shared */
    /* the first directory above that one of them may not search, so that the share has no effect for it; "": none.
     * Longer names are cut */
    char blocked_by[1024];
    gshm_acl_entry blocked; /* the user or group; tag 0: none */
} gshm_share_info;
#define GSHM_SHARE_INFO_INIT {sizeof(gshm_share_info), 0, 0, "", {0, 0, 0}}
/* Lets users and groups (entries with the tags GSHM_ACL_USER and GSHM_ACL_GROUP, and rights 0) read an object, by an
 * entry each in its ACL; with GSHM_SHARE_WRITE also write it. A directory can then be listed and searched, and what is
 * made in it later is shared likewise, by its default ACL. Other entries are kept. ret_info may be NULL. -EPERM: the
 * caller owns neither it nor, with GSHM_SHARE_RECURSIVE, all below it; what could be shared is shared. */
int gshm_share(gshm_client* client, const char* name, const gshm_acl_entry* with, size_t count, uint32_t flags,
               gshm_share_info* ret_info) GSHM_NOEXCEPT;
/* Removes their entries; count 0: all ACLs. flags: GSHM_SHARE_RECURSIVE. Processes that have an object open keep it. */
int gshm_unshare(gshm_client* client, const char* name, const gshm_acl_entry* with, size_t count, uint32_t flags,
                 gshm_share_info* ret_info) GSHM_NOEXCEPT;

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

enum { GSHM_WAIT_EXISTS = 1, GSHM_WAIT_SEALED = 2, GSHM_WAIT_GONE = 3 };
/* Waits until the name exists; or exists and is sealed (-EISDIR if it is a directory); or no longer leads to the object
 * that had it when the call began, because that was deleted, renamed or replaced. Objects are compared by id: an object
 * that is unlinked but held counts as gone. If the name does not exist, GSHM_WAIT_GONE returns at once. timeout_ms < 0:
 * no limit; -ETIMEDOUT when it has passed. GSHM_WAIT_SEALED follows a symbolic link, and waits for a missing target.
 * ret_info may be NULL. With GSHM_WAIT_GONE it describes the former object, and is all zero if there was none. */
int gshm_wait(gshm_client* client, const char* name, int condition, int timeout_ms,
              gshm_stat_info* ret_info) GSHM_NOEXCEPT;

/* ---- Watching: docs/watch.md ----------------------------------------------------------------------------------- */

enum {
    GSHM_EVENT_CREATED = 1, /* a new name: made, linked, or renamed from outside the prefix */
    /* the object is sealed. An object that gets its name already sealed has no such event: see `state` */
    GSHM_EVENT_SEALED = 2,
    GSHM_EVENT_DELETED = 3, /* the name is gone: unlinked, reclaimed, or renamed out of the prefix */
    /* from old_name, which is gone. A renamed directory has one event per name below it as well */
    GSHM_EVENT_RENAMED = 4,
    /* the name led to replaced_id before; old_name, the former name of the new object, is gone */
    GSHM_EVENT_REPLACED = 5,
    GSHM_EVENT_EXISTING = 6, /* with GSHM_WATCH_EXISTING: present when the watch was made */
    GSHM_EVENT_READY = 7,    /* likewise: all present names have been reported. Has no name */
    GSHM_EVENT_OVERFLOW = 8, /* events were lost: list the names again (gshm_list()). Has no name */
    GSHM_EVENT_EXPIRED = 9,  /* the name is gone since the ttl of its object has passed. Since 0.2 */
};

typedef struct gshm_event {
    uint32_t struct_size;
    uint32_t event; /* GSHM_EVENT_...; ignore unknown values, later versions may add some */
    uint32_t kind;  /* GSHM_KIND_...; directories, symbolic links and special files have events too */
    uint32_t state; /* GSHM_STATE_... of an object, 0 for others */
    uint64_t id;
    uint64_t replaced_id;
    uint64_t size_bytes; /* of an object, at the time of the event */
    int64_t time_ns;     /* time of the event, since the epoch */
    char device[16];     /* of an object */
    const char* name;    /* both strings are valid until the next call with the watch; "" if there is none */
    const char* old_name;
} gshm_event;
#define GSHM_EVENT_INIT {sizeof(gshm_event), 0, 0, 0, 0, 0, 0, 0, "", NULL, NULL}

enum gshm_watch_flags { GSHM_WATCH_EXISTING = 1u << 0 }; /* reports present names first, without gaps or repetitions */

/* Watches all names that begin with the prefix ("": all names; "models/": names in that directory; "models/ll": also
 * "models/llama" and the names in it). Reports every change, whether made by a library, a command, the mount, or the
 * reclaim of a dead process's unsealed objects. The caller sees only names that it may look up and list: the
 * directories above must be searchable, and readable unless the prefix contains the names in them. A watch has a
 * connection of its own and may outlive the client. -EINVAL, -ENAMETOOLONG, -EILSEQ: no name can begin with the prefix.
 */
int gshm_watch_create(gshm_client* client, const char* prefix, uint32_t flags, gshm_watch** ret_watch) GSHM_NOEXCEPT;
/* Returns the next event. timeout_ms < 0: no limit; 0: do not wait; -ETIMEDOUT: no event in time. -EINTR: a signal
 * arrived. When gshmd dies, the watch continues with the next daemon, beginning with GSHM_EVENT_OVERFLOW.
 * -ECONNREFUSED: no daemon came (within timeout_ms, or the timeout of the connection if that is shorter); call again to
 * retry. For one thread at a time. */
int gshm_watch_next(gshm_watch* watch, gshm_event* ret_event, int timeout_ms) GSHM_NOEXCEPT;
/* For poll() and epoll: readable when gshm_watch_next() returns without waiting (also when gshmd is gone). The
 * descriptor never changes and belongs to the watch; -1 for NULL. */
int gshm_watch_fd(const gshm_watch* watch) GSHM_NOEXCEPT;
/* A concurrent gshm_watch_next() returns -ECANCELED first. NULL is ignored. */
void gshm_watch_destroy(gshm_watch* watch) GSHM_NOEXCEPT;

/* ---- Attributes ------------------------------------------------------------------------------------------------ */

/* Attributes of an object or a directory ("": the root directory). The mount shows them as user.NAME. Limits and errors
 * are those of the mount: a name of 250 bytes (-ERANGE), a value of 64 KiB (-E2BIG), 1 MiB for all attributes
 * (-ENOSPC). */
int gshm_set_attribute(gshm_client* client, const char* name, const char* attribute, const void* value,
                       size_t value_bytes) GSHM_NOEXCEPT;
/* Writes at most capacity bytes; *ret_bytes is the full length. -ERANGE: too small (ret_bytes is written then, an
 * exception to rule 2). -ENODATA: no such attribute. With capacity 0 it returns the length only. */
int gshm_get_attribute(gshm_client* client, const char* name, const char* attribute, void* ret_value, size_t capacity,
                       size_t* ret_bytes) GSHM_NOEXCEPT;
int gshm_remove_attribute(gshm_client* client, const char* name, const char* attribute) GSHM_NOEXCEPT;
/* A batch: sets several attributes of one object or directory, without a round trip for each. Since 0.2. */
int gshm_set_attributes(gshm_client* client, const char* name, const gshm_attribute* attributes, size_t count,
                        int* ret_status) GSHM_NOEXCEPT;
/* Reads several attributes likewise: those of the array, in its order, or, with attributes NULL and count 0, all of
 * them, by name. Attributes that do not exist are left out. Since 0.2. */
int gshm_get_attributes(gshm_client* client, const char* name, const char* const* attributes, size_t count,
                        gshm_attribute_list** ret_list) GSHM_NOEXCEPT;
size_t gshm_attribute_list_count(const gshm_attribute_list* list) GSHM_NOEXCEPT;
/* Valid as long as the list; NULL past its end. A byte NUL follows the value, beyond value_bytes. */
const gshm_attribute* gshm_attribute_list_item(const gshm_attribute_list* list, size_t index) GSHM_NOEXCEPT;
void gshm_attribute_list_free(gshm_attribute_list* list) GSHM_NOEXCEPT;
/* All names, each terminated by NUL, as listxattr(2) returns them; sizes as above. */
int gshm_list_attributes(gshm_client* client, const char* name, char* ret_names, size_t capacity,
                         size_t* ret_bytes) GSHM_NOEXCEPT;

/* ---- An open object -------------------------------------------------------------------------------------------- */

/* For NULL these four functions return NULL, 0, 0 and "". */
/* A device pointer on cuda, an ordinary pointer on host; NULL with GSHM_NO_MAP. Valid until the handle is closed, also
 * while no daemon runs. Read-only on host unless opened for writing. */
void* gshm_data(const gshm_object* object) GSHM_NOEXCEPT;
uint64_t gshm_size(const gshm_object* object) GSHM_NOEXCEPT;
uint64_t gshm_id(const gshm_object* object) GSHM_NOEXCEPT; /* 0 for memory without a daemon */
/* its name at the daemon; for memory without a daemon, in this process */
const char* gshm_device(const gshm_object* object) GSHM_NOEXCEPT;

/* Copy between host memory and the object. They return when the bytes have arrived. */
int gshm_copy_in(gshm_object* object, uint64_t offset, const void* source, size_t bytes) GSHM_NOEXCEPT;
int gshm_copy_out(gshm_object* object, uint64_t offset, void* destination, size_t bytes) GSHM_NOEXCEPT;
int gshm_fill(gshm_object* object, uint64_t offset, uint64_t bytes, uint8_t value) GSHM_NOEXCEPT;

/* Makes gshm_data() usable from another GPU too. -EOPNOTSUPP: the two GPUs cannot reach each other. */
int gshm_map_peer(gshm_object* object, const char* device) GSHM_NOEXCEPT;

/* ---- Mirrors: an object's bytes for the CPU --------------------------------------------------------------------- */

/* A mirror is memory of this process for a range of an object. On host it is the object's memory itself. On a GPU it is
 * pinned memory; one copy fills it and another writes it back. The same program works for both. A mirror may be used by
 * one thread at a time, which counts as a use of its object. The object's handle may be closed earlier: the mirror
 * keeps the lease. After fork() only the parent may use it. */
enum gshm_mirror_flags {
    GSHM_MIRROR_LOAD = 1,  /* begins with the object's bytes; otherwise the contents are undefined */
    GSHM_MIRROR_WRITE = 2, /* may be changed; -EPERM if the object is sealed, -EACCES if it is open for reading only */
};

typedef struct gshm_mirror_options {
    uint32_t struct_size;
    uint32_t flags; /* GSHM_MIRROR_..., at least one */
    uint64_t offset;
    uint64_t size_bytes; /* 0: to the end of the object */
    void* stream;        /* CUstream or cudaStream_t that orders the copies; NULL: the legacy default stream */
} gshm_mirror_options;
#define GSHM_MIRROR_OPTIONS_INIT {sizeof(gshm_mirror_options), GSHM_MIRROR_LOAD, 0, 0, NULL}

/* options may be NULL. The stream must outlive the mirror. Copies wait for earlier work on the stream only, and are
 * complete when a call returns. On host the stream is ignored. For an object opened with GSHM_NO_MAP the bytes go
 * through the daemon, and a stream gives -EINVAL. -EINVAL: the range is not inside the object. */
int gshm_mirror_create(gshm_object* object, const gshm_mirror_options* options, gshm_mirror** ret_mirror) GSHM_NOEXCEPT;
/* For NULL they return NULL and 0. */
void* gshm_mirror_data(const gshm_mirror* mirror) GSHM_NOEXCEPT;
uint64_t gshm_mirror_size(const gshm_mirror* mirror) GSHM_NOEXCEPT;
/* Ranges are relative to the mirror. Marks a range as changed, or about to be changed before the next flush. -EACCES:
 * the mirror is for reading only. */
int gshm_mirror_mark(gshm_mirror* mirror, uint64_t offset, uint64_t bytes) GSHM_NOEXCEPT;
/* Removes all marks. On host changes remain in the object. */
void gshm_mirror_unmark(gshm_mirror* mirror) GSHM_NOEXCEPT;
/* Writes back the marked ranges only. -EPERM: the object was sealed in the meantime. Ranges that failed stay marked. */
int gshm_mirror_flush(gshm_mirror* mirror) GSHM_NOEXCEPT;
/* Writes back this range, whether marked or not. */
int gshm_mirror_flush_range(gshm_mirror* mirror, uint64_t offset, uint64_t bytes) GSHM_NOEXCEPT;
/* Reads the range again from the object and removes its marks. */
int gshm_mirror_load(gshm_mirror* mirror, uint64_t offset, uint64_t bytes) GSHM_NOEXCEPT;
/* Flushes and destroys the mirror, even if the flush fails; the error is returned and logged. NULL is ignored. */
int gshm_mirror_destroy(gshm_mirror* mirror) GSHM_NOEXCEPT;
/* Pinned memory of destroyed mirrors is cached for later ones, up to 1 GiB. Sets another bound; 0: blocks above 1 MiB
 * are freed at once. */
void gshm_keep_pinned(uint64_t most_bytes) GSHM_NOEXCEPT;

/* ---- Fences: order reads after writes, between processes -------------------------------------------------------- */

/* Every object of a daemon has a fence, which counts generations from 1. A writer publishes a generation when the work
 * that it has queued on a stream so far makes the object readable. A reader makes its own stream wait for a generation,
 * on the GPU: no CPU waits for a kernel, and unrelated GPU work continues. On devices without streams the writes are
 * complete at publication, and waiting blocks the thread: on host, where the stream is ignored, and with GSHM_NO_MAP,
 * where a stream gives -EINVAL.
 *   One process publishes at a time. If it dies, waiters for its outstanding generations continue, also on the GPU, and
 *   get -EOWNERDEAD. Publishing and waiting need no daemon.
 *   A fence is used by one thread at a time. The object's handle may be closed earlier; the fence keeps the lease.
 *   After fork() only the parent may use it. See docs/fence.md. */

/* GSHM_WRITE: to publish; needs a handle open for writing. -EBUSY: another process, or another handle of this one,
 * publishes. Sealing the object does not prevent its writer from publishing. -EMFILE: this session has 1,024 fences. */
int gshm_fence_open(gshm_object* object, uint32_t flags, gshm_fence** ret_fence) GSHM_NOEXCEPT;
/* The next generation is complete when all work queued on the stream so far is complete (CUstream, cudaStream_t; NULL:
 * the legacy default stream). Returns at once. Generations complete in order, also from several streams. ret_generation
 * may be NULL. */
int gshm_fence_publish(gshm_fence* fence, void* stream, uint64_t* ret_generation) GSHM_NOEXCEPT;
/* Later work on the stream begins when the generation is complete. generation 0: the newest published one, or the first
 * if there is none. An unpublished generation is waited for on the CPU, up to timeout_ms (< 0: no limit): -ETIMEDOUT;
 * -EOWNERDEAD if its writer has died; -EPIPE if its writer has closed the fence. Without streams the generation is
 * complete when the call returns. ret_generation (may be NULL) is its number. */
int gshm_fence_wait(gshm_fence* fence, void* stream, uint64_t generation, int timeout_ms,
                    uint64_t* ret_generation) GSHM_NOEXCEPT;
/* 0: complete. -EAGAIN: not yet. -EOWNERDEAD: the writer died before completing it. A stream that waits for a dead
 * writer continues, so readers that must detect this call it after synchronising with their stream. */
int gshm_fence_check(gshm_fence* fence, uint64_t generation) GSHM_NOEXCEPT;
/* The newest published generation; 0: none. */
uint64_t gshm_fence_published(const gshm_fence* fence) GSHM_NOEXCEPT;
/* Published generations still complete. NULL is ignored. */
void gshm_fence_close(gshm_fence* fence) GSHM_NOEXCEPT;

/* ---- Pools: shareable allocations of any size ------------------------------------------------------------------- */

/* A pool cuts allocations from slabs, which are objects of the daemon, so other processes can open any allocation; see
 * gshm_pool_locate(). While a slab has room, neither the daemon nor the driver is called. Slabs end with the process,
 * however it ends, unless they are kept or sealed. Several threads may use a pool at the same time, and it may outlive its client. When gshmd dies the
 * memory stays valid; the next slab comes from the next gshmd.
 *   Memory is freed in stream order, as by cudaFreeAsync(): it can be reused at once on the same stream, and on another
 *   stream after that stream has waited for the earlier work. Streams are CUstream or cudaStream_t; NULL is the legacy
 *   default stream, and CU_STREAM_PER_THREAD (2) that of the calling thread. Devices without streams (host) ignore
 *   them. Streams in graph capture are not supported. */
/* allocate: for any stream, at once; deallocate: no longer in use anywhere */
#define GSHM_NO_STREAM ((void*)(intptr_t)-1)

enum gshm_pool_flags {
    /* Slabs outlive the pool and the process, however it ends, under their names. The pool still removes slabs that have
     * become unused; gshm_pool_destroy() leaves those with allocations. Since 0.2. */
    GSHM_POOL_KEEP = GSHM_KEEP,
};

typedef struct gshm_pool_options {
    uint32_t struct_size;
    uint32_t mode;        /* permission bits of the slabs; 0 means 0600 */
    const char* device;   /* at the daemon; NULL: its first */
    const char* name;     /* directory for the slabs; NULL: a unique name, pool-PID-... */
    uint64_t slab_bytes;  /* size of the first slabs; later ones grow with the pool. 0: 64 MiB */
    uint64_t limit_bytes; /* for all slabs together; 0: the device's limit only */
    uint32_t flags;       /* GSHM_POOL_...; since 0.2 */
    uint32_t reserved;
} gshm_pool_options;
#define GSHM_POOL_OPTIONS_INIT {sizeof(gshm_pool_options), 0600, NULL, NULL, 0, 0, 0, 0}

/* options may be NULL. Allocates no memory yet. -ENODEV: no such device, or this process cannot use it. */
int gshm_pool_create(gshm_client* client, const gshm_pool_options* options, gshm_pool** ret_pool) GSHM_NOEXCEPT;
/* Frees all memory of the pool, also allocations that are still in use; other processes keep what they have opened.
 * Waits for the work that precedes queued deallocations on their streams. NULL is ignored. */
void gshm_pool_destroy(gshm_pool* pool) GSHM_NOEXCEPT;

/* The contents are undefined. The alignment is a power of two; 0 and values below 512 mean 512. NULL for 0 bytes.
 * -ENOMEM: the pool's limit is reached. -ENOSPC: the device is full. Both are returned only after waiting for pending
 * frees. */
int gshm_pool_allocate(gshm_pool* pool, uint64_t size_bytes, uint64_t alignment, void* stream,
                       void** ret_memory) GSHM_NOEXCEPT;
/* The same as an object without a daemon, for copies, rings and tensors. Its close, or the deleter of its last tensor, frees
 * the memory in the order of the stream. The pool's memory lasts until then, even after gshm_pool_destroy(). -EINVAL:
 * size_bytes is 0. Since 0.2. */
int gshm_pool_allocate_object(gshm_pool* pool, uint64_t size_bytes, uint64_t alignment, void* stream,
                              gshm_object** ret_object) GSHM_NOEXCEPT;
/* size_bytes is the requested size, or 0. NULL is ignored. -EINVAL: not allocated from this pool; nothing changes. If
 * the driver fails, the memory stays allocated. */
int gshm_pool_deallocate(gshm_pool* pool, void* memory, uint64_t size_bytes, void* stream) GSHM_NOEXCEPT;
/* Frees unused slabs until at most keep_bytes remain in slabs. Waits for pending work on them. (A pool keeps one unused
 * slab otherwise.) */
int gshm_pool_trim(gshm_pool* pool, uint64_t keep_bytes) GSHM_NOEXCEPT;
/* Seals the slabs that have allocations: their bytes are immutable from then on, and they outlive the pool and the process
 * under their names until they are unlinked. Later allocations come from other slabs; memory that is freed in a sealed slab
 * is not used again. With its last allocation the pool gives up its lease, and the slab no longer counts. GPU work that writes the memory must be complete. -EBUSY: another process has a slab open for writing.
 * On failure nothing more is allocated from the slabs that are not sealed, and the call can be repeated. Since 0.2. */
int gshm_pool_seal(gshm_pool* pool) GSHM_NOEXCEPT;

typedef struct gshm_pool_stats {
    uint32_t struct_size;
    uint32_t slabs;
    uint64_t reserved_bytes; /* in slabs */
    uint64_t used_bytes;     /* allocated, in units of 512 */
    uint64_t peak_used_bytes;
    uint64_t allocations;  /* current number */
    uint64_t stream_waits; /* total number of times a stream had to wait for another */
} gshm_pool_stats;
#define GSHM_POOL_STATS_INIT {sizeof(gshm_pool_stats), 0, 0, 0, 0, 0, 0}
int gshm_pool_get_stats(gshm_pool* pool, gshm_pool_stats* ret_stats) GSHM_NOEXCEPT;

/* The place of pool memory for other processes: they open the object (gshm_open_id()); the memory begins offset bytes
 * after gshm_data(). */
typedef struct gshm_location {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t id;         /* of the object */
    uint64_t offset;     /* in the object */
    uint64_t size_bytes; /* up to the end of the allocation */
    char device[16];     /* at the daemon */
} gshm_location;
#define GSHM_LOCATION_INIT {sizeof(gshm_location), 0, 0, 0, 0, ""}
/* For any address in memory allocated from a pool of this process; otherwise -EINVAL. -ESTALE: the daemon that knew the
 * object is gone for good. An open of the object keeps the memory alive, but the pool still manages it: after the
 * allocation is freed, its bytes are reused. Notify readers first. To seal the object, use gshm_pool_seal(). */
int gshm_pool_locate(const void* memory, gshm_location* ret_location) GSHM_NOEXCEPT;

/* The same, for memory of a pool and for memory of an object that a tensor of gshm_dlpack() or gshm_dlpack_versioned() in this
 * process refers to; size_bytes is then up to the end of the object. Also writes the runtime folder of the daemon, with a
 * terminating NUL. -EINVAL: neither. -ERANGE: capacity is too small. Since 0.2. */
int gshm_locate(const void* memory, gshm_location* ret_location, char* ret_dir, size_t capacity) GSHM_NOEXCEPT;

/* The process's default pools, one per GPU, with the signatures of torch.cuda.memory.CUDAPluggableAllocator. device is
 * the ordinal in this process. The pools use the daemon that gshm_connect(NULL, ...) finds and are made on first use.
 * $GSHM_POOL_SLAB and $GSHM_POOL_LIMIT (sizes such as 256M) and $GSHM_POOL_MODE (0640) are their options. NULL: size is
 * 0, or the call failed; gshm_last_error() and the log have the reason. If torch calls it for every tensor
 * (change_current_allocator()), a failure throws torch's OutOfMemoryError or another exception instead, since torch does not
 * check the result. */
void* gshm_malloc(ssize_t size, int device, void* stream);
void gshm_free(void* memory, ssize_t size, int device, void* stream) GSHM_NOEXCEPT;
/* A further handle of the pool that gshm_malloc() uses for the device, for the calls above; gshm_pool_destroy() ends the
 * handle alone. Makes the pool if there is none: with the options, whose device is ignored, and the environment's values
 * for sizes that are 0. options NULL: the present pool, or one with the environment's options. -EBUSY: options are given, but
 * the pool exists already. Since 0.2. */
int gshm_malloc_pool(int device, const gshm_pool_options* options, gshm_pool** ret_pool) GSHM_NOEXCEPT;

/* ---- Handles for other programs --------------------------------------------------------------------------------- */

/* Handles refer to whole extents (the driver shares nothing smaller): map extent_bytes, the object begins at offset. */
typedef struct gshm_handle_info {
    uint32_t struct_size;
    uint32_t kind; /* GSHM_HANDLE_... */
    uint64_t extent_bytes;
    uint64_t offset;
    uint64_t size_bytes;
} gshm_handle_info;
#define GSHM_HANDLE_INFO_INIT {sizeof(gshm_handle_info), 0, 0, 0, 0}

#define GSHM_FABRIC_HANDLE_BYTES 64
#define GSHM_IPC_HANDLE_BYTES 64

/* The caller owns the descriptor, which is close-on-exec. ret_info may be NULL. */
int gshm_export_fd(gshm_object* object, int* ret_fd, gshm_handle_info* ret_info) GSHM_NOEXCEPT;
int gshm_export_dmabuf(gshm_object* object, int* ret_fd, gshm_handle_info* ret_info) GSHM_NOEXCEPT;
int gshm_export_fabric(gshm_object* object, uint8_t ret_handle[GSHM_FABRIC_HANDLE_BYTES],
                       gshm_handle_info* ret_info) GSHM_NOEXCEPT;
/* For memory from cudaMalloc with a handle from gshm_wrap(); otherwise -EOPNOTSUPP. */
int gshm_export_ipc(gshm_object* object, uint8_t ret_handle[GSHM_IPC_HANDLE_BYTES],
                    gshm_handle_info* ret_info) GSHM_NOEXCEPT;

/* Allocates zeroed memory of this process, without a daemon and without a name. device is "host", "cuda:N" with this
 * process's ordinals, or "cuda" for the first GPU. size_bytes is rounded up to the device's granularity; gshm_size()
 * returns the requested size. Flags: GSHM_COMPRESSIBLE. */
int gshm_allocate(const char* device, uint64_t size_bytes, uint32_t flags, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Imports a handle made by one of the exports above, or by any program with the same driver calls. info has the size of
 * the extent and the range in it. The caller keeps the descriptor. Flags: GSHM_WRITE. */
int gshm_import_fd(const char* device, int fd, const gshm_handle_info* info, uint32_t flags,
                   gshm_object** ret_object) GSHM_NOEXCEPT;
int gshm_import_dmabuf(const char* device, int fd, const gshm_handle_info* info, uint32_t flags,
                       gshm_object** ret_object) GSHM_NOEXCEPT;
int gshm_import_fabric(const char* device, const uint8_t handle[GSHM_FABRIC_HANDLE_BYTES], const gshm_handle_info* info,
                       uint32_t flags, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Only in a process other than the exporter. */
int gshm_import_ipc(const char* device, const uint8_t handle[GSHM_IPC_HANDLE_BYTES], const gshm_handle_info* info,
                    uint32_t flags, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Makes a handle for memory that the caller owns: from cudaMalloc, a framework's tensor, VMM memory or ordinary memory,
 * at any address in it. The memory must stay valid until the handle is closed. -EINVAL: a part of the range is not
 * mapped. */
int gshm_wrap(void* memory, uint64_t size_bytes, gshm_object** ret_object) GSHM_NOEXCEPT;
/* Waits for GPU work with the object's memory that was queued so far on the legacy default stream, or on streams that
 * synchronise with it. Returns at once on host. Call it before a ring reads bytes that a kernel writes; nothing is
 * needed after a completion. */
int gshm_sync(gshm_object* object) GSHM_NOEXCEPT;

/* A private copy of a range: memory of this process on the same device, as of gshm_allocate(). It is complete when
 * the call returns, and follows earlier work as gshm_sync() does. -EINVAL: the range is not inside the object, is empty,
 * or the object was opened with GSHM_NO_MAP. Since 0.2. */
int gshm_clone(gshm_object* object, uint64_t offset, uint64_t bytes, gshm_object** ret_object) GSHM_NOEXCEPT;

/* ---- Tensors: DLPack --------------------------------------------------------------------------------------------- */

/* Managed tensors of DLPack 1.1 over an object's memory, as frameworks exchange them (torch.from_dlpack() etc.). Names and
 * layouts are those of <dlpack/dlpack.h>, which the library does not need.
 *   A tensor keeps the memory and the lease, also after gshm_close() of the object, until its deleter is called. The
 *   deleter is a function of this library: it may run in any thread, at any time, also while the process exits. In a
 *   forked child it frees the copy of the child only. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

enum gshm_tensor_flags {
    GSHM_TENSOR_READ_ONLY = 1u << 0, /* reported as DLPACK_FLAG_BITMASK_READ_ONLY even if the memory can be written */
    GSHM_TENSOR_COPIED = 1u << 1,    /* reported as DLPACK_FLAG_BITMASK_IS_COPIED: of an object from gshm_clone() */
};

typedef struct gshm_tensor_spec {
    uint32_t struct_size;
    uint32_t flags;         /* GSHM_TENSOR_... */
    uint64_t offset;        /* of the first element in the object, in bytes; DLTensor.byte_offset is always 0 */
    const int64_t* shape;   /* `dimensions` numbers, copied */
    const int64_t* strides; /* the same in elements, not negative; NULL: row-major without gaps */
    int32_t dimensions;     /* 0 to 64; 0: one element */
    uint8_t type_code;      /* kDLInt etc.; these three fields are DLDataType */
    uint8_t type_bits;
    uint16_t type_lanes;
} gshm_tensor_spec;
#define GSHM_TENSOR_SPEC_INIT {sizeof(gshm_tensor_spec), 0, 0, NULL, NULL, 0, 1, 8, 1}

/* The first without a version, for consumers that know nothing newer; it cannot say that memory is read-only. The second with
 * version 1.1 and flags: sealed objects, and those opened for reading, are read-only. -EINVAL: the tensor is not inside the
 * object, or the object was opened with GSHM_NO_MAP. Since 0.2. */
int gshm_dlpack(gshm_object* object, const gshm_tensor_spec* spec, struct DLManagedTensor** ret_tensor) GSHM_NOEXCEPT;
int gshm_dlpack_versioned(gshm_object* object, const gshm_tensor_spec* spec,
                          struct DLManagedTensorVersioned** ret_tensor) GSHM_NOEXCEPT;
/* The DLDevice of these tensors: type 1 (kDLCPU) or 2 (kDLCUDA), and the ordinal in this process of the GPU with the UUID of the
 * object's. -EOPNOTSUPP: DLPack does not know the device, or the object was opened with GSHM_NO_MAP. Since 0.2. */
int gshm_dlpack_device(gshm_object* object, int32_t* ret_type, int32_t* ret_id) GSHM_NOEXCEPT;
/* For Python: the destructor of capsules with such tensors, which frees the tensor of a capsule that no consumer has taken. The
 * arguments are PyCapsule_IsValid and PyCapsule_GetPointer of the interpreter, which the library is not linked with. The
 * names of the capsules are "dltensor" and "dltensor_versioned". NULL: an argument is NULL. Since 0.2. */
typedef void (*gshm_capsule_destructor)(void* capsule);
gshm_capsule_destructor gshm_dlpack_capsule(int (*is_valid)(void* capsule, const char* name),
                                            void* (*get_pointer)(void* capsule, const char* name)) GSHM_NOEXCEPT;

/* ---- Files: transfers by the kernel and the GPU's copy engines -------------------------------------------------- */

/* The paths that the bytes of a transfer took, or-ed. */
enum {
    GSHM_PATH_DIRECT = 1u << 0,  /* from or to the disk, bypassing the page cache (O_DIRECT) */
    GSHM_PATH_CACHED = 1u << 1,  /* through the page cache */
    GSHM_PATH_STAGED = 1u << 2,  /* through pinned memory and a copy engine of the GPU */
    GSHM_PATH_HOLE = 1u << 3,    /* a hole in the file: zeros filled in place */
    GSHM_PATH_CUFILE = 1u << 4,  /* between disk and GPU by cuFile */
    GSHM_PATH_THREADS = 1u << 5, /* by threads, since io_uring is not available */
    GSHM_PATH_STREAM = 1u << 6,  /* from a pipe, through this process */
};

typedef struct gshm_transfer_info {
    uint32_t struct_size;
    uint32_t path; /* GSHM_PATH_... */
    uint64_t bytes;
    uint64_t duration_ns;
} gshm_transfer_info;
#define GSHM_TRANSFER_INFO_INIT {sizeof(gshm_transfer_info), 0, 0, 0}

enum gshm_transfer_flags {
    /* put and get: compare the object (or file) with its source before it gets its name. Both are read again, a file from the
     * disk if its file system supports that; for a stream checksums are compared. -EBADMSG: they differ. Progress counts a
     * transferred byte as half done. */
    GSHM_TRANSFER_VERIFY = 1u << 0,
};

typedef struct gshm_transfer_options {
    uint32_t struct_size;
    uint32_t flags; /* GSHM_TRANSFER_... */
    /* Called from time to time by the calling thread, and by put and get a last time before the name is given. total_bytes
     * is 0 while it is unknown (a stream). A return value other than 0 ends the transfer with -ECANCELED, also if the file
     * does not respond (network file systems, FUSE): the call then returns after a second, while gshmd may still complete
     * requests that it has started. For memory without a daemon the call waits. */
    int (*progress)(void* context, uint64_t done_bytes, uint64_t total_bytes);
    void* context;
} gshm_transfer_options;
#define GSHM_TRANSFER_OPTIONS_INIT {sizeof(gshm_transfer_options), 0, NULL, NULL}

/* Transfer a range of the file into the object, and of the object into the file. options and ret_info may be NULL. The
 * file must be open for reading (writing); pipes, sockets and directories give -EINVAL. -ENODATA: the file ends early.
 * On failure the contents of the destination range are undefined. */
int gshm_read_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                   const gshm_transfer_options* options, gshm_transfer_info* ret_info) GSHM_NOEXCEPT;
int gshm_write_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                    const gshm_transfer_options* options, gshm_transfer_info* ret_info) GSHM_NOEXCEPT;

/* Loads a whole file (or block device) into a new, sealed object; spec as for gshm_create(), with size_bytes 0. With the
 * flag GSHM_REPLACE it replaces an existing object as gshm_replace() does; otherwise an existing name gives -EEXIST: at once,
 * or at the end if it appears meanwhile. The name appears when the object is complete. On failure no object is made, and an
 * existing one is unchanged. -ENODATA: the file became shorter. */
int gshm_put_file(gshm_client* client, const char* path, const gshm_create_spec* spec,
                  const gshm_transfer_options* options, gshm_transfer_info* ret_info) GSHM_NOEXCEPT;
/* The same from a descriptor, which the caller keeps: a file from its position, which does not change, to its end; a stream (a
 * pipe, a socket, a terminal, a file of /proc) to its end. The size of an object is fixed at creation, so the bytes of a stream
 * are buffered until its end: up to 64 MiB in memory, more in an unnamed file in $TMPDIR (default /var/tmp). With size_bytes
 * in the spec, or GSHM_EMPTY, they go straight into the object; -EFBIG: the stream is longer, -ENODATA: shorter. */
int gshm_put_fd(gshm_client* client, int fd, const gshm_create_spec* spec, const gshm_transfer_options* options,
                gshm_transfer_info* ret_info) GSHM_NOEXCEPT;
/* Writes an object to a file: to a temporary file in the same folder, which takes the name when it is complete. */
int gshm_get_file(gshm_client* client, const char* name, const char* path, const gshm_transfer_options* options,
                  gshm_transfer_info* ret_info) GSHM_NOEXCEPT;

/* A ring performs many such transfers concurrently. For objects of a daemon, the daemon performs them: it gets the
 * file's descriptor, and the calling process need not wait. For other memory (gshm_wrap() etc.) threads of this process
 * do. A ring is used by one thread at a time, unless it is made with GSHM_RING_SHARED. When gshmd dies, the next one
 * repeats the transfers in progress. docs/ring.md has the layout. */
typedef struct gshm_ring gshm_ring;

enum gshm_ring_flags {
    /* Several threads may use the ring at the same time. gshm_ring_submit() starts what any of them has prepared. A
     * completion goes to one of the waiting threads, not necessarily to the one that prepared the operation: user_data
     * tells them apart. A wait also ends, with fewer than `least`, when nothing is in flight any more. Since 0.2. */
    GSHM_RING_SHARED = 1u << 0,
};

typedef struct gshm_ring_options {
    uint32_t struct_size;
    uint32_t entries; /* maximum number of ranges in flight, 1 to 32768; rounded up to a power of two */
    uint32_t flags;   /* GSHM_RING_...; since 0.2 */
    uint32_t reserved;
} gshm_ring_options;
#define GSHM_RING_OPTIONS_INIT {sizeof(gshm_ring_options), 128, 0, 0}

/* options may be NULL. client NULL: only for memory without a daemon. -ENOSPC: not enough shared memory. */
int gshm_ring_create(gshm_client* client, const gshm_ring_options* options, gshm_ring** ret_ring) GSHM_NOEXCEPT;
/* Waits for transfers in flight. NULL is ignored. */
void gshm_ring_destroy(gshm_ring* ring) GSHM_NOEXCEPT;
/* The rounded number of entries. */
size_t gshm_ring_entries(const gshm_ring* ring) GSHM_NOEXCEPT;

/* Registers a file; *ret_file identifies it in this ring. The caller owns the descriptor and may close it afterwards.
 * -EINVAL: not a regular file or block device. */
int gshm_ring_add_file(gshm_ring* ring, int fd, uint32_t* ret_file) GSHM_NOEXCEPT;
/* -EBUSY: a transfer uses it. */
int gshm_ring_remove_file(gshm_ring* ring, uint32_t file) GSHM_NOEXCEPT;

enum {
    GSHM_IO_READ = 1,  /* from the file into the object */
    GSHM_IO_WRITE = 2, /* from the object into the file */
};

typedef struct gshm_range {
    gshm_object* object; /* may be closed as soon as the transfer is prepared */
    uint64_t offset;
    uint64_t bytes;
} gshm_range;

typedef struct gshm_io {
    uint32_t struct_size;
    uint32_t operation; /* GSHM_IO_... */
    uint32_t file;      /* from gshm_ring_add_file() */
    uint32_t flags;     /* 0 */
    uint64_t file_offset;
    const gshm_range* ranges; /* consecutive in the file */
    size_t range_count;
    uint64_t user_data; /* returned with the completion */
} gshm_io;
#define GSHM_IO_INIT {sizeof(gshm_io), 0, 0, 0, 0, NULL, 0, 0}

/* Nothing starts before gshm_ring_submit(). -EAGAIN: not enough free entries; take completions first. -EBADF: no such
 * file, or not open for this operation. -EINVAL: a range is not inside its object. -EACCES, -EPERM: the object must not
 * be written. */
int gshm_ring_prepare(gshm_ring* ring, const gshm_io* io) GSHM_NOEXCEPT;
/* Returns the number of operations started, or -errno. */
int gshm_ring_submit(gshm_ring* ring) GSHM_NOEXCEPT;

typedef struct gshm_completion {
    uint64_t user_data;
    int64_t result; /* bytes, fewer than requested at the end of the file; or -errno */
    uint32_t path;  /* GSHM_PATH_... */
    uint32_t reserved;
} gshm_completion;

/* Takes completions, in any order: waits until `least` are available (0: does not wait), up to timeout_ms (< 0: no
 * limit). Returns the number written, 0 after a timeout, or -errno: -EINVAL if `least` exceeds the capacity or the
 * number of operations in flight. */
int gshm_ring_wait(gshm_ring* ring, gshm_completion* ret_completions, size_t capacity, size_t least,
                   int timeout_ms) GSHM_NOEXCEPT;
/* From any thread, while the ring exists: the current gshm_ring_wait(), or else the next one that would block, returns
 * at once with the completions available. */
void gshm_ring_wake(gshm_ring* ring) GSHM_NOEXCEPT;

/* ---- Tensors: safetensors files as objects --------------------------------------------------------------------- */

/* A file of tensors becomes one object for each device. The object has the form of a safetensors file: 8 bytes with the
 * length of the header, the header (JSON), and the tensors. Unlike in the file, each tensor begins at a multiple of 256
 * bytes of the object, and the gaps are zeros. The attribute below marks such an object, with a JSON object:
 *   {"format": 1, "tensors": COUNT, "header_bytes": BYTES OF THE JSON}, and for loaded files "identity" and "source".
 * docs/tensors.md has the details. Everything in this part is since 0.2. */
#define GSHM_TENSORS_ATTRIBUTE "gshm.tensors"
#define GSHM_TENSORS_ALIGNMENT 256

typedef struct gshm_tensor_info {
    uint32_t struct_size;
    uint32_t dimensions; /* 0: one element */
    const char* name;    /* UTF-8; a valid name of an object as well */
    /* as in the header: BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32
     * U32 F32 C64 F64 I64 U64 */
    const char* dtype;
    const uint64_t* shape; /* `dimensions` numbers */
    uint64_t offset;       /* of the first byte, from the beginning of the file or object */
    uint64_t bytes;        /* 0 if a dimension is 0 */
    size_t file;           /* index of the file in the table */
} gshm_tensor_info;
#define GSHM_TENSOR_INFO_INIT {sizeof(gshm_tensor_info), 0, NULL, NULL, NULL, 0, 0, 0}

/* Tables of tensors. A table never changes and may be used by several threads. Its strings and arrays are valid as long
 * as the table. No daemon is needed. -EBADMSG: the header or the index is malformed; gshm_last_error() has the reason.
 * Headers above 100,000,000 bytes are malformed. So are names of tensors that are no valid names of objects. */

/* Of a safetensors file, or of a folder with such files:
 *   model.safetensors; else the files that model.safetensors.index.json names; else the same with "consolidated"; else the
 *   only index in the folder; else all *.safetensors files.
 * A symbolic link in the folder may lead to a place in the folder or, in a snapshot of the Hugging Face hub, to its blobs;
 * anywhere else gives -EXDEV. -ENOENT: there is no such file. */
int gshm_tensors_of_path(const char* path, gshm_tensors** ret_tensors) GSHM_NOEXCEPT;
/* Of a whole file in memory. The bytes are not used after the call. */
int gshm_tensors_of_memory(const void* data, size_t bytes, gshm_tensors** ret_tensors) GSHM_NOEXCEPT;
/* Of an open object, whose header is read. Gaps between the tensors are permitted. */
int gshm_tensors_of_object(gshm_object* object, gshm_tensors** ret_tensors) GSHM_NOEXCEPT;

enum gshm_layout_flags {
    /* the layout of a file: without gaps, in the order of the safetensors library. Otherwise that of an object, in the order of
     * the array */
    GSHM_LAYOUT_FILE = 1u << 0,
};
/* Lays out new tensors: name, dtype, dimensions and shape of the array are used. Afterwards the table has the offsets,
 * gshm_tensors_header() the first bytes and gshm_tensors_size() the size of the object or file. metadata (may be NULL)
 * becomes "__metadata__": UTF-8 names and values. -EINVAL: an unknown dtype, a name that is not valid or that occurs twice. */
int gshm_tensors_layout(const gshm_tensor_info* tensors, size_t count, const gshm_attribute* metadata,
                        size_t metadata_count, uint32_t flags, gshm_tensors** ret_tensors) GSHM_NOEXCEPT;
/* NULL is ignored. */
void gshm_tensors_free(gshm_tensors* tensors) GSHM_NOEXCEPT;

/* For NULL the functions that return a size return 0. Tensors are ordered by file and offset. */
size_t gshm_tensors_count(const gshm_tensors* tensors) GSHM_NOEXCEPT;
/* Writes tensors from the index `first` on, at most capacity of them. *ret_count (may be NULL) is the number written. */
int gshm_tensors_get(const gshm_tensors* tensors, size_t first, gshm_tensor_info* ret_infos, size_t capacity,
                     size_t* ret_count) GSHM_NOEXCEPT;
/* -ENOENT: no tensor has the name. */
int gshm_tensors_find(const gshm_tensors* tensors, const char* name, size_t* ret_index) GSHM_NOEXCEPT;
/* 1 for a table that is not of a folder. */
size_t gshm_tensors_file_count(const gshm_tensors* tensors) GSHM_NOEXCEPT;
/* The path of a file, relative to the folder; the last part of the path for a table of one file; "" for other tables. NULL
 * past the end. */
const char* gshm_tensors_file(const gshm_tensors* tensors, size_t file) GSHM_NOEXCEPT;
/* The bytes of the whole file or object. 0 past the end. */
uint64_t gshm_tensors_size(const gshm_tensors* tensors, size_t file) GSHM_NOEXCEPT;
/* The beginning of the file or object, up to the first tensor: the length, the JSON and its padding. NULL past the end. */
const void* gshm_tensors_header(const gshm_tensors* tensors, size_t file, size_t* ret_bytes) GSHM_NOEXCEPT;
/* "__metadata__" of a file, by name. A byte NUL follows the value, beyond value_bytes. */
size_t gshm_tensors_metadata_count(const gshm_tensors* tensors, size_t file) GSHM_NOEXCEPT;
const gshm_attribute* gshm_tensors_metadata(const gshm_tensors* tensors, size_t file, size_t index) GSHM_NOEXCEPT;

/* Selects a tensor for gshm_load(). A tensor may be selected once for each device. */
typedef struct gshm_tensor_choice {
    uint32_t struct_size;
    int32_t dimension;  /* of the slice; -1: the whole tensor */
    const char* name;   /* -ENOENT: no such tensor */
    const char* device; /* NULL: that of the spec */
    uint64_t begin;     /* of the slice, inclusive */
    uint64_t end;       /* exclusive; -EINVAL unless begin <= end <= shape[dimension] */
} gshm_tensor_choice;
#define GSHM_TENSOR_CHOICE_INIT {sizeof(gshm_tensor_choice), -1, NULL, NULL, 0, 0}

enum gshm_load_flags {
    GSHM_LOAD_NO_MAP = GSHM_NO_MAP,       /* the objects are opened with GSHM_OPEN_NO_MAP */
    GSHM_LOAD_EXISTING = 1u << 14,        /* reads no file's tensors: -ENOENT if they are not loaded already */
    GSHM_LOAD_EVICTABLE = GSHM_EVICTABLE, /* new objects are made with GSHM_CREATE_EVICTABLE */
    /* as GSHM_CREATE_..., of new objects */
    GSHM_LOAD_EPHEMERAL = GSHM_CREATE_EPHEMERAL,
    GSHM_LOAD_TTL_UNUSED = GSHM_CREATE_TTL_UNUSED,
};

typedef struct gshm_load_spec {
    uint32_t struct_size;
    uint32_t flags;                    /* GSHM_LOAD_... */
    const char* path;                  /* a file or a folder, as for gshm_tensors_of_path() */
    const char* name;                  /* see below; NULL: made from the path of each file */
    const char* device;                /* "cuda:0", "host"; NULL: the daemon's first */
    uint32_t mode;                     /* of new objects; 0: the rights to read the file */
    int32_t timeout_ms;                /* for the call as a whole; < 0: no limit */
    const gshm_tensor_choice* choices; /* the tensors to load; NULL: all of them */
    size_t choice_count;
    /* As in gshm_transfer_options: called by the calling thread, also while it waits for another process. Bytes of tensors that
     * are loaded already count as done. A return value other than 0 ends the call with -ECANCELED. */
    int (*progress)(void* context, uint64_t done_bytes, uint64_t total_bytes);
    void* context;
    uint64_t ttl_ms; /* of new objects, as in gshm_create_spec; 0: none */
} gshm_load_spec;
#define GSHM_LOAD_SPEC_INIT {sizeof(gshm_load_spec), 0, NULL, NULL, NULL, 0, -1, NULL, 0, NULL, NULL, 0}

/* Loads the tensors of a file or folder: opens the objects that have them already, and makes the missing ones. A file's
 * tensors are read once for all processes: a call that finds another process loading them waits for it, and takes over if
 * that process fails or dies. New objects are sealed and get their names when they are complete; a failed call leaves no
 * incomplete object. A file that has changed since (another inode, size or modification time, or another blob of the hub)
 * becomes a new version, which replaces the old one as gshm_replace() does.
 *   Names. An explicit name is that of the object of a file, or of the directory with the objects of a folder. Any user with the
 *   rights may share it: the objects there are trusted. Without a name an object is loaded-UID/PATH@DEVICE, below the caller's
 *   uid or, if root or the file's owner has loaded it, below theirs; objects of other users are not used. The directory is
 *   loaded-UID.* with a random number if another user has taken its name. An explicit name
 *   is that of the file on the first device. "@DEVICE" is added on others, and in a call for several devices. A part of a file's tensors adds "+" and a hash of the selection.
 * -EBADMSG, -EXDEV, -ENOENT: as gshm_tensors_of_path(). -ENODEV: gshmd has no such device. -EEXIST: another object has the explicit name. -ENOSPC: the device is
 * full. -ENODATA: the file became shorter. -EBUSY: the file changed meanwhile. -ETIMEDOUT. -ECANCELED. */
int gshm_load(gshm_client* client, const gshm_load_spec* spec, gshm_model** ret_model) GSHM_NOEXCEPT;
/* Ends the leases of its objects and frees the tables. NULL is ignored. */
void gshm_model_close(gshm_model* model) GSHM_NOEXCEPT;

enum gshm_model_part_flags {
    GSHM_PART_SHARED = 1u << 0, /* the object was loaded by another call: nothing was read */
};
/* The tensors of one file on one device. The pointers belong to the model. */
typedef struct gshm_model_part {
    uint32_t struct_size;
    uint32_t flags;              /* GSHM_PART_... */
    gshm_object* object;         /* open for reading; NULL after gshm_model_take() */
    const gshm_tensors* tensors; /* of the object, with the shapes of slices */
    const char* name;            /* of the object */
    const char* file;            /* as gshm_tensors_file() */
    const char* device;          /* of the object */
    uint64_t read_bytes;         /* read from the file by this call */
} gshm_model_part;
#define GSHM_MODEL_PART_INIT {sizeof(gshm_model_part), 0, NULL, NULL, NULL, NULL, NULL, 0}

/* The number of parts, in the order of files and devices; 0 for NULL. Files of which no tensor is selected have no part. */
size_t gshm_model_count(const gshm_model* model) GSHM_NOEXCEPT;
/* -EINVAL: past the end. */
int gshm_model_get_part(const gshm_model* model, size_t index, gshm_model_part* ret_part) GSHM_NOEXCEPT;
/* The part's object, which belongs to the caller afterwards, and may outlive the model. NULL: past the end, or taken. */
gshm_object* gshm_model_take(gshm_model* model, size_t index) GSHM_NOEXCEPT;

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif

/* gshm: /dev/shm for GPU memory. The C interface; gshm.hpp wraps it for C++.
 * Why this file is long: it is the whole of it, with the contract of every call.
 *
 * Conventions
 *  1. Functions that can fail return 0 or a negative errno. gshm_last_error() then has a sentence for people; it
 *     belongs to the calling thread and lives until that thread's next failing call.
 *  2. Outputs are named ret_... and are not written on failure.
 *  3. Strings are UTF-8 and end in NUL. A name is a relative path such as "models/llama/w0": parts of 1 to 255 bytes,
 *     no "." or "..", 4095 bytes at most (else -EINVAL, -ENAMETOOLONG; -EILSEQ for what is not UTF-8). Parts that do
 *     not exist are made when an object is created and go again with the last object in them.
 *  4. Structs that may grow begin with struct_size: set it to sizeof, or initialise with the ..._INIT macro. A size
 *     that this library does not know is -EINVAL. In arrays the first element's size stands for all.
 *  5. Handles are opaque. One client may be used by several threads at once; one object handle by one thread at a time.
 *     A client must outlive nothing: objects keep what they need of it alive.
 *  6. When gshmd dies, mapped memory stays as it is. Calls wait for the next gshmd (timeout_ms of the connection), which
 *     knows all that was known: handles go on working. What may have been done and must not be done twice (create,
 *     rename, unlink, ...) gives -ECONNRESET if it was under way just then; look, and decide. Handles of a daemon that
 *     has given everything up give -ESTALE.
 *  7. After fork() the child must connect anew: every call with an inherited client or object gives -ECHILD there, and
 *     closing the handle frees the child's copy only.
 *  8. CUDA is started (the device's primary context, retained) only by calls that need a device pointer: create, open,
 *     allocate and import without GSHM_NO_MAP on a cuda device. Copies through handles opened with GSHM_NO_MAP go
 *     through the daemon.
 *
 * Rights. Every object has an owner, a group and mode bits, as have the directories on its way; the daemon checks
 * each call against the credentials that the kernel reports for the caller. On `host` a read-only open yields memory
 * that cannot be written. CUDA has no read-only sharing: on cuda devices whoever may open an object may, by going
 * around this library, also write to it. */
#ifndef GSHM_GSHM_H
#define GSHM_GSHM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define GSHM_VERSION_MAJOR 0
#define GSHM_VERSION_MINOR 1
#define GSHM_VERSION_PATCH 0

typedef struct gshm_client gshm_client;   /* a connection to gshmd, made again by itself when it is lost */
typedef struct gshm_object gshm_object;   /* an open object (a lease), or memory allocated or imported without a daemon */
typedef struct gshm_listing gshm_listing; /* the result of a list call */
typedef struct gshm_mirror gshm_mirror;   /* an object's bytes for the CPU */
typedef struct gshm_fence gshm_fence;     /* who may read an object, and when */
typedef struct gshm_watch gshm_watch;     /* what happens to names, as it happens */
typedef struct gshm_pool gshm_pool;       /* memory in pieces of any size, cut from objects */

/* "major.minor.patch" of the library. */
const char* gshm_version(void);
/* What went wrong in this thread's last failing call; "" if none did. Never NULL. */
const char* gshm_last_error(void);

/* ---- Connection ------------------------------------------------------------------------------------------------ */

typedef struct gshm_connect_options {
    uint32_t struct_size;
    int32_t timeout_ms; /* how long to try, when connecting and when reconnecting; 0: one attempt */
    const char* dir;    /* runtime folder; NULL: $GSHM_DIR, else /run/gshm for root, else $XDG_RUNTIME_DIR/gshm */
} gshm_connect_options;
#define GSHM_CONNECT_OPTIONS_INIT {sizeof(gshm_connect_options), 2000, NULL}

/* The daemon's socket in its runtime folder. */
#define GSHM_SOCKET_NAME "gshm.sock"

/* options may be NULL. -ECONNREFUSED: no daemon there. -EPROTO: it speaks another protocol. -ETIMEDOUT: it does not
 * answer. */
int gshm_connect(const gshm_connect_options* options, gshm_client** ret_client);
/* The runtime folder that NULL for connect's dir means, with NUL at its end. -ENOENT: none of the variables is set. -ERANGE:
 * capacity is too small. */
int gshm_runtime_dir(char* ret_dir, size_t capacity);
/* The runtime folder, for connect's dir, of the daemon whose mount the path is in (a file or a folder), with NUL at its end.
 * -EINVAL: it is in none. -ERANGE: capacity is too small. */
int gshm_find_daemon(const char* path, char* ret_dir, size_t capacity);
/* Ends the session: leases end, unsealed objects created without GSHM_KEEP are reclaimed. NULL is ignored. */
void gshm_disconnect(gshm_client* client);

int gshm_ping(gshm_client* client);

typedef struct gshm_daemon_info {
    uint32_t struct_size;
    uint32_t protocol;   /* protocol version spoken */
    int32_t pid;
    uint32_t sessions;
    uint64_t instance;   /* differs between daemons; the same as long as objects can be the same */
    uint64_t objects;
    uint64_t extents;
    char version[32];
    char mountpoint[256]; /* where its objects are files; "" if nowhere */
    int32_t keeper;       /* pid of who holds the memory should the daemon die; 0: none, or systemd */
    uint32_t reserved;
} gshm_daemon_info;
int gshm_daemon(gshm_client* client, gshm_daemon_info* ret_info);

/* Asks the daemon to end, and with it all that it holds. With GSHM_KEEP everything stays, objects, mount and what
 * clients map, for the gshmd that is started there next. Only root and the daemon's own user may. */
int gshm_shutdown(gshm_client* client, uint32_t flags);
/* Asks it to unmount; its objects and its clients stay. -EBUSY while files are open there, unless with GSHM_LAZY: then
 * nobody finds the mount any more, and it goes with the last file that is closed. -EINVAL if nothing is mounted. */
int gshm_unmount(gshm_client* client, uint32_t flags);

/* ---- Devices --------------------------------------------------------------------------------------------------- */

enum {
    GSHM_HANDLE_POSIX_FD = 1,
    GSHM_HANDLE_FABRIC = 2,
    GSHM_HANDLE_DMABUF = 4,
    GSHM_HANDLE_IPC = 8, /* CUDA's older handles, of memory that came from cudaMalloc; never gshm's own */
};

typedef struct gshm_device_info {
    uint32_t struct_size;
    uint32_t handle_kinds;   /* GSHM_HANDLE_..., or-ed */
    char name[16];           /* "host", "cuda:0" */
    char uuid[48];           /* "GPU-…", "MIG-…"; "" for host */
    char model[96];
    uint64_t capacity_bytes; /* what gshm may use of it */
    uint64_t used_bytes;     /* in extents */
    uint64_t object_bytes;   /* in objects: used_bytes less slack and free slab space */
    uint64_t granularity_bytes;
    uint64_t unlinked_bytes; /* in objects that have no name any more but are still held */
    uint32_t compressible;   /* 1: GSHM_COMPRESSIBLE works */
    uint32_t failed;         /* 1: the device has failed and is refused */
    char failure[128];       /* why */
} gshm_device_info;

/* Devices of the daemon. Writes at most capacity entries; *ret_count is how many there are. ret_devices may be NULL
 * when capacity is 0. */
int gshm_devices(gshm_client* client, gshm_device_info* ret_devices, size_t capacity, size_t* ret_count);
/* The same for this process, without a daemon. Starts CUDA's driver (cuInit), makes no context. */
int gshm_local_devices(gshm_device_info* ret_devices, size_t capacity, size_t* ret_count);

/* ---- Objects by name ------------------------------------------------------------------------------------------- */

enum {
    /* create */
    GSHM_KEEP = 1u << 0,         /* stays when this session ends, though not sealed; shutdown: see there */
    GSHM_COMPRESSIBLE = 1u << 1, /* ask the device for compressible memory; -EOPNOTSUPP where there is none */
    GSHM_DEDICATED = 1u << 2,    /* an extent of its own even if small: nobody who opens another object can reach it */
    GSHM_REPLACE = 1u << 3,      /* rename: over an existing object (create never replaces) */
    GSHM_UNNAMED = 1u << 4,      /* nobody sees it until gshm_publish() or gshm_replace() gives it its name; see there */
    GSHM_EMPTY = 1u << 6,        /* size_bytes is 0: an object without memory, as an empty file of the mount is */
    /* create and make */
    GSHM_OWNER = 1u << 5,        /* it belongs to the spec's uid and gid; -EPERM unless root asks */
    /* create and open */
    GSHM_NO_MAP = 1u << 8,       /* no pointer wanted; gshm_data() is NULL, copies go through the daemon */
    /* open */
    GSHM_WRITE = 1u << 9,        /* for writing too; -EPERM if sealed. -EBUSY if it shares its extent with sealed objects and
                                  * another process holds it: GSHM_NO_MAP, or made with GSHM_DEDICATED, it can be written */
    GSHM_SEALED_ONLY = 1u << 10, /* -EBUSY unless sealed */
    /* list */
    GSHM_RECURSIVE = 1u << 11,
    /* unmount */
    GSHM_LAZY = 1u << 12,
    /* only ever reported, by gshm_list_unlinked() */
    GSHM_FORMER = 1u << 13,
};

typedef struct gshm_attribute {
    const char* name; /* 1 to 255 bytes */
    const void* value;
    size_t value_bytes; /* at most 64 KiB; a create call takes about 100 KiB of them in all, further ones can be set then */
} gshm_attribute;

typedef struct gshm_create_spec {
    uint32_t struct_size;
    uint32_t mode;      /* permission bits; 0 means 0600 */
    const char* name;
    uint64_t size_bytes;
    const char* device; /* "cuda:0", "host"; NULL: the daemon's first */
    uint32_t flags;
    uint32_t reserved;
    const gshm_attribute* attributes;
    size_t attribute_count;
    uint32_t uid; /* with GSHM_OWNER */
    uint32_t gid;
} gshm_create_spec;
#define GSHM_CREATE_SPEC_INIT {sizeof(gshm_create_spec), 0600, NULL, 0, NULL, 0, 0, NULL, 0, 0, 0}

/* Creates an object of zeros, opened for writing. -EEXIST if the name is taken. It is reclaimed with this session
 * unless it is sealed first or made with GSHM_KEEP. */
int gshm_create(gshm_client* client, const gshm_create_spec* spec, gshm_object** ret_object);
/* Opens for reading (or with GSHM_WRITE). One round trip, and no driver call if its extent is mapped already. */
int gshm_open(gshm_client* client, const char* name, uint32_t flags, gshm_object** ret_object);
int gshm_open_id(gshm_client* client, uint64_t id, uint32_t flags, gshm_object** ret_object);
/* Opens the object behind a file of a gshm mount. client NULL: the library connects to the daemon of the mount, which
 * it finds by the path, for as long as the object is open. -EINVAL if the path is not in such a mount, -EXDEV if it is
 * that of another daemon than the client's. A file that is resized later keeps the handle's size and, on host, its
 * pages; see docs/mount.md. An empty file has no memory: gshm_data() is NULL. */
int gshm_open_path(gshm_client* client, const char* path, uint32_t flags, gshm_object** ret_object);

/* Many at once. Each element succeeds or fails for itself: ret_status[i] is 0 or -errno and ret_objects[i] is the
 * handle or NULL; both arrays are always written unless the arguments are bad. The return value is 0, or the first
 * failing element's status. GSHM_NO_MAP must be the same for all elements of a batch. */
int gshm_create_batch(gshm_client* client, const gshm_create_spec* specs, size_t count, gshm_object** ret_objects,
                      int* ret_status);
int gshm_open_batch(gshm_client* client, const char* const* names, size_t count, uint32_t flags,
                    gshm_object** ret_objects, int* ret_status);

/* Ends the lease and forgets the pointer. NULL is ignored. */
void gshm_close(gshm_object* object);
void gshm_close_batch(gshm_object* const* objects, size_t count);

/* From now on its bytes are immutable (its attributes are not). Needs a handle that is open for writing; -EBUSY while
 * another process has it so. Pointers and descriptors that were handed out before keep their access. The time of the last
 * modification stays. */
int gshm_seal(gshm_object* object);
int gshm_seal_batch(gshm_object* const* objects, size_t count, int* ret_status);
int gshm_seal_name(gshm_client* client, const char* name);
/* Also of an empty directory, which the mount may have made; -EISDIR if it has entries. */
int gshm_unlink(gshm_client* client, const char* name);
/* Atomic. With GSHM_REPLACE over an existing object, whose holders keep it, or of a directory over an empty one (-ENOTEMPTY
 * if it has entries); else -EEXIST. */
int gshm_rename(gshm_client* client, const char* from, const char* to, uint32_t flags);
enum { GSHM_MOVE_KEEP_HOLDERS = 1u << 0 };
/* Moves an object's bytes to memory of another device ("cuda:0", "host"); by its owner and root, sealed or not. It keeps its id,
 * names, state, attributes and times, but for the time of its last change. It is on one of the two, whole, whatever happens.
 * -ENOSPC if the device is full, -ENODEV if there is none of that name, -EBUSY if a file of the mount is open on `host`.
 * A process that holds the object maps its old memory: -EBUSY, or with GSHM_MOVE_KEEP_HOLDERS it keeps that memory until it lets
 * go, and only -EBUSY if it may write to it (see gshm_holders()). */
int gshm_move(gshm_client* client, const char* name, const char* device, uint32_t flags);
/* A new version of something that others read meanwhile: seals the object and gives it the name, over whatever object
 * (or symbolic link) has it, in one step. Whoever opens the name gets the old version or the new one, sealed and whole;
 * holders of the old one keep it until they let go. Needs a handle that is open for writing; rights, and errors such as
 * -EISDIR, are those of renaming over the name, -EBUSY that of sealing.
 *   Make the object with GSHM_UNNAMED: it then has no name, so that a writer that dies leaves the old version and nothing
 * else. Its spec's name says where it is meant to get (rights are checked at once, directories are made in the end) and
 * may be taken. An object that was made with a name loses that (-EMLINK if it has several).
 *   -ESTALE: the connection was lost before; nothing was replaced, and the new version is gone. -ECONNRESET: it was lost
 * on the way; whether it was replaced gshm_stat() tells, by the id. */
int gshm_replace(gshm_object* object, const char* name);
/* The same without GSHM_REPLACE among the flags, unless something has the name: then it is -EEXIST, and the object stays as it
 * is. With GSHM_REPLACE it is gshm_replace(). */
int gshm_publish(gshm_object* object, const char* name, uint32_t flags);

/* Symbolic links are followed when an object is opened by name. Pipes, sockets and device files are made in the mount
 * only. */
enum { GSHM_KIND_OBJECT = 1, GSHM_KIND_DIRECTORY = 2, GSHM_KIND_SYMLINK = 3, GSHM_KIND_SPECIAL = 4 };
enum { GSHM_STATE_OPEN = 1, GSHM_STATE_SEALED = 2 };

typedef struct gshm_stat_info {
    uint32_t struct_size;
    uint32_t kind;  /* GSHM_KIND_... */
    uint32_t state; /* GSHM_STATE_...; 0 for all but objects */
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    uint64_t id;
    uint64_t size_bytes;       /* object: bytes; directory: entries */
    uint64_t allocation_bytes; /* size of the extent it is in */
    uint64_t extent;           /* id of that extent */
    uint64_t extent_offset;    /* where in it the object begins */
    int64_t created_ns;        /* since the epoch */
    int64_t modified_ns;
    uint32_t leases;
    uint32_t flags; /* GSHM_KEEP (of a directory: it stays without entries), GSHM_COMPRESSIBLE, GSHM_DEDICATED */
    char device[16]; /* of a directory: where what is made in it is, if it says so */
} gshm_stat_info;

int gshm_stat(gshm_client* client, const char* name, gshm_stat_info* ret_info);
int gshm_stat_batch(gshm_client* client, const char* const* names, size_t count, gshm_stat_info* ret_infos,
                    int* ret_status);
int gshm_stat_object(gshm_object* object, gshm_stat_info* ret_info);

/* Entries of a directory ("" is the root), sorted by name; of all below it with GSHM_RECURSIVE (objects only then).
 * If path names an object, the listing has that one entry, under its full path. */
int gshm_list(gshm_client* client, const char* path, uint32_t flags, gshm_listing** ret_listing);
size_t gshm_listing_count(const gshm_listing* listing);
const char* gshm_listing_name(const gshm_listing* listing, size_t index); /* relative to the listed path; NULL past end */
int gshm_listing_stat(const gshm_listing* listing, size_t index, gshm_stat_info* ret_info);
void gshm_listing_free(gshm_listing* listing);

typedef struct gshm_holder {
    uint32_t struct_size;
    int32_t pid;
    uint32_t uid;
    uint32_t leases;
    uint32_t writable; /* 1 if one of them is for writing */
    char command[32];  /* as in /proc/PID/comm */
} gshm_holder;
/* Who holds leases. Writes at most capacity entries (ret_holders may be NULL when it is 0); *ret_count is how many
 * there are, of which the daemon names 1,000 at most. */
int gshm_holders(gshm_client* client, const char* name, gshm_holder* ret_holders, size_t capacity, size_t* ret_count);

/* Memory that has no name any more and is still held: one entry for each object, in the order of their ids. Its name is
 * the last that it had ("" if it never had one), its size that of the memory. GSHM_FORMER among its flags: it is not the
 * object's present bytes but memory that a file had before it was resized, which processes still map; the object itself
 * may well have its name. Root and the daemon's user see everything, others what is in objects of their own and what they
 * hold themselves (of others' objects without the name, and with nobody else's leases). */
int gshm_list_unlinked(gshm_client* client, gshm_listing** ret_listing);
/* Who holds an entry of that listing; none for other listings. As gshm_holders(). */
int gshm_listing_holders(const gshm_listing* listing, size_t index, gshm_holder* ret_holders, size_t capacity,
                         size_t* ret_count);

/* ---- What is not an object, further names, rights -------------------------------------------------------------- */

typedef struct gshm_make_spec {
    uint32_t struct_size;
    uint32_t kind;      /* GSHM_KIND_DIRECTORY or GSHM_KIND_SYMLINK */
    const char* name;
    const char* target; /* of a symbolic link: where it leads, 1 to 4095 bytes; it need not exist */
    const char* device; /* of a directory: where what is made in it is unless it says; NULL: as the directory above */
    uint32_t mode;      /* of a directory, 07777; 0 means 0755 */
    uint32_t flags;     /* GSHM_KEEP: the directory stays without entries; GSHM_OWNER */
    uint32_t uid;
    uint32_t gid;
} gshm_make_spec;
#define GSHM_MAKE_SPEC_INIT {sizeof(gshm_make_spec), 0, NULL, NULL, NULL, 0, GSHM_KEEP, 0, 0}

/* Makes a directory or a symbolic link. -EEXIST if the name is taken. Directories that are missing on the way are made
 * as for objects. */
int gshm_make(gshm_client* client, const gshm_make_spec* spec);
/* Where a symbolic link leads; sizes as of attributes, no NUL at the end. -EINVAL if it is none. */
int gshm_read_link(gshm_client* client, const char* name, char* ret_target, size_t capacity, size_t* ret_bytes);
/* A further name for an object or a symbolic link, of equal standing. -EPERM for directories, and for objects of others
 * that the caller may not read and write. */
int gshm_link(gshm_client* client, const char* name, const char* new_name);

enum {
    GSHM_CHANGE_MODE = 1,  /* by the owner and root */
    GSHM_CHANGE_OWNER = 2, /* by root */
    GSHM_CHANGE_KEEP = 4,  /* from now on as if made with GSHM_KEEP; by the owner and root */
};
typedef struct gshm_changes {
    uint32_t struct_size;
    uint32_t what; /* GSHM_CHANGE_..., or-ed */
    uint32_t mode; /* 07777 */
    uint32_t uid;
    uint32_t gid;
} gshm_changes;
/* Of an object, a directory or a symbolic link itself. -EPERM where another may not. A small object whose rights change
 * closes its extent to all but the owner, unless it was made with GSHM_DEDICATED. */
int gshm_change(gshm_client* client, const char* name, const gshm_changes* changes);

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

enum { GSHM_WAIT_EXISTS = 1, GSHM_WAIT_SEALED = 2, GSHM_WAIT_GONE = 3 };
/* Waits until the name exists, or exists and is sealed (-EISDIR if it is a directory), or does not lead any more to what it
 * led to when the call began: that was deleted, renamed or replaced (by its id: what is unlinked but still held is gone,
 * what has the name instead does not matter). Where there is nothing it is gone at once. timeout_ms < 0: for ever;
 * -ETIMEDOUT when it passed.
 * ret_info may be NULL; with GSHM_WAIT_GONE it is what was there before, all zero if nothing was. */
int gshm_wait(gshm_client* client, const char* name, int condition, int timeout_ms, gshm_stat_info* ret_info);

/* ---- Watching: docs/watch.md ----------------------------------------------------------------------------------- */

enum {
    GSHM_EVENT_CREATED = 1,  /* the name leads to something: made, linked, or renamed from where the watch does not look */
    GSHM_EVENT_SEALED = 2,   /* its object is sealed now. One that got its name sealed has its state in that event only */
    GSHM_EVENT_DELETED = 3,  /* the name leads to nothing: unlinked, reclaimed, renamed to where the watch does not look */
    GSHM_EVENT_RENAMED = 4,  /* from old_name, which is gone. Of a directory: for each name below it as well */
    GSHM_EVENT_REPLACED = 5, /* the name led to replaced_id; old_name, if the new one had that before, is gone */
    GSHM_EVENT_EXISTING = 6, /* with GSHM_WATCH_EXISTING: it was there already */
    GSHM_EVENT_READY = 7,    /* likewise: all that was there has been told of. Has no name */
    GSHM_EVENT_OVERFLOW = 8, /* events were missed: look again at what there is (gshm_list()). Has no name */
};

typedef struct gshm_event {
    uint32_t struct_size;
    uint32_t event; /* GSHM_EVENT_...; there may be others one day: ignore what you do not know */
    uint32_t kind;  /* GSHM_KIND_...; directories, symbolic links and special files have names, too */
    uint32_t state; /* GSHM_STATE_... of an object, 0 for others */
    uint64_t id;
    uint64_t replaced_id;
    uint64_t size_bytes; /* of an object, as gshmd knew it then */
    int64_t time_ns;     /* since the epoch, when it happened */
    char device[16];     /* of an object */
    const char* name;    /* both live until the next call with the watch; "" if there is none */
    const char* old_name;
} gshm_event;

enum { GSHM_WATCH_EXISTING = 1u << 0 }; /* first what is there already, without a gap to or a repetition in what happens */

/* Every change of names that begin with the prefix ("": all; "models/": what is in there; "models/ll": "models/llama" and
 * what is in it, too) from now on, by whomever: libraries, commands, the mount, and the end of a process whose unsealed
 * objects are reclaimed. Only what the caller may look up and list: directories on the way must be searchable, and
 * readable unless the prefix has the names in them. A watch is a connection of its own, and outlives the client.
 * -EINVAL, -ENAMETOOLONG, -EILSEQ: no name begins so. */
int gshm_watch_create(gshm_client* client, const char* prefix, uint32_t flags, gshm_watch** ret_watch);
/* The next event. timeout_ms < 0: for ever; 0: only if there is one; -ETIMEDOUT: none came. -EINTR: a signal came.
 * When gshmd dies the watch goes on with the next one, after a GSHM_EVENT_OVERFLOW; -ECONNREFUSED if none comes (in
 * timeout_ms, or that of the connection if that is less): call again to go on trying. For one thread at a time. */
int gshm_watch_next(gshm_watch* watch, gshm_event* ret_event, int timeout_ms);
/* For poll() and epoll: readable when gshm_watch_next() has something to say without waiting (it may also be that
 * gshmd has gone). Always the same, and the watch's to close; -1 for NULL. */
int gshm_watch_fd(const gshm_watch* watch);
/* A gshm_watch_next() that another thread waits in returns -ECANCELED first. NULL is ignored. */
void gshm_watch_destroy(gshm_watch* watch);

/* ---- Attributes ------------------------------------------------------------------------------------------------ */

/* Of an object or a directory ("": the root directory): those that the mount shows as user.NAME. Limits and errors are the
 * mount's: a name of 250 bytes (-ERANGE), a value of 64 KiB (-E2BIG), 1 MiB for all of them together (-ENOSPC). */
int gshm_set_attribute(gshm_client* client, const char* name, const char* attribute, const void* value,
                       size_t value_bytes);
/* Writes at most capacity bytes; *ret_bytes is the attribute's full length. -ERANGE if it does not fit (ret_bytes is
 * written then, as an exception to rule 2), -ENODATA if there is none. capacity 0 asks for the length alone. */
int gshm_get_attribute(gshm_client* client, const char* name, const char* attribute, void* ret_value, size_t capacity,
                       size_t* ret_bytes);
int gshm_remove_attribute(gshm_client* client, const char* name, const char* attribute);
/* All names, each ended by NUL, as listxattr(2) writes them; sizes as above. */
int gshm_list_attributes(gshm_client* client, const char* name, char* ret_names, size_t capacity, size_t* ret_bytes);

/* ---- An open object -------------------------------------------------------------------------------------------- */

/* Of NULL these four say NULL, 0, 0 and "". */
/* Device pointer on cuda, ordinary pointer on host; NULL with GSHM_NO_MAP. Valid until the handle is closed, also
 * when the daemon is gone. Read-only on host unless opened for writing. */
void* gshm_data(const gshm_object* object);
uint64_t gshm_size(const gshm_object* object);
uint64_t gshm_id(const gshm_object* object);          /* 0 for memory without a daemon */
const char* gshm_device(const gshm_object* object);   /* name at the daemon, or here for memory without a daemon */

/* Between host memory and the object. They return when the bytes are there. */
int gshm_copy_in(gshm_object* object, uint64_t offset, const void* source, size_t bytes);
int gshm_copy_out(gshm_object* object, uint64_t offset, void* destination, size_t bytes);
int gshm_fill(gshm_object* object, uint64_t offset, uint64_t bytes, uint8_t value);

/* Makes gshm_data() usable from a further GPU too. -EOPNOTSUPP if the two GPUs cannot reach each other. */
int gshm_map_peer(gshm_object* object, const char* device);

/* ---- Mirrors: an object's bytes for the CPU ------------------------------------------------------------------------- */

/* A mirror is memory of this process that stands for a range of an object. On host it is the object's memory itself; on a
 * GPU it is pinned memory, filled by a copy and written back by another. A program is written once for both. It may be used
 * by one thread at a time, which counts as a use of its object. The object's handle may be closed before: what the mirror
 * needs of it, the lease too, stays until the mirror goes. After fork() only the parent has it. */
enum {
    GSHM_MIRROR_LOAD = 1,  /* begins with the object's bytes; without it, with whatever bytes */
    GSHM_MIRROR_WRITE = 2, /* may be changed; -EPERM if the object is sealed, -EACCES if it is open for reading only */
};

typedef struct gshm_mirror_options {
    uint32_t struct_size;
    uint32_t flags;      /* GSHM_MIRROR_..., one at least */
    uint64_t offset;
    uint64_t size_bytes; /* 0: to the end of the object */
    void* stream;        /* CUstream, cudaStream_t: what the copies are ordered by; NULL: the legacy default stream */
} gshm_mirror_options;
#define GSHM_MIRROR_OPTIONS_INIT {sizeof(gshm_mirror_options), GSHM_MIRROR_LOAD, 0, 0, NULL}

/* options may be NULL. The stream must live as long as the mirror; copies wait for what is on it and for nothing else, and
 * have ended when a call returns. On host it is not looked at. Of an object that was opened with GSHM_NO_MAP the bytes go
 * through the daemon, and a stream is -EINVAL. -EINVAL: a range outside of the object. */
int gshm_mirror_create(gshm_object* object, const gshm_mirror_options* options, gshm_mirror** ret_mirror);
/* NULL and 0 of NULL. */
void* gshm_mirror_data(const gshm_mirror* mirror);
uint64_t gshm_mirror_size(const gshm_mirror* mirror);
/* Ranges here are within the mirror. This one was changed, or will be before the next flush; -EACCES if the mirror is for
 * reading only. */
int gshm_mirror_mark(gshm_mirror* mirror, uint64_t offset, uint64_t bytes);
/* Forgets the marks. On host what was changed stays so. */
void gshm_mirror_unmark(gshm_mirror* mirror);
/* Writes back what is marked, and nothing else. -EPERM: the object was sealed meanwhile. What failed stays marked. */
int gshm_mirror_flush(gshm_mirror* mirror);
/* Writes back this range, marked or not. */
int gshm_mirror_flush_range(gshm_mirror* mirror, uint64_t offset, uint64_t bytes);
/* Reads it anew from the object; marks in it are forgotten. */
int gshm_mirror_load(gshm_mirror* mirror, uint64_t offset, uint64_t bytes);
/* As gshm_mirror_flush(), and whatever that says, which is logged too if it is an error, the mirror is gone. NULL is ignored. */
int gshm_mirror_destroy(gshm_mirror* mirror);
/* Pinned memory that no mirror uses any more is kept for the next ones, up to 1 GiB. Another bound; 0: blocks of more than
 * 1 MiB are given back at once. */
void gshm_keep_pinned(uint64_t most_bytes);

/* ---- Fences: when others may read what was written ------------------------------------------------------------------ */

/* Every object of a daemon has a fence, which counts generations from 1. Whoever writes the object publishes one when what it
 * has put on a stream so far may be read; a reader makes its own stream wait for that, on the GPU: nobody's CPU waits for
 * a kernel, and nothing else on the GPU does. Where there are no streams what was written is there, and waiting is sleeping: on
 * host, where a stream is not looked at, and with GSHM_NO_MAP, where one is -EINVAL.
 *   One process publishes at a time. Should it die, whoever waits for what it had promised, also on a GPU, goes on, and hears
 * -EOWNERDEAD. Neither publishing nor waiting asks the daemon anything, which may be away.
 *   A fence may be used by one thread at a time. The object's handle may be closed before it; its lease stays. After fork()
 * only the parent has it. See docs/fence.md. */

/* GSHM_WRITE: to publish; needs a handle that is open for writing. -EBUSY while another process, or another handle of this one,
 * has it so. Sealing the object does not keep its writer from publishing. -EMFILE: this session has made 1,024 of them. */
int gshm_fence_open(gshm_object* object, uint32_t flags, gshm_fence** ret_fence);
/* The next generation is done when all that is on the stream by now is (CUstream, cudaStream_t; NULL: the legacy default
 * stream). Returns at once. Generations are done in their order, also from several streams. ret_generation may be NULL. */
int gshm_fence_publish(gshm_fence* fence, void* stream, uint64_t* ret_generation);
/* What is put on the stream from now on begins when the generation is done. generation 0: the newest that is published, or
 * the first if there is none yet. One that is not published yet is waited for here, for timeout_ms (< 0: for ever):
 * -ETIMEDOUT; -EOWNERDEAD if its writer has died, -EPIPE if it has closed the fence. Without streams it is done when this
 * returns. ret_generation (may be NULL) tells which it was. */
int gshm_fence_wait(gshm_fence* fence, void* stream, uint64_t generation, int timeout_ms, uint64_t* ret_generation);
/* 0: it is done. -EAGAIN: not yet. -EOWNERDEAD: its writer died before it was done. To be asked, once the stream has been
 * waited for, by readers that must know: a stream that was waiting for a writer that dies goes on. */
int gshm_fence_check(gshm_fence* fence, uint64_t generation);
/* The newest generation that is published; 0: none. */
uint64_t gshm_fence_published(const gshm_fence* fence);
/* What was published comes nevertheless. NULL is ignored. */
void gshm_fence_close(gshm_fence* fence);

/* ---- Pools: memory in pieces of any size, that others can open ----------------------------------------------------------- */

/* A pool cuts what it is asked for from slabs, which are objects of the daemon: any piece can be opened by another process,
 * see gshm_pool_locate(). While a slab has room nobody is asked, neither daemon nor driver. Slabs go with the process, however
 * that ends. A pool may be used by several threads at once; the client may be disconnected before. When gshmd dies the memory
 * stays, and the next slab comes from the next gshmd.
 *   What is freed is freed in the order of a stream, as by cudaFreeAsync(): it may be used again at once in the same stream, and
 * in another after that has been made to wait for what came before. Streams are CUstream or cudaStream_t; NULL is the legacy
 * default stream, and CU_STREAM_PER_THREAD (2) the calling thread's. They are not looked at on devices that have none (host).
 * Streams that are being captured into a graph are not supported. */
#define GSHM_NO_STREAM ((void*)(intptr_t)-1) /* allocate: for any stream, at once; deallocate: nobody uses it any more */

typedef struct gshm_pool_options {
    uint32_t struct_size;
    uint32_t mode;        /* of the slabs: who may open them; 0 means 0600 */
    const char* device;   /* at the daemon; NULL: its first */
    const char* name;     /* a directory for the slabs; NULL: one with a name that nobody has, pool-PID-... */
    uint64_t slab_bytes;  /* of the first slabs; they grow with the pool. 0: 64 MiB */
    uint64_t limit_bytes; /* of all slabs together; 0: none but the device's */
} gshm_pool_options;
#define GSHM_POOL_OPTIONS_INIT {sizeof(gshm_pool_options), 0600, NULL, NULL, 0, 0}

/* options may be NULL. Takes no memory yet. -ENODEV: there is no such device, or this process cannot use it. */
int gshm_pool_create(gshm_client* client, const gshm_pool_options* options, gshm_pool** ret_pool);
/* Its memory goes with it, also what was not freed; other processes keep what they have opened. Waits for what the streams
 * were asked to do before they freed it. NULL is ignored. */
void gshm_pool_destroy(gshm_pool* pool);

/* Bytes of whatever content, at a multiple of the alignment: a power of two, 0 and what is less than 512 mean 512. NULL for 0
 * bytes. -ENOMEM: the pool's limit; -ENOSPC: the device is full. Before it says so, it waits for what was freed. */
int gshm_pool_allocate(gshm_pool* pool, uint64_t size_bytes, uint64_t alignment, void* stream, void** ret_memory);
/* size_bytes as it was asked for, or 0. NULL is ignored. -EINVAL, and nothing is changed: it is not allocated from this pool.
 * If the driver fails it stays allocated. */
int gshm_pool_deallocate(gshm_pool* pool, void* memory, uint64_t size_bytes, void* stream);
/* Gives slabs back of which nothing is in use, until no more than keep_bytes are left in slabs. Waits for what is under way
 * with them. (By itself a pool keeps one such slab.) */
int gshm_pool_trim(gshm_pool* pool, uint64_t keep_bytes);

typedef struct gshm_pool_stats {
    uint32_t struct_size;
    uint32_t slabs;
    uint64_t reserved_bytes;  /* in slabs */
    uint64_t used_bytes;      /* allocated, in steps of 512 */
    uint64_t peak_used_bytes;
    uint64_t allocations;     /* how many there are */
    uint64_t stream_waits;    /* how often a stream was made to wait for another, so far */
} gshm_pool_stats;
int gshm_pool_get_stats(gshm_pool* pool, gshm_pool_stats* ret_stats);

/* Where others find an address of a pool: they open the object (gshm_open_id()), and it is offset bytes into gshm_data(). */
typedef struct gshm_location {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t id;         /* of the object */
    uint64_t offset;     /* in it */
    uint64_t size_bytes; /* from here to the end of the allocation */
    char device[16];     /* at the daemon */
} gshm_location;
/* For any address in memory that any pool of this process has allocated; else -EINVAL. -ESTALE: the daemon that knew the
 * object is gone for good. Who has opened the object keeps the memory, but it is the pool's: when the piece is freed, others'
 * bytes will be there. Tell readers before, and do not seal it. */
int gshm_pool_locate(const void* memory, gshm_location* ret_location);

/* The process's own pools, one for each GPU, with the signatures of torch.cuda.memory.CUDAPluggableAllocator: device is the
 * ordinal in this process. They use the daemon that gshm_connect(NULL, ...) finds, and are made when first needed;
 * $GSHM_POOL_SLAB and $GSHM_POOL_LIMIT (sizes such as 256M) and $GSHM_POOL_MODE (0640) are their options. NULL: it failed, and
 * gshm_last_error() and the log say why; or size is 0. */
void* gshm_malloc(ssize_t size, int device, void* stream);
void gshm_free(void* memory, ssize_t size, int device, void* stream);

/* ---- Handles for others ---------------------------------------------------------------------------------------- */

/* Handles stand for whole extents (the driver shares nothing smaller): map extent_bytes, the object is at offset. */
typedef struct gshm_handle_info {
    uint32_t struct_size;
    uint32_t kind; /* GSHM_HANDLE_... */
    uint64_t extent_bytes;
    uint64_t offset;
    uint64_t size_bytes;
} gshm_handle_info;

#define GSHM_FABRIC_HANDLE_BYTES 64
#define GSHM_IPC_HANDLE_BYTES 64

/* The descriptor is the caller's, close-on-exec. ret_info may be NULL. */
int gshm_export_fd(gshm_object* object, int* ret_fd, gshm_handle_info* ret_info);
int gshm_export_dmabuf(gshm_object* object, int* ret_fd, gshm_handle_info* ret_info);
int gshm_export_fabric(gshm_object* object, uint8_t ret_handle[GSHM_FABRIC_HANDLE_BYTES], gshm_handle_info* ret_info);
/* Of memory that gshm_wrap() was given and that came from cudaMalloc; else -EOPNOTSUPP. */
int gshm_export_ipc(gshm_object* object, uint8_t ret_handle[GSHM_IPC_HANDLE_BYTES], gshm_handle_info* ret_info);

/* Memory of this process's own, of zeros, without a daemon and without a name. device is "host", "cuda:N" with this
 * process's ordinals, or "cuda" for the first. size_bytes is rounded up to the
 * device's granularity; gshm_size() keeps the size asked for. Flags: GSHM_COMPRESSIBLE. */
int gshm_allocate(const char* device, uint64_t size_bytes, uint32_t flags, gshm_object** ret_object);
/* Imports what one of the exports above, or any program with the same driver calls, has made. info tells the extent's
 * size and the range in it; the descriptor stays the caller's. Flags: GSHM_WRITE. */
int gshm_import_fd(const char* device, int fd, const gshm_handle_info* info, uint32_t flags, gshm_object** ret_object);
int gshm_import_dmabuf(const char* device, int fd, const gshm_handle_info* info, uint32_t flags,
                       gshm_object** ret_object);
int gshm_import_fabric(const char* device, const uint8_t handle[GSHM_FABRIC_HANDLE_BYTES], const gshm_handle_info* info,
                       uint32_t flags, gshm_object** ret_object);
/* In another process than the one that has exported it. */
int gshm_import_ipc(const char* device, const uint8_t handle[GSHM_IPC_HANDLE_BYTES], const gshm_handle_info* info,
                    uint32_t flags, gshm_object** ret_object);
/* A handle for memory that the caller has already and keeps: from cudaMalloc, a framework's tensor, VMM memory, ordinary
 * memory; any address in it. It must stay until the handle is closed. -EINVAL if some of the range is not there. */
int gshm_wrap(void* memory, uint64_t size_bytes, gshm_object** ret_object);
/* Waits until what the GPU was asked to do so far with the object's memory, in the legacy default stream and in the
 * streams that wait for it, is done; nothing to wait for on host. Needs no more than that before the bytes are read by a
 * ring; a completion needs none. */
int gshm_sync(gshm_object* object);

/* ---- Files: between a file and objects, by the kernel and the GPU's copy engines ------------------------------------- */

/* Which ways the bytes of a transfer took, or-ed. */
enum {
    GSHM_PATH_DIRECT = 1u << 0,     /* from or to the disk, past the page cache (O_DIRECT) */
    GSHM_PATH_CACHED = 1u << 1,     /* through the page cache */
    GSHM_PATH_STAGED = 1u << 2,     /* through pinned memory and a copy engine of the GPU */
    GSHM_PATH_HOLE = 1u << 3,       /* zeros made in place, where the file has none */
    GSHM_PATH_CUFILE = 1u << 4,     /* between disk and GPU by cuFile */
    GSHM_PATH_THREADS = 1u << 5,    /* by threads, since io_uring is refused here */
    GSHM_PATH_STREAM = 1u << 6,     /* from a pipe, by way of this process */
};

typedef struct gshm_transfer_info {
    uint32_t struct_size;
    uint32_t path; /* GSHM_PATH_... */
    uint64_t bytes;
    uint64_t duration_ns;
} gshm_transfer_info;

enum {
    /* put and get: before the object (the file) gets its name it is read back and compared with the source, which is read
     * anew, from the disk where its file system allows that; of a stream checksums are compared. -EBADMSG: they differ.
     * Progress counts a byte as half done when it is there. */
    GSHM_TRANSFER_VERIFY = 1u << 0,
};

typedef struct gshm_transfer_options {
    uint32_t struct_size;
    uint32_t flags; /* GSHM_TRANSFER_... */
    /* Called now and then, by the calling thread, and by put and get a last time before the name is given; total_bytes is 0
     * while nobody knows it (a stream). Other than 0: the transfer ends with -ECANCELED, also if the file does not answer (a
     * network's, FUSE): then, after a second, gshmd is left alone with what it has begun, and should the file answer after
     * all, those bytes still come. Memory without a daemon is waited for. */
    int (*progress)(void* context, uint64_t done_bytes, uint64_t total_bytes);
    void* context;
} gshm_transfer_options;
#define GSHM_TRANSFER_OPTIONS_INIT {sizeof(gshm_transfer_options), 0, NULL, NULL}

/* From the file into the object, and from the object into the file, a range each; options and ret_info may be NULL. The
 * file may be anywhere and needs to be open for reading (writing); pipes, sockets and directories are -EINVAL. A file that
 * ends before is -ENODATA. Nothing is said about the bytes that were to be written when it fails. */
int gshm_read_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                   const gshm_transfer_options* options, gshm_transfer_info* ret_info);
int gshm_write_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                    const gshm_transfer_options* options, gshm_transfer_info* ret_info);

/* A whole file (or block device) becomes an object, sealed; spec as for gshm_create(), its size_bytes 0. With GSHM_REPLACE
 * among its flags over whatever has the name, as gshm_replace(); else -EEXIST if something has it: at once, or in the end if it
 * comes meanwhile. Nobody sees it before it is whole; if it fails there is no such object, and whatever has the name is left
 * alone. -ENODATA: the file became shorter. */
int gshm_put_file(gshm_client* client, const char* path, const gshm_create_spec* spec,
                  const gshm_transfer_options* options, gshm_transfer_info* ret_info);
/* The same from a descriptor, which stays the caller's: a file from its position, which stays, to its end; a stream (a pipe,
 * a socket, a terminal, a file of /proc) to its end. An object has its size from the beginning, so the bytes of a stream are
 * held until its end: up to 64 MiB in memory, more in a file without a name in $TMPDIR (default /var/tmp). With size_bytes in
 * the spec, or GSHM_EMPTY, they go straight into the object; then -EFBIG: it brings more, -ENODATA: fewer. */
int gshm_put_fd(gshm_client* client, int fd, const gshm_create_spec* spec, const gshm_transfer_options* options,
                gshm_transfer_info* ret_info);
/* An object becomes a file: written beside its place, and put there when it is whole. */
int gshm_get_file(gshm_client* client, const char* name, const char* path, const gshm_transfer_options* options,
                  gshm_transfer_info* ret_info);

/* A ring does many such transfers at once. Of a daemon's objects its daemon does them, who is handed the file's descriptor
 * and whom the calling process need not wait for; of other memory (gshm_wrap and the like) threads of this process do. A
 * ring is for one thread at a time; several threads have one each. The layout is in docs/ring.md. When gshmd dies, what was
 * under way is begun again by the next one. */
typedef struct gshm_ring gshm_ring;

typedef struct gshm_ring_options {
    uint32_t struct_size;
    uint32_t entries; /* how many ranges may be under way, 1 to 32768; rounded up to a power of two */
} gshm_ring_options;
#define GSHM_RING_OPTIONS_INIT {sizeof(gshm_ring_options), 128}

/* options may be NULL. client NULL: for memory without a daemon only. -ENOSPC: there is no shared memory for it. */
int gshm_ring_create(gshm_client* client, const gshm_ring_options* options, gshm_ring** ret_ring);
/* Waits for what is under way. NULL is ignored. */
void gshm_ring_destroy(gshm_ring* ring);
/* What it was rounded up to. */
size_t gshm_ring_entries(const gshm_ring* ring);

/* The descriptor is the caller's, and may be closed then. *ret_file stands for the file in this ring. -EINVAL: no regular
 * file or block device. */
int gshm_ring_add_file(gshm_ring* ring, int fd, uint32_t* ret_file);
/* -EBUSY while something is under way with it. */
int gshm_ring_remove_file(gshm_ring* ring, uint32_t file);

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
    uint32_t operation;       /* GSHM_IO_... */
    uint32_t file;            /* as gshm_ring_add_file() said */
    uint32_t flags;           /* 0 */
    uint64_t file_offset;
    const gshm_range* ranges; /* one after the other in the file */
    size_t range_count;
    uint64_t user_data;       /* comes back with the completion */
} gshm_io;

/* Nothing begins before gshm_ring_submit(). -EAGAIN: there is no room for so many ranges until completions are taken.
 * -EBADF: no such file, or not open for that. -EINVAL: a range outside of its object. -EACCES, -EPERM: an object that must
 * not be written. */
int gshm_ring_prepare(gshm_ring* ring, const gshm_io* io);
/* How many operations were begun, or -errno. */
int gshm_ring_submit(gshm_ring* ring);

typedef struct gshm_completion {
    uint64_t user_data;
    int64_t result;    /* bytes, fewer than asked for if the file ends there; or -errno */
    uint32_t path;     /* GSHM_PATH_... */
    uint32_t reserved;
} gshm_completion;

/* Takes completions, each as soon as it is there, in any order: waits until there are `least` (0: takes what is there), or
 * for timeout_ms (< 0: for ever). How many were written, 0 if the time passed; or -errno: -EINVAL if `least` is more than
 * ret_completions has room for or than what is under way. */
int gshm_ring_wait(gshm_ring* ring, gshm_completion* ret_completions, size_t capacity, size_t least, int timeout_ms);
/* From any thread, as long as the ring is there: the gshm_ring_wait() that is under way, or else the next that would have to
 * wait, returns at once with what there is. */
void gshm_ring_wake(gshm_ring* ring);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif

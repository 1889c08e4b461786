// gshm for C++20: the C interface of gshm.h as owning types. Header only; link libgshm.
// Why this file is long: Client and Object belong together. Mirrors, fences, pools, rings, tensors and watches have
// headers of their own.
//
//   auto client = gshm::Client::connect().value();
//   auto weights = client.create({.name = "models/w0", .size_bytes = 1 << 20}).value();
//   weights.copy_in(numbers).value();
//   weights.seal().value();
//
// Conventions
//  1. Functions that can fail return Result<T>: a T, or an Error with a positive errno and a sentence for people. They
//     throw nothing but std::bad_alloc. value() of a failed Result throws gshm::Exception.
//  2. Client, Object and UniqueFd are movable, not copyable, and release what they own when destroyed. A moved-from or
//     default-constructed one is empty: calls on it fail with EINVAL, and its pointers are null.
//  3. Several threads may use a Client at the same time; its functions are const for that reason. An Object is used by
//     one thread at a time. Objects may outlive their Client.
//  4. C strings end at a NUL, so a std::string with a NUL inside gives EINVAL instead of being cut short.
//  5. gshm.h has the contract of each call: meaning, rights, errors. The comments here only add to it.
#ifndef GSHM_GSHM_HPP
#define GSHM_GSHM_HPP

#if __cplusplus < 202002L
#error "gshm.hpp needs C++20: -std=c++20"
#endif

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include <gshm/gshm.h>

namespace gshm {
// The version is part of every symbol name, so that two releases of this header can coexist in one process.
inline namespace v0 {

// ---- Errors --------------------------------------------------------------------------------------------------------

struct Error {
    int code = 0;  // a positive errno, such as ENOENT
    std::string message = {};
};

// Thrown by value(). code() is in std::generic_category(), so it compares with std::errc. what() is the sentence of the
// Error, without the text of the errno that std::system_error would add.
class Exception : public std::system_error {
public:
    explicit Exception(Error error)
        : std::system_error(std::error_code(error.code, std::generic_category())),
          error_(std::make_shared<const Error>(std::move(error))) {}
    const char* what() const noexcept override { return error_->message.c_str(); }
    const Error& error() const noexcept { return *error_; }

private:
    std::shared_ptr<const Error> error_;  // shared, since copying an exception must not throw
};

// A T or an Error. Not std::expected, which is C++23: a library built as C++20 and a program built as C++23 must agree
// on the type.
template <class T>
class [[nodiscard]] Result {
    static_assert(!std::is_reference_v<T> && !std::is_same_v<T, Error>);

public:
    using value_type = T;

    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    explicit operator bool() const noexcept { return state_.index() == 0; }
    bool has_value() const noexcept { return state_.index() == 0; }

    // The value; throws Exception if there is none. An rvalue Result returns the value by move, so `for (auto& entry :
    // client.list().value())` is safe.
    T& value() & { return require(), *std::get_if<0>(&state_); }
    const T& value() const& { return require(), *std::get_if<0>(&state_); }
    T value() && { return require(), std::move(*std::get_if<0>(&state_)); }

    // Precondition: there is a value.
    T& operator*() & noexcept { return assert(has_value()), *std::get_if<0>(&state_); }
    const T& operator*() const& noexcept { return assert(has_value()), *std::get_if<0>(&state_); }
    T operator*() && { return assert(has_value()), std::move(*std::get_if<0>(&state_)); }
    T* operator->() noexcept { return assert(has_value()), std::get_if<0>(&state_); }
    const T* operator->() const noexcept { return assert(has_value()), std::get_if<0>(&state_); }

    template <class U>
    T value_or(U&& other) const& {
        return has_value() ? **this : static_cast<T>(std::forward<U>(other));
    }
    template <class U>
    T value_or(U&& other) && {
        return has_value() ? std::move(**this) : static_cast<T>(std::forward<U>(other));
    }

    // Precondition: there is an error.
    const Error& error() const& noexcept { return assert(!has_value()), *std::get_if<1>(&state_); }
    Error error() && { return assert(!has_value()), std::move(*std::get_if<1>(&state_)); }

private:
    void require() const {
        if (const Error* error = std::get_if<1>(&state_)) throw Exception(*error);
    }

    std::variant<T, Error> state_;
};

// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
public:
    using value_type = void;

    Result() = default;
    Result(Error error) : error_(std::move(error)) {}

    explicit operator bool() const noexcept { return !error_; }
    bool has_value() const noexcept { return !error_; }
    void value() const {  // throws Exception if it failed
        if (error_) throw Exception(*error_);
    }
    const Error& error() const& noexcept { return assert(error_), *error_; }
    Error error() && { return assert(error_), std::move(*error_); }

private:
    std::optional<Error> error_;
};

namespace detail {

inline std::string errno_text(int code) {
    return std::generic_category().message(code);
}

// The error of the C call that has just returned `status` in this thread.
inline Error last_error(int status) {
    std::string message = gshm_last_error();
    return {-status, message.empty() ? errno_text(-status) : std::move(message)};
}

// The error of a batch element, for which C has no sentence.
inline Error element_error(int status, std::string_view what) {
    return {-status, (what.empty() ? std::string() : std::string(what) + ": ") + errno_text(-status)};
}

inline bool has_nul(std::string_view text) noexcept {
    return text.find('\0') != text.npos;
}

// Makes a C call, unless a string argument contains a NUL.
template <class Call>
Result<void> call(std::initializer_list<std::string_view> strings, Call make_call) {
    if (std::ranges::any_of(strings, has_nul)) return Error{EINVAL, "a name must not have a NUL byte inside"};
    if (const int status = make_call(); status != 0) return last_error(status);
    return {};
}

inline const char* or_null(const std::string& text) noexcept {
    return text.empty() ? nullptr : text.c_str();
}

inline int clamp_ms(std::chrono::milliseconds time) noexcept {
    return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(time.count(), 0, INT_MAX));
}

template <class Info>
Info sized() noexcept {
    Info info{};
    info.struct_size = sizeof(Info);
    return info;
}

// Reads a C array of unknown length: asks for the length, allocates, and repeats while the array grows.
template <class Item, class Fetch>
Result<std::vector<Item>> fetch_array(std::string_view name, Fetch fetch) {
    std::vector<Item> items;
    for (size_t count = 0;;) {
        const size_t capacity = items.size();
        if (auto done = call({name}, [&] { return fetch(capacity ? items.data() : nullptr, capacity, &count); }); !done)
            return std::move(done).error();
        const bool fits = count <= capacity;
        items.resize(count, sized<Item>());
        if (fits) return items;
    }
}

// The same for bytes; a buffer that is too small gives -ERANGE.
template <class Fetch>
Result<std::string> fetch_bytes(std::initializer_list<std::string_view> strings, Fetch fetch) {
    std::string bytes;
    for (size_t length = 0;;) {
        const size_t capacity = bytes.size();
        auto done = call(strings, [&] { return fetch(capacity ? bytes.data() : nullptr, capacity, &length); });
        if (!done && done.error().code != ERANGE) return std::move(done).error();
        const bool fits = done && length <= capacity;
        bytes.resize(length);
        if (fits) return bytes;
    }
}

struct Disconnect {
    void operator()(gshm_client* client) const noexcept { gshm_disconnect(client); }
};
struct Close {
    void operator()(gshm_object* object) const noexcept { gshm_close(object); }
};
struct FreeAttributes {
    void operator()(gshm_attribute_list* list) const noexcept { gshm_attribute_list_free(list); }
};
struct FreeLimits {
    void operator()(gshm_limit_list* list) const noexcept { gshm_limit_list_free(list); }
};
struct FreeListing {
    void operator()(gshm_listing* listing) const noexcept { gshm_listing_free(listing); }
};

// Preset in the statuses of a batch. It remains if the call fails as a whole.
inline constexpr int kUntouched = 1;

// Converts the statuses of a batch to results. what_of(i) names element i, take(i) makes its value.
template <class T, class WhatOf, class Take>
std::vector<Result<T>> batch_results(int status, const std::vector<int>& statuses, WhatOf what_of, Take take) {
    std::optional<Error> whole;
    if (status != 0 && !statuses.empty() && statuses[0] == kUntouched) whole = last_error(status);
    std::vector<Result<T>> results;
    results.reserve(statuses.size());
    for (size_t i = 0; i < statuses.size(); ++i) {
        if (whole) {
            results.emplace_back(*whole);
        } else if (statuses[i] != 0) {
            results.emplace_back(element_error(statuses[i], what_of(i)));
        } else if constexpr (std::is_void_v<T>) {
            results.emplace_back();
        } else {
            results.emplace_back(take(i));
        }
    }
    return results;
}

template <class Range>
concept CopySource = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
                     std::is_trivially_copyable_v<std::ranges::range_value_t<Range>>;
template <class Range>
concept CopyDestination =
    CopySource<Range> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;

}  // namespace detail

// ---- Plain data ----------------------------------------------------------------------------------------------------

// The C structs. The functions here fill in struct_size. Their char arrays end in NUL.
using DaemonInfo = gshm_daemon_info;
using DeviceInfo = gshm_device_info;
using MountInfo = gshm_mount_info;
using OptionChange = gshm_option_change;
using TierInfo = gshm_tier_info;
// A limit, with the texts of its own: path and device of `info` are not used. An empty device: all devices together.
struct Limit {
    gshm_limit info = GSHM_LIMIT_INIT;
    std::string path;
    std::string device;
};
using ShareInfo = gshm_share_info;
using StatInfo = gshm_stat_info;
using Holder = gshm_holder;
using HandleInfo = gshm_handle_info;

inline bool is_directory(const StatInfo& info) noexcept {
    return info.kind == GSHM_KIND_DIRECTORY;
}
inline bool is_sealed(const StatInfo& info) noexcept {
    return info.state == GSHM_STATE_SEALED;
}

struct Entry {  // of a listing
    std::string name;
    StatInfo info;
};

struct UnlinkedEntry {  // memory that has no name but is still held; see gshm_list_unlinked()
    std::string name;
    StatInfo info;
    std::vector<Holder> holders;
    bool former() const noexcept { return (info.flags & GSHM_FORMER) != 0; }
};

struct Attribute {
    std::string name;
    std::string value;  // arbitrary bytes
};

struct MountOptions {  // see gshm_mount_options
    bool read_only = false;
    std::string subdirectory = {};
    std::string source = {};
};

struct ConnectOptions {
    std::string dir = {};                     // runtime folder; empty: the default, see gshm_connect_options
    std::chrono::milliseconds timeout{2000};  // for connecting and for reconnecting
};

struct Owner {
    uint32_t uid = 0;
    uint32_t gid = 0;
};

struct CreateSpec {
    std::string name = {};
    uint64_t size_bytes = 0;
    std::string device = {};    // empty: the daemon's first
    uint32_t mode = 0;          // 0: 0600, or what the directory's default ACL gives
    bool keep = false;          // GSHM_KEEP
    bool compressible = false;  // GSHM_COMPRESSIBLE
    bool dedicated = false;     // GSHM_DEDICATED
    bool map = true;            // false: GSHM_NO_MAP
    std::vector<Attribute> attributes = {};
    bool unnamed = false;              // GSHM_UNNAMED: for Object::publish(name) and Object::replace(name)
    bool empty = false;                // GSHM_EMPTY
    std::optional<Owner> owner = {};   // GSHM_OWNER
    std::chrono::milliseconds ttl{0};  // zero: none
    bool ttl_unused = false;           // GSHM_CREATE_TTL_UNUSED
    bool ephemeral = false;            // GSHM_CREATE_EPHEMERAL
    bool evictable = false;            // GSHM_EVICTABLE

    uint32_t flags() const noexcept {
        return (keep ? uint32_t{GSHM_KEEP} : 0) | (compressible ? uint32_t{GSHM_COMPRESSIBLE} : 0) |
               (dedicated ? uint32_t{GSHM_DEDICATED} : 0) | (map ? 0 : uint32_t{GSHM_NO_MAP}) |
               (unnamed ? uint32_t{GSHM_UNNAMED} : 0) | (empty ? uint32_t{GSHM_EMPTY} : 0) |
               (owner ? uint32_t{GSHM_OWNER} : 0) | (ttl_unused ? uint32_t{GSHM_CREATE_TTL_UNUSED} : 0) |
               (ephemeral ? uint32_t{GSHM_CREATE_EPHEMERAL} : 0) | (evictable ? uint32_t{GSHM_EVICTABLE} : 0);
    }
};

using AclEntry = gshm_acl_entry;

// The user or group of a share.
inline AclEntry acl_user(uint32_t uid) noexcept {
    return {GSHM_ACL_USER, 0, uid};
}
inline AclEntry acl_group(uint32_t gid) noexcept {
    return {GSHM_ACL_GROUP, 0, gid};
}

struct ShareOptions {
    bool write = false;      // GSHM_SHARE_WRITE
    bool recursive = false;  // GSHM_SHARE_RECURSIVE
    bool parents = false;    // GSHM_SHARE_PARENTS
};

struct OpenOptions {
    bool write = false;        // GSHM_WRITE
    bool sealed_only = false;  // GSHM_SEALED_ONLY
    bool map = true;           // false: GSHM_NO_MAP

    uint32_t flags() const noexcept {
        return (write ? uint32_t{GSHM_WRITE} : 0) | (sealed_only ? uint32_t{GSHM_SEALED_ONLY} : 0) |
               (map ? 0 : uint32_t{GSHM_NO_MAP});
    }
};

enum class WaitFor : int { kExists = GSHM_WAIT_EXISTS, kSealed = GSHM_WAIT_SEALED, kGone = GSHM_WAIT_GONE };

// "major.minor.patch" of the loaded library, which may be newer than this header.
inline std::string_view version() noexcept {
    return gshm_version();
}

// Hands the library's messages of this level and above to the function; null: to stderr. See gshm_set_log().
inline Result<void> set_log(gshm_log_function function, void* context = nullptr, int level = GSHM_LOG_INFO) {
    return detail::call({}, [&] { return gshm_set_log(function, context, level); });
}

// The devices of this process, without a daemon.
inline Result<std::vector<DeviceInfo>> local_devices() {
    return detail::fetch_array<DeviceInfo>({}, gshm_local_devices);
}

// ---- Descriptors ---------------------------------------------------------------------------------------------------

// Owns a file descriptor.
class UniqueFd {
public:
    UniqueFd() = default;
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.take()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) reset(other.take());
        return *this;
    }
    ~UniqueFd() { reset(); }

    static UniqueFd adopt(int fd) noexcept { return UniqueFd(fd); }       // takes ownership
    [[nodiscard]] int take() noexcept { return std::exchange(fd_, -1); }  // gives up ownership
    int get() const noexcept { return fd_; }                              // keeps ownership; -1 if empty
    explicit operator bool() const noexcept { return fd_ >= 0; }

    // Duplicates the descriptor, close-on-exec.
    Result<UniqueFd> clone() const {
        const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) return Error{errno, "fcntl(F_DUPFD_CLOEXEC): " + detail::errno_text(errno)};
        return adopt(fd);
    }
    void reset(int fd = -1) noexcept {
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }

private:
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    int fd_ = -1;
};

// A descriptor (POSIX fd or dma-buf) of an extent, and the object's place in it.
struct ExportedFd {
    UniqueFd fd;
    HandleInfo info;
};

// The same as a handle of 64 bytes, which other machines of an NVLink domain can import too.
struct ExportedFabric {
    std::array<uint8_t, GSHM_FABRIC_HANDLE_BYTES> handle;
    HandleInfo info;
};
struct ExportedIpc {
    std::array<uint8_t, GSHM_IPC_HANDLE_BYTES> handle;
    HandleInfo info;
};

// ---- Files ---------------------------------------------------------------------------------------------------------

using TransferInfo = gshm_transfer_info;  // path, bytes and duration of a transfer
using Progress = std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>;

struct PutOptions {
    bool replace = false;    // GSHM_REPLACE
    bool verify = false;     // GSHM_TRANSFER_VERIFY
    Progress progress = {};  // may be empty; false stops it
};
struct GetOptions {
    bool verify = false;
    Progress progress = {};
};

namespace detail {

template <class Call>
Result<TransferInfo> transfer(std::initializer_list<std::string_view> strings, const Progress& progress, bool verify,
                              Call body) {
    gshm_transfer_options options = GSHM_TRANSFER_OPTIONS_INIT;
    if (verify) options.flags = GSHM_TRANSFER_VERIFY;
    if (progress) {
        options.progress = [](void* context, uint64_t done, uint64_t total) {
            return (*static_cast<const Progress*>(context))(done, total) ? 0 : 1;
        };
        options.context = const_cast<Progress*>(&progress);
    }
    auto info = sized<TransferInfo>();
    if (auto done = call(strings, [&] { return body(&options, &info); }); !done) return std::move(done).error();
    return info;
}

}  // namespace detail

// ---- An open object ------------------------------------------------------------------------------------------------

// An open object (a lease), or memory that this process allocated or imported without a daemon.
class Object {
public:
    Object() = default;
    static Object adopt(gshm_object* handle) noexcept { return Object(handle); }  // takes ownership
    [[nodiscard]] gshm_object* take() noexcept { return handle_.release(); }      // gives up ownership
    gshm_object* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    void close() noexcept { handle_.reset(); }  // closes it now

    // Zeroed memory without a daemon and without a name.
    static Result<Object> allocate(const std::string& device, uint64_t size_bytes, bool compressible = false) {
        return make({device}, [&](gshm_object** ret) {
            return gshm_allocate(device.c_str(), size_bytes, compressible ? uint32_t{GSHM_COMPRESSIBLE} : 0, ret);
        });
    }
    // Imports what another process exported. The caller keeps the descriptor; info.struct_size need not be set.
    static Result<Object> import_fd(const std::string& device, int fd, HandleInfo info, bool write = false) {
        info.struct_size = sizeof info;
        return make({device}, [&](gshm_object** ret) {
            return gshm_import_fd(device.c_str(), fd, &info, write ? uint32_t{GSHM_WRITE} : 0, ret);
        });
    }
    static Result<Object> import_dmabuf(const std::string& device, int fd, HandleInfo info, bool write = false) {
        info.struct_size = sizeof info;
        return make({device}, [&](gshm_object** ret) {
            return gshm_import_dmabuf(device.c_str(), fd, &info, write ? uint32_t{GSHM_WRITE} : 0, ret);
        });
    }
    static Result<Object> import_fabric(const std::string& device,
                                        std::span<const uint8_t, GSHM_FABRIC_HANDLE_BYTES> handle, HandleInfo info,
                                        bool write = false) {
        info.struct_size = sizeof info;
        return make({device}, [&](gshm_object** ret) {
            return gshm_import_fabric(device.c_str(), handle.data(), &info, write ? uint32_t{GSHM_WRITE} : 0, ret);
        });
    }
    static Result<Object> import_ipc(const std::string& device, std::span<const uint8_t, GSHM_IPC_HANDLE_BYTES> handle,
                                     HandleInfo info, bool write = false) {
        info.struct_size = sizeof info;
        return make({device}, [&](gshm_object** ret) {
            return gshm_import_ipc(device.c_str(), handle.data(), &info, write ? uint32_t{GSHM_WRITE} : 0, ret);
        });
    }
    // Memory that the caller owns, on a GPU or not, and that outlives the object.
    static Result<Object> wrap(void* memory, uint64_t size_bytes) {
        return make({}, [&](gshm_object** ret) { return gshm_wrap(memory, size_bytes, ret); });
    }

    // The object behind a file of a gshm mount, of any daemon.
    static Result<Object> open_path(const std::string& path, OpenOptions options = {}) {
        return make({path},
                    [&](gshm_object** ret) { return gshm_open_path(nullptr, path.c_str(), options.flags(), ret); });
    }

    // A device pointer on cuda, an ordinary pointer on host, null without a mapping. Valid until this handle is closed.
    void* data() const noexcept { return handle_ ? gshm_data(get()) : nullptr; }
    template <class T>
    T* data_as() const noexcept {
        return static_cast<T*>(data());
    }
    uint64_t size() const noexcept { return handle_ ? gshm_size(get()) : 0; }  // bytes
    uint64_t id() const noexcept { return handle_ ? gshm_id(get()) : 0; }
    std::string_view device() const noexcept { return handle_ ? std::string_view(gshm_device(get())) : ""; }
    bool is_host() const noexcept { return device() == "host"; }

    // The bytes as whole Ts for the CPU. EOPNOTSUPP on cuda, whose pointers the CPU must not dereference, and without a
    // mapping. Writing faults unless the object is open for writing.
    template <class T = const std::byte>
    Result<std::span<T>> host_span() const {
        static_assert(std::is_trivially_copyable_v<T>);
        if (!handle_) return Error{EINVAL, "the object is closed"};
        if (!is_host())
            return Error{EOPNOTSUPP, "the object is on " + std::string(device()) + ": the CPU reaches it by copies"};
        if (!data()) return Error{EOPNOTSUPP, "the object was opened without a mapping"};
        return std::span<T>(data_as<T>(), static_cast<size_t>(size() / sizeof(T)));
    }

    // Copy between a contiguous range of trivially copyable elements and the object. They return when the bytes have
    // arrived. EINVAL: the range exceeds the object.
    template <detail::CopySource Range>
    Result<void> copy_in(const Range& source, uint64_t offset_bytes = 0) {
        const auto bytes = std::as_bytes(std::span(std::ranges::data(source), std::ranges::size(source)));
        return detail::call({}, [&] { return gshm_copy_in(get(), offset_bytes, bytes.data(), bytes.size()); });
    }
    template <detail::CopyDestination Range>
    Result<void> copy_out(Range&& destination, uint64_t offset_bytes = 0) {
        const auto bytes =
            std::as_writable_bytes(std::span(std::ranges::data(destination), std::ranges::size(destination)));
        return detail::call({}, [&] { return gshm_copy_out(get(), offset_bytes, bytes.data(), bytes.size()); });
    }
    Result<void> fill(uint8_t value) { return fill(value, 0, size()); }
    Result<void> fill(uint8_t value, uint64_t offset_bytes, uint64_t size_bytes) {
        return detail::call({}, [&] { return gshm_fill(get(), offset_bytes, size_bytes, value); });
    }

    Result<void> seal() {
        return detail::call({}, [&] { return gshm_seal(get()); });
    }
    // Seals the object and gives it the name, replacing an existing object atomically; for objects made with
    // CreateSpec::unnamed.
    Result<void> replace(const std::string& name) {
        return detail::call({name}, [&] { return gshm_replace(get(), name.c_str()); });
    }
    // The same, but without replace an existing name gives EEXIST.
    Result<void> publish(const std::string& name, bool replace = false) {
        const uint32_t flags = replace ? uint32_t{GSHM_REPLACE} : 0;
        return detail::call({name}, [&] { return gshm_publish(get(), name.c_str(), flags); });
    }
    Result<StatInfo> stat() const {
        auto info = detail::sized<StatInfo>();
        if (auto done = detail::call({}, [&] { return gshm_stat_object(get(), &info); }); !done)
            return std::move(done).error();
        return info;
    }
    // Makes data() usable from another GPU too.
    Result<void> map_peer(const std::string& device) {
        return detail::call({device}, [&] { return gshm_map_peer(get(), device.c_str()); });
    }

    // Transfer a range of a file into the object, and vice versa. progress(done, total) may be empty; returning false
    // stops the transfer.
    Result<TransferInfo> read_file(int fd, uint64_t file_offset, uint64_t offset_bytes, uint64_t size_bytes,
                                   const Progress& progress = {}) {
        return detail::transfer({}, progress, false, [&](const auto* options, TransferInfo* ret_info) {
            return gshm_read_file(get(), offset_bytes, fd, file_offset, size_bytes, options, ret_info);
        });
    }
    Result<TransferInfo> write_file(int fd, uint64_t file_offset, uint64_t offset_bytes, uint64_t size_bytes,
                                    const Progress& progress = {}) {
        return detail::transfer({}, progress, false, [&](const auto* options, TransferInfo* ret_info) {
            return gshm_write_file(get(), offset_bytes, fd, file_offset, size_bytes, options, ret_info);
        });
    }

    Result<ExportedFd> export_fd() const { return export_with(gshm_export_fd); }
    Result<ExportedFd> export_dmabuf() const { return export_with(gshm_export_dmabuf); }
    Result<ExportedFabric> export_fabric() const {
        ExportedFabric out{{}, detail::sized<HandleInfo>()};
        auto done = detail::call({}, [&] { return gshm_export_fabric(get(), out.handle.data(), &out.info); });
        if (!done) return std::move(done).error();
        return out;
    }
    Result<ExportedIpc> export_ipc() const {  // for wrapped memory from cudaMalloc
        ExportedIpc out{{}, detail::sized<HandleInfo>()};
        auto done = detail::call({}, [&] { return gshm_export_ipc(get(), out.handle.data(), &out.info); });
        if (!done) return std::move(done).error();
        return out;
    }
    // Waits for GPU work queued so far; see gshm_sync().
    Result<void> sync() const {
        return detail::call({}, [&] { return gshm_sync(get()); });
    }

private:
    friend class Client;
    explicit Object(gshm_object* handle) noexcept : handle_(handle) {}

    template <class Call>
    static Result<Object> make(std::initializer_list<std::string_view> strings, Call make_call) {
        gshm_object* handle = nullptr;
        if (auto done = detail::call(strings, [&] { return make_call(&handle); }); !done)
            return std::move(done).error();
        return adopt(handle);
    }
    Result<ExportedFd> export_with(int (*function)(gshm_object*, int*, gshm_handle_info*)) const {
        int fd = -1;
        auto info = detail::sized<HandleInfo>();
        if (auto done = detail::call({}, [&] { return function(get(), &fd, &info); }); !done)
            return std::move(done).error();
        return ExportedFd{UniqueFd::adopt(fd), info};
    }

    std::unique_ptr<gshm_object, detail::Close> handle_;
};

// Ends many leases in few messages; destroying the objects one by one costs one message each.
inline void close_batch(std::vector<Object>&& objects) {
    std::vector<gshm_object*> handles;
    handles.reserve(objects.size());
    for (auto& object : objects) handles.push_back(object.take());
    gshm_close_batch(handles.data(), handles.size());
    objects.clear();
}

// Seals many objects; each succeeds or fails independently.
inline std::vector<Result<void>> seal_batch(std::span<const Object> objects) {
    std::vector<gshm_object*> handles;
    handles.reserve(objects.size());
    for (const auto& object : objects) handles.push_back(object.get());
    std::vector<int> statuses(objects.size(), detail::kUntouched);
    if (objects.empty()) return {};
    const int status = gshm_seal_batch(handles.data(), handles.size(), statuses.data());
    return detail::batch_results<void>(
        status, statuses, [&](size_t i) { return "object " + std::to_string(objects[i].id()); }, [](size_t) {});
}

// ---- A connection --------------------------------------------------------------------------------------------------

// The runtime folder of the daemon whose mount contains a file or folder; EINVAL: in no mount.
inline Result<std::string> find_daemon(const std::string& path) {
    char dir[4096];
    if (auto done = detail::call({path}, [&] { return gshm_find_daemon(path.c_str(), dir, sizeof dir); }); !done)
        return std::move(done).error();
    return std::string(dir);
}

// The default runtime folder of ConnectOptions.
inline Result<std::string> runtime_dir() {
    char dir[4096];
    if (auto done = detail::call({}, [&] { return gshm_runtime_dir(dir, sizeof dir); }); !done)
        return std::move(done).error();
    return std::string(dir);
}

// A session with gshmd. It reconnects by itself when the connection is lost.
class Client {
public:
    Client() = default;
    static Result<Client> connect(const ConnectOptions& options = {}) {
        const gshm_connect_options c{sizeof c, detail::clamp_ms(options.timeout), detail::or_null(options.dir)};
        gshm_client* handle = nullptr;
        if (auto done = detail::call({options.dir}, [&] { return gshm_connect(&c, &handle); }); !done)
            return std::move(done).error();
        return adopt(handle);
    }
    static Client adopt(gshm_client* handle) noexcept { return Client(handle); }  // takes ownership
    [[nodiscard]] gshm_client* take() noexcept { return handle_.release(); }      // gives up ownership
    gshm_client* get() const noexcept { return handle_.get(); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    void disconnect() noexcept { handle_.reset(); }  // disconnects now

    Result<void> ping() const {
        return detail::call({}, [&] { return gshm_ping(get()); });
    }
    // The runtime folder in use.
    Result<std::string> dir() const {
        std::string dir(4096, '\0');
        if (auto done = detail::call({}, [&] { return gshm_client_dir(get(), dir.data(), dir.size()); }); !done)
            return std::move(done).error();
        dir.resize(dir.find('\0'));
        return dir;
    }
    Result<DaemonInfo> daemon() const {
        auto info = detail::sized<DaemonInfo>();
        if (auto done = detail::call({}, [&] { return gshm_daemon(get(), &info); }); !done)
            return std::move(done).error();
        return info;
    }
    // Ends the daemon, not only this session. keep: its objects stay for the next daemon.
    Result<void> shutdown(bool keep = false) const {
        return detail::call({}, [&] { return gshm_shutdown(get(), keep ? uint32_t{GSHM_KEEP} : 0u); });
    }
    Result<void> unmount(bool lazily = false) const {  // all mounts; see gshm_unmount()
        return detail::call({}, [&] { return gshm_unmount(get(), lazily ? uint32_t{GSHM_LAZY} : 0u); });
    }
    Result<void> unmount_at(const std::string& path, bool lazily = false) const {
        return detail::call({path},
                            [&] { return gshm_unmount_at(get(), path.c_str(), lazily ? uint32_t{GSHM_LAZY} : 0u); });
    }
    Result<void> mount(const std::string& path, const MountOptions& options = {}) const {  // see gshm_mount()
        auto wanted = detail::sized<gshm_mount_options>();
        wanted.flags = options.read_only ? uint32_t{GSHM_MOUNT_READ_ONLY} : 0u;
        wanted.subdirectory = options.subdirectory.c_str();
        wanted.source = options.source.c_str();
        return detail::call({path, options.subdirectory, options.source},
                            [&] { return gshm_mount(get(), path.c_str(), &wanted); });
    }
    Result<std::vector<MountInfo>> mounts() const {
        return detail::fetch_array<MountInfo>(
            {}, [&](MountInfo* items, size_t room, size_t* count) { return gshm_mounts(get(), items, room, count); });
    }
    Result<std::vector<OptionChange>> reload() const {  // see gshm_reload()
        std::vector<OptionChange> changes(256, detail::sized<OptionChange>());
        size_t count = 0;
        if (auto done = detail::call({}, [&] { return gshm_reload(get(), changes.data(), changes.size(), &count); });
            !done)
            return std::move(done).error();
        changes.resize(std::min(count, changes.size()));
        return changes;
    }
    Result<void> set_limit(const Limit& limit) const {  // see gshm_limit_set()
        const gshm_limit given = raw(limit);
        return detail::call({}, [&] { return gshm_limit_set(get(), &given); });
    }
    Result<std::vector<Limit>> limits(uint32_t flags = 0, const Limit& which = {}) const {  // see gshm_limits()
        const gshm_limit given = raw(which);
        gshm_limit_list* found = nullptr;
        if (auto done = detail::call({}, [&] { return gshm_limits(get(), &given, flags, &found); }); !done)
            return std::move(done).error();
        const std::unique_ptr<gshm_limit_list, detail::FreeLimits> list(found);
        std::vector<Limit> limits;
        for (size_t i = 0; i < gshm_limit_list_count(found); ++i) {
            const gshm_limit& item = *gshm_limit_list_item(found, i);
            limits.push_back({item, item.path == nullptr ? "" : item.path, item.device == nullptr ? "" : item.device});
            limits.back().info.path = limits.back().info.device = nullptr;
        }
        return limits;
    }
    Result<std::vector<TierInfo>> tiers() const {
        return detail::fetch_array<TierInfo>(
            {}, [&](TierInfo* items, size_t room, size_t* count) { return gshm_tiers(get(), items, room, count); });
    }
    Result<std::vector<DeviceInfo>> devices() const {
        return detail::fetch_array<DeviceInfo>(
            {}, [&](DeviceInfo* items, size_t room, size_t* count) { return gshm_devices(get(), items, room, count); });
    }

    // Creates an object of zeros and opens it for writing.
    Result<Object> create(const CreateSpec& spec) const {
        std::vector<gshm_attribute> attributes;
        const auto c = to_c(spec, attributes);
        if (!c) return c.error();
        return Object::make({}, [&](gshm_object** ret) { return gshm_create(get(), &*c, ret); });
    }
    // Loads a whole file into a sealed object with the spec's name; the spec's size and `map` are ignored.
    Result<TransferInfo> put_file(const std::string& path, const CreateSpec& spec, const PutOptions& put = {}) const {
        std::vector<gshm_attribute> attributes;
        auto c = to_c(spec, attributes);
        if (!c) return c.error();
        c->size_bytes = 0;
        if (put.replace) c->flags |= GSHM_REPLACE;
        return detail::transfer({path}, put.progress, put.verify, [&](const auto* options, TransferInfo* ret_info) {
            return gshm_put_file(get(), path.c_str(), &*c, options, ret_info);
        });
    }
    // The same from a descriptor: a file from its position, or a stream. For a stream the spec's size, or `empty`, may be set.
    Result<TransferInfo> put_fd(int fd, const CreateSpec& spec, const PutOptions& put = {}) const {
        std::vector<gshm_attribute> attributes;
        auto c = to_c(spec, attributes);
        if (!c) return c.error();
        if (put.replace) c->flags |= GSHM_REPLACE;
        return detail::transfer({}, put.progress, put.verify, [&](const auto* options, TransferInfo* ret_info) {
            return gshm_put_fd(get(), fd, &*c, options, ret_info);
        });
    }
    // Writes an object to a file.
    Result<TransferInfo> get_file(const std::string& name, const std::string& path, const GetOptions& how = {}) const {
        return detail::transfer({name, path}, how.progress, how.verify,
                                [&](const auto* options, TransferInfo* ret_info) {
                                    return gshm_get_file(get(), name.c_str(), path.c_str(), options, ret_info);
                                });
    }
    // Returns one result per spec, in order. `map` must be the same in all specs.
    std::vector<Result<Object>> create_batch(std::span<const CreateSpec> specs) const {
        if (specs.empty()) return {};
        std::vector<std::vector<gshm_attribute>> attributes(specs.size());
        std::vector<gshm_create_spec> c;
        c.reserve(specs.size());
        for (size_t i = 0; i < specs.size(); ++i)
            c.push_back(to_c(specs[i], attributes[i]).value_or(nameless()));  // fails with EINVAL, alone
        std::vector<gshm_object*> handles(specs.size(), nullptr);
        std::vector<int> statuses(specs.size(), detail::kUntouched);
        const int status = gshm_create_batch(get(), c.data(), c.size(), handles.data(), statuses.data());
        return detail::batch_results<Object>(
            status, statuses, [&](size_t i) -> const std::string& { return specs[i].name; },
            [&](size_t i) { return Object::adopt(handles[i]); });
    }

    Result<Object> open(const std::string& name, OpenOptions options = {}) const {
        return Object::make({name},
                            [&](gshm_object** ret) { return gshm_open(get(), name.c_str(), options.flags(), ret); });
    }
    Result<Object> open_id(uint64_t id, OpenOptions options = {}) const {
        return Object::make({}, [&](gshm_object** ret) { return gshm_open_id(get(), id, options.flags(), ret); });
    }
    // The object behind a file of this daemon's mount. Object::open_path() needs no client.
    Result<Object> open_path(const std::string& path, OpenOptions options = {}) const {
        return Object::make(
            {path}, [&](gshm_object** ret) { return gshm_open_path(get(), path.c_str(), options.flags(), ret); });
    }
    // Returns one result per name, in order.
    std::vector<Result<Object>> open_batch(std::span<const std::string> names, OpenOptions options = {}) const {
        if (names.empty()) return {};
        const auto c = to_c(names);
        std::vector<gshm_object*> handles(names.size(), nullptr);
        std::vector<int> statuses(names.size(), detail::kUntouched);
        const int status = gshm_open_batch(get(), c.data(), c.size(), options.flags(), handles.data(), statuses.data());
        return detail::batch_results<Object>(
            status, statuses, [&](size_t i) -> const std::string& { return names[i]; },
            [&](size_t i) { return Object::adopt(handles[i]); });
    }

    // Returns one result per id, in order.
    std::vector<Result<Object>> open_ids(std::span<const uint64_t> ids, OpenOptions options = {}) const {
        if (ids.empty()) return {};
        std::vector<gshm_object*> handles(ids.size(), nullptr);
        std::vector<int> statuses(ids.size(), detail::kUntouched);
        const int status =
            gshm_open_ids(get(), ids.data(), ids.size(), options.flags(), handles.data(), statuses.data());
        return detail::batch_results<Object>(
            status, statuses, [&](size_t i) { return "object " + std::to_string(ids[i]); },
            [&](size_t i) { return Object::adopt(handles[i]); });
    }

    Result<void> seal(const std::string& name) const {
        return detail::call({name}, [&] { return gshm_seal_name(get(), name.c_str()); });
    }
    Result<void> unlink(const std::string& name) const {
        return detail::call({name}, [&] { return gshm_unlink(get(), name.c_str()); });
    }
    // Returns one result per name, in order; a directory may follow its last entry.
    std::vector<Result<void>> unlink_batch(std::span<const std::string> names) const {
        if (names.empty()) return {};
        const auto c = to_c(names);
        std::vector<int> statuses(names.size(), detail::kUntouched);
        const int status = gshm_unlink_batch(get(), c.data(), c.size(), statuses.data());
        return detail::batch_results<void>(
            status, statuses, [&](size_t i) -> const std::string& { return names[i]; }, [](size_t) {});
    }
    // Atomic. With `replace` an existing object is replaced, and its holders keep it; otherwise EEXIST.
    Result<void> rename(const std::string& from, const std::string& to, bool replace = false) const {
        const uint32_t flags = replace ? uint32_t{GSHM_REPLACE} : 0;
        return detail::call({from, to}, [&] { return gshm_rename(get(), from.c_str(), to.c_str(), flags); });
    }

    // Moves an object to memory of another device. EBUSY: a process holds it. With keep_holders a holder keeps the old
    // memory until it closes the object; EBUSY if it has write access.
    Result<void> move(const std::string& name, const std::string& device, bool keep_holders = false) const {
        const uint32_t flags = keep_holders ? uint32_t{GSHM_MOVE_KEEP_HOLDERS} : 0;
        return detail::call({name, device}, [&] { return gshm_move(get(), name.c_str(), device.c_str(), flags); });
    }
    // Into a tier, and back to its device.
    Result<void> demote(const std::string& name) const {
        return detail::call({name}, [&] { return gshm_demote(get(), name.c_str(), 0); });
    }
    Result<void> promote(const std::string& name) const {
        return detail::call({name}, [&] { return gshm_promote(get(), name.c_str(), 0); });
    }

    // Makes a directory that stays when empty.
    Result<void> make_directory(const std::string& name, uint32_t mode = 0755) const {
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = GSHM_KIND_DIRECTORY;
        spec.name = name.c_str();
        spec.mode = mode;
        return detail::call({name}, [&] { return gshm_make(get(), &spec); });
    }
    Result<void> make_symlink(const std::string& target, const std::string& name) const {
        gshm_make_spec spec = GSHM_MAKE_SPEC_INIT;
        spec.kind = GSHM_KIND_SYMLINK;
        spec.name = name.c_str();
        spec.target = target.c_str();
        return detail::call({target, name}, [&] { return gshm_make(get(), &spec); });
    }
    // The target of a symbolic link.
    Result<std::string> read_link(const std::string& name) const {
        return detail::fetch_bytes({name}, [&](char* bytes, size_t room, size_t* length) {
            return gshm_read_link(get(), name.c_str(), bytes, room, length);
        });
    }
    // Adds a hard link to an object.
    Result<void> link(const std::string& name, const std::string& new_name) const {
        return detail::call({name, new_name}, [&] { return gshm_link(get(), name.c_str(), new_name.c_str()); });
    }
    // Mode bits, 07777; by the owner and root.
    Result<void> set_mode(const std::string& name, uint32_t mode) const {
        const gshm_changes changes = {sizeof changes, GSHM_CHANGE_MODE, mode, 0, 0};
        return detail::call({name}, [&] { return gshm_change(get(), name.c_str(), &changes); });
    }
    // From now on, or since the last use; zero: the object never expires. See gshm_set_ttl().
    Result<void> set_ttl(const std::string& name, std::chrono::milliseconds ttl, bool unused = false) const {
        const uint32_t flags = unused ? uint32_t{GSHM_TTL_UNUSED} : 0;
        return detail::call(
            {name}, [&] { return gshm_set_ttl(get(), name.c_str(), static_cast<uint64_t>(ttl.count()), flags); });
    }
    Result<void> pin(const std::string& name) const {
        return detail::call({name}, [&] { return gshm_pin(get(), name.c_str()); });
    }
    Result<void> unpin(const std::string& name) const {
        return detail::call({name}, [&] { return gshm_unpin(get(), name.c_str()); });
    }

    // See gshm_acl_get(). of_new: the default ACL of a directory.
    Result<std::vector<AclEntry>> acl(const std::string& name, bool of_new = false) const {
        std::vector<AclEntry> entries;
        for (size_t count = 0;;) {
            const size_t capacity = entries.size();
            if (auto done = detail::call({name},
                                         [&] {
                                             return gshm_acl_get(get(), name.c_str(),
                                                                 of_new ? uint32_t{GSHM_ACL_DEFAULT} : 0u,
                                                                 capacity ? entries.data() : nullptr, capacity, &count);
                                         });
                !done)
                return std::move(done).error();
            const bool fits = count <= capacity;
            entries.resize(count);
            if (fits) return entries;
        }
    }
    Result<void> set_acl(const std::string& name, std::span<const AclEntry> entries, bool of_new = false) const {
        return detail::call({name}, [&] {
            return gshm_acl_set(get(), name.c_str(), of_new ? uint32_t{GSHM_ACL_DEFAULT} : 0u, entries.data(),
                                entries.size());
        });
    }
    // See gshm_share().
    Result<ShareInfo> share(const std::string& name, std::span<const AclEntry> with,
                            const ShareOptions& options = {}) const {
        auto info = detail::sized<ShareInfo>();
        const uint32_t flags = (options.write ? uint32_t{GSHM_SHARE_WRITE} : 0u) |
                               (options.recursive ? uint32_t{GSHM_SHARE_RECURSIVE} : 0u) |
                               (options.parents ? uint32_t{GSHM_SHARE_PARENTS} : 0u);
        if (auto done = detail::call(
                {name}, [&] { return gshm_share(get(), name.c_str(), with.data(), with.size(), flags, &info); });
            !done)
            return std::move(done).error();
        return info;
    }
    Result<ShareInfo> unshare(const std::string& name, std::span<const AclEntry> with = {},
                              bool recursive = false) const {
        auto info = detail::sized<ShareInfo>();
        if (auto done = detail::call({name},
                                     [&] {
                                         return gshm_unshare(get(), name.c_str(), with.data(), with.size(),
                                                             recursive ? uint32_t{GSHM_SHARE_RECURSIVE} : 0u, &info);
                                     });
            !done)
            return std::move(done).error();
        return info;
    }

    Result<StatInfo> stat(const std::string& name) const {
        auto info = detail::sized<StatInfo>();
        if (auto done = detail::call({name}, [&] { return gshm_stat(get(), name.c_str(), &info); }); !done)
            return std::move(done).error();
        return info;
    }
    std::vector<Result<StatInfo>> stat_batch(std::span<const std::string> names) const {
        if (names.empty()) return {};
        const auto c = to_c(names);
        std::vector<StatInfo> infos(names.size(), detail::sized<StatInfo>());
        std::vector<int> statuses(names.size(), detail::kUntouched);
        const int status = gshm_stat_batch(get(), c.data(), c.size(), infos.data(), statuses.data());
        return detail::batch_results<StatInfo>(
            status, statuses, [&](size_t i) -> const std::string& { return names[i]; },
            [&](size_t i) { return infos[i]; });
    }
    // The entries of a directory, by name; if recursive, all objects below it. "" is the root.
    Result<std::vector<Entry>> list(const std::string& path = {}, bool recursive = false) const {
        gshm_listing* raw = nullptr;
        const uint32_t flags = recursive ? uint32_t{GSHM_RECURSIVE} : 0;
        if (auto done = detail::call({path}, [&] { return gshm_list(get(), path.c_str(), flags, &raw); }); !done)
            return std::move(done).error();
        const std::unique_ptr<gshm_listing, detail::FreeListing> listing(raw);
        std::vector<Entry> entries;
        entries.reserve(gshm_listing_count(raw));
        for (size_t i = 0; i < gshm_listing_count(raw); ++i) {
            auto info = detail::sized<StatInfo>();
            if (const int status = gshm_listing_stat(raw, i, &info); status != 0) return detail::last_error(status);
            entries.push_back({gshm_listing_name(raw, i), info});
        }
        return entries;
    }
    // The processes that hold leases.
    Result<std::vector<Holder>> holders(const std::string& name) const {
        return detail::fetch_array<Holder>(name, [&](Holder* items, size_t room, size_t* count) {
            return gshm_holders(get(), name.c_str(), items, room, count);
        });
    }

    Result<std::vector<UnlinkedEntry>> unlinked() const {
        gshm_listing* raw = nullptr;
        if (auto done = detail::call({}, [&] { return gshm_list_unlinked(get(), &raw); }); !done)
            return std::move(done).error();
        const std::unique_ptr<gshm_listing, detail::FreeListing> listing(raw);
        std::vector<UnlinkedEntry> entries;
        entries.reserve(gshm_listing_count(raw));
        for (size_t i = 0; i < gshm_listing_count(raw); ++i) {
            auto info = detail::sized<StatInfo>();
            if (const int status = gshm_listing_stat(raw, i, &info); status != 0) return detail::last_error(status);
            auto holders = detail::fetch_array<Holder>({}, [&](Holder* items, size_t room, size_t* count) {
                return gshm_listing_holders(raw, i, items, room, count);
            });
            if (!holders) return std::move(holders).error();
            entries.push_back({gshm_listing_name(raw, i), info, *std::move(holders)});
        }
        return entries;
    }

    // Waits until the name exists; or exists and is sealed; or no longer leads to its present object (kGone: the result
    // describes that object; id 0: there was none). ETIMEDOUT after the timeout; without one, no limit.
    Result<StatInfo> wait(const std::string& name, WaitFor condition = WaitFor::kSealed,
                          std::optional<std::chrono::milliseconds> timeout = {}) const {
        auto info = detail::sized<StatInfo>();
        const int ms = timeout ? detail::clamp_ms(*timeout) : -1;
        auto done = detail::call(
            {name}, [&] { return gshm_wait(get(), name.c_str(), static_cast<int>(condition), ms, &info); });
        if (!done) return std::move(done).error();
        return info;
    }

    Result<void> set_attribute(const std::string& name, const std::string& attribute, std::string_view value) const {
        return detail::call({name, attribute}, [&] {
            return gshm_set_attribute(get(), name.c_str(), attribute.c_str(), value.data(), value.size());
        });
    }
    // Returns one result per attribute, in order.
    std::vector<Result<void>> set_attributes(const std::string& name, std::span<const Attribute> attributes) const {
        if (attributes.empty()) return {};
        std::vector<gshm_attribute> c;
        for (const auto& [key, value] : attributes)
            c.push_back({detail::has_nul(key) ? "" : key.c_str(), value.data(), value.size()});
        std::vector<int> statuses(attributes.size(), detail::kUntouched);
        const char* object = detail::has_nul(name) ? nullptr : name.c_str();  // fails as a whole, with EINVAL
        const int status = gshm_set_attributes(get(), object, c.data(), c.size(), statuses.data());
        return detail::batch_results<void>(
            status, statuses, [&](size_t i) -> const std::string& { return attributes[i].name; }, [](size_t) {});
    }
    // All attributes, by name.
    Result<std::vector<Attribute>> attributes(const std::string& name) const {
        return fetch_attributes(name, nullptr, 0);
    }
    // Those of these attributes that exist, in order.
    Result<std::vector<Attribute>> attributes(const std::string& name, std::span<const std::string> wanted) const {
        if (wanted.empty()) return std::vector<Attribute>();
        const auto c = to_c(wanted);
        return fetch_attributes(name, c.data(), c.size());
    }
    // ENODATA: no such attribute
    Result<std::string> attribute(const std::string& name, const std::string& attribute) const {
        return detail::fetch_bytes({name, attribute}, [&](char* bytes, size_t room, size_t* length) {
            return gshm_get_attribute(get(), name.c_str(), attribute.c_str(), bytes, room, length);
        });
    }
    Result<void> remove_attribute(const std::string& name, const std::string& attribute) const {
        return detail::call({name, attribute},
                            [&] { return gshm_remove_attribute(get(), name.c_str(), attribute.c_str()); });
    }
    Result<std::vector<std::string>> attribute_names(const std::string& name) const {
        const auto packed = detail::fetch_bytes({name}, [&](char* bytes, size_t room, size_t* length) {
            return gshm_list_attributes(get(), name.c_str(), bytes, room, length);
        });
        if (!packed) return packed.error();
        std::vector<std::string> names;
        for (std::string_view rest = *packed; !rest.empty();) {
            const size_t end = std::min(rest.find('\0'), rest.size());
            names.emplace_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        return names;
    }

private:
    static gshm_limit raw(const Limit& limit) {
        gshm_limit info = limit.info;
        info.struct_size = sizeof info;
        info.path = limit.path.empty() ? nullptr : limit.path.c_str();
        info.device = limit.device.empty() ? nullptr : limit.device.c_str();
        return info;
    }
    explicit Client(gshm_client* handle) noexcept : handle_(handle) {}

    Result<std::vector<Attribute>> fetch_attributes(const std::string& name, const char* const* wanted,
                                                    size_t count) const {
        gshm_attribute_list* raw = nullptr;
        auto done = detail::call({name}, [&] { return gshm_get_attributes(get(), name.c_str(), wanted, count, &raw); });
        if (!done) return std::move(done).error();
        const std::unique_ptr<gshm_attribute_list, detail::FreeAttributes> list(raw);
        std::vector<Attribute> attributes;
        attributes.reserve(gshm_attribute_list_count(raw));
        for (size_t i = 0; i < gshm_attribute_list_count(raw); ++i) {
            const gshm_attribute* item = gshm_attribute_list_item(raw, i);
            attributes.push_back({item->name, {static_cast<const char*>(item->value), item->value_bytes}});
        }
        return attributes;
    }
    static gshm_create_spec nameless() noexcept {
        auto spec = detail::sized<gshm_create_spec>();
        spec.name = "";
        return spec;
    }
    // The result points into `attributes` and `spec`.
    static Result<gshm_create_spec> to_c(const CreateSpec& spec, std::vector<gshm_attribute>& attributes) {
        bool has_nul = detail::has_nul(spec.name) || detail::has_nul(spec.device);
        attributes.reserve(spec.attributes.size());
        for (const auto& [name, value] : spec.attributes) {
            has_nul = has_nul || detail::has_nul(name);
            attributes.push_back({name.c_str(), value.data(), value.size()});
        }
        if (has_nul) return Error{EINVAL, "a name must not have a NUL byte inside"};
        auto c = detail::sized<gshm_create_spec>();
        c.mode = spec.mode;
        c.name = spec.name.c_str();
        c.size_bytes = spec.size_bytes;
        c.device = detail::or_null(spec.device);
        c.flags = spec.flags();
        if (spec.owner) {
            c.uid = spec.owner->uid;
            c.gid = spec.owner->gid;
        }
        c.attributes = attributes.data();
        c.attribute_count = attributes.size();
        c.ttl_ms = static_cast<uint64_t>(spec.ttl.count());
        return c;
    }
    // A name that contains a NUL becomes the empty name, which fails alone with EINVAL.
    static std::vector<const char*> to_c(std::span<const std::string> names) {
        std::vector<const char*> c;
        c.reserve(names.size());
        for (const auto& name : names) c.push_back(detail::has_nul(name) ? "" : name.c_str());
        return c;
    }

    std::unique_ptr<gshm_client, detail::Disconnect> handle_;
};

}  // namespace v0
}  // namespace gshm

#endif

// Vineyard's GPU buffers on gshm: create, seal, get, mirror and delete, by ids and names shared by all processes.
//
// Names and signatures are vineyard's, so programs compile and run unchanged. docs/vineyard.md describes each call and
// the differences. C++17, also for nvcc. Link libgshm_vineyard.
//
//   vineyard::Client client;
//   VINEYARD_CHECK_OK(client.Connect("/run/gshm"));             // a gshmd's folder or socket
//   vineyard::ObjectID id;
//   vineyard::Payload payload;
//   std::shared_ptr<vineyard::MutableBuffer> buffer;
//   VINEYARD_CHECK_OK(client.CreateGPUBuffer(1 << 20, id, payload, buffer));
//
// Calls return a Status and write their outputs only if it is OK (GetGPUBuffers is an exception). Several threads may
// use a Client, or different buffers, at the same time; a buffer with its mirrors is used by one thread at a time.
// Buffers may outlive their Client.
#ifndef GSHM_COMPAT_VINEYARD_H
#define GSHM_COMPAT_VINEYARD_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

namespace vineyard {

// ---- Ids -----------------------------------------------------------------------------------------------------------

using ObjectID = uint64_t;

inline ObjectID InvalidObjectID() {
    return std::numeric_limits<ObjectID>::max();
}
// Ids of buffers have the highest bit set, as those of vineyard's blobs.
inline bool IsBlob(ObjectID id) {
    return (id & 0x8000000000000000u) != 0;
}
// "o" and 16 hexadecimal digits.
std::string ObjectIDToString(ObjectID id);
// The inverse; InvalidObjectID() for any other text.
ObjectID ObjectIDFromString(const std::string& text);

// ---- Status --------------------------------------------------------------------------------------------------------

// The values of vineyard.
enum class StatusCode : unsigned char {
    kOK = 0,
    kInvalid = 1,  // an invalid argument; also a lack of rights
    kKeyError = 2,
    kTypeError = 3,
    kIOError = 4,
    kEndOfFile = 5,
    kNotImplemented = 6,
    kAssertionFailed = 7,
    kObjectExists = 11,
    kObjectNotExists = 12,
    kObjectSealed = 13,
    kObjectNotSealed = 14,
    kVineyardServerNotReady = 31,
    kConnectionFailed = 33,  // could not connect
    kConnectionError = 34,   // not connected, or no longer
    kNotEnoughMemory = 41,
    kUserInputError = 51,
    kUnknownError = 255,
};

class [[nodiscard]] Status {
public:
    Status() noexcept = default;
    Status(StatusCode code, const std::string& message)
        : state_(code == StatusCode::kOK ? nullptr : std::make_shared<const State>(State{code, message})) {}

    static Status OK() { return Status(); }
    static Status Invalid(const std::string& message = "") { return {StatusCode::kInvalid, message}; }
    static Status KeyError(const std::string& message = "") { return {StatusCode::kKeyError, message}; }
    static Status TypeError(const std::string& message = "") { return {StatusCode::kTypeError, message}; }
    static Status IOError(const std::string& message = "") { return {StatusCode::kIOError, message}; }
    static Status EndOfFile(const std::string& message = "") { return {StatusCode::kEndOfFile, message}; }
    static Status NotImplemented(const std::string& message = "") { return {StatusCode::kNotImplemented, message}; }
    static Status AssertionFailed(const std::string& message) { return {StatusCode::kAssertionFailed, message}; }
    static Status ObjectExists(const std::string& message = "") { return {StatusCode::kObjectExists, message}; }
    static Status ObjectNotExists(const std::string& message = "") { return {StatusCode::kObjectNotExists, message}; }
    static Status ObjectSealed(const std::string& message = "") { return {StatusCode::kObjectSealed, message}; }
    static Status ObjectNotSealed(const std::string& message = "") { return {StatusCode::kObjectNotSealed, message}; }
    static Status VineyardServerNotReady(const std::string& message = "") {
        return {StatusCode::kVineyardServerNotReady, message};
    }
    static Status ConnectionFailed(const std::string& message = "") { return {StatusCode::kConnectionFailed, message}; }
    static Status ConnectionError(const std::string& message = "") { return {StatusCode::kConnectionError, message}; }
    static Status NotEnoughMemory(const std::string& message = "") { return {StatusCode::kNotEnoughMemory, message}; }
    static Status UserInputError(const std::string& message = "") { return {StatusCode::kUserInputError, message}; }
    static Status UnknownError(const std::string& message = "") { return {StatusCode::kUnknownError, message}; }

    bool ok() const noexcept { return state_ == nullptr; }
    bool IsInvalid() const noexcept { return code() == StatusCode::kInvalid; }
    bool IsKeyError() const noexcept { return code() == StatusCode::kKeyError; }
    bool IsTypeError() const noexcept { return code() == StatusCode::kTypeError; }
    bool IsIOError() const noexcept { return code() == StatusCode::kIOError; }
    bool IsEndOfFile() const noexcept { return code() == StatusCode::kEndOfFile; }
    bool IsNotImplemented() const noexcept { return code() == StatusCode::kNotImplemented; }
    bool IsAssertionFailed() const noexcept { return code() == StatusCode::kAssertionFailed; }
    bool IsObjectExists() const noexcept { return code() == StatusCode::kObjectExists; }
    bool IsObjectNotExists() const noexcept { return code() == StatusCode::kObjectNotExists; }
    bool IsObjectSealed() const noexcept { return code() == StatusCode::kObjectSealed; }
    bool IsObjectNotSealed() const noexcept { return code() == StatusCode::kObjectNotSealed; }
    bool IsVineyardServerNotReady() const noexcept { return code() == StatusCode::kVineyardServerNotReady; }
    bool IsConnectionFailed() const noexcept { return code() == StatusCode::kConnectionFailed; }
    bool IsConnectionError() const noexcept { return code() == StatusCode::kConnectionError; }
    bool IsNotEnoughMemory() const noexcept { return code() == StatusCode::kNotEnoughMemory; }
    bool IsUserInputError() const noexcept { return code() == StatusCode::kUserInputError; }
    bool IsUnknownError() const noexcept { return code() == StatusCode::kUnknownError; }

    StatusCode code() const noexcept { return state_ ? state_->code : StatusCode::kOK; }
    std::string message() const { return state_ ? state_->message : std::string(); }
    std::string CodeAsString() const;  // "OK", "Object not exists" and so on
    std::string ToString() const;      // the code and the message

    // The first error of the two.
    Status operator&(const Status& other) const { return ok() ? other : *this; }
    Status& operator&=(const Status& other) {
        if (ok()) *this = other;
        return *this;
    }

private:
    struct State {
        StatusCode code;
        std::string message;
    };
    std::shared_ptr<const State> state_;  // null: OK
};

inline std::ostream& operator<<(std::ostream& out, const Status& status) {
    return out << status.ToString();
}

// ---- Buffers -------------------------------------------------------------------------------------------------------

// The place of a buffer, as vineyard's server reports it. Here the library keeps the descriptors.
struct Payload {
    ObjectID object_id = 0x8000000000000000u;
    int store_fd = -1;
    int arena_fd = -1;
    ptrdiff_t data_offset = 0;  // from pointer
    int64_t data_size = 0;
    int64_t map_size = 0;
    int64_t ref_cnt = 0;
    uint8_t* pointer = nullptr;
    bool is_sealed = false;
    bool is_owner = false;
    bool is_spilled = false;
    bool is_gpu = false;
    int64_t pinned = 0;

    bool IsSealed() const { return is_sealed; }
    bool IsOwner() const { return is_owner; }
    bool IsSpilled() const { return is_spilled; }
    bool IsGPU() const { return is_gpu; }
    bool IsPinned() const { return pinned > 0; }
    bool operator==(const Payload& other) const {
        return object_id == other.object_id && store_fd == other.store_fd && data_offset == other.data_offset &&
               data_size == other.data_size;
    }
};

namespace detail {
struct BufferState;
struct ClientState;
struct MirrorState;
}  // namespace detail

// Memory on a device, valid while this exists.
class Buffer {
public:
    virtual ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // A device pointer on a GPU, an ordinary one on host.
    const uint8_t* data() const noexcept;
    uint8_t* mutable_data() noexcept;  // nullptr if immutable
    uintptr_t address() const noexcept;
    int64_t size() const noexcept;
    int64_t capacity() const noexcept;
    bool is_cpu() const noexcept;      // on `host`
    bool is_mutable() const noexcept;  // false for buffers from GetGPUBuffer, and after Seal() of its Client
    ObjectID id() const noexcept;
    std::string device() const;  // "cuda:0", "host": the daemon's name for it

protected:
    explicit Buffer(std::shared_ptr<detail::BufferState> state);

private:
    friend class Client;
    friend class CUDABufferMirror;
    std::shared_ptr<detail::BufferState> state_;
};

class MutableBuffer : public Buffer {
public:
    ~MutableBuffer() override;

private:
    friend class Client;
    explicit MutableBuffer(std::shared_ptr<detail::BufferState> state);
};

// A buffer's bytes for the CPU: pinned memory for a GPU buffer; on host the buffer's memory itself. The destructor
// writes them back if mutable_data() was called. Copies are ordered by the legacy default stream.
class CUDABufferMirror {
public:
    // Throws std::runtime_error if memory is exhausted, or if the buffer is immutable and `initializing` is false. The
    // bytes of a mutable buffer are always loaded, so that unchanged bytes keep their values.
    explicit CUDABufferMirror(Buffer& buffer, const bool initializing = false);
    // If writing back fails, the changes are lost and a line on standard error reports it.
    ~CUDABufferMirror();
    CUDABufferMirror(const CUDABufferMirror&) = delete;
    CUDABufferMirror& operator=(const CUDABufferMirror&) = delete;

    const uint8_t* data() const noexcept;
    uint8_t* mutable_data() noexcept;  // nullptr if the buffer is immutable
    int64_t size() const noexcept;
    // Writes back if mutable_data() was called since the last flush; call it again before further changes. After a
    // failure the next flush, or the destructor, tries again.
    Status flush();

private:
    std::unique_ptr<detail::MirrorState> state_;
};

// ---- Client --------------------------------------------------------------------------------------------------------

class Client {
public:
    Client();
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // ipc_socket is a gshmd's runtime folder, its socket (or a link to it), or a folder in its mount; "" is the default
    // daemon.
    Status Connect(const std::string& ipc_socket);
    Status Connect();               // to $VINEYARD_IPC_SOCKET, else as with ""
    bool Connected() const;         // whether the daemon answers now
    void Disconnect();              // unsealed buffers are freed when the last reference to them is gone
    std::string IPCSocket() const;  // "" if not connected

    // Creates a buffer of zeros. Others find it by its id at once. It is freed with this Client unless it is sealed.
    // device: "cuda:1", "host", or the number of a GPU of the daemon; by default the daemon's first GPU, else host.
    Status CreateGPUBuffer(const size_t size, ObjectID& id, Payload& payload, std::shared_ptr<MutableBuffer>& buffer,
                           const std::string& device = "");
    Status CreateGPUBuffer(const size_t size, ObjectID& id, Payload& payload, std::shared_ptr<MutableBuffer>& buffer,
                           int device);
    // Opens for reading. unsafe: also unsealed buffers; otherwise these give IsObjectNotSealed(). Does not wait.
    Status GetGPUBuffer(const ObjectID id, const bool unsafe, std::shared_ptr<Buffer>& buffer);
    // Adds all available buffers to `buffers`. The Status is OK if none is missing; otherwise it has the code of the
    // first failure and a message that names all of them.
    Status GetGPUBuffers(const std::set<ObjectID>& ids, const bool unsafe,
                         std::map<ObjectID, std::shared_ptr<Buffer>>& buffers);
    // Makes the buffer immutable and lets it outlive this Client. Repeated calls are OK. While another process has it
    // open for writing: IsInvalid().
    Status Seal(ObjectID const& id);
    // Removes the buffer; its memory is freed with its last holder. Without `force` a buffer that another process is
    // still writing (unsealed and held by its creator) is kept: IsObjectNotSealed(). Buffers have no members for `deep`
    // to follow. With several ids each is tried; failures are reported as in GetGPUBuffers.
    Status DelData(const ObjectID id, const bool force = false, const bool deep = true);
    Status DelData(const std::vector<ObjectID>& ids, const bool force = false, const bool deep = true);
    Status Exists(const ObjectID id, bool& exists);

    // Gives the buffer a name, replacing an earlier use of the name. The name is removed by DropName(), not with the
    // buffer; the name of a deleted buffer gives IsObjectNotExists().
    Status PutName(const ObjectID id, const std::string& name);
    // wait: until the name exists, without a limit.
    Status GetName(const std::string& name, ObjectID& id, const bool wait = false);
    Status DropName(const std::string& name);

private:
    std::unique_ptr<detail::ClientState> state_;
};

// ---- Macros --------------------------------------------------------------------------------------------------------

namespace detail {

// One line on standard error.
class LogLine {
public:
    enum class Severity { kInfo, kWarning, kError };
    LogLine(Severity severity, const char* file, int line);
    ~LogLine();
    std::ostream& stream() { return text_; }

private:
    const Severity severity_;
    std::ostringstream text_;
};
// The same, then ends the program.
class CheckFailure {
public:
    CheckFailure(const char* file, int line, const char* condition);
    [[noreturn]] ~CheckFailure();
    std::ostream& stream() { return text_; }

private:
    std::ostringstream text_;
};
// Gives a stream and an empty statement the same type, for ?:.
struct Voidify {
    void operator&(std::ostream&) const {}
};

}  // namespace detail
}  // namespace vineyard

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

// As in glog, `CHECK(condition) << "more words"`; if glog is included earlier, its own are used.
#ifndef CHECK
#define CHECK(condition)       \
    (condition)                \
        ? static_cast<void>(0) \
        : ::vineyard::detail::Voidify() & ::vineyard::detail::CheckFailure(__FILE__, __LINE__, #condition).stream()
#endif

#ifndef LOG
#define LOG(severity) VINEYARD_LOG_##severity.stream()
#define VINEYARD_LOG_AT(severity) \
    ::vineyard::detail::LogLine(::vineyard::detail::LogLine::Severity::severity, __FILE__, __LINE__)
#define VINEYARD_LOG_INFO VINEYARD_LOG_AT(kInfo)
#define VINEYARD_LOG_WARNING VINEYARD_LOG_AT(kWarning)
#define VINEYARD_LOG_ERROR VINEYARD_LOG_AT(kError)
#define VINEYARD_LOG_FATAL ::vineyard::detail::CheckFailure(__FILE__, __LINE__, "")
#endif

#ifndef VINEYARD_CHECK_OK  // throws
#define VINEYARD_CHECK_OK(status)                                                                                \
    do {                                                                                                         \
        const ::vineyard::Status vineyard_checked_ = (status);                                                   \
        if (!vineyard_checked_.ok())                                                                             \
            throw ::std::runtime_error("Check failed: " + vineyard_checked_.ToString() + " in \"" #status "\""); \
    } while (0)
#endif

#ifndef RETURN_ON_ERROR
#define RETURN_ON_ERROR(status)                                  \
    do {                                                         \
        ::vineyard::Status vineyard_returned_ = (status);        \
        if (!vineyard_returned_.ok()) return vineyard_returned_; \
    } while (0)
#endif

#endif

// Vineyard's GPU buffers on gshm: create, seal, get, mirror and delete, by ids and names that every process knows.
//
// Names and signatures are vineyard's, so that its programs compile and run unchanged; docs/vineyard.md says what each
// call does here and what differs. C++17, also for nvcc. Link libgshm_vineyard.
//
//   vineyard::Client client;
//   VINEYARD_CHECK_OK(client.Connect("/run/gshm"));             // a gshmd's folder or socket
//   vineyard::ObjectID id;
//   vineyard::Payload payload;
//   std::shared_ptr<vineyard::MutableBuffer> buffer;
//   VINEYARD_CHECK_OK(client.CreateGPUBuffer(1 << 20, id, payload, buffer));
//
// Calls return a Status and write their outputs only if it is OK (GetGPUBuffers says where it does more). A Client may
// be used by several threads at once, and so may different buffers; one buffer with its mirrors by one thread at a
// time. Buffers may outlive their Client.
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
// Every id of a buffer has the highest bit, as vineyard's blobs have.
inline bool IsBlob(ObjectID id) {
    return (id & 0x8000000000000000u) != 0;
}
// "o" and 16 hexadecimal digits.
std::string ObjectIDToString(ObjectID id);
// The way back; InvalidObjectID() for any other text.
ObjectID ObjectIDFromString(const std::string& text);

// ---- Status --------------------------------------------------------------------------------------------------------

// Vineyard's numbers.
enum class StatusCode : unsigned char {
    kOK = 0,
    kInvalid = 1,  // an argument that cannot be; also what the caller has no right to
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
    kConnectionError = 34,   // not connected, or not any more
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

    // The first of the two that is an error.
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

// Where a buffer is, as vineyard's server tells its client. Descriptors stay with the library here.
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

// Memory on a device, for as long as this is there.
class Buffer {
public:
    virtual ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // A device pointer on a GPU, an ordinary one on host.
    const uint8_t* data() const noexcept;
    uint8_t* mutable_data() noexcept;  // nullptr if it is immutable
    uintptr_t address() const noexcept;
    int64_t size() const noexcept;
    int64_t capacity() const noexcept;
    bool is_cpu() const noexcept;      // it is on `host`
    bool is_mutable() const noexcept;  // not if it was got by its id, and not once Seal() of its Client has sealed it
    ObjectID id() const noexcept;
    std::string device() const;  // "cuda:0", "host": as the daemon calls it

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

// A buffer's bytes for the CPU: pinned memory beside a GPU's, on host the buffer's memory itself. They are written back
// when it goes, if mutable_data() was asked for. Copies wait for what is on the legacy default stream.
class CUDABufferMirror {
public:
    // Throws std::runtime_error if it cannot be had: there is no memory, or the buffer is immutable and `initializing`
    // is false. A mutable buffer's bytes are in it in either case, so that nothing but what is changed changes.
    explicit CUDABufferMirror(Buffer& buffer, const bool initializing = false);
    // What cannot be written back is lost, and a line on standard error says so.
    ~CUDABufferMirror();
    CUDABufferMirror(const CUDABufferMirror&) = delete;
    CUDABufferMirror& operator=(const CUDABufferMirror&) = delete;

    const uint8_t* data() const noexcept;
    uint8_t* mutable_data() noexcept;  // nullptr if the buffer is immutable
    int64_t size() const noexcept;
    // Writes back, if mutable_data() was asked for since the last time; ask again before further changes. What has
    // failed is tried again by the next one, and by the destructor.
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

    // ipc_socket is a gshmd's runtime folder, its socket (or a link to it), or a folder in its mount; "" for where
    // gshmd is found by default.
    Status Connect(const std::string& ipc_socket);
    Status Connect();               // to $VINEYARD_IPC_SOCKET, else as with ""
    bool Connected() const;         // the daemon answers, now
    void Disconnect();              // buffers that are not sealed go when the last one that is held does
    std::string IPCSocket() const;  // "" if not connected

    // A buffer of zeros that others find by its id at once, and that goes with this Client unless it is sealed: on
    // `device` ("cuda:1", "host"; a number is a GPU of the daemon), else on the daemon's first GPU, else on host.
    Status CreateGPUBuffer(const size_t size, ObjectID& id, Payload& payload, std::shared_ptr<MutableBuffer>& buffer,
                           const std::string& device = "");
    Status CreateGPUBuffer(const size_t size, ObjectID& id, Payload& payload, std::shared_ptr<MutableBuffer>& buffer,
                           int device);
    // For reading. unsafe: whether it is sealed or not; else IsObjectNotSealed() if it is not. Neither waits.
    Status GetGPUBuffer(const ObjectID id, const bool unsafe, std::shared_ptr<Buffer>& buffer);
    // All that can be had are added to `buffers`; the Status is OK if that is all of them, else it has the code of the
    // first that fails and a message that names every one.
    Status GetGPUBuffers(const std::set<ObjectID>& ids, const bool unsafe,
                         std::map<ObjectID, std::shared_ptr<Buffer>>& buffers);
    // Immutable from now on, and it outlives this Client. Again is OK, too. While another process is open for writing:
    // IsInvalid().
    Status Seal(ObjectID const& id);
    // Nobody finds it any more, and its memory is free as soon as nobody holds it. Without `force` a buffer that
    // another process is still writing (unsealed, and held by who has made it) is left alone: IsObjectNotSealed().
    // Buffers have no members for `deep` to follow. Of many each is tried; a failure is reported as GetGPUBuffers does.
    Status DelData(const ObjectID id, const bool force = false, const bool deep = true);
    Status DelData(const std::vector<ObjectID>& ids, const bool force = false, const bool deep = true);
    Status Exists(const ObjectID id, bool& exists);

    // A name for a buffer, instead of whatever had the name before. It goes with DropName(), not with the buffer; but
    // the name of a buffer that is gone is IsObjectNotExists().
    Status PutName(const ObjectID id, const std::string& name);
    // wait: until the name is there, for ever if need be.
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
// The same, and the end of the program.
class CheckFailure {
public:
    CheckFailure(const char* file, int line, const char* condition);
    [[noreturn]] ~CheckFailure();
    std::ostream& stream() { return text_; }

private:
    std::ostringstream text_;
};
// Makes a stream and nothing the same type, for ?:.
struct Voidify {
    void operator&(std::ostream&) const {}
};

}  // namespace detail
}  // namespace vineyard

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

// As glog has them, `CHECK(condition) << "more words"`; glog's own are used where that is included before.
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

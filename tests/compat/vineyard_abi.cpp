/* The header by itself, as C++17 with all warnings: it needs nothing before it, takes being included twice, and its
 * classes have the signatures that vineyard's programs are written against. */
// clang-format off: it comes first, and once more at the end
#include <cstdio>
#include <type_traits>
#include <vineyard.h>

#include "client/client.h"
#include "client/ds/blob.h"
#include "client/ds/object_meta.h"
#include "common/util/logging.h"
#include "common/util/status.h"
#include "common/util/uuid.h"
// clang-format on

using namespace vineyard;

template <class Wanted, class Is>
constexpr bool same = std::is_same<Wanted, Is>::value;
using Buffers = std::map<ObjectID, std::shared_ptr<Buffer>>;
using Mutable = std::shared_ptr<MutableBuffer>;

static_assert(__cplusplus == 201703L, "the oldest standard that is supported");
static_assert(same<ObjectID, uint64_t>, "");
static_assert(same<Status (Client::*)(const std::string&),
                   decltype(static_cast<Status (Client::*)(const std::string&)>(&Client::Connect))>,
              "");
static_assert(
    same<Status (Client::*)(const ObjectID, const bool, std::shared_ptr<Buffer>&), decltype(&Client::GetGPUBuffer)>,
    "");
static_assert(
    same<Status (Client::*)(const std::set<ObjectID>&, const bool, Buffers&), decltype(&Client::GetGPUBuffers)>, "");
static_assert(same<Status (Client::*)(ObjectID const&), decltype(&Client::Seal)>, "");
static_assert(same<Status (Client::*)(const ObjectID, bool&), decltype(&Client::Exists)>, "");
static_assert(same<const uint8_t* (Buffer::*)() const noexcept, decltype(&Buffer::data)>, "");
static_assert(same<uint8_t* (Buffer::*)() noexcept, decltype(&Buffer::mutable_data)>, "");
static_assert(same<uintptr_t (Buffer::*)() const noexcept, decltype(&Buffer::address)>, "");
static_assert(same<int64_t (Buffer::*)() const noexcept, decltype(&Buffer::size)>, "");
static_assert(same<int64_t (Buffer::*)() const noexcept, decltype(&Buffer::capacity)>, "");
static_assert(std::is_base_of<Buffer, MutableBuffer>::value, "");
static_assert(std::is_constructible<CUDABufferMirror, Buffer&>::value, "");
static_assert(std::is_constructible<CUDABufferMirror, Buffer&, bool>::value, "");
static_assert(!std::is_convertible<Buffer&, CUDABufferMirror>::value, "explicit");
static_assert(!std::is_copy_constructible<Client>::value && !std::is_copy_constructible<CUDABufferMirror>::value, "");
static_assert(std::is_nothrow_destructible<CUDABufferMirror>::value, "");

static int failures = 0;
static void expect(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "not so: %s\n", what);
    ++failures;
}
#define EXPECT(condition) expect(condition, #condition)

static Status returns_early(bool early, bool& went_on) {
    RETURN_ON_ERROR(early ? Status::ObjectSealed("why") : Status::OK());
    went_on = true;
    return Status::OK();
}

static Status every_call(Client& client) {
    ObjectID id = 0;
    Payload payload;
    Mutable made;
    std::shared_ptr<Buffer> got;
    Buffers many;
    bool exists = false;
    const size_t size = 1;
    Status all = client.Connect("/nowhere");
    all &= client.CreateGPUBuffer(size, id, payload, made);
    all &= client.CreateGPUBuffer(size, id, payload, made, "cuda:1");
    all &= client.CreateGPUBuffer(size, id, payload, made, 0);
    all &= client.GetGPUBuffer(id, true, got);
    all &= client.GetGPUBuffers({id}, false, many);
    all &= client.Seal(id);
    all &= client.DelData(id);
    all &= client.DelData(id, true);
    all &= client.DelData(id, true, false);
    all &= client.DelData(std::vector<ObjectID>{id});
    all &= client.DelData({id, id}, true, true);
    all &= client.Exists(id, exists);
    all &= client.PutName(id, "name");
    all &= client.GetName("name", id);
    all &= client.GetName("name", id, false);
    all &= client.DropName("name");
    client.Disconnect();
    EXPECT(!client.Connected() && client.IPCSocket().empty());
    EXPECT(made == nullptr && got == nullptr && many.empty() && id == 0);
    return all;
}

int main() {
    Client client;
    const Status all = every_call(client);
    EXPECT(all.IsConnectionFailed());  // the first of them
    EXPECT(client.Seal(1).IsConnectionError());

    bool went_on = false;
    EXPECT(returns_early(false, went_on).ok() && went_on);
    went_on = false;
    EXPECT(returns_early(true, went_on).IsObjectSealed() && !went_on);
    try {
        VINEYARD_CHECK_OK(Status::NotEnoughMemory("none left"));
        EXPECT(false);
    } catch (const std::runtime_error& error) {
        EXPECT(std::string(error.what()).find("Not enough memory: none left") != std::string::npos);
    }
    if (went_on) CHECK(false) << "never evaluated " << ++failures;
    else CHECK(true) << "neither is this " << ++failures;

    LOG(INFO) << "a line, with a number: " << 7;
    LOG(WARNING) << "and\n";
    LOG(ERROR) << "more";

    EXPECT(Status().ok() && Status::OK().ToString() == "OK" && Status::OK().message().empty());
    EXPECT(Status(StatusCode::kOK, "no error").ok());
    const Status missing = Status::ObjectNotExists("x");
    const Status copy = missing;
    EXPECT(copy.IsObjectNotExists() && copy.code() == StatusCode::kObjectNotExists && copy.message() == "x");
    EXPECT(missing.ToString() == "Object not exists: x" && Status::IOError().ToString() == "IO error");
    EXPECT(static_cast<int>(missing.code()) == 12 && static_cast<int>(StatusCode::kUnknownError) == 255);
    EXPECT((Status::OK() & missing).IsObjectNotExists() && (missing & Status::IOError()).IsObjectNotExists());

    EXPECT(ObjectIDToString(0x8000000000000abcu) == "o8000000000000abc" && ObjectIDToString(1).size() == 17);
    EXPECT(ObjectIDFromString("o8000000000000abc") == 0x8000000000000abcu &&
           ObjectIDFromString("o00000000000000FF") == 255);
    for (const char* wrong : {"", "o", "8000000000000abc", "p8000000000000abc", "o8000000000000ab",
                              "o8000000000000abc0", "o8000000000000abg", "o 000000000000abc", "o-000000000000abc"})
        EXPECT(ObjectIDFromString(wrong) == InvalidObjectID());
    EXPECT(IsBlob(0x8000000000000000u) && !IsBlob(1));
    const Payload payload;
    EXPECT(payload.store_fd == -1 && payload.arena_fd == -1 && payload.pointer == nullptr && !payload.IsSealed());
    EXPECT(payload == Payload() && payload.data_offset == 0 && payload.map_size == 0 && payload.ref_cnt == 0);
    return failures == 0 ? 0 : 1;
}

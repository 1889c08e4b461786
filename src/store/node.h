// What a name stands for: a directory, or an object with its place in an extent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "store/name_table.h"

namespace gshm {

using NodeId = uint64_t;
using ExtentId = uint64_t;
using SessionId = uint64_t;

using Attributes = std::map<std::string, std::string, std::less<>>;

enum class NodeKind : uint8_t { object = 1, directory = 2 };   // values as in gshm.h
enum class ObjectState : uint8_t { open = 1, sealed = 2 };     // likewise

struct Directory;
struct StoredExtent;

struct Node {
    Node(NodeKind node_kind, NodeId node_id) : id(node_id), kind(node_kind) {}
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    // What a lookup reads stands first.
    std::string name;  // in the parent; kept, but of no meaning, once unlinked
    NodeId id;
    NodeKind kind;
    uint16_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    Directory* parent = nullptr;  // null: the root, or unlinked
    uint64_t cookie = 0;          // position in the parent's order
    int64_t created_ns = 0;
    int64_t modified_ns = 0;
    std::unique_ptr<Attributes> attributes;  // null: none
};

struct Object final : Node {
    explicit Object(NodeId node_id) : Node(NodeKind::object, node_id) {}

    ObjectState state = ObjectState::open;
    uint32_t flags = 0;  // CreateFlag
    uint32_t leases = 0;
    uint32_t write_leases = 0;
    uint64_t size_bytes = 0;
    StoredExtent* extent = nullptr;
    uint64_t offset = 0;
    // The session it is reclaimed with, and its neighbours in that session's list of such; 0: none, or sealed.
    SessionId creator = 0;
    Object* next_unsealed = nullptr;
    Object* previous_unsealed = nullptr;
};

// A hint that the node will be read soon.
void fetch(const Node* node);

// Entries in the order they were made, each with a cookie: a listing that goes on at a cookie neither misses nor repeats
// one, whatever is created and removed meanwhile. One vector, since listings read it from end to end.
class EntryOrder {
public:
    // Returns the cookie, never 0.
    uint64_t add(Node* node);
    void remove(uint64_t cookie);
    // The entries after a cookie, `most` of them. Sets ret_cookie to where to go on; 0: there are no more.
    std::vector<const Node*> after(uint64_t cookie, size_t most, uint64_t* ret_cookie) const;

private:
    struct Entry {
        uint64_t cookie;
        Node* node;  // null: removed
    };
    std::vector<Entry>::const_iterator find(uint64_t cookie) const;

    std::vector<Entry> entries_;  // by cookie
    size_t removed_ = 0;
    uint64_t next_cookie_ = 1;
};

struct Directory final : Node {
    explicit Directory(NodeId node_id) : Node(NodeKind::directory, node_id) {}

    NameTable children;
    EntryOrder order;
    bool implicit = false;  // made on an object's way, and gone with the last entry
};

}  // namespace gshm

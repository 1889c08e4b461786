#include "catalog/encoding.h"

#include <cstring>

#include "store/account_limits.h"
#include "store/acl.h"
#include "store/lifetimes.h"

namespace gshm::core {
namespace {

enum class Part : uint8_t {
    link = 1,
    attribute = 2,
    retired = 3,
    acl = 4,
    default_acl = 5,
    lifetime = 6,
    tier = 7,
    limits = 8,
    counted_in = 9
};

class Writer {
public:
    void part(Part part) { bytes_.push_back(static_cast<char>(part)); }
    void number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
    void text(std::string_view value) {
        number(value.size());
        bytes_.append(value);
    }
    std::string take() { return std::move(bytes_); }

private:
    std::string bytes_;
};

class Reader {
public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}
    bool at_end() const { return rest_.empty() || bad_; }
    bool is_bad() const { return bad_; }
    Part part() {
        auto value = static_cast<Part>(rest_.front());
        rest_.remove_prefix(1);
        return value;
    }
    uint64_t number() {
        uint64_t value = 0;
        std::string_view bytes = take(sizeof value);
        if (!bad_) memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    std::string text() { return std::string(take(number())); }
    void refuse() { bad_ = true; }

private:
    std::string_view take(uint64_t count) {
        bad_ |= count > rest_.size();
        if (bad_) return {};
        std::string_view bytes = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return bytes;
    }

    std::string_view rest_;
    bool bad_ = false;
};

}  // namespace

std::string encode_more(const Node& node, std::span<const int64_t> device_numbers) {
    const auto* object = node.kind == NodeKind::object ? static_cast<const Object*>(&node) : nullptr;
    Writer out;
    for (const auto& link : node.further_links) {
        out.part(Part::link);
        out.number(link->parent->id);
        out.number(link->cookie);
        out.text(link->name);
    }
    if (node.attributes) {
        for (const auto& [name, value] : *node.attributes) {
            out.part(Part::attribute);
            out.text(name);
            out.text(value);
        }
    }
    if (object != nullptr && object->retired) {
        for (const auto& retired : *object->retired) {
            out.part(Part::retired);
            out.number(retired.place.extent->key);
            out.number(retired.place.offset);
            out.number(retired.size_bytes);
        }
    }
    if (object != nullptr && object->lifetime != nullptr && object->lifetime->ttl_ns != 0) {
        out.part(Part::lifetime);
        out.number(static_cast<uint64_t>(object->lifetime->ttl_ns));
        out.number(static_cast<uint64_t>(object->lifetime->from_ns));
    }
    auto add_acl = [&](Part part, const AclPointer& acl) {
        if (!acl) return;
        out.part(part);
        out.text(encode_acl(acl->entries()));
    };
    add_acl(Part::acl, node.acl);
    if (node.kind == NodeKind::directory) {
        add_acl(Part::default_acl, static_cast<const Directory&>(node).default_acl);
    }
    if (node.kind == NodeKind::directory) {
        if (const auto& account = static_cast<const Directory&>(node).account) {
            out.part(Part::limits);
            out.text(encode_limits(account->set));
        }
    }
    // Of an object with names they follow from these.
    if (object != nullptr && object->links == 0 && object->accounted.trees() != nullptr) {
        for (const TreeAccount* account : object->accounted.trees()->accounts) {
            if (account->directory == nullptr) continue;
            out.part(Part::counted_in);
            out.number(account->directory->id);
        }
    }
    if (object != nullptr && object->is_evicted()) {
        out.part(Part::tier);
        out.number(static_cast<uint64_t>(device_numbers[object->home()]));
        out.number(object->stored);
    }
    return out.take();
}

Status decode_more(std::string_view bytes, SavedNode& node, const std::map<int64_t, DeviceIndex>& device_indexes) {
    Reader in(bytes);
    auto take_once = [&](std::string& acl) {
        if (!acl.empty()) in.refuse();
        acl = in.text();
        if (acl.empty()) in.refuse();
    };
    while (!in.at_end()) {
        switch (in.part()) {
            case Part::link: {
                SavedLink link;
                link.parent = in.number();
                link.cookie = in.number();
                link.name = in.text();
                node.links.push_back(std::move(link));
                break;
            }
            case Part::attribute: {
                std::string name = in.text();
                node.attributes.insert_or_assign(std::move(name), in.text());
                break;
            }
            case Part::retired: {
                SavedNode::Retired retired;
                retired.extent = in.number();
                retired.offset = in.number();
                retired.size_bytes = in.number();
                node.retired.push_back(retired);
                break;
            }
            case Part::lifetime:
                node.ttl_ns = static_cast<int64_t>(in.number());
                node.ttl_from_ns = static_cast<int64_t>(in.number());
                break;
            case Part::acl: take_once(node.acl); break;
            case Part::default_acl: take_once(node.default_acl); break;
            case Part::limits: node.limits = in.text(); break;
            case Part::counted_in: node.counted_in.push_back(in.number()); break;
            case Part::tier: {
                auto device = device_indexes.find(static_cast<int64_t>(in.number()));
                node.stored = in.number();
                // Without its device the object belongs to the one that has its bytes.
                if (device != device_indexes.end()) node.evicted_from = device->second;
                else if (node.stored != 0) in.refuse();
                break;
            }
            default: in.refuse();
        }
    }
    if (in.is_bad()) return fail(EUCLEAN, "node {} has links, attributes or ACLs that cannot be read", node.id);
    return {};
}

}  // namespace gshm::core

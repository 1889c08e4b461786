#include "store/kept_facts.h"

#include <algorithm>
#include <cstring>

#include "base/limits.h"
#include "store/acl.h"
#include "store/tree.h"

namespace gshm::core {
namespace {

constexpr char kMagic[8] = {'k', 'e', 'p', 't', 'o', 'b', 'j', '1'};
enum class Part : uint8_t { name = 1, attribute = 2, acl = 3, device = 4 };

class Writer {
public:
    template <typename Number>
    void number(Number value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void part(Part part) { bytes_.push_back(static_cast<char>(part)); }
    void text(std::string_view value) {
        number(static_cast<uint32_t>(value.size()));
        bytes_.append(value);
    }
    void raw(std::string_view value) { bytes_.append(value); }
    std::string take() { return std::move(bytes_); }

private:
    std::string bytes_;
};

class Reader {
public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}
    bool at_end() const { return rest_.empty() || bad_; }
    bool is_bad() const { return bad_; }
    void refuse() { bad_ = true; }
    template <typename Number>
    Number number() {
        Number value = 0;
        const std::string_view bytes = take(sizeof value);
        if (!bad_) std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    std::string_view text() { return take(number<uint32_t>()); }
    std::string_view take(size_t count) {
        bad_ |= count > rest_.size();
        if (bad_) return {};
        const std::string_view bytes = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return bytes;
    }

private:
    std::string_view rest_;
    bool bad_ = false;
};

std::string acl_bytes(const AclPointer& acl) {
    return acl ? encode_acl(acl->entries()) : std::string();
}

bool is_acl(std::string_view bytes) {
    const auto entries = decode_acl(bytes);
    return entries && check_acl(*entries);
}

KeptFacts::Name name_of(const Link& link) {
    KeptFacts::Name name{Tree::path_of(link), {}};
    // Without the root directory, which every gshmd has.
    for (const Directory* at = link.parent; at != nullptr && at->parent() != nullptr; at = at->parent())
        name.directories.push_back(kept_directory(*at));
    std::ranges::reverse(name.directories);
    return name;
}

// As many parts as directories and one more, none of which leads elsewhere.
bool is_path(std::string_view path, size_t directories) {
    if (path.empty() || path.size() > (limits::kNamePartBytes + 1) * (directories + 1)) return false;
    size_t parts = 0;
    for (std::string_view rest = path;;) {
        const size_t slash = rest.find('/');
        const std::string_view part = rest.substr(0, slash);
        if (part.empty() || part == "." || part == ".." || part.size() > limits::kNamePartBytes ||
            part.find('\0') != part.npos)
            return false;
        ++parts;
        if (slash == rest.npos) break;
        rest.remove_prefix(slash + 1);
    }
    return parts == directories + 1;
}

void read_name(Reader& in, KeptFacts& facts) {
    KeptFacts::Name name;
    for (auto count = in.number<uint32_t>(); count > 0 && !in.is_bad(); --count) {
        KeptFacts::Directory directory;
        directory.mode = in.number<uint16_t>();
        directory.uid = in.number<uint32_t>();
        directory.gid = in.number<uint32_t>();
        const auto implicit = in.number<uint8_t>();
        directory.implicit = implicit != 0;
        directory.acl = in.text();
        if (directory.mode > 07777 || implicit > 1 || (!directory.acl.empty() && !is_acl(directory.acl)))
            return in.refuse();
        name.directories.push_back(std::move(directory));
    }
    name.path = in.text();
    if (!is_path(name.path, name.directories.size())) return in.refuse();
    facts.names.push_back(std::move(name));
}

void read_attribute(Reader& in, KeptFacts& facts) {
    const std::string_view name = in.text();
    const std::string_view value = in.text();
    const bool fits =
        !name.empty() && name.size() <= limits::kAttributeNameBytes && value.size() <= limits::kAttributeValueBytes;
    if (!fits || !facts.attributes.emplace(name, value).second) in.refuse();
}

void read_part(Reader& in, KeptFacts& facts) {
    switch (static_cast<Part>(in.number<uint8_t>())) {
        case Part::name: return read_name(in, facts);
        case Part::attribute: return read_attribute(in, facts);
        case Part::acl:
            facts.acl = in.text();
            if (!is_acl(facts.acl)) in.refuse();
            return;
        case Part::device: facts.device = in.text(); return;
    }
    in.refuse();
}

}  // namespace

KeptFacts::Directory kept_directory(const Directory& directory) {
    return {directory.mode, directory.uid, directory.gid, directory.implicit, acl_bytes(directory.acl)};
}

KeptFacts kept_facts(const Object& object, const std::string& device) {
    KeptFacts facts;
    if (object.first_link.parent != nullptr) facts.names.push_back(name_of(object.first_link));
    for (const auto& link : object.further_links)
        if (link->parent != nullptr) facts.names.push_back(name_of(*link));
    facts.mode = object.mode;
    facts.uid = object.uid;
    facts.gid = object.gid;
    facts.state = object.state;
    facts.flags = object.flags;
    facts.size_bytes = object.size_bytes;
    facts.device = device;
    facts.created_ns = object.created_ns;
    facts.accessed_ns = object.accessed_ns;
    facts.modified_ns = object.modified_ns;
    facts.changed_ns = object.changed_ns;
    if (object.attributes) facts.attributes = *object.attributes;
    facts.acl = acl_bytes(object.acl);
    return facts;
}

std::string encode_kept_facts(const KeptFacts& facts) {
    Writer out;
    out.raw({kMagic, sizeof kMagic});
    out.number(facts.mode);
    out.number(static_cast<uint8_t>(facts.state));
    out.number(uint8_t{0});
    out.number(facts.flags);
    out.number(uint32_t{facts.uid});
    out.number(uint32_t{facts.gid});
    out.number(facts.size_bytes);
    for (const int64_t time :
         {facts.created_ns, facts.accessed_ns, facts.modified_ns, facts.changed_ns, facts.ttl_ns, facts.ttl_from_ns})
        out.number(time);
    for (const auto& name : facts.names) {
        out.part(Part::name);
        out.number(static_cast<uint32_t>(name.directories.size()));
        for (const auto& directory : name.directories) {
            out.number(directory.mode);
            out.number(uint32_t{directory.uid});
            out.number(uint32_t{directory.gid});
            out.number(static_cast<uint8_t>(directory.implicit));
            out.text(directory.acl);
        }
        out.text(name.path);
    }
    for (const auto& [name, value] : facts.attributes) {
        out.part(Part::attribute);
        out.text(name);
        out.text(value);
    }
    if (!facts.acl.empty()) {
        out.part(Part::acl);
        out.text(facts.acl);
    }
    out.part(Part::device);
    out.text(facts.device);
    return out.take();
}

Result<KeptFacts> decode_kept_facts(std::string_view bytes) {
    Reader in(bytes);
    KeptFacts facts;
    const bool is_ours = in.take(sizeof kMagic) == std::string_view(kMagic, sizeof kMagic);
    facts.mode = in.number<uint16_t>();
    facts.state = static_cast<ObjectState>(in.number<uint8_t>());
    const auto unused = in.number<uint8_t>();
    facts.flags = in.number<uint32_t>();
    facts.uid = in.number<uint32_t>();
    facts.gid = in.number<uint32_t>();
    facts.size_bytes = in.number<uint64_t>();
    for (int64_t* time : {&facts.created_ns, &facts.accessed_ns, &facts.modified_ns, &facts.changed_ns, &facts.ttl_ns,
                          &facts.ttl_from_ns})
        *time = in.number<int64_t>();
    while (!in.at_end()) read_part(in, facts);
    const bool is_state = facts.state == ObjectState::open || facts.state == ObjectState::sealed;
    if (!is_ours || in.is_bad() || unused != 0 || facts.mode > 07777 || !is_state || facts.names.empty() ||
        facts.device.empty() || facts.size_bytes > limits::kObjectBytes || facts.ttl_ns < 0 ||
        bytes_of(facts.attributes) > limits::kAttributesBytes)
        return fail(EBADMSG, "the facts of a kept object are not of this version of gshm");
    return facts;
}

}  // namespace gshm::core

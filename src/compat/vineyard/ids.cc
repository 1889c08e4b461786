#include "ids.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sys/random.h>

namespace vineyard {
namespace {

constexpr ObjectID kBlobBit = ObjectID{1} << 63;

std::string hex(uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
    return text;
}

}  // namespace

std::string ObjectIDToString(ObjectID id) {
    return "o" + hex(id);
}

ObjectID ObjectIDFromString(const std::string& text) {
    if (text.size() != 17 || text[0] != 'o') return InvalidObjectID();
    if (text.find_first_not_of("0123456789abcdefABCDEF", 1) != text.npos) return InvalidObjectID();
    return std::strtoull(text.c_str() + 1, nullptr, 16);
}

namespace detail {

ObjectID random_id() {
    // From the kernel each time: a forked child must not continue its parent's sequence.
    for (;;) {
        ObjectID id = 0;
        if (getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) {
            if (errno == EINTR) continue;
            std::abort();  // available since Linux 3.17
        }
        id |= kBlobBit;
        if (id != kBlobBit && id != InvalidObjectID()) return id;  // excludes vineyard's empty blob and the invalid id
    }
}

std::string object_name(ObjectID id) {
    return std::string(kFolder) + "/" + ObjectIDToString(id);
}

std::string name_link(const std::string& name) {
    std::string link = std::string(kNamesFolder) + "/";
    for (size_t i = 0; i < name.size(); ++i) {
        const auto byte = static_cast<unsigned char>(name[i]);
        if (byte < 0x20 || byte == 0x7F || byte == '/' || byte == '%' || (byte == '.' && i == 0)) {
            char escaped[4];
            std::snprintf(escaped, sizeof escaped, "%%%02X", byte);
            link += escaped;
        } else {
            link += name[i];
        }
    }
    return link;
}

std::string new_name_link() {
    return std::string(kNamesFolder) + "/.new-" + hex(random_id());
}

std::string link_target(ObjectID id) {
    return "../" + ObjectIDToString(id);
}

std::optional<ObjectID> linked_id(const std::string& target) {
    if (target.rfind("../", 0) != 0) return std::nullopt;
    const ObjectID id = ObjectIDFromString(target.substr(3));
    if (id == InvalidObjectID()) return std::nullopt;
    return id;
}

}  // namespace detail
}  // namespace vineyard

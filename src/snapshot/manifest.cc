#include "snapshot/manifest.h"

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <fcntl.h>
#include <new>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/limits.h"
#include "base/name.h"
#include "snapshot/block_file.h"
#include <gshm/gshm.h>

namespace gshm::core {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "gshm-snapshot";
constexpr int kVersion = 1;
// A manifest of nine million objects. A larger one is refused before memory is allocated for it.
constexpr uint64_t kManifestBytes = uint64_t{4} << 30;

struct FlagName {
    uint32_t flag;
    const char* name;
};
constexpr FlagName kFlagNames[] = {{GSHM_KEEP, "keep"},
                                   {GSHM_COMPRESSIBLE, "compressible"},
                                   {GSHM_DEDICATED, "dedicated"}};

std::string path_of(const std::string& folder) {
    return folder + "/manifest.jsonl";
}

std::string instance_text(uint64_t instance) {
    return fmt::format("{:016x}", instance);
}

// An integer member or element. The JSON library also converts other numbers and values out of range.
template <std::integral Integer>
Integer integer(const Json& json, auto where) {
    const Json& value = json.at(where);
    auto within = [&](auto number) {
        if (!std::in_range<Integer>(number))
            throw std::invalid_argument(fmt::format("{} is out of range: {}", where, number));
        return static_cast<Integer>(number);
    };
    if (value.is_number_unsigned()) return within(value.template get<uint64_t>());
    if (value.is_number_integer()) return within(value.template get<int64_t>());
    throw std::invalid_argument(fmt::format("{} is no integer", where));
}

std::string hex_text(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

std::string mode_text(uint32_t mode) {
    return fmt::format("{:04o}", mode & 07777);
}

std::string bytes_of_hex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

Json to_json(const std::vector<SavedAttribute>& attributes) {
    Json json = Json::array();
    for (const auto& [key, value] : attributes) json.push_back({{"key", key}, {"hex", hex_text(value)}});
    return json;
}

std::vector<SavedAttribute> attributes_from(const Json& json) {
    std::vector<SavedAttribute> attributes;
    for (const auto& attribute : json) attributes.push_back({attribute.at("key"), bytes_of_hex(attribute.at("hex"))});
    return attributes;
}

Json to_json(const SavedDirectory& directory) {
    Json json = {{"kind", "directory"},  {"name", directory.name}, {"mode", mode_text(directory.mode)},
                 {"uid", directory.uid}, {"gid", directory.gid},   {"keep", directory.keep}};
    if (!directory.device.empty()) json["device"] = directory.device;
    if (!directory.attributes.empty()) json["attributes"] = to_json(directory.attributes);
    if (!directory.acl.empty()) json["acl"] = directory.acl;
    if (!directory.default_acl.empty()) json["default_acl"] = directory.default_acl;
    return json;
}

Json to_json(const SavedSymlink& link) {
    Json json = {{"kind", "symlink"}, {"name", link.names.front()}, {"uid", link.uid}, {"gid", link.gid}};
    if (is_valid_utf8(link.target)) json["target"] = link.target;
    else json["target_hex"] = hex_text(link.target);
    if (link.names.size() > 1) json["further_names"] = std::vector(link.names.begin() + 1, link.names.end());
    return json;
}

Json to_json(const SavedObject& object) {
    Json flags = Json::array();
    for (const auto& [flag, name] : kFlagNames)
        if ((object.flags & flag) != 0) flags.push_back(name);
    Json chunks = Json::array();
    for (const auto& chunk : object.chunks)
        chunks.push_back(
            {chunk.file, chunk.offset, static_cast<uint32_t>(chunk.codec), chunk.stored_bytes, to_hex(chunk.checksum)});
    Json json = {{"kind", "object"},
                 {"names", object.names},
                 {"size_bytes", object.size_bytes()},
                 {"mode", mode_text(object.mode)},
                 {"uid", object.uid},
                 {"gid", object.gid},
                 {"device", object.device},
                 {"flags", std::move(flags)},
                 {"state", object.sealed ? "sealed" : "open"},
                 {"attributes", to_json(object.attributes)},
                 {"instance", instance_text(object.identity.instance)},
                 {"id", object.identity.id},
                 {"created_ns", object.created_ns},
                 {"modified_ns", object.identity.modified_ns}};
    if (object.ttl_ms != 0) json["ttl_ms"] = object.ttl_ms;
    if (object.ttl_unused) json["ttl_unused"] = true;
    if (object.changing) json["changing"] = true;
    if (!object.acl.empty()) json["acl"] = object.acl;
    json["chunks"] = std::move(chunks);
    return json;
}

SavedDirectory directory_from(const Json& json) {
    return {json.at("name"),
            static_cast<uint32_t>(std::stoul(json.at("mode").get<std::string>(), nullptr, 8)),
            integer<uint32_t>(json, "uid"),
            integer<uint32_t>(json, "gid"),
            json.at("keep"),
            json.value("device", ""),
            attributes_from(json.value("attributes", Json::array())),
            json.value("acl", ""),
            json.value("default_acl", "")};
}

SavedSymlink symlink_from(const Json& json) {
    SavedSymlink link{{json.at("name")}, {}, integer<uint32_t>(json, "uid"), integer<uint32_t>(json, "gid")};
    link.target = json.contains("target_hex") ? bytes_of_hex(json["target_hex"]) : json.at("target").get<std::string>();
    for (const std::string name : json.value("further_names", Json::array())) link.names.push_back(name);
    return link;
}

SavedObject object_from(const Json& json, size_t file_count) {
    SavedObject object;
    object.names = json.at("names").get<std::vector<std::string>>();
    if (object.names.empty()) throw std::invalid_argument("an object without a name");
    object.mode = static_cast<uint32_t>(std::stoul(json.at("mode").get<std::string>(), nullptr, 8));
    object.uid = integer<uint32_t>(json, "uid");
    object.gid = integer<uint32_t>(json, "gid");
    object.device = json.at("device");
    for (const std::string name : json.at("flags"))
        for (const auto& known : kFlagNames)
            if (name == known.name) object.flags |= known.flag;
    object.sealed = json.at("state") == "sealed";
    object.changing = json.value("changing", false);
    if (json.contains("ttl_ms")) object.ttl_ms = integer<uint64_t>(json, "ttl_ms");
    object.ttl_unused = json.value("ttl_unused", false);
    object.attributes = attributes_from(json.at("attributes"));
    object.acl = json.value("acl", "");
    object.created_ns = integer<int64_t>(json, "created_ns");
    object.identity = {std::stoull(json.at("instance").get<std::string>(), nullptr, 16), integer<uint64_t>(json, "id"),
                       integer<uint64_t>(json, "size_bytes"), integer<int64_t>(json, "modified_ns")};
    if (object.size_bytes() > limits::kObjectBytes)
        throw std::invalid_argument(fmt::format("size_bytes is out of range: {}", object.size_bytes()));
    for (const auto& chunk : json.at("chunks")) {
        const auto codec = integer<uint32_t>(chunk, 2);
        ChunkPlace place{integer<uint32_t>(chunk, 0), integer<uint64_t>(chunk, 1), static_cast<Codec>(codec),
                         integer<uint32_t>(chunk, 3), checksum_from_hex(chunk.at(4).get<std::string>())};
        if (codec > 1 || place.file >= file_count || place.stored_bytes > kSnapshotChunkBytes)
            throw std::invalid_argument("an invalid chunk");
        object.chunks.push_back(place);
    }
    if (object.chunks.size() != chunk_count(object.size_bytes())) throw std::invalid_argument("chunks are missing");
    return object;
}

void add_entry(Manifest& manifest, const Json& json) {
    const std::string kind = json.at("kind");
    if (kind == "directory") manifest.directories.push_back(directory_from(json));
    else if (kind == "symlink") manifest.symlinks.push_back(symlink_from(json));
    else if (kind == "object") manifest.objects.push_back(object_from(json, manifest.files.size()));
    else throw std::invalid_argument("an entry of an unknown kind");
}

std::span<const std::byte> as_bytes(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

std::string_view next_line(std::string_view& rest) {
    const size_t end = rest.find('\n');
    if (end == rest.npos) throw std::invalid_argument("it ends within a line");
    const auto line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    return line;
}

Manifest parse(std::string_view text) {
    const auto head = Json::parse(next_line(text));
    if (head.at("format") != kFormat) throw std::invalid_argument("it is of another format");
    if (head.at("version") != kVersion) throw std::invalid_argument("it is of another version of the format");
    if (head.at("bytes") != text.size()) throw std::invalid_argument("its length is wrong");
    if (checksum_from_hex(head.at("xxh3").get<std::string>()) != checksum_of(as_bytes(text)))
        throw std::invalid_argument("its checksum is wrong");

    Manifest manifest;
    const auto about = Json::parse(next_line(text));
    manifest.files = about.at("files").get<std::vector<std::string>>();
    for (const auto& file : manifest.files)
        if (!file.starts_with("data-") || file.find('/') != file.npos) throw std::invalid_argument("a bad file name");
    if (about.at("chunk_bytes") != kSnapshotChunkBytes) throw std::invalid_argument("chunks of another size");
    manifest.created_ns = integer<int64_t>(about, "created_ns");
    manifest.instance = std::stoull(about.at("instance").get<std::string>(), nullptr, 16);
    for (const auto& entry : about.value("left_out", Json::array()))
        manifest.left_out.push_back({entry.at("name"), entry.at("reason")});
    while (!text.empty()) add_entry(manifest, Json::parse(next_line(text)));
    return manifest;
}

Status write_whole(const UniqueFd& file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(file.get(), text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("write");
        text.remove_prefix(static_cast<size_t>(count));
    }
    return {};
}

// Grows with what is read: a sparse file may claim any size.
Result<std::string> read_whole(const UniqueFd& file, uint64_t bytes) {
    constexpr size_t kStepBytes = 64 << 20;
    std::string text;
    while (text.size() < bytes) {
        const size_t done = text.size();
        text.resize(done + std::min<uint64_t>(kStepBytes, bytes - done));
        const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
        text.resize(done + static_cast<size_t>(std::max<ssize_t>(count, 0)));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("read");
        if (count == 0) break;
        // The first line is short. Without it, the rest is not read.
        if (done == 0 && text.find('\n') == text.npos) break;
    }
    return text;
}

std::string text_of(const Manifest& manifest) {
    Json about = {{"files", manifest.files},
                  {"chunk_bytes", kSnapshotChunkBytes},
                  {"created_ns", manifest.created_ns},
                  {"instance", instance_text(manifest.instance)}};
    for (const auto& [name, reason] : manifest.left_out)
        about["left_out"].push_back({{"name", name}, {"reason", reason}});
    std::string body = about.dump() + '\n';
    for (const auto& directory : manifest.directories) body += to_json(directory).dump() + '\n';
    for (const auto& object : manifest.objects) body += to_json(object).dump() + '\n';
    for (const auto& link : manifest.symlinks) body += to_json(link).dump() + '\n';
    const Json head = {{"format", kFormat},
                       {"version", kVersion},
                       {"bytes", body.size()},
                       {"xxh3", to_hex(checksum_of(as_bytes(body)))}};
    return head.dump() + '\n' + body;
}

}  // namespace

uint64_t Manifest::size_bytes() const {
    uint64_t total = 0;
    for (const auto& object : objects) total += object.size_bytes();
    return total;
}

Status write_manifest(const std::string& folder, const Manifest& manifest) {
    std::string text;
    try {
        text = text_of(manifest);
    } catch (const Json::exception& error) {
        return fail(EILSEQ, "a name cannot be stored: {}", error.what());
    }
    if (text.size() > kManifestBytes)
        return fail(EFBIG, "the manifest has {} bytes, and a manifest has at most {}", text.size(), kManifestBytes);
    const std::string part = path_of(folder) + ".part";
    ::unlink(part.c_str());  // from an interrupted run; a symbolic link there must not be followed
    auto file = UniqueFd::adopt(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file || !write_whole(file, text) || ::fsync(file.get()) != 0 || ::close(file.take()) != 0 ||
        ::rename(part.c_str(), path_of(folder).c_str()) != 0)
        return fail_errno(part.c_str());
    return sync_folder(folder);
}

Result<std::optional<Manifest>> read_manifest(const std::string& folder) {
    const auto path = path_of(folder);
    uint64_t bytes = 0;
    const auto file = open_regular_file(path, O_RDONLY, &bytes);
    if (!file && file.error().code == ENOENT) return std::nullopt;
    if (!file) return std::unexpected(file.error());
    if (bytes > kManifestBytes)
        return fail(EIO, "{} is damaged: it has {} bytes, and a manifest has at most {}", path, bytes, kManifestBytes);
    try {
        const auto text = read_whole(*file, bytes);
        if (!text) return fail_errno(path.c_str(), text.error().code);
        return parse(*text);
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM, "there is no memory to read {}, which has {} bytes", path, bytes);
    } catch (const std::exception& error) {  // includes those of the JSON library
        return fail(EIO, "{} is damaged: {}", path, error.what());
    }
}

}  // namespace gshm::core

// The manifest of a snapshot: any file is read or refused, and what was read comes out the same when it is written and
// read again. Inputs are the manifest without its first line, whose length and checksum are put right.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "snapshot/chunk.h"
#include "snapshot/manifest.h"

namespace {

using namespace gshm::core;

const std::string& folder() {
    static const std::string made = [] {
        std::string pattern = access("/dev/shm", W_OK) == 0 ? "/dev/shm/gshm-fuzz-XXXXXX" : "/tmp/gshm-fuzz-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr) std::abort();
        static std::string kept = pattern;
        std::atexit([] {
            unlink((kept + "/manifest.jsonl").c_str());
            rmdir(kept.c_str());
        });
        return pattern;
    }();
    return made;
}

void write_input(const std::string& text) {
    const int fd = open((folder() + "/manifest.jsonl").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
    close(fd);
}

std::string bytes_written() {
    std::string text(1 << 20, '\0');
    const int fd = open((folder() + "/manifest.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = read(fd, text.data(), text.size());
    close(fd);
    text.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
    return text;
}

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string body(reinterpret_cast<const char*>(data), size);
    // One in a few is taken as it is.
    const bool whole = body.starts_with("{\"format\"");
    const auto sum = to_hex(checksum_of(std::as_bytes(std::span(body.data(), body.size()))));
    write_input(whole ? body
                      : "{\"format\":\"gshm-snapshot\",\"version\":1,\"bytes\":" + std::to_string(body.size()) +
                            ",\"xxh3\":\"" + sum + "\"}\n" + body);
    const auto read = read_manifest(folder());
    if (!read) return 0;
    require(read->has_value(), "a manifest that is there is found");
    const Manifest& manifest = **read;
    for (const auto& object : manifest.objects) {
        require(!object.names.empty(), "an object has a name");
        require(object.chunks.size() == chunk_count(object.size_bytes()), "an object has all its chunks");
    }
    for (const auto& link : manifest.symlinks) require(!link.names.empty(), "a symbolic link has a name");
    require(write_manifest(folder(), manifest).has_value(), "what is read can be written");
    const auto first = bytes_written();
    const auto again = read_manifest(folder());
    require(again && again->has_value(), "what is written can be read");
    require(write_manifest(folder(), **again).has_value(), "what is written can be written again");
    require(bytes_written() == first, "what is read is what was written");
    return 0;
}

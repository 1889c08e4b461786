// fakecuda, a test double of NVIDIA's driver: reads its environment.
#include "config.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fakecuda {
namespace {

size_t parse_size(const char* name, const char* text) {
    char* end = nullptr;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = 0;
    switch (*end) {
        case 'K': shift = 10; break;
        case 'M': shift = 20; break;
        case 'G': shift = 30; break;
        default: break;
    }
    if (shift != 0) ++end;
    if (end == text || *end != '\0') die(std::string(name) + "=" + text + " is not a size");
    return static_cast<size_t>(value) << shift;
}

void read_bool(const char* name, bool& value) {
    const char* text = getenv(name);
    if (text == nullptr) return;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) die(std::string(name) + " must be 0 or 1, not " + text);
    value = text[0] == '1';
}

Config read() {
    Config made;
    if (const char* text = getenv("FAKECUDA_DEVICES")) {
        size_t count = parse_size("FAKECUDA_DEVICES", text);
        if (count > kMaxDevices) die("FAKECUDA_DEVICES: at most 64");
        made.devices = static_cast<int>(count);
    }
    if (const char* text = getenv("FAKECUDA_MEMORY")) made.memory_bytes = parse_size("FAKECUDA_MEMORY", text);
    if (const char* text = getenv("FAKECUDA_OTHERS")) made.others_bytes = parse_size("FAKECUDA_OTHERS", text);
    if (made.others_bytes > made.memory_bytes) die("FAKECUDA_OTHERS is more than FAKECUDA_MEMORY");
    read_bool("FAKECUDA_DMABUF", made.dmabuf);
    read_bool("FAKECUDA_DMABUF_IMPORT", made.dmabuf_import);
    read_bool("FAKECUDA_COMPRESSION", made.compression);
    read_bool("FAKECUDA_PEER", made.peer);
    read_bool("FAKECUDA_FABRIC", made.fabric);
    if (const char* text = getenv("FAKECUDA_STICKY")) {
        if (strcmp(text, "all") != 0 && strcmp(text, "context") != 0) die("FAKECUDA_STICKY must be context or all");
        made.sticky_all = strcmp(text, "all") == 0;
    }
    if (const char* text = getenv("FAKECUDA_COPY_DELAY_US")) {
        made.copy_delay_us = static_cast<unsigned>(parse_size("FAKECUDA_COPY_DELAY_US", text));
    }
    if (const char* text = getenv("FAKECUDA_FAIL")) made.fail = text;
    if (const char* text = getenv("FAKECUDA_CONTROL")) made.control = text;
    if (const char* text = getenv("CUDA_VISIBLE_DEVICES")) {
        made.visible = text;
        made.visible_set = true;
    }
    return made;
}

}  // namespace

const Config& config() {
    static const Config* made = new Config(read());
    return *made;
}

size_t others_bytes() {
    if (config().control.empty()) return config().others_bytes;
    FILE* file = fopen((config().control + ".others").c_str(), "re");
    if (file == nullptr) return config().others_bytes;
    unsigned long long bytes = 0;
    const bool good = fscanf(file, "%llu", &bytes) == 1;
    fclose(file);
    if (!good || bytes > config().memory_bytes) die(config().control + ".others is no number of bytes of the device");
    return bytes;
}

void die(const std::string& why) {
    fprintf(stderr, "fakecuda: %s\n", why.c_str());
    abort();
}

}  // namespace fakecuda

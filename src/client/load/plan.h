// The objects that a load makes: one for each file and device, with its tensors and the ranges of the file to read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/load/source.h"

namespace gshm::core::client {

struct Choice {
    std::string tensor;
    std::string device;
    int32_t dimension = -1;  // -1: the whole tensor
    uint64_t begin = 0;
    uint64_t end = 0;
};

// Ranges of a file that are adjacent in the object.
struct Run {
    uint64_t file_offset = 0;
    uint64_t object_offset = 0;
    uint64_t bytes = 0;  // of each range
    uint64_t stride = 0;
    uint64_t count = 0;
};

struct Part {
    size_t file = 0;
    std::string device;
    std::string selection;  // a hash; "": the whole file
    std::string identity;   // a hash: of the file, the selection and the device
    tensors::Table table;   // of the object
    std::vector<Run> runs;
    uint64_t bytes = 0;  // of all ranges
};

// In the order of files and devices. ENOENT: no such tensor. EINVAL: no such slice, or a tensor twice on one device.
Result<std::vector<Part>> plan_all(const Source& source, const std::string& device);
Result<std::vector<Part>> plan_choices(const Source& source, std::span<const Choice> choices);

// Names of objects; gshm.h has the rules. `name` is that of the file's object, without the endings.
std::string explicit_name(const std::string& name, const Part& part, bool has_device);
std::string derived_name(const std::string& tree, const SourceFile& file, const Part& part);
// While the object is loaded.
std::string claim_name(const std::string& name, const Part& part);

}  // namespace gshm::core::client

// The tensors of objects, as the command line shows them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/support/context.h"
#include "cli/support/record.h"
#include <gshm/tensors.hpp>

namespace gshm::cli {

// nullopt: the object has no tensors, or may not be read.
std::optional<uint64_t> tensor_count(Context& context, const std::string& name);
// The object has tensors of a file, which can be loaded again. Tensors of a checkpoint are in no file.
bool is_loaded(Context& context, const std::string& name);
// Reads the table from the object. nullopt as tensor_count(). A malformed table throws.
std::optional<std::vector<TensorInfo>> find_tensors(Context& context, const std::string& name);

std::vector<Record> tensor_records(const std::vector<TensorInfo>& tensors);
// A table with at most `most` tensors (0: all), and a line for the rest.
std::string tensors_text(const std::vector<TensorInfo>& tensors, size_t most, bool exact_bytes = false);

}  // namespace gshm::cli

#include "faketorch.h"

namespace c10 {

Error::Error(SourceLocation where, std::string message)
    : message_(std::move(message)), what_(message_ + " (at " + where.file + ":" + where.function + ")") {}

}  // namespace c10

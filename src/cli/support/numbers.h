// Parsers for the numbers on the command line. Each throws a usage Failure with the option and the accepted values.
#pragma once

#include <cstdint>
#include <string_view>

namespace gshm::cli {

// "4096", "0x1000", "8M", "8MiB": powers of 1024, at most 2^63 - 1.
uint64_t parse_size(std::string_view option, std::string_view text);
// 0 to 255, also as 0xff.
uint8_t parse_byte(std::string_view option, std::string_view text);
// Octal permission bits, 1 to 0777.
uint32_t parse_mode(std::string_view option, std::string_view text);
// The same of a directory, 1 to 07777.
uint32_t parse_directory_mode(std::string_view option, std::string_view text);
// Seconds, possibly with a fraction, converted to milliseconds.
int parse_seconds(std::string_view option, std::string_view text);
// "500ms", "10m", "1h30m", "2d": whole numbers with ms, s, m, h or d, the larger units first; a number alone is seconds.
// Converted to milliseconds; from 1 ms to 100 years.
uint64_t parse_duration(std::string_view option, std::string_view text);

// A size of at least 1, or "none", which is 0.
uint64_t parse_limit(std::string_view option, std::string_view text);
// A number of at least 1, or "none", which is 0.
uint64_t parse_limit_count(std::string_view option, std::string_view text);
// As parse_duration(), in seconds; a part of one is a whole one.
uint64_t parse_span(std::string_view option, std::string_view text);

// An integer within bounds.
unsigned parse_count(std::string_view option, std::string_view text, unsigned least, unsigned most);

}  // namespace gshm::cli

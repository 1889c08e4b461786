// fakecuda, a test double of NVIDIA's driver: the table of exported calls, and the functions that only tests use.
#include "calls.h"

#include <string_view>

#include "call.h"

namespace fakecuda {
namespace {

struct Export {
    const char* name;
    const void* address;  // a missing implementation makes the library fail to load
};

const Export kExports[] = {
#define FAKECUDA_EXPORT(member, symbol, signature) {#symbol, reinterpret_cast<const void*>(&fakecuda::symbol)},
    GSHM_CUDA_CALLS(FAKECUDA_EXPORT) FAKECUDA_KERNEL_CALLS(FAKECUDA_EXPORT)
#undef FAKECUDA_EXPORT
};

std::string_view without_version(std::string_view name) {
    size_t end = name.rfind("_v");
    return end == std::string_view::npos ? name : name.substr(0, end);
}

}  // namespace

const char* symbol_name(Symbol symbol) {
    return kExports[static_cast<size_t>(symbol)].name;
}

Symbol find_symbol(const char* name) {
    for (size_t i = 0; i < kSymbolCount; ++i) {
        if (kExports[i].address != nullptr &&
            (name == std::string_view(kExports[i].name) || name == without_version(kExports[i].name))) {
            return static_cast<Symbol>(i);
        }
    }
    return Symbol::count;
}

unsigned long fakecuda_calls(const char* symbol) {
    if (symbol != nullptr) {
        Symbol found = find_symbol(symbol);
        return found == Symbol::count ? 0 : call_count(found);
    }
    unsigned long total = 0;
    for (size_t i = 0; i < kSymbolCount; ++i) total += call_count(static_cast<Symbol>(i));
    return total;
}

const char* fakecuda_identity(void) {
    return "fakecuda: a test double of libcuda.so.1 over memfds. There is no GPU and no NVIDIA code behind it.";
}

}  // namespace fakecuda

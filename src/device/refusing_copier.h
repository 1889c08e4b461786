// A copier that fails every call with the reason why there is none. (A null copier means ordinary memory.)
#pragma once

#include "device/copier.h"

namespace gshm::core {

class RefusingCopier final : public Copier {
public:
    explicit RefusingCopier(Error why) : why_(std::move(why)) {}
    void copy_in(uint64_t, const std::byte*, size_t, Done done) override { done(std::unexpected(why_)); }
    void copy_out(std::byte*, uint64_t, size_t, Done done) override { done(std::unexpected(why_)); }
    void fill(uint64_t, size_t, uint8_t, Done done) override { done(std::unexpected(why_)); }

private:
    Error why_;
};

}  // namespace gshm::core

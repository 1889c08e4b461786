// A reference to an ACL (acl.h), in nodes. Equal ACLs of a store are one copy.
#pragma once

#include <memory>
#include <utility>

namespace gshm::core {

class Acl;
class AclTable;

// The table of a store. Its ACLs end with the last pointer to them.
std::shared_ptr<AclTable> make_acl_table();

// Made by the table. Pointers are copied and destroyed with the store lock held exclusively.
class AclPointer {
public:
    AclPointer() = default;
    AclPointer(const AclPointer& other) : acl_(other.acl_) {
        if (acl_ != nullptr) add();
    }
    AclPointer(AclPointer&& other) noexcept : acl_(std::exchange(other.acl_, nullptr)) {}
    AclPointer& operator=(AclPointer other) noexcept {
        std::swap(acl_, other.acl_);
        return *this;
    }
    ~AclPointer() {
        if (acl_ != nullptr) drop();
    }

    const Acl* operator->() const { return acl_; }
    const Acl& operator*() const { return *acl_; }
    explicit operator bool() const { return acl_ != nullptr; }
    // Pointers of one table to equal ACLs are equal.
    bool operator==(const AclPointer& other) const { return acl_ == other.acl_; }

private:
    friend class AclTable;
    // The reference is counted already.
    explicit AclPointer(Acl* acl) : acl_(acl) {}
    void add() const;
    void drop();

    Acl* acl_ = nullptr;
};

}  // namespace gshm::core

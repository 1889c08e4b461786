// Whether a folder is safe from other users: nobody else can write to it, or replace it or a folder above it.
#pragma once

#include <string>

#include "base/result.h"

namespace gshm::core {

// For messages.
struct FolderRole {
    const char* what;    // "the runtime folder"
    const char* advice;  // "choose another --dir"
};

// Checks all folders above, from the root on: after a folder has been checked, no other user can change its entries that
// have been checked. A missing one ends the check; with `make` it is made. EPERM: one is not safe.
Status check_folders_above(const std::string& path, const FolderRole& role, bool make);

// EPERM: the folder belongs to another user, or others may write to it. ENOTDIR: it is none, or a symbolic link.
Status check_own_folder(const std::string& path, const FolderRole& role);

}  // namespace gshm::core

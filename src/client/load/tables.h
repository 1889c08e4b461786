// The handle of a table of tensors.
#pragma once

#include <string>
#include <vector>

#include "client/load/source.h"
#include "gshm/gshm.h"

struct gshm_tensors {
    struct File {
        std::string name;
        gshm::core::tensors::Table table;
        size_t first = 0;                      // the index of its first tensor
        std::vector<gshm_attribute> metadata;  // views of that of the table
    };
    std::vector<File> files;
    size_t count = 0;

    void add(std::string name, gshm::core::tensors::Table table);
};

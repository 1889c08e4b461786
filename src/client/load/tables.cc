// gshm.h: tables of tensors.
#include "client/load/tables.h"

#include <algorithm>
#include <cstring>

#include "client/api.h"
#include "client/files/transfer.h"

using namespace gshm::core;
using namespace gshm::core::client;

void gshm_tensors::add(std::string name, tensors::Table table) {
    File& file = files.emplace_back(File{std::move(name), std::move(table), count, {}});
    count += file.table.tensors().size();
    for (const auto& [key, value] : file.table.metadata()) {
        file.metadata.push_back({key.c_str(), value.c_str(), value.size()});
    }
}

namespace {

const gshm_tensors::File* file_at(const gshm_tensors* tensors, size_t file) {
    return tensors == nullptr || file >= tensors->files.size() ? nullptr : &tensors->files[file];
}

// The handle refers to its own tables, so they are added in place.
std::unique_ptr<gshm_tensors> make_handle(size_t files) {
    auto handle = std::make_unique<gshm_tensors>();
    handle->files.reserve(files);
    return handle;
}

gshm_tensor_info describe(const gshm_tensors& handle, size_t index) {
    const auto after = std::ranges::upper_bound(handle.files, index, {}, &gshm_tensors::File::first);
    const auto& file = *(after - 1);
    const auto& tensor = file.table.tensors()[index - file.first];
    return {sizeof(gshm_tensor_info),
            tensor.dimensions,
            file.table.name(tensor).data(),
            tensors::dtype_name(tensor.dtype),
            file.table.shape(tensor).data(),
            tensor.offset,
            tensor.bytes,
            static_cast<size_t>(after - 1 - handle.files.begin())};
}

Result<tensors::Table> read_object(gshm_object& object) {
    const uint64_t bytes = object.size_bytes;
    std::string header(std::min<uint64_t>(bytes, tensors::kLengthBytes), '\0');
    TRY(as_status(gshm_copy_out(&object, 0, header.data(), header.size())));
    const uint64_t length = TRY(tensors::Table::header_length(header, bytes));
    header.resize(tensors::kLengthBytes + length);
    TRY(as_status(gshm_copy_out(&object, tensors::kLengthBytes, header.data() + tensors::kLengthBytes, length)));
    return tensors::Table::parse(std::move(header), bytes, tensors::Gaps::permitted);
}

Result<tensors::NewTensor> read_new(const gshm_tensor_info& info) {
    TRY(check_argument(info.name != nullptr && info.dtype != nullptr, "a tensor's name or dtype is NULL"));
    TRY(check_argument(info.shape != nullptr || info.dimensions == 0, "a tensor's shape is NULL"));
    const auto dtype = tensors::find_dtype(info.dtype);
    if (!dtype) return fail(EINVAL, "unknown dtype \"{}\"", info.dtype);
    return tensors::NewTensor{info.name, *dtype, {info.shape, info.dimensions}};
}

Result<tensors::Metadata> read_metadata(const gshm_attribute* metadata, size_t count) {
    TRY(check_argument(metadata != nullptr || count == 0, "metadata is NULL"));
    tensors::Metadata list;
    for (size_t i = 0; i < count; ++i) {
        const auto& one = metadata[i];
        TRY(check_argument(one.name != nullptr && (one.value != nullptr || one.value_bytes == 0),
                           "a name or value of the metadata is NULL"));
        list.emplace_back(one.name, std::string(static_cast<const char*>(one.value), one.value_bytes));
    }
    return list;
}

}  // namespace

extern "C" {

int gshm_tensors_of_path(const char* path, gshm_tensors** ret_tensors) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(path != nullptr && ret_tensors != nullptr, "path or ret_tensors is NULL"));
        auto source = TRY(open_source(path));
        auto handle = make_handle(source.files.size());
        for (auto& file : source.files) handle->add(std::move(file.name), std::move(file.table));
        *ret_tensors = handle.release();
        return {};
    });
}

int gshm_tensors_of_memory(const void* data, size_t bytes, gshm_tensors** ret_tensors) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument((data != nullptr || bytes == 0) && ret_tensors != nullptr, "data or ret_tensors is NULL"));
        const std::string_view whole(static_cast<const char*>(data), bytes);
        const uint64_t length = TRY(tensors::Table::header_length(whole, bytes));
        std::string header(whole.substr(0, tensors::kLengthBytes + length));
        auto handle = make_handle(1);
        handle->add("", TRY(tensors::Table::parse(std::move(header), bytes, tensors::Gaps::refused)));
        *ret_tensors = handle.release();
        return {};
    });
}

int gshm_tensors_of_object(gshm_object* object, gshm_tensors** ret_tensors) noexcept {
    return with_object(object, [&](gshm_object& one) -> Status {
        TRY(check_argument(ret_tensors != nullptr, "ret_tensors is NULL"));
        auto handle = make_handle(1);
        handle->add("", TRY(read_object(one)));
        *ret_tensors = handle.release();
        return {};
    });
}

int gshm_tensors_layout(const gshm_tensor_info* tensors, size_t count, const gshm_attribute* metadata,
                        size_t metadata_count, uint32_t flags, gshm_tensors** ret_tensors) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument((tensors != nullptr || count == 0) && ret_tensors != nullptr,
                           "tensors or ret_tensors is NULL"));
        TRY(check_flags(flags, GSHM_LAYOUT_FILE, "layout"));
        std::vector<tensors::NewTensor> list;
        list.reserve(count);
        for (size_t i = 0; i < count; ++i) {
            list.push_back(
                TRY(read_new(TRY(read_struct<gshm_tensor_info>(element(tensors, i), tensors[0].struct_size)))));
        }
        const auto layout = (flags & GSHM_LAYOUT_FILE) != 0 ? tensors::Layout::file : tensors::Layout::object;
        auto handle = make_handle(1);
        handle->add("", TRY(tensors::Table::lay_out(list, TRY(read_metadata(metadata, metadata_count)), layout)));
        *ret_tensors = handle.release();
        return {};
    });
}

void gshm_tensors_free(gshm_tensors* tensors) noexcept {
    delete tensors;
}

size_t gshm_tensors_count(const gshm_tensors* tensors) noexcept {
    return tensors == nullptr ? 0 : tensors->count;
}

int gshm_tensors_get(const gshm_tensors* tensors, size_t first, gshm_tensor_info* ret_infos, size_t capacity,
                     size_t* ret_count) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(tensors != nullptr && (ret_infos != nullptr || capacity == 0),
                           "tensors or ret_infos is NULL"));
        const size_t count = first >= tensors->count ? 0 : std::min(capacity, tensors->count - first);
        if (count > 0) TRY(check_struct_size<gshm_tensor_info>(ret_infos[0].struct_size));
        const uint32_t size = count > 0 ? ret_infos[0].struct_size : 0;
        for (size_t i = 0; i < count; ++i) {
            void* place = reinterpret_cast<char*>(ret_infos) + i * size;
            TRY(write_struct(place, size, describe(*tensors, first + i)));
        }
        if (ret_count != nullptr) *ret_count = count;
        return {};
    });
}

int gshm_tensors_find(const gshm_tensors* tensors, const char* name, size_t* ret_index) noexcept {
    return guarded([&]() -> Status {
        TRY(check_argument(tensors != nullptr && name != nullptr && ret_index != nullptr,
                           "tensors, name or ret_index is NULL"));
        for (const auto& file : tensors->files) {
            const auto* found = file.table.find(name);
            if (found == nullptr) continue;
            *ret_index = file.first + static_cast<size_t>(found - file.table.tensors().data());
            return {};
        }
        return fail(ENOENT, "there is no tensor \"{}\"", name);
    });
}

size_t gshm_tensors_file_count(const gshm_tensors* tensors) noexcept {
    return tensors == nullptr ? 0 : tensors->files.size();
}

const char* gshm_tensors_file(const gshm_tensors* tensors, size_t file) noexcept {
    const auto* found = file_at(tensors, file);
    return found == nullptr ? nullptr : found->name.c_str();
}

uint64_t gshm_tensors_size(const gshm_tensors* tensors, size_t file) noexcept {
    const auto* found = file_at(tensors, file);
    return found == nullptr ? 0 : found->table.size_bytes();
}

const void* gshm_tensors_header(const gshm_tensors* tensors, size_t file, size_t* ret_bytes) noexcept {
    const auto* found = file_at(tensors, file);
    if (ret_bytes != nullptr && found != nullptr) *ret_bytes = found->table.header().size();
    return found == nullptr ? nullptr : found->table.header().data();
}

size_t gshm_tensors_metadata_count(const gshm_tensors* tensors, size_t file) noexcept {
    const auto* found = file_at(tensors, file);
    return found == nullptr ? 0 : found->metadata.size();
}

const gshm_attribute* gshm_tensors_metadata(const gshm_tensors* tensors, size_t file, size_t index) noexcept {
    const auto* found = file_at(tensors, file);
    return found == nullptr || index >= found->metadata.size() ? nullptr : &found->metadata[index];
}

}  // extern "C"

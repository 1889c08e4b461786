// gshm.h: transfers of file ranges, and copies of objects to files.
#include "client/files/new_file.h"
#include "client/files/transfer.h"
#include "client/files/verify.h"

using namespace gshm::core;
using namespace gshm::core::client;

namespace {

int transfer_range(gshm_object* object, uint32_t operation, const FileRange& range,
                   const gshm_transfer_options* options, gshm_transfer_info* ret_info) {
    return with_object(object, [&](gshm_object& one) -> Status {
        const auto chosen = TRY(read_transfer_options(options, 0));
        TRY(check_output(ret_info));
        return write_struct(ret_info, TRY(transfer(one, operation, range, chosen)));
    });
}

}  // namespace

extern "C" {

int gshm_read_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                   const gshm_transfer_options* options, gshm_transfer_info* ret_info) noexcept {
    return transfer_range(object, GSHM_IO_READ, {offset, fd, file_offset, bytes}, options, ret_info);
}

int gshm_write_file(gshm_object* object, uint64_t offset, int fd, uint64_t file_offset, uint64_t bytes,
                    const gshm_transfer_options* options, gshm_transfer_info* ret_info) noexcept {
    return transfer_range(object, GSHM_IO_WRITE, {offset, fd, file_offset, bytes}, options, ret_info);
}

int gshm_get_file(gshm_client* client, const char* name, const char* path, const gshm_transfer_options* options,
                  gshm_transfer_info* ret_info) noexcept {
    return with_client(client, [&](Core&) -> Status {
        TRY(check_argument(name != nullptr && path != nullptr, "name or path is NULL"));
        TransferProgress progress(TRY(read_transfer_options(options, GSHM_TRANSFER_VERIFY)));
        TRY(check_output(ret_info));
        gshm_object* opened = nullptr;
        TRY(as_status(gshm_open(client, name, GSHM_NO_MAP, &opened)));
        const ObjectHandle object(opened);
        const uint64_t bytes = gshm_size(opened);
        auto file = TRY(NewFile::create(path));
        TRY(file.reserve(bytes));
        const auto inner = progress.for_transfer();
        const auto info = TRY(transfer(*opened, GSHM_IO_WRITE, {0, file.fd(), 0, bytes}, inner));
        if (progress.verifies()) TRY(compare_with_file(*opened, name, {file.fd(), 0, path}, progress));
        TRY(progress.finish(bytes));
        TRY(file.commit());
        return write_struct(ret_info, info);
    });
}

}  // extern "C"

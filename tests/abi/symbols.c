/* Every function of the interface with the exact type that programs call it by. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include <gshm/gshm.h>

#define FUNCTIONS(X)                                                                                                   \
    X(gshm_version, const char*, (void))                                                                               \
    X(gshm_last_error, const char*, (void))                                                                            \
    X(gshm_set_log, int, (gshm_log_function, void*, int))                                                              \
    X(gshm_client_dir, int, (gshm_client*, char*, size_t))                                                             \
    X(gshm_connect, int, (const gshm_connect_options*, gshm_client**))                                                 \
    X(gshm_disconnect, void, (gshm_client*))                                                                           \
    X(gshm_runtime_dir, int, (char*, size_t))                                                                          \
    X(gshm_find_daemon, int, (const char*, char*, size_t))                                                             \
    X(gshm_ping, int, (gshm_client*))                                                                                  \
    X(gshm_daemon, int, (gshm_client*, gshm_daemon_info*))                                                             \
    X(gshm_shutdown, int, (gshm_client*, uint32_t))                                                                    \
    X(gshm_unmount, int, (gshm_client*, uint32_t))                                                                     \
    X(gshm_mount, int, (gshm_client*, const char*, const gshm_mount_options*))                                         \
    X(gshm_unmount_at, int, (gshm_client*, const char*, uint32_t))                                                     \
    X(gshm_mounts, int, (gshm_client*, gshm_mount_info*, size_t, size_t*))                                             \
    X(gshm_reload, int, (gshm_client*, gshm_option_change*, size_t, size_t*))                                          \
    X(gshm_limit_set, int, (gshm_client*, const gshm_limit*))                                                          \
    X(gshm_limits, int, (gshm_client*, const gshm_limit*, uint32_t, gshm_limit_list**))                                \
    X(gshm_limit_list_count, size_t, (const gshm_limit_list*))                                                         \
    X(gshm_limit_list_item, const gshm_limit*, (const gshm_limit_list*, size_t))                                       \
    X(gshm_limit_list_free, void, (gshm_limit_list*))                                                                  \
    X(gshm_devices, int, (gshm_client*, gshm_device_info*, size_t, size_t*))                                           \
    X(gshm_tiers, int, (gshm_client*, gshm_tier_info*, size_t, size_t*))                                               \
    X(gshm_local_devices, int, (gshm_device_info*, size_t, size_t*))                                                   \
    X(gshm_create, int, (gshm_client*, const gshm_create_spec*, gshm_object**))                                        \
    X(gshm_open, int, (gshm_client*, const char*, uint32_t, gshm_object**))                                            \
    X(gshm_open_id, int, (gshm_client*, uint64_t, uint32_t, gshm_object**))                                            \
    X(gshm_open_path, int, (gshm_client*, const char*, uint32_t, gshm_object**))                                       \
    X(gshm_create_batch, int, (gshm_client*, const gshm_create_spec*, size_t, gshm_object**, int*))                    \
    X(gshm_open_batch, int, (gshm_client*, const char* const*, size_t, uint32_t, gshm_object**, int*))                 \
    X(gshm_open_ids, int, (gshm_client*, const uint64_t*, size_t, uint32_t, gshm_object**, int*))                      \
    X(gshm_close, void, (gshm_object*))                                                                                \
    X(gshm_close_batch, void, (gshm_object* const*, size_t))                                                           \
    X(gshm_seal, int, (gshm_object*))                                                                                  \
    X(gshm_seal_batch, int, (gshm_object* const*, size_t, int*))                                                       \
    X(gshm_seal_name, int, (gshm_client*, const char*))                                                                \
    X(gshm_unlink, int, (gshm_client*, const char*))                                                                   \
    X(gshm_unlink_batch, int, (gshm_client*, const char* const*, size_t, int*))                                        \
    X(gshm_rename, int, (gshm_client*, const char*, const char*, uint32_t))                                            \
    X(gshm_move, int, (gshm_client*, const char*, const char*, uint32_t))                                              \
    X(gshm_demote, int, (gshm_client*, const char*, uint32_t))                                                         \
    X(gshm_promote, int, (gshm_client*, const char*, uint32_t))                                                        \
    X(gshm_set_ttl, int, (gshm_client*, const char*, uint64_t, uint32_t))                                              \
    X(gshm_pin, int, (gshm_client*, const char*))                                                                      \
    X(gshm_unpin, int, (gshm_client*, const char*))                                                                    \
    X(gshm_replace, int, (gshm_object*, const char*))                                                                  \
    X(gshm_publish, int, (gshm_object*, const char*, uint32_t))                                                        \
    X(gshm_make, int, (gshm_client*, const gshm_make_spec*))                                                           \
    X(gshm_read_link, int, (gshm_client*, const char*, char*, size_t, size_t*))                                        \
    X(gshm_link, int, (gshm_client*, const char*, const char*))                                                        \
    X(gshm_change, int, (gshm_client*, const char*, const gshm_changes*))                                              \
    X(gshm_stat, int, (gshm_client*, const char*, gshm_stat_info*))                                                    \
    X(gshm_stat_batch, int, (gshm_client*, const char* const*, size_t, gshm_stat_info*, int*))                         \
    X(gshm_stat_object, int, (gshm_object*, gshm_stat_info*))                                                          \
    X(gshm_list, int, (gshm_client*, const char*, uint32_t, gshm_listing**))                                           \
    X(gshm_listing_count, size_t, (const gshm_listing*))                                                               \
    X(gshm_listing_name, const char*, (const gshm_listing*, size_t))                                                   \
    X(gshm_listing_stat, int, (const gshm_listing*, size_t, gshm_stat_info*))                                          \
    X(gshm_listing_free, void, (gshm_listing*))                                                                        \
    X(gshm_holders, int, (gshm_client*, const char*, gshm_holder*, size_t, size_t*))                                   \
    X(gshm_list_unlinked, int, (gshm_client*, gshm_listing**))                                                         \
    X(gshm_listing_holders, int, (const gshm_listing*, size_t, gshm_holder*, size_t, size_t*))                         \
    X(gshm_acl_get, int, (gshm_client*, const char*, uint32_t, gshm_acl_entry*, size_t, size_t*))                      \
    X(gshm_acl_set, int, (gshm_client*, const char*, uint32_t, const gshm_acl_entry*, size_t))                         \
    X(gshm_share, int, (gshm_client*, const char*, const gshm_acl_entry*, size_t, uint32_t, gshm_share_info*))         \
    X(gshm_unshare, int, (gshm_client*, const char*, const gshm_acl_entry*, size_t, uint32_t, gshm_share_info*))       \
    X(gshm_wait, int, (gshm_client*, const char*, int, int, gshm_stat_info*))                                          \
    X(gshm_watch_create, int, (gshm_client*, const char*, uint32_t, gshm_watch**))                                     \
    X(gshm_watch_next, int, (gshm_watch*, gshm_event*, int))                                                           \
    X(gshm_watch_fd, int, (const gshm_watch*))                                                                         \
    X(gshm_watch_destroy, void, (gshm_watch*))                                                                         \
    X(gshm_set_attribute, int, (gshm_client*, const char*, const char*, const void*, size_t))                          \
    X(gshm_get_attribute, int, (gshm_client*, const char*, const char*, void*, size_t, size_t*))                       \
    X(gshm_remove_attribute, int, (gshm_client*, const char*, const char*))                                            \
    X(gshm_list_attributes, int, (gshm_client*, const char*, char*, size_t, size_t*))                                  \
    X(gshm_set_attributes, int, (gshm_client*, const char*, const gshm_attribute*, size_t, int*))                      \
    X(gshm_get_attributes, int, (gshm_client*, const char*, const char* const*, size_t, gshm_attribute_list**))        \
    X(gshm_attribute_list_count, size_t, (const gshm_attribute_list*))                                                 \
    X(gshm_attribute_list_item, const gshm_attribute*, (const gshm_attribute_list*, size_t))                           \
    X(gshm_attribute_list_free, void, (gshm_attribute_list*))                                                          \
    X(gshm_clone, int, (gshm_object*, uint64_t, uint64_t, gshm_object**))                                              \
    X(gshm_dlpack, int, (gshm_object*, const gshm_tensor_spec*, struct DLManagedTensor**))                             \
    X(gshm_dlpack_versioned, int, (gshm_object*, const gshm_tensor_spec*, struct DLManagedTensorVersioned**))          \
    X(gshm_dlpack_capsule, gshm_capsule_destructor, (int (*)(void*, const char*), void* (*)(void*, const char*)))      \
    X(gshm_dlpack_device, int, (gshm_object*, int32_t*, int32_t*))                                                     \
    X(gshm_pool_allocate_object, int, (gshm_pool*, uint64_t, uint64_t, void*, gshm_object**))                          \
    X(gshm_data, void*, (const gshm_object*))                                                                          \
    X(gshm_size, uint64_t, (const gshm_object*))                                                                       \
    X(gshm_id, uint64_t, (const gshm_object*))                                                                         \
    X(gshm_device, const char*, (const gshm_object*))                                                                  \
    X(gshm_copy_in, int, (gshm_object*, uint64_t, const void*, size_t))                                                \
    X(gshm_copy_out, int, (gshm_object*, uint64_t, void*, size_t))                                                     \
    X(gshm_fill, int, (gshm_object*, uint64_t, uint64_t, uint8_t))                                                     \
    X(gshm_map_peer, int, (gshm_object*, const char*))                                                                 \
    X(gshm_mirror_create, int, (gshm_object*, const gshm_mirror_options*, gshm_mirror**))                              \
    X(gshm_mirror_data, void*, (const gshm_mirror*))                                                                   \
    X(gshm_mirror_size, uint64_t, (const gshm_mirror*))                                                                \
    X(gshm_mirror_mark, int, (gshm_mirror*, uint64_t, uint64_t))                                                       \
    X(gshm_mirror_unmark, void, (gshm_mirror*))                                                                        \
    X(gshm_mirror_flush, int, (gshm_mirror*))                                                                          \
    X(gshm_mirror_flush_range, int, (gshm_mirror*, uint64_t, uint64_t))                                                \
    X(gshm_mirror_load, int, (gshm_mirror*, uint64_t, uint64_t))                                                       \
    X(gshm_mirror_destroy, int, (gshm_mirror*))                                                                        \
    X(gshm_keep_pinned, void, (uint64_t))                                                                              \
    X(gshm_fence_open, int, (gshm_object*, uint32_t, gshm_fence**))                                                    \
    X(gshm_fence_publish, int, (gshm_fence*, void*, uint64_t*))                                                        \
    X(gshm_fence_wait, int, (gshm_fence*, void*, uint64_t, int, uint64_t*))                                            \
    X(gshm_fence_check, int, (gshm_fence*, uint64_t))                                                                  \
    X(gshm_fence_published, uint64_t, (const gshm_fence*))                                                             \
    X(gshm_fence_close, void, (gshm_fence*))                                                                           \
    X(gshm_pool_create, int, (gshm_client*, const gshm_pool_options*, gshm_pool**))                                    \
    X(gshm_pool_destroy, void, (gshm_pool*))                                                                           \
    X(gshm_pool_allocate, int, (gshm_pool*, uint64_t, uint64_t, void*, void**))                                        \
    X(gshm_pool_deallocate, int, (gshm_pool*, void*, uint64_t, void*))                                                 \
    X(gshm_pool_trim, int, (gshm_pool*, uint64_t))                                                                     \
    X(gshm_pool_seal, int, (gshm_pool*))                                                                               \
    X(gshm_pool_get_stats, int, (gshm_pool*, gshm_pool_stats*))                                                        \
    X(gshm_pool_locate, int, (const void*, gshm_location*))                                                            \
    X(gshm_malloc, void*, (ssize_t, int, void*))                                                                       \
    X(gshm_locate, int, (const void*, gshm_location*, char*, size_t))                                                  \
    X(gshm_malloc_pool, int, (int, const gshm_pool_options*, gshm_pool**))                                             \
    X(gshm_free, void, (void*, ssize_t, int, void*))                                                                   \
    X(gshm_export_fd, int, (gshm_object*, int*, gshm_handle_info*))                                                    \
    X(gshm_export_dmabuf, int, (gshm_object*, int*, gshm_handle_info*))                                                \
    X(gshm_export_fabric, int, (gshm_object*, uint8_t*, gshm_handle_info*))                                            \
    X(gshm_allocate, int, (const char*, uint64_t, uint32_t, gshm_object**))                                            \
    X(gshm_import_fd, int, (const char*, int, const gshm_handle_info*, uint32_t, gshm_object**))                       \
    X(gshm_import_dmabuf, int, (const char*, int, const gshm_handle_info*, uint32_t, gshm_object**))                   \
    X(gshm_import_fabric, int, (const char*, const uint8_t*, const gshm_handle_info*, uint32_t, gshm_object**))        \
    X(gshm_export_ipc, int, (gshm_object*, uint8_t*, gshm_handle_info*))                                               \
    X(gshm_import_ipc, int, (const char*, const uint8_t*, const gshm_handle_info*, uint32_t, gshm_object**))           \
    X(gshm_wrap, int, (void*, uint64_t, gshm_object**))                                                                \
    X(gshm_sync, int, (gshm_object*))                                                                                  \
    X(gshm_read_file, int,                                                                                             \
      (gshm_object*, uint64_t, int, uint64_t, uint64_t, const gshm_transfer_options*, gshm_transfer_info*))            \
    X(gshm_write_file, int,                                                                                            \
      (gshm_object*, uint64_t, int, uint64_t, uint64_t, const gshm_transfer_options*, gshm_transfer_info*))            \
    X(gshm_put_file, int,                                                                                              \
      (gshm_client*, const char*, const gshm_create_spec*, const gshm_transfer_options*, gshm_transfer_info*))         \
    X(gshm_put_fd, int,                                                                                                \
      (gshm_client*, int, const gshm_create_spec*, const gshm_transfer_options*, gshm_transfer_info*))                 \
    X(gshm_get_file, int, (gshm_client*, const char*, const char*, const gshm_transfer_options*, gshm_transfer_info*)) \
    X(gshm_ring_create, int, (gshm_client*, const gshm_ring_options*, gshm_ring**))                                    \
    X(gshm_ring_destroy, void, (gshm_ring*))                                                                           \
    X(gshm_ring_entries, size_t, (const gshm_ring*))                                                                   \
    X(gshm_ring_add_file, int, (gshm_ring*, int, uint32_t*))                                                           \
    X(gshm_ring_remove_file, int, (gshm_ring*, uint32_t))                                                              \
    X(gshm_ring_prepare, int, (gshm_ring*, const gshm_io*))                                                            \
    X(gshm_ring_submit, int, (gshm_ring*))                                                                             \
    X(gshm_tensors_of_path, int, (const char*, gshm_tensors**))                                                        \
    X(gshm_tensors_of_memory, int, (const void*, size_t, gshm_tensors**))                                              \
    X(gshm_tensors_of_object, int, (gshm_object*, gshm_tensors**))                                                     \
    X(gshm_tensors_layout, int,                                                                                        \
      (const gshm_tensor_info*, size_t, const gshm_attribute*, size_t, uint32_t, gshm_tensors**))                      \
    X(gshm_tensors_free, void, (gshm_tensors*))                                                                        \
    X(gshm_tensors_count, size_t, (const gshm_tensors*))                                                               \
    X(gshm_tensors_get, int, (const gshm_tensors*, size_t, gshm_tensor_info*, size_t, size_t*))                        \
    X(gshm_tensors_find, int, (const gshm_tensors*, const char*, size_t*))                                             \
    X(gshm_tensors_file_count, size_t, (const gshm_tensors*))                                                          \
    X(gshm_tensors_file, const char*, (const gshm_tensors*, size_t))                                                   \
    X(gshm_tensors_size, uint64_t, (const gshm_tensors*, size_t))                                                      \
    X(gshm_tensors_header, const void*, (const gshm_tensors*, size_t, size_t*))                                        \
    X(gshm_tensors_metadata_count, size_t, (const gshm_tensors*, size_t))                                              \
    X(gshm_tensors_metadata, const gshm_attribute*, (const gshm_tensors*, size_t, size_t))                             \
    X(gshm_load, int, (gshm_client*, const gshm_load_spec*, gshm_model**))                                             \
    X(gshm_model_close, void, (gshm_model*))                                                                           \
    X(gshm_model_count, size_t, (const gshm_model*))                                                                   \
    X(gshm_model_get_part, int, (const gshm_model*, size_t, gshm_model_part*))                                         \
    X(gshm_model_take, gshm_object*, (gshm_model*, size_t))                                                            \
    X(gshm_ring_wake, void, (gshm_ring*))                                                                              \
    X(gshm_ring_wait, int, (gshm_ring*, gshm_completion*, size_t, size_t, int))

#define TYPE_IS_AS_WRITTEN(name, result, arguments) \
    _Static_assert(_Generic(&name, result(*) arguments: 1, default: 0), #name " has another type");
FUNCTIONS(TYPE_IS_AS_WRITTEN)

typedef void (*any_function)(void);
#define ENTRY(name, result, arguments) {#name, (any_function)name},
static const struct {
    const char* name;
    any_function address;
} functions[] = {FUNCTIONS(ENTRY)};

void test_symbols(void) {
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
        CHECK(functions[i].address != NULL);
        for (size_t j = 0; j < i; ++j) /* names that stand for one function would hide a mistake in the symbol map */
            if (functions[j].address == functions[i].address) {
                fprintf(stderr, "%s and %s are one\n", functions[j].name, functions[i].name);
                CHECK(0);
            }
    }
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", GSHM_VERSION_MAJOR, GSHM_VERSION_MINOR, GSHM_VERSION_PATCH);
    CHECK(strcmp(gshm_version(), expected) == 0);
    CHECK(gshm_last_error() != NULL);
}

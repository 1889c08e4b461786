// gshm.h: the configuration of gshmd.
#include "client/api.h"
#include "client/requests.h"

using namespace gshm::core;
using namespace gshm::core::client;

extern "C" {

int gshm_reload(gshm_client* client, gshm_option_change* ret_changes, size_t capacity, size_t* ret_count) noexcept {
    return with_client(client, [&](Core& core) -> Status {
        TRY(check_argument(ret_count != nullptr, "ret_count is NULL"));
        TRY(check_argument(ret_changes != nullptr || capacity == 0, "ret_changes is NULL"));
        auto answer = TRY(core.connection().call(
            wire::RequestBody::Reload, [](auto& builder) { return wire::CreateReload(builder).Union(); },
            Lost::report));
        std::vector<gshm_option_change> changes;
        for (const auto* record : *GSHM_BODY(answer, OptionChanges)->changes()) {
            gshm_option_change change = {};
            change.flags = record->needs_restart() ? GSHM_OPTION_NEEDS_RESTART : 0;
            set_text(change.option, wire::view(record->option()));
            set_text(change.former, wire::view(record->former()));
            set_text(change.value, wire::view(record->value()));
            changes.push_back(change);
        }
        TRY(write_structs<gshm_option_change>(changes, ret_changes, capacity));
        *ret_count = changes.size();
        return {};
    });
}

}  // extern "C"

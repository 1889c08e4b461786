// Requests that are answered at once.
#include <sys/random.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "daemon/batch.h"
#include "daemon/process.h"
#include "daemon/records.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "wire/records.h"
#include "wire/version.h"

namespace gshm::core {
namespace {

// Without a question to the drivers.
std::vector<DeviceSet::Space> limited_spaces(const DeviceSet& devices) {
    std::vector<DeviceSet::Space> spaces;
    for (DeviceIndex i = 0; i < devices.size(); ++i) spaces.push_back(devices.space(i));
    return spaces;
}

}  // namespace

void Session::hello(uint64_t request, const wire::Hello& hello) {
    const wire::ProtocolRange own = server_.protocols();
    const wire::ProtocolRange offered = wire::offered_by(hello);
    const auto common = wire::common_protocol(own, offered);
    if (!common) {
        const bool newer = offered.lowest > own.highest;
        return end_with(
            {EPROTO,
             fmt::format("gshmd {} speaks {}, the client (gshm {}) speaks {}: upgrade {}", wire::kProductVersion,
                         to_string(own), wire::view(hello.version()), to_string(offered),
                         newer ? "gshmd (`gshmd --takeover` replaces the one that runs)" : "the client's libgshm")});
    }
    if (greeted_) return end_with({EPROTO, "Hello comes once"});
    greeted_ = true;
    end_greeting();
    protocol_ = *common;
    secret_ = {{hello.secret_low(), hello.secret_high()}};
    const Credentials who = server_.store().credentials(id_);
    if (auto resumed = secret_ == Store::SessionSecret{} ? std::nullopt : server_.resume_session(secret_, who)) {
        log_debug("session {} continues as session {}", id_, *resumed);
        server_.store().end_session(std::exchange(id_, *resumed));
        resumed_ = true;
    } else {
        if (getrandom(secret_.words, sizeof secret_.words, 0) != sizeof secret_.words) secret_ = {};
        if (auto kept = server_.store().keep_session(id_, process_started(who.pid), secret_); !kept) {
            return end_with(kept.error());
        }
    }
    send_devices(request, true, limited_spaces(server_.devices()));
}

void Session::goodbye(uint64_t request) {
    let_go();
    reply_ok(request);
}

void Session::let_go() {
    Store& store = server_.store();
    forget_waits();
    server_.watches().forget(id_);
    watching_ = 0;
    drop_rings();
    const Credentials who = store.credentials(id_);
    // Requests before the socket is closed belong to a new, empty session.
    server_.forget_session(std::exchange(id_, store.begin_session(who)));
    has_.clear();
    has_charge_.clear();
}

void Session::reconcile(const wire::Reconcile& reconcile) {
    size_t count = wire::count(reconcile.ids());
    if (!resumed_ || wire::count(reconcile.readers()) != count || wire::count(reconcile.writers()) != count) {
        return end_with({EPROTO, "there is nothing to reconcile"});
    }
    for (unsigned i = 0; i < count; ++i) {
        if (!server_.store().leased(id_, reconcile.ids()->Get(i), Access::read)) continue;
        claims_[reconcile.ids()->Get(i)] = {reconcile.readers()->Get(i), reconcile.writers()->Get(i)};
    }
    if (!reconcile.last()) return;
    server_.store().reconcile(id_, claims_);
    claims_.clear();
    resumed_ = false;
}

void Session::send_devices(uint64_t request, bool hello, const std::vector<DeviceSet::Space>& spaces) {
    auto& out = builder();
    std::vector<flatbuffers::Offset<wire::DeviceRecord>> records;
    for (DeviceIndex i = 0; i < server_.devices().size(); ++i) {
        records.push_back(to_record(out, server_.devices(), server_.store(), i, spaces[i]));
    }
    auto list = out.CreateVector(records);
    if (hello) {
        auto body = wire::CreateHelloReply(out, protocol_, server_.instance(), list, secret_.words[0], secret_.words[1],
                                           resumed_);
        return reply(request, wire::ReplyBody::HelloReply, body.Union());
    }
    std::vector<flatbuffers::Offset<wire::TierRecord>> tiers;
    for (const auto& tier : server_.tiers().states()) {
        tiers.push_back(wire::CreateTierRecord(out, out.CreateString(tier.name), tier.capacity_bytes, tier.used_bytes,
                                               tier.objects, tier.keep, out.CreateString(tier.failure)));
    }
    reply(request, wire::ReplyBody::DeviceList, wire::CreateDeviceList(out, list, out.CreateVector(tiers)).Union());
}

// Other processes use a GPU too, so its driver is asked, in the threads of the devices. A driver that does not answer
// soon is not waited for: the limit alone counts.
void Session::devices(uint64_t request) {
    constexpr auto kPatience = std::chrono::milliseconds(500);
    DeviceSet& devices = server_.devices();
    struct Answer {
        std::vector<DeviceSet::Space> spaces;
        size_t missing = 0;
        std::optional<EventLoop::TimerId> timer;
        bool is_sent = false;
    };
    auto answer = std::make_shared<Answer>();
    answer->spaces = limited_spaces(devices);
    auto send = [weak = weak_from_this(), request, answer] {
        store_lock.assert_held();
        if (std::exchange(answer->is_sent, true)) return;
        auto session = weak.lock();
        if (!session) return;
        if (answer->timer) {
            session->server_.loop().cancel(*answer->timer);
            session->job_ended();
        }
        session->send_devices(request, false, answer->spaces);
    };
    for (DeviceIndex i = 0; i < devices.size(); ++i) {
        if (!devices.info(i).knows_free_bytes || !devices.failure(i).empty()) continue;
        ++answer->missing;
        auto space = std::make_shared<DeviceSet::Space>();
        devices.submit(
            i,
            [&devices, space, i](Device&) -> Status {
                *space = devices.real_space(i);
                return {};
            },
            [answer, space, i, send](Status) {
                answer->spaces[i] = *space;
                if (--answer->missing == 0) send();
            });
    }
    if (answer->missing == 0) return send();
    job_started();
    answer->timer = server_.loop().after(kPatience, send);
}

void Session::daemon_info(uint64_t request) {
    auto& out = builder();
    const Store& store = server_.store();
    auto body = wire::CreateDaemonInfoReply(out, protocol_, out.CreateString(wire::kProductVersion), server_.instance(),
                                            getpid(), static_cast<uint32_t>(store.session_count()),
                                            store.object_count(), store.extents().count(),
                                            out.CreateString(server_.mountpoint()), server_.survival().keeper_pid());
    reply(request, wire::ReplyBody::DaemonInfoReply, body.Union());
}

void Session::shutdown(uint64_t request, const wire::Shutdown& shutdown) {
    const Credentials& who = server_.store().credentials(id_);
    if (!who.is_root() && who.uid != server_.owner().uid) {
        return reply_error(request, {EPERM, "only root and the user who runs gshmd may shut it down"});
    }
    if (shutdown.keep() && !server_.survival().can_keep()) {
        return reply_error(request,
                           {EOPNOTSUPP, "gshmd was started with --keeper none: nothing would keep its memory"});
    }
    log_info("shutdown asked for by pid {} uid {}{}", who.pid, who.uid, shutdown.keep() ? "; what is here stays" : "");
    server_.set_keep(shutdown.keep());
    reply_ok(request);
    server_.loop().stop();
}

void Session::takeover(uint64_t request) {
    const Credentials& who = server_.store().credentials(id_);
    // Not even root: its gshmd could not use the keeper of another user.
    if (who.uid != server_.owner().uid) {
        return reply_error(request, {EPERM, "only the user who runs gshmd may take over from it"});
    }
    if (server_.survival().kind() == KeeperKind::systemd) {
        return reply_error(request,
                           {EOPNOTSUPP, "systemd has started it, and `systemctl restart` replaces it as well"});
    }
    if (!server_.survival().can_keep()) {
        return reply_error(request, {EOPNOTSUPP, "it was started with --keeper none: there is nothing to take over"});
    }
    if (server_.is_handing_over()) return reply_error(request, {EBUSY, "another gshmd is taking over already"});
    server_.hand_over(shared_from_this(), request);
}

void Session::open(uint64_t request, const wire::OpenObjects& open) {
    Store& store = server_.store();
    const Access access = open.write() ? Access::write : Access::read;
    std::vector<wire::OpenRecord> records;
    std::vector<int> descriptors;
    std::vector<UniqueFd> opened_files;  // of `descriptors`, until they are sent
    std::vector<Object*> without_memory;
    std::vector<Object*> away;  // in tiers
    std::vector<Object*> all;
    FirstError first(*this, "OpenObjects");
    auto add = [&](Result<Object*> object) -> Status {
        store_lock.assert_held();
        Object* opened = TRY(std::move(object));
        auto undo = [&](Error error) {
            (void)store.release(id_, opened->id, access);
            return std::unexpected(std::move(error));
        };
        if (auto usable = server_.devices().check(opened->device); !usable) return undo(usable.error());
        auto returns = needs_return(*opened, open.any_device());
        if (!returns) return undo(returns.error());
        all.push_back(opened);
        if (*returns) {
            away.push_back(opened);
            records.push_back(to_open_record(*opened, -1));
            return {};
        }
        int index = -1;
        auto needs = open.map() ? needs_own_memory(*opened, true) : Result<bool>(false);
        if (needs && !*needs && open.map()) needs = needs_fixed_memory(*opened, access);
        if (!needs) return undo(needs.error());
        if (*needs) {
            without_memory.push_back(opened);
            records.push_back(to_open_record(*opened, -1));
            return {};
        }
        if (open.map()) {
            auto mappable = store.begin_mapping(id_, opened, access);
            if (!mappable && mappable.error().code == EBUSY && store.can_leave_slab(id_, *opened)) {
                mappable = server_.mover().leave_slab(*opened);
            }
            if (!mappable) return undo(mappable.error());
        }
        if (open.map() && opened->extent != nullptr && opened->size_bytes > 0 &&
            needs_descriptor(*opened->extent, access)) {
            if (descriptors.size() == limits::kMessageDescriptors) {
                return undo({E2BIG, fmt::format("an answer carries at most {} descriptors", descriptors.size())});
            }
            Extent& memory = *opened->extent->memory;
            auto descriptor = memory.file() == nullptr ? memory.descriptor(access) : Result<int>(-1);
            if (memory.file() != nullptr) {
                auto file = memory.export_fd(access);
                if (file) descriptor = opened_files.emplace_back(std::move(*file)).get();
                else descriptor = std::unexpected(file.error());
            }
            if (!descriptor) return undo(explain_descriptor_limit(descriptor.error()));
            Extents::reach(opened->extent, id_);
            index = static_cast<int>(descriptors.size());
            descriptors.push_back(*descriptor);
        }
        records.push_back(to_open_record(*opened, index));
        return {};
    };
    auto note = [&](Status status) {
        if (status) return;
        first.note(status.error());
        records.push_back(failed_open_record(status.error()));
    };
    auto done = for_each_item(
        store, open, [&](std::string_view name) { note(add(store.open(id_, name, access, open.sealed_only()))); },
        [&](uint64_t id) { note(add(store.open_id(id_, id, access, open.sealed_only()))); });
    if (!done) return reply_error(request, done.error());
    if (!away.empty() || !without_memory.empty()) {
        // Objects that must return keep the others of the request from being evicted for them.
        const bool returns = !away.empty();
        if (returns) bring_back(std::move(away), all);
        else give_own_memory(std::move(without_memory));
        for (const auto& record : records) {
            if (record.descriptor() >= 0) forget_descriptor(record.extent(), access);
            if (record.status() == 0) (void)store.release(id_, record.id(), access);
        }
        // Nobody could write because of these opens: a return that is under way need not be repeated for them.
        for (Object* object : all) object->write_opens -= returns && open.write() ? 1u : 0u;
        return;
    }
    auto& out = builder();
    const auto fields = wire::add_records<wire::OpenRecord>(out, protocol_, records);
    auto body = wire::CreateOpenReply(out, fields.first, fields.sized);
    reply(request, wire::ReplyBody::OpenReply, body.Union(), descriptors, first.code, first.message);
}

void Session::release(const wire::Release& release) {
    auto drop = [&](const flatbuffers::Vector<uint64_t>* ids, Access access) {
        store_lock.assert_held();
        if (ids == nullptr) return;
        // A missing lease was already reclaimed, which is no error.
        for (uint64_t id : *ids) (void)server_.store().release(id_, id, access);
    };
    drop(release.read(), Access::read);
    drop(release.write(), Access::write);
    if (release.unmapped() == nullptr) return;
    for (uint64_t extent : *release.unmapped()) has_.erase(extent);
}

void Session::stat(uint64_t request, const wire::Stat& stat) {
    Store& store = server_.store();
    std::vector<wire::NodeRecord> records;
    FirstError first(*this, "Stat");
    auto add = [&](Result<const Node*> node) {
        if (!node) first.note(node.error());
        records.push_back(node ? to_record(**node, server_.clock()) : failed_node_record(node.error()));
    };
    auto done = for_each_item(
        store, stat, [&](std::string_view name) { add(store.stat(id_, name)); },
        [&](uint64_t id) { add(store.leased(id_, id, Access::read)); });
    if (!done) return reply_error(request, done.error());
    auto& out = builder();
    const auto fields = wire::add_records<wire::NodeRecord>(out, protocol_, records);
    auto body = wire::CreateStatReply(out, fields.first, fields.sized);
    reply(request, wire::ReplyBody::StatReply, body.Union(), {}, first.code, first.message);
}

void Session::list(uint64_t request, const wire::List& list) {
    // Records with the longest names still fit one message.
    constexpr size_t kMost = 300;
    static_assert(kMost * (sizeof(wire::NodeRecord) + limits::kNamePartBytes + 16) < limits::kMessageBytes);
    uint64_t cookie = 0;
    auto entries = server_.store().list(id_, wire::view(list.path()), list.cookie(), kMost, &cookie);
    if (!entries) return reply_error(request, entries.error());
    auto& out = builder();
    std::vector<flatbuffers::Offset<flatbuffers::String>> names;
    std::vector<wire::NodeRecord> records;
    for (const Link* entry : *entries) {
        names.push_back(out.CreateString(entry->name));
        records.push_back(to_record(*entry->node, server_.clock()));
    }
    auto directory = server_.store().stat(id_, wire::view(list.path()));
    uint64_t total = directory ? to_record(**directory, server_.clock()).size_bytes() : 0;
    const auto fields = wire::add_records<wire::NodeRecord>(out, protocol_, records);
    auto body = wire::CreateListReply(out, out.CreateVector(names), fields.first, cookie, total, fields.sized);
    reply(request, wire::ReplyBody::ListReply, body.Union());
}

void Session::seal(uint64_t request, const wire::Seal& seal) {
    Store& store = server_.store();
    std::vector<int> statuses;
    FirstError first(*this, "Seal");
    auto add = [&](Status status) {
        if (!status) first.note(status.error());
        statuses.push_back(status ? 0 : status.error().code);
    };
    auto done = for_each_item(
        store, seal, [&](std::string_view name) { add(store.seal(id_, name)); },
        [&](uint64_t id) { add(store.seal_id(id_, id)); });
    if (!done) return reply_error(request, done.error());
    auto& out = builder();
    auto body = wire::CreateStatusReply(out, out.CreateVector(statuses));
    reply(request, wire::ReplyBody::StatusReply, body.Union(), {}, first.code, first.message);
}

void Session::unlink(uint64_t request, const wire::Unlink& unlink) {
    if (unlink.names()->size() > limits::kBatchItems) {
        return reply_error(request, {E2BIG, fmt::format("a batch has at most {} elements", limits::kBatchItems)});
    }
    constexpr size_t kPart = 128;
    auto part = [this, request, names = unlink.names(), statuses = std::vector<int>(),
                 first = FirstError(*this, "Unlink")]() mutable {
        store_lock.assert_held();
        const size_t stop = std::min<size_t>(names->size(), statuses.size() + kPart);
        while (statuses.size() < stop) {
            const auto name = wire::view(names->Get(static_cast<unsigned>(statuses.size())));
            auto status = server_.store().unlink(id_, name);
            if (!status) first.note(status.error());
            statuses.push_back(status ? 0 : status.error().code);
        }
        if (stop < names->size()) return true;
        auto& out = builder();
        auto body = wire::CreateStatusReply(out, out.CreateVector(statuses));
        reply(request, wire::ReplyBody::StatusReply, body.Union(), {}, first.code, first.message);
        return false;
    };
    if (part()) next_part_ = std::move(part);
}

void Session::rename(uint64_t request, const wire::Rename& rename) {
    reply_change(request,
                 server_.store().rename(id_, wire::view(rename.from()), wire::view(rename.to()), rename.replace()));
}

void Session::give_name(uint64_t request, NodeId id, const flatbuffers::String* wanted, bool replace) {
    reply_change(request, server_.store().give_name(id_, id, wire::view(wanted), replace));
}

void Session::make(uint64_t request, const wire::Make& make) {
    auto device = [&]() -> Result<std::optional<DeviceIndex>> {
        if (make.device() == nullptr) return std::nullopt;
        return TRY(server_.devices().find(std::string(wire::view(make.device()))));
    }();
    if (!device) return reply_error(request, device.error());
    reply_change(request, server_.store().make(id_, {wire::view(make.name()), static_cast<NodeKind>(make.kind()),
                                                     wire::view(make.target()), *device, make.mode(), make.flags(),
                                                     make.uid(), make.gid()}));
}

void Session::read_link(uint64_t request, const wire::ReadLink& read) {
    auto target = server_.store().read_link(id_, wire::view(read.name()));
    if (!target) return reply_error(request, target.error());
    auto& out = builder();
    auto bytes = out.CreateVector(reinterpret_cast<const uint8_t*>(target->data()), target->size());
    reply(request, wire::ReplyBody::BytesReply, wire::CreateBytesReply(out, bytes).Union());
}

void Session::add_name(uint64_t request, const wire::AddName& add) {
    reply_change(request, server_.store().add_name(id_, wire::view(add.name()), wire::view(add.new_name())));
}

void Session::get_attribute(uint64_t request, const wire::GetAttribute& get) {
    auto value = server_.store().get_attribute(id_, wire::view(get.name()), wire::view(get.attribute()));
    if (!value) return reply_error(request, value.error());
    auto& out = builder();
    auto bytes = out.CreateVector(reinterpret_cast<const uint8_t*>(value->data()), value->size());
    reply(request, wire::ReplyBody::BytesReply, wire::CreateBytesReply(out, bytes).Union());
}

void Session::list_attributes(uint64_t request, const wire::ListAttributes& list) {
    auto attributes = server_.store().attributes(id_, wire::view(list.name()));
    if (!attributes) return reply_error(request, attributes.error());
    constexpr size_t kPageBytes = 64 << 10;
    const bool paged = list.after() != nullptr;
    auto next = paged ? (*attributes)->upper_bound(wire::view(list.after())) : (*attributes)->begin();
    std::string names;
    for (; next != (*attributes)->end() && (!paged || names.size() < kPageBytes); ++next) names += next->first + '\0';
    auto& out = builder();
    auto bytes = out.CreateVector(reinterpret_cast<const uint8_t*>(names.data()), names.size());
    const bool more = next != (*attributes)->end();
    reply(request, wire::ReplyBody::BytesReply, wire::CreateBytesReply(out, bytes, more).Union());
}

void Session::wait(uint64_t request, const wire::Wait& wait) {
    if (waits_.size() >= limits::kSessionWaits) {
        return reply_error(request,
                           {EAGAIN, fmt::format("a session waits for at most {} names", limits::kSessionWaits)});
    }
    if (user_->is_full(Resource::waits)) return reply_error(request, user_->refusal(Resource::waits));
    const auto until = wait.gone() ? Waits::Until::gone : wait.sealed() ? Waits::Until::sealed : Waits::Until::exists;
    std::string name(wire::view(wait.name()));
    using Found = Result<std::optional<wire::NodeRecord>>;
    auto found = [this](const Waits::Outcome& outcome) -> Found {
        if (!outcome) return std::unexpected(outcome.error());
        return *outcome == nullptr ? std::nullopt : std::optional(to_record(**outcome, server_.clock()));
    };
    const uint64_t number = next_wait_++;
    // Waits drops it before the session is destroyed, so `this` is safe. The answer is posted, since the change that
    // ends the wait is still under way.
    auto done = [this, request, number, found](Waits::Outcome outcome) {
        server_.loop().post([self = weak_from_this(), request, number, answer = found(outcome)] {
            store_lock.assert_held();
            auto session = self.lock();
            if (session && session->end_wait(number)) session->answer_wait(request, answer);
        });
    };
    NameWait added;
    if (auto now = server_.waits().add(id_, {name, until, wait.id()}, std::move(done), &added.id)) {
        return answer_wait(request, found(*now));
    }
    auto expire = [this, request, number, name, until] {
        store_lock.assert_held();
        if (!end_wait(number)) return;
        reply_error(request,
                    {ETIMEDOUT, fmt::format("\"{}\" {}", name,
                                            until == Waits::Until::gone ? "is still there" : "is not there yet")});
    };
    if (wait.timeout_ms() > 0) added.timer = server_.loop().after(std::chrono::milliseconds(wait.timeout_ms()), expire);
    waits_.emplace(number, added);
    waits_charge_.add(1);
    if (wait.timeout_ms() == 0) expire();
}

bool Session::end_wait(uint64_t wait) {
    auto found = waits_.find(wait);
    if (found == waits_.end()) return false;
    server_.waits().cancel(found->second.id);
    if (found->second.timer) server_.loop().cancel(*found->second.timer);
    waits_.erase(found);
    waits_charge_.give(1);
    return true;
}

void Session::answer_wait(uint64_t request, const Result<std::optional<wire::NodeRecord>>& found) {
    if (!found) return reply_error(request, found.error());
    if (!*found) return reply_ok(request);
    auto& out = builder();
    const auto fields = wire::add_records<wire::NodeRecord>(out, protocol_, {&**found, 1});
    auto body = wire::CreateStatReply(out, fields.first, fields.sized);
    reply(request, wire::ReplyBody::StatReply, body.Union());
}

void Session::forget_waits() {
    while (!waits_.empty()) end_wait(waits_.begin()->first);
}

void Session::watch_create(uint64_t request, const wire::WatchCreate& create) {
    // Watches drops the session before it is destroyed, so `this` is safe.
    reply_status(request, server_.watches().add(id_, wire::view(create.prefix()), create.existing(), [this] {
        store_lock.assert_held();
        if (watching_ != 0) send_events();
    }));
}

void Session::watch_next(uint64_t request) {
    if (!server_.watches().has(id_)) return reply_error(request, {EINVAL, "the session watches nothing"});
    if (watching_ != 0) return reply_error(request, {EBUSY, "the last question for events is not answered yet"});
    watching_ = request;
    send_events();
}

void Session::send_events() {
    constexpr size_t kMostBytes = 96 << 10;  // with one more name, fits a message
    const auto events = server_.watches().take(id_, kMostBytes);
    if (events.empty()) return;
    std::vector<wire::EventRecord> records;
    std::vector<std::string> names;
    std::vector<std::string> old_names;
    for (const auto& event : events) {
        // Earlier programs do not know the kind.
        const bool unknown = protocol_ == 1 && event.event == EventKind::expired;
        records.emplace_back(event.id, event.replaced, event.size_bytes, event.time_ns,
                             static_cast<uint16_t>(event.device),
                             static_cast<uint8_t>(unknown ? EventKind::deleted : event.event),
                             static_cast<uint8_t>(event.kind), static_cast<uint8_t>(event.state));
        names.push_back(event.name);
        old_names.push_back(event.old_name);
    }
    auto& out = builder();
    const auto fields = wire::add_records<wire::EventRecord>(out, protocol_, records);
    auto name_list = out.CreateVectorOfStrings(names);
    auto body =
        wire::CreateWatchReply(out, fields.first, name_list, out.CreateVectorOfStrings(old_names), fields.sized);
    reply(std::exchange(watching_, 0), wire::ReplyBody::WatchReply, body.Union());
}

}  // namespace gshm::core

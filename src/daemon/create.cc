// Creating objects: at once if a slab has room, else after an extent is allocated in the device's thread.
#include "base/limits.h"
#include "daemon/records.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/users_text.h"
#include "wire/records.h"

namespace gshm::core {
namespace {

struct Item {
    std::string name;
    std::string device;
    uint64_t size_bytes;
    uint32_t mode;
    uint32_t flags;
    uid_t uid;
    gid_t gid;
    uint64_t ttl_ms;
    bool default_mode;
    Attributes attributes;
};

// One batch. Kept alive by its pending callbacks; stops when the session has ended.
class Creation : public std::enable_shared_from_this<Creation> {
public:
    Creation(Server& server, std::weak_ptr<Session> session, uint64_t request, bool map, std::vector<Item> items)
        : server_(server), session_(std::move(session)), request_(request), map_(map), items_(std::move(items)) {
        for (const Item& item : items_) small_bytes_ += small_bytes(item);
        // A long request is usually followed by more of its kind: the slab is made larger for them.
        constexpr size_t kLong = 64;
        if (items_.size() >= kLong) small_bytes_ *= 4;
    }

    // Creates elements until one has to wait for memory, or all are done. A long batch is split, so that other requests
    // get the lock between its parts.
    void run() REQUIRES(store_lock) {
        auto session = session_.lock();
        if (!session) return drop_extent();
        constexpr size_t kPart = 128;
        const size_t stop = std::min(items_.size(), records_.size() + kPart);
        while (records_.size() < items_.size()) {
            if (records_.size() == stop) {
                return session->continue_later([self = shared_from_this()] {
                    store_lock.assert_held();
                    self->run();
                });
            }
            const Item& item = items_[records_.size()];
            auto created = create(*session, item);
            drop_extent();
            if (!created && created.error().code == EDQUOT && !std::exchange(heard_others_, true)) {
                // A packet of another client that releases memory may not have been read yet.
                session->job_started();
                return server_.client_loops().after_arrived(server_.loop(), [self = shared_from_this()] {
                    store_lock.assert_held();
                    if (auto waiting = self->session_.lock()) waiting->job_ended();
                    self->run();
                });
            }
            if (!created) {
                add_failure(session->explained(created.error()));
            } else if (auto* need = std::get_if<ExtentNeed>(&*created)) {
                return allocate(*session, *need);
            } else {
                add(*session, std::get<Object*>(*created));
            }
            small_bytes_ -= std::min(small_bytes_, small_bytes(item));
        }
        finish(*session);
    }

private:
    Result<std::variant<Object*, ExtentNeed>> create(Session& session, const Item& item) REQUIRES(store_lock) {
        if (item.size_bytes > limits::kObjectBytes) {
            return fail(EINVAL, "an object has at most {} bytes", limits::kObjectBytes);
        }
        constexpr uint32_t kKnown = kCreateKeep | kCreateCompressible | kCreateDedicated | kCreateUnnamed |
                                    kCreateEmpty | kCreateOwner | kCreateEvictable | kCreateEphemeral |
                                    kCreateTtlUnused;
        if ((item.flags & ~kKnown) != 0) return fail(EINVAL, "unknown create flags {:#x}", item.flags & ~kKnown);
        const int64_t ttl_ns = TRY(ttl_ns_of(item.ttl_ms));
        if (item.mode > 0777) return fail(EINVAL, "mode {:o} has bits besides the permissions", item.mode);
        DeviceIndex device = item.device.empty() ? server_.store().inherited_device(session.id(), item.name)
                                                 : TRY(server_.devices().find(item.device));
        TRY(server_.devices().check(device));
        CreateSpec spec{item.name,   item.size_bytes,
                        device,      static_cast<uint16_t>(item.mode),
                        item.flags,  &item.attributes,
                        extent_,     item.uid,
                        item.gid,    map_,
                        small_bytes_};
        spec.ttl_ns = ttl_ns;
        spec.default_mode = item.default_mode;
        return server_.store().create(session.id(), spec);
    }

    void allocate(Session& session, const ExtentNeed& need) REQUIRES(store_lock) {
        session.job_started();
        auto resume = [self = shared_from_this()] {
            store_lock.assert_held();
            if (auto waiting = self->session_.lock()) waiting->job_ended();
            self->run();
        };
        if (need.slab && server_.wait_for_slab(*need.slab, resume)) return;
        allocate_memory(session, need);
    }

    void allocate_memory(Session& session, const ExtentNeed& need) REQUIRES(store_lock) {
        AllocationRequest request{
            need.device, need.size_bytes, need.min_bytes, {need.compressible, !need.slab && !need.fixed, true}};
        request.uid = need.uid;
        if (map_ && !need.slab) request.maps = session.id();
        server_.allocator().allocate(request,
                                     [self = shared_from_this(), need](Result<std::shared_ptr<Extent>> memory) {
                                         store_lock.assert_held();
                                         self->allocated(need, std::move(memory));
                                     });
    }

    void allocated(const ExtentNeed& need, Result<std::shared_ptr<Extent>> memory) REQUIRES(store_lock) {
        if (!memory && memory.error().code == ENOSPC && !std::exchange(heard_others_, true)) {
            // A packet of another client that releases memory may not have been read yet.
            return server_.client_loops().after_arrived(
                server_.loop(), [self = shared_from_this(), need, refused = std::move(memory)]() mutable {
                    store_lock.assert_held();
                    if (auto session = self->session_.lock()) self->allocate_memory(*session, need);
                    else self->allocated(need, std::move(refused));
                });
        }
        if (auto session = session_.lock()) session->job_ended();
        // Opened before the object exists: a lack of descriptors is an error of the allocation.
        if (memory && map_ && (*memory)->file() != nullptr && descriptors_.size() < limits::kMessageDescriptors) {
            if (auto fd = (*memory)->export_fd(Access::write)) file_fds_.push_back(std::move(*fd));
            else memory = std::unexpected(explain_descriptor_limit(fd.error()));
        }
        ExtentId added = 0;
        if (memory) {
            auto* extent = server_.store().extents().add(need, std::move(*memory));
            added = extent->id;
            if (!need.slab) extent_ = extent;
        } else {
            add_failure(memory.error().code == ENOSPC ? with_users(memory.error(), need.device) : memory.error());
        }
        // This batch first, then the batches that wait for the same slab. A batch that finds too little room allocates
        // again.
        std::vector<EventLoop::Task> waiting;
        if (need.slab) waiting = server_.slab_arrived(*need.slab);
        run();
        for (auto& resume : waiting) resume();
        server_.store().extents().drop_if_unused(added);
    }

    // Adds the users of the device. Other users than root see the totals and their own share.
    Error with_users(Error error, DeviceIndex device) REQUIRES(store_lock) {
        if (auto session = session_.lock()) {
            const Store& store = server_.store();
            error.message += "; " + users_text(store.accounts(), device, store.credentials(session->id()));
        }
        return error;
    }

    // Frees a dedicated extent that no object uses.
    void drop_extent() REQUIRES(store_lock) {
        if (extent_ != nullptr) server_.store().extents().drop_if_unused(extent_->id);
        extent_ = nullptr;
    }

    static uint64_t small_bytes(const Item& item) {
        const bool small = item.size_bytes <= limits::kSmallObjectBytes && (item.flags & kCreateDedicated) == 0;
        return small ? Slab::rounded(item.size_bytes) : 0;
    }

    void add(Session& session, Object* object) REQUIRES(store_lock) {
        int index = -1;
        if (map_ && object->extent != nullptr && descriptors_.size() < limits::kMessageDescriptors &&
            session.needs_descriptor(*object->extent, Access::write)) {
            Extents::reach(object->extent, session.id());
            index = static_cast<int>(descriptors_.size());
            const bool is_file = object->extent->memory->file() != nullptr;
            descriptors_.push_back(is_file ? file_fds_.back().get()
                                           : *object->extent->memory->descriptor(Access::write));
            kept_.push_back(object->extent->memory);
        }
        records_.push_back(to_open_record(*object, index));
    }

    void add_failure(const Error& error) {
        if (auto session = session_.lock()) session->note_failure("CreateObjects", error);
        if (first_error_.code == 0) first_error_ = error;
        records_.push_back(failed_open_record(error));
    }

    // The objects exist, but the client gets an error: releases its leases on them.
    void refuse(Session& session, const Error& error) REQUIRES(store_lock) {
        for (const auto& record : records_) {
            if (record.descriptor() >= 0) session.forget_descriptor(record.extent(), Access::write);
            (void)server_.store().release(session.id(), record.id(), Access::write);
        }
        session.reply_error(request_, made_but_unwritten(error));
    }

    void finish(Session& session) REQUIRES(store_lock) {
        auto& out = session.builder();
        const auto fields = wire::add_records<wire::OpenRecord>(out, session.protocol(), records_);
        auto body = wire::CreateOpenReply(out, fields.first, fields.sized);
        auto unwritten = [self = shared_from_this()](const Error& error) {
            store_lock.assert_held();
            if (auto asking = self->session_.lock()) self->refuse(*asking, error);
        };
        session.reply(request_, wire::ReplyBody::OpenReply, body.Union(), descriptors_, first_error_.code,
                      first_error_.message, std::move(unwritten), shared_from_this());
    }

    Server& server_;
    std::weak_ptr<Session> session_;
    uint64_t request_;
    bool map_;
    std::vector<Item> items_;
    uint64_t small_bytes_ = 0;  // of the small objects not yet created
    std::vector<wire::OpenRecord> records_;
    std::vector<int> descriptors_;
    std::vector<std::shared_ptr<Extent>> kept_;  // keeps the descriptors open until they are sent
    std::vector<UniqueFd> file_fds_;             // likewise; the last is of the last extent that is a file
    StoredExtent* extent_ = nullptr;
    bool heard_others_ = false;  // the pending packets of other clients were read after the device was full
    Error first_error_{0, {}};
};

}  // namespace

void Session::create_objects(uint64_t request, const wire::CreateObjects& create) {
    if (create.items()->size() > limits::kBatchItems) {
        return reply_error(request, {E2BIG, fmt::format("a batch has at most {} elements", limits::kBatchItems)});
    }
    std::vector<Item> items;
    items.reserve(create.items()->size());
    for (const auto* item : *create.items()) {
        items.push_back({std::string(wire::view(item->name())),
                         std::string(wire::view(item->device())),
                         item->size_bytes(),
                         item->mode(),
                         item->flags(),
                         item->uid(),
                         item->gid(),
                         item->ttl_ms(),
                         item->default_mode(),
                         {}});
        if (item->attributes() == nullptr) continue;
        for (const auto* attribute : *item->attributes()) {
            items.back().attributes.insert_or_assign(std::string(wire::view(attribute->name())),
                                                     std::string(wire::view(attribute->value())));
        }
    }
    std::make_shared<Creation>(server_, weak_from_this(), request, create.map(), std::move(items))->run();
}

}  // namespace gshm::core

// Requests about rings. Transfers do not go through the session: see client_ring.h.
#include "base/limits.h"
#include "daemon/ring_service.h"
#include "daemon/server.h"
#include "daemon/session.h"

namespace gshm::core {
namespace {

Error no_such_ring(uint32_t ring) {
    return {EINVAL, fmt::format("this session has no ring {}", ring)};
}

Result<std::shared_ptr<io::File>> open_file(UniqueFd&& descriptor, const std::optional<FileRights>& rights) {
    // The file is opened again for direct I/O: with the client's rights, so that the second description has no more.
    std::optional<BorrowedFileRights> borrowed;
    if (rights) borrowed.emplace(TRY(BorrowedFileRights::create(*rights)));
    return io::File::create(std::move(descriptor), io::File::Accept::stored);
}

// A file with the budget of its descriptors.
struct ChargedFile {
    static constexpr uint64_t kDescriptors = 2;  // the second is for direct I/O

    static std::shared_ptr<io::File> make(std::shared_ptr<io::File> file, Budgets::Charge charge) {
        auto* plain = file.get();
        return {std::make_shared<ChargedFile>(std::move(file), std::move(charge)), plain};
    }
    ChargedFile(std::shared_ptr<io::File> of, Budgets::Charge held) : charge(std::move(held)), file(std::move(of)) {}
    Budgets::Charge charge;
    std::shared_ptr<io::File> file;  // destroyed first
};

}  // namespace

void Session::ring_create(uint64_t request, const wire::RingCreate& create, std::vector<UniqueFd>& descriptors) {
    const uint32_t number = create.ring();
    if (descriptors.size() != 2)
        return reply_error(request, {EINVAL, "a ring is two descriptors: memory and doorbell"});
    if (rings_.contains(number)) return reply_error(request, {EEXIST, fmt::format("there is a ring {}", number)});
    if (rings_.size() >= limits::kSessionRings) {
        return reply_error(request, {EMFILE, fmt::format("a session has at most {} rings", limits::kSessionRings)});
    }
    Budgets::Charge rings(user_, Resource::rings);
    Budgets::Charge kept(user_, Resource::descriptors);
    if (!rings.take(1)) return reply_error(request, rings.refusal());
    if (!kept.take(descriptors.size())) return reply_error(request, kept.refusal());
    rings_[number];  // reserves the number; null until the ring is created
    job_started();
    const Credentials& who = server_.store().credentials(id_);
    const uid_t uid = who.uid;
    auto& user = server_.rings().user(uid);
    user.submit([&server = server_, &user, uid, self = weak_from_this(), request, number,
                 staging = server_.rings().staging(), rights = RingService::rights_of(who), rings = std::move(rings),
                 kept = std::move(kept), descriptors = std::move(descriptors)]() mutable {
        auto make = [&]() -> Result<std::shared_ptr<ClientRing>> {
            auto consumer = TRY(ring::Consumer::create(descriptors[0], std::move(descriptors[1])));
            auto engine = TRY(user.engine(staging.get(), rights));
            auto made = std::make_shared<ClientRing>(server, std::move(consumer), std::move(engine),
                                                     server.rings().under_way());
            made->hold_charges(std::move(rings), std::move(kept));
            TRY(made->start());
            return made;
        };
        auto made = make();
        server.reapers().close(uid, std::move(descriptors));
        server.loop().post([&server, uid, self, request, number, made = std::move(made)]() mutable {
            store_lock.assert_held();
            auto session = self.lock();
            if (!session) {
                if (made) server.rings().dispose(uid, std::move(*made));
                return;
            }
            session->job_ended();
            if (!made) {
                session->rings_.erase(number);
                return session->reply_error(request, made.error());
            }
            if (server.is_handing_over()) (*made)->pause(true);
            session->rings_[number] = std::move(*made);
            session->reply_ok(request);
        });
    });
}

void Session::ring_destroy(uint64_t request, const wire::RingDestroy& destroy) {
    auto found = rings_.find(destroy.ring());
    if (found == rings_.end() || !found->second) return reply_error(request, no_such_ring(destroy.ring()));
    server_.rings().dispose(server_.store().credentials(id_).uid, std::move(found->second));
    rings_.erase(found);
    reply_ok(request);
}

void Session::drop_rings() {
    const uid_t uid = server_.store().credentials(id_).uid;
    for (auto& [number, ring] : rings_) {
        if (ring) server_.rings().dispose(uid, std::move(ring));
    }
    rings_.clear();
}

ClientRing* Session::find_ring(uint32_t number) {
    auto found = rings_.find(number);
    return found == rings_.end() ? nullptr : found->second.get();
}

void Session::ring_file(uint64_t request, const wire::RingFile& file, std::vector<UniqueFd>& descriptors) {
    ClientRing* ring = find_ring(file.ring());
    if (ring == nullptr) return reply_error(request, no_such_ring(file.ring()));
    if (file.slot() >= limits::kRingFiles || descriptors.size() > 1) {
        return reply_error(request, {EINVAL, fmt::format("a ring has slots for {} files", limits::kRingFiles)});
    }
    const Credentials& who = server_.store().credentials(id_);
    auto& user = server_.rings().user(who.uid);
    if (descriptors.empty()) {
        user.let_go(ring->set_file(file.slot(), nullptr));
        return reply_ok(request);
    }
    size_t files = 0;
    for (const auto& [number, other] : rings_) files += other ? other->file_count() : 0;
    if (files >= limits::kSessionFiles) {
        return reply_error(request,
                           {EMFILE, fmt::format("a session's rings have at most {} files", limits::kSessionFiles)});
    }
    Budgets::Charge charge(user_, Resource::descriptors);
    if (!charge.take(ChargedFile::kDescriptors)) return reply_error(request, charge.refusal());
    job_started();
    // fstat() and close() may block in the file's file system.
    user.submit([&server = server_, &user, self = weak_from_this(), request, number = file.ring(), slot = file.slot(),
                 uid = who.uid, rights = RingService::rights_of(who), charge = std::move(charge),
                 descriptors = std::move(descriptors)]() mutable {
        auto opened = open_file(std::move(descriptors[0]), rights);
        if (opened) opened = ChargedFile::make(std::move(*opened), std::move(charge));
        if (!opened) server.reapers().close(uid, std::move(descriptors));
        server.loop().post([&user, self, request, number, slot, opened = std::move(opened)]() mutable {
            store_lock.assert_held();
            auto session = self.lock();
            ClientRing* ring = session ? session->find_ring(number) : nullptr;
            if (opened) user.let_go(ring == nullptr ? std::move(*opened) : ring->set_file(slot, std::move(*opened)));
            if (!session) return;
            session->job_ended();
            if (!opened) return session->reply_error(request, opened.error());
            if (ring == nullptr) return session->reply_error(request, no_such_ring(number));
            session->reply_ok(request);
        });
    });
}

void Session::ring_objects(uint64_t request, const wire::RingObjects& objects) {
    ClientRing* ring = find_ring(objects.ring());
    if (ring == nullptr) return reply_error(request, no_such_ring(objects.ring()));
    const size_t count = objects.slots()->size();
    if (count > limits::kBatchItems || objects.ids()->size() != count || objects.write()->size() != count) {
        return reply_error(request, {EINVAL, "a batch of objects for a ring has as many slots as objects"});
    }
    // A ring uses the memory while the object may move.
    std::vector<Object*> without_memory;
    for (uint64_t id : *objects.ids()) {
        auto object = object_range(id, 0, 0, Access::read);
        auto needs = object ? needs_own_memory(**object, false) : Result<bool>(false);
        if (needs && *needs) without_memory.push_back(*object);
    }
    if (!without_memory.empty()) return give_own_memory(std::move(without_memory));
    std::vector<int> statuses;
    Error first{0, ""};
    for (unsigned i = 0; i < count; ++i) {
        const Access access = objects.write()->Get(i) != 0 ? Access::write : Access::read;
        auto add = [&]() REQUIRES(store_lock) -> Status {
            if (objects.slots()->Get(i) >= limits::kRingObjects) {
                return fail(EINVAL, "a ring has slots for {} objects", limits::kRingObjects);
            }
            Object* object = TRY(object_range(objects.ids()->Get(i), 0, 0, access));
            TRY(needs_own_memory(*object, false));
            ring->set_object(objects.slots()->Get(i), std::make_shared<RingObject>(server_, object, access));
            return {};
        };
        auto added = add();
        statuses.push_back(added ? 0 : added.error().code);
        if (!added && first.code == 0) first = added.error();
    }
    auto& out = builder();
    auto body = wire::CreateStatusReply(out, out.CreateVector(statuses));
    reply(request, wire::ReplyBody::StatusReply, body.Union(), {}, first.code, first.message);
}

void Session::ring_release(const wire::RingRelease& release) {
    ClientRing* ring = find_ring(release.ring());
    if (ring == nullptr) return;
    for (uint32_t slot : *release.slots()) {
        if (slot < limits::kRingObjects) ring->set_object(slot, nullptr);
    }
}

void Session::pause_rings(bool paused) {
    for (auto& [number, ring] : rings_) {
        if (ring) ring->pause(paused);
    }
}

bool Session::has_idle_rings() const {
    return std::ranges::all_of(rings_, [](const auto& entry) { return !entry.second || entry.second->is_idle(); });
}

}  // namespace gshm::core

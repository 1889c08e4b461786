#include "client/load/loader.h"

#include <algorithm>
#include <random>
#include <set>
#include <unistd.h>

#include "tensors/facts.h"

namespace gshm::core::client {
namespace {

constexpr int kTellEveryMs = 200;
constexpr size_t kBusyObjects = 8;  // loaded at the same time, at most one for each device

// Unique among all calls, also of processes with the same id in other namespaces.
std::string make_nonce() {
    std::random_device random;
    return fmt::format("{}-{:08x}{:08x}", getpid(), random(), random());
}

Result<std::string> attribute_of(gshm_client* client, const std::string& name) {
    std::string value(limits::kAttributeValueBytes, '\0');
    size_t bytes = 0;
    TRY(as_status(
        gshm_get_attribute(client, name.c_str(), GSHM_TENSORS_ATTRIBUTE, value.data(), value.size(), &bytes)));
    value.resize(bytes);
    return value;
}

}  // namespace

Loader::Loader(gshm_client* client, const gshm_load_spec& spec, Source source, std::vector<Part> parts)
    : client_(client),
      spec_(spec),
      source_(std::move(source)),
      parts_(std::move(parts)),
      nonce_(make_nonce()),
      deadline_(spec.timeout_ms < 0 ? Clock::time_point::max()
                                    : Clock::now() + std::chrono::milliseconds(spec.timeout_ms)),
      trees_(client),
      work_(parts_.size()),
      model_(std::make_unique<gshm_model>()) {
    model_->parts.resize(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
        const SourceFile& file = source_.files[parts_[i].file];
        auto& made = model_->parts[i];
        made.tensors = std::make_unique<gshm_tensors>();
        made.tensors->add("", parts_[i].table);
        made.file = file.name;
        made.device = parts_[i].device;
        if (made.device != parts_[0].device) has_several_devices_ = true;
        total_bytes_ += parts_[i].bytes;
        pending_.push_back(i);
    }
}

Loader::~Loader() {
    try {
        if (reader_) reader_->stop();
        for (auto& work : work_) drop_claim(work);
    } catch (const std::exception&) {  // a lack of memory: the objects end with the session
    }
}

Status Loader::set_places() {
    for (size_t i = 0; i < parts_.size(); ++i) {
        const Part& part = parts_[i];
        const SourceFile& file = source_.files[part.file];
        auto& places = work_[i].places;
        places.clear();
        if (spec_.name != nullptr) {
            const auto name = source_.is_folder ? fmt::format("{}/{}", spec_.name, file.name) : spec_.name;
            const auto plain = explicit_name(name, part, false);
            const auto claim = claim_name(plain, part);
            places = {{plain, claim}, {explicit_name(name, part, true), claim}};
            continue;
        }
        for (const uid_t owner : trusted(file)) {
            const auto tree = TRY(trees_.find(owner));
            const bool is_own = places.empty();
            if (!tree && !is_own) continue;
            if (is_own) has_tree_ = tree.has_value();
            auto name = derived_name(tree.value_or(Trees::usual_name(owner)), file, part);
            auto claim = claim_name(name, part);
            places.push_back({std::move(name), std::move(claim)});
        }
    }
    return {};
}

// The caller first.
std::vector<uid_t> Loader::trusted(const SourceFile& file) const {
    std::vector<uid_t> owners;
    for (const uid_t owner : {geteuid(), uid_t{0}, file.status.st_uid}) {
        if (std::ranges::find(owners, owner) == owners.end()) owners.push_back(owner);
    }
    return owners;
}

// An explicit name is trusted. A name that is made from a path could have been taken by any user, for other bytes.
bool Loader::is_trusted(const SourceFile& file, uid_t uid) const {
    if (spec_.name != nullptr) return true;
    const auto owners = trusted(file);
    return std::ranges::find(owners, uid) != owners.end();
}

std::string Loader::facts_of(const Part& part) const {
    return to_text(tensors::Facts{.tensors = part.table.tensors().size(),
                                  .header_bytes = part.table.header().size() - tensors::kLengthBytes,
                                  .identity = part.identity,
                                  .source = source_.files[part.file].identity,
                                  .loader = nonce_});
}

Result<Loader::Found> Loader::look(size_t index, const Place& place) {
    const Part& part = parts_[index];
    const SourceFile& file = source_.files[part.file];
    const bool is_own = spec_.name != nullptr || &place == &work_[index].places[0];
    const auto unusable = [&](const Error& error) -> Result<Found> {
        if (is_missing(error)) return Found::nothing;
        // The tree of another user may be closed to the caller.
        if ((error.code == EACCES || error.code == ELOOP) && !is_own) return Found::nothing;
        return std::unexpected(error);
    };
    if (is_own && spec_.name == nullptr && !has_tree_) return Found::nothing;  // the name may be another user's
    // The name leads to the same object before and after its attribute is read, so the attribute is that object's.
    while (true) {
        const auto info = stat_of(client_, place.name);
        if (!info) return unusable(info.error());
        if (info->kind != GSHM_KIND_OBJECT) return Found::foreign;
        if (!is_trusted(file, info->uid)) return Found::another;
        const auto text = attribute_of(client_, place.name);
        if (!text && text.error().code == ENODATA) return Found::foreign;
        if (!text) return unusable(text.error());
        const auto facts = tensors::parse_facts(*text);
        if (!facts || !facts->is_loaded()) return Found::foreign;
        const bool is_same = facts->identity == part.identity && info->state == GSHM_STATE_SEALED &&
                             info->size_bytes >= part.table.size_bytes() && part.device == info->device;
        const bool is_elsewhere = facts->source == file.identity && part.device != info->device;
        if (!is_same) return is_elsewhere ? Found::elsewhere : Found::another;
        gshm_object* opened = nullptr;
        const uint32_t flags = GSHM_OPEN_SEALED_ONLY | (spec_.flags & GSHM_LOAD_NO_MAP);
        const auto status = as_status(gshm_open(client_, place.name.c_str(), flags, &opened));
        if (!status) return unusable(status.error());
        ObjectHandle object(opened);
        if (gshm_id(opened) != info->id) continue;
        auto& made = model_->parts[index];
        made.object = std::move(object);
        made.name = place.name;
        return Found::same;
    }
}

Result<bool> Loader::look_at_all(size_t index) {
    Work& work = work_[index];
    std::vector<Found> found;
    for (const auto& place : work.places) {
        found.push_back(TRY(look(index, place)));
        if (found.back() == Found::same) return true;
    }
    const auto is_version = [&](size_t place) {
        return found[place] == Found::another || found[place] == Found::elsewhere;
    };
    work.own = 0;
    // An explicit name is that of the first device. Objects on others have the device in their names.
    const bool is_taken = spec_.name != nullptr && (found[0] == Found::elsewhere || is_version(1));
    if (spec_.name != nullptr && (has_several_devices_ || is_taken)) work.own = 1;
    if (found[work.own] == Found::foreign) {
        return fail(EEXIST, "\"{}\" exists already and is not a loaded file", work.places[work.own].name);
    }
    work.is_replaced = is_version(work.own);
    return false;
}

Result<bool> Loader::find(size_t index) {
    if (!TRY(look_at_all(index))) return false;
    model_->parts[index].is_shared = true;
    shared_bytes_ += parts_[index].bytes;
    return true;
}

Result<bool> Loader::acquire(size_t index) {
    Work& work = work_[index];
    const SourceFile& file = source_.files[parts_[index].file];
    while (true) {
        if (TRY(find(index))) return true;
        if ((spec_.flags & GSHM_LOAD_EXISTING) != 0) {
            return fail(ENOENT, "{} is not loaded on {}", file.path, parts_[index].device);
        }
        for (size_t i = 1; i < work.places.size(); ++i) {
            const auto info = stat_of(client_, work.places[i].claim);
            if (!info || !is_trusted(file, info->uid)) continue;
            work.awaited = work.places[i].claim;
            return false;
        }
        if (TRY(claim(index))) {
            // The object may have been completed after the first look.
            const auto found = find(index);
            if (found && !*found) {
                TRY(load(index));
                return true;
            }
            drop_claim(work);
            return found;
        }
        const auto info = stat_of(client_, work.places[0].claim);
        if (!info && is_missing(info.error())) continue;
        if (!info) return std::unexpected(info.error());
        if (!is_trusted(file, info->uid)) {
            return fail(EEXIST, "\"{}\" is an object of another user: load {} with a name", work.places[0].claim,
                        file.path);
        }
        work.awaited = work.places[0].claim;
        return false;
    }
}

Status Loader::make_tree() {
    if (spec_.name != nullptr || is_tree_made_) return {};
    const auto tree = TRY(trees_.make_own());
    has_tree_ = is_tree_made_ = true;
    if (!work_[0].places[0].name.starts_with(tree + "/")) TRY(set_places());  // no claim has been made
    return {};
}

Result<ObjectHandle> Loader::create_claim(size_t index) {
    const Part& part = parts_[index];
    const SourceFile& file = source_.files[part.file];
    const std::string facts = facts_of(part);
    const gshm_attribute attribute = {GSHM_TENSORS_ATTRIBUTE, facts.data(), facts.size()};
    gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
    spec.name = work_[index].places[0].claim.c_str();
    spec.size_bytes = part.table.size_bytes();
    spec.device = part.device.c_str();
    spec.flags =
        GSHM_CREATE_NO_MAP | (spec_.flags & (GSHM_LOAD_EVICTABLE | GSHM_LOAD_EPHEMERAL | GSHM_LOAD_TTL_UNUSED));
    spec.ttl_ms = spec_.ttl_ms;
    spec.attributes = &attribute;
    spec.attribute_count = 1;
    spec.mode = spec_.mode;
    if (spec_.mode == 0) {
        const bool is_root = geteuid() == 0;
        if (is_root) {  // the only user who may choose the group
            spec.flags |= GSHM_CREATE_OWNER;
            spec.gid = file.status.st_gid;
        }
        spec.mode = mode_like(file, is_root ? file.status.st_gid : getegid());
    }
    gshm_object* made = nullptr;
    TRY(as_status(gshm_create(client_, &spec, &made)));
    return ObjectHandle(made);
}

Result<bool> Loader::claim(size_t index) {
    TRY(make_tree());
    Work& work = work_[index];
    const std::string& name = work.places[0].claim;
    while (true) {
        auto made = create_claim(index);
        if (made) {
            work.claimed = std::move(*made);
            return true;
        }
        const int code = made.error().code;
        if (code == EEXIST) return false;
        const bool is_lost = code == ECONNRESET || code == ENOMEM;  // the object may exist, without a handle here
        if (is_lost) {
            const auto text = attribute_of(client_, name);
            const auto facts = text ? tensors::parse_facts(*text) : std::unexpected(text.error());
            if (facts && facts->loader == nonce_) (void)gshm_unlink(client_, name.c_str());
        }
        if (code != ECONNRESET) {
            return fail(code, "{}: {}", source_.files[parts_[index].file].path, made.error().message);
        }
    }
}

void Loader::drop_claim(Work& work) {
    if (!work.claimed) return;
    const uint64_t id = gshm_id(work.claimed.get());
    const auto& name = work.places[0].claim;
    for (int attempt = 0; attempt < 2; ++attempt) {
        const auto info = stat_of(client_, name);
        if (!info || info->id != id) break;
        if (gshm_unlink(client_, name.c_str()) != -ECONNRESET) break;
    }
    work.claimed.reset();
}

Status Loader::load(size_t index) {
    const auto& header = parts_[index].table.header();
    gshm_object* object = work_[index].claimed.get();
    TRY(as_status(gshm_copy_in(object, 0, header.data(), header.size())));
    if (!reader_) reader_.emplace(TRY(Reader::create(client_->core)));
    return reader_->add(index, *object, source_.files[parts_[index].file], parts_[index].runs);
}

Result<bool> Loader::publish(size_t index) {
    Work& work = work_[index];
    gshm_object* object = work.claimed.get();
    while (true) {
        // The name may have got another object while the file was read: a version, or one that must not be replaced.
        if (TRY(look_at_all(index))) return false;
        const Place& place = work.places[work.own];
        const uint32_t flags = work.is_replaced ? uint32_t{GSHM_PUBLISH_REPLACE} : 0;
        const auto named = as_status(gshm_publish(object, place.name.c_str(), flags));
        if (named) return true;
        if (named.error().code == EEXIST && !work.is_replaced) continue;
        if (named.error().code != ECONNRESET) return std::unexpected(named.error());
        const auto info = stat_of(client_, place.name);
        if (info && info->id == gshm_id(object)) return true;
        if (!info && !is_missing(info.error())) return std::unexpected(info.error());
    }
}

Status Loader::finish(size_t index) {
    Work& work = work_[index];
    TRY(tick());
    TRY(check_unchanged(source_.files[parts_[index].file]));
    auto& made = model_->parts[index];
    made.read_bytes = parts_[index].bytes;
    if (!TRY(publish(index))) {
        drop_claim(work);
        return {};
    }
    const uint64_t id = gshm_id(work.claimed.get());
    gshm_object* opened = nullptr;
    const auto status = as_status(gshm_open_id(client_, id, spec_.flags & GSHM_LOAD_NO_MAP, &opened));
    work.claimed.reset();
    // Another version may have replaced it at once.
    if (!status && status.error().code == ENOENT) {
        pending_.push_back(index);
        return {};
    }
    TRY(status);
    made.object.reset(opened);
    made.name = work.places[work.own].name;
    return {};
}

Status Loader::tick() {
    const uint64_t done = shared_bytes_ + (reader_ ? reader_->done_bytes() : 0);
    if (spec_.progress != nullptr && spec_.progress(spec_.context, std::min(done, total_bytes_), total_bytes_) != 0) {
        return fail(ECANCELED, "the load was stopped");
    }
    if (Clock::now() >= deadline_) return fail(ETIMEDOUT, "the load takes longer than {} ms", spec_.timeout_ms);
    return {};
}

Status Loader::await(const std::string& claim) {
    while (true) {
        TRY(tick());
        const auto gone = as_status(gshm_wait(client_, claim.c_str(), GSHM_WAIT_GONE, kTellEveryMs, nullptr));
        if (gone || gone.error().code != ETIMEDOUT) return gone;
    }
}

Result<std::unique_ptr<gshm_model>> Loader::run() {
    std::set<std::string> devices;
    for (const auto& part : parts_) devices.insert(part.device);
    const size_t busy = std::clamp<size_t>(devices.size(), 1, kBusyObjects);
    TRY(tick());
    TRY(set_places());
    while (true) {
        while (!pending_.empty() && (!reader_ || reader_->waiting() < busy)) {
            const size_t index = pending_.front();
            pending_.pop_front();
            if (!TRY(acquire(index))) elsewhere_.push_back(index);
        }
        if (reader_ && !reader_->is_idle()) {
            for (const size_t index : TRY(reader_->step())) TRY(finish(index));
            TRY(tick());
        } else if (!elsewhere_.empty()) {
            TRY(await(work_[elsewhere_.front()].awaited));
            pending_.swap(elsewhere_);
        } else if (pending_.empty()) {
            break;
        }
    }
    if (spec_.progress != nullptr) (void)spec_.progress(spec_.context, total_bytes_, total_bytes_);
    return std::move(model_);
}

}  // namespace gshm::core::client

#include "daemon/device_set.h"

#include <algorithm>
#include <future>

#include "base/log.h"
#include "base/size.h"

namespace gshm::core {

namespace {

struct Spec {
    const DeviceKind* kind = nullptr;
    std::string_view which;
    uint64_t limit_bytes = 0;  // 0: none given
};

Result<Spec> parse_spec(std::string_view text) {
    auto bad = [&] { return fail(EINVAL, "'{}' is not a device (examples: {})", text, device_spec_examples()); };
    Spec spec{.kind = find_device_kind(text)};
    if (spec.kind == nullptr || text.ends_with(':')) return bad();
    size_t colon = text.find(':');
    if (colon == text.npos) return spec;
    std::string_view rest = text.substr(colon + 1);
    if (spec.kind->selects) {
        // The text after the last colon is a limit only if it is a size; else it is a part of the selector.
        spec.which = rest;
        colon = rest.rfind(':');
        if (colon == rest.npos) return spec;
        rest = rest.substr(colon + 1);
    }
    auto limit = parse_size(rest);
    bool is_limit = limit.has_value() && *limit > 0;
    if (is_limit) spec.limit_bytes = *limit;
    if (is_limit && spec.kind->selects) spec.which = spec.which.substr(0, colon);
    if (spec.kind->selects ? spec.which.empty() : !is_limit) return bad();
    return spec;
}

}  // namespace

Result<std::unique_ptr<DeviceSet>> DeviceSet::create(EventLoop& loop, const std::vector<std::string>& specs,
                                                     uint64_t limit_bytes, UniqueFd host_folder) {
    std::unique_ptr<DeviceSet> set(new DeviceSet(loop));
    set->old_host_folder_ = std::move(host_folder);
    for (size_t i = 0; i < specs.size(); ++i) {
        const size_t before = set->slots_.size();
        TRY(set->add(specs[i], limit_bytes));
        for (size_t j = before; j < set->slots_.size(); ++j) set->slots_[j].spec = i;
    }
    if (specs.empty()) TRY(set->add_unasked(limit_bytes));
    std::vector<uint64_t> capacities;
    for (const auto& slot : set->slots_) capacities.push_back(slot.device->info().capacity_bytes);
    set->freed_ = std::make_unique<FreedExtents>(std::move(capacities));
    return set;
}

Status DeviceSet::check_spec(std::string_view spec) {
    TRY(parse_spec(spec));
    return {};
}

bool DeviceSet::differ_in_limits_only(const std::vector<std::string>& one, const std::vector<std::string>& other) {
    return std::ranges::equal(one, other, [](const auto& a, const auto& b) {
        const auto left = parse_spec(a);
        const auto right = parse_spec(b);
        return left && right && left->kind == right->kind && left->which == right->which;
    });
}

void DeviceSet::set_limits(const std::vector<std::string>& specs, uint64_t limit_bytes) {
    for (auto& slot : slots_) {
        uint64_t own = 0;
        if (slot.spec && *slot.spec < specs.size()) {
            if (const auto spec = parse_spec(specs[*slot.spec])) own = spec->limit_bytes;
        }
        slot.device->set_limit(own != 0 ? own : limit_bytes);
    }
}

Status DeviceSet::add_unasked(uint64_t limit_bytes) {
    for (const DeviceKind* kind : device_kinds()) {
        if (kind->unasked == DeviceKind::Unasked::nothing) continue;
        auto added = add(*kind, "", limit_bytes);
        if (added) continue;
        if (kind->unasked == DeviceKind::Unasked::everything) return added;
        log_info("no {}: {}", kind->name, added.error().message);
    }
    return {};
}

Status DeviceSet::add(const std::string& text, uint64_t limit_bytes) {
    auto spec = TRY(parse_spec(text));
    auto added = add(*spec.kind, spec.which, spec.limit_bytes != 0 ? spec.limit_bytes : limit_bytes);
    if (added) return added;
    // Without a driver, or without this GPU.
    if (added.error().code == ENODEV) {
        return fail(ENODEV, "{}: {}; `gshm doctor` says what GPUs need, `--device host` does without them", text,
                    added.error().message);
    }
    if (added.error().code != EINVAL) return added;
    return fail(EINVAL, "'{}' is not a device: {} (examples: {})", text, added.error().message, device_spec_examples());
}

Status DeviceSet::add(const DeviceKind& kind, std::string_view which, uint64_t limit_bytes) {
    auto opened = TRY(kind.open(which, limit_bytes));
    for (const auto& error : opened.left_out) log_error("a device is left out: {}", error.message);
    if (opened.devices.empty() && !opened.left_out.empty()) return std::unexpected(std::move(opened.left_out[0]));
    for (auto& device : opened.devices) TRY(add_slot(std::move(device), limit_bytes));
    return {};
}

Status DeviceSet::add_slot(std::unique_ptr<Device> device, uint64_t limit_bytes) {
    if (slots_.size() == limits::kDevices) return fail(E2BIG, "there are more than {} devices", limits::kDevices);
    if (find(device->info().name)) return fail(EEXIST, "device {} is named twice", device->info().name);
    if (auto* host = dynamic_cast<HostDevice*>(device.get())) {
        host_ = host;
        if (old_host_folder_) TRY(host->adopt_folder(std::move(old_host_folder_)));
    }
    auto started = device->start();
    if (!started) log_error("{} cannot be used: {}", device->info().name, started.error().message);
    slots_.push_back({std::make_unique<LimitDevice>(std::move(device), limit_bytes),
                      std::make_unique<Worker>(),
                      std::make_unique<Worker>(),
                      started ? std::string() : started.error().message,
                      {}});
    return {};
}

uint64_t DeviceSet::used_bytes(DeviceIndex index) const {
    // In this order: freed memory that is reused or returned in between counts as used.
    const uint64_t used = slots_[index].device->used_bytes();
    const uint64_t freed = freed_->bytes(index);
    return used - std::min(used, freed);
}

DeviceSet::Space DeviceSet::space(DeviceIndex index, uint64_t free_bytes) const {
    if (free_bytes != UINT64_MAX) free_bytes -= std::min(free_bytes, reserve_bytes(index));
    const uint64_t limit = info(index).capacity_bytes;
    const uint64_t used = used_bytes(index);
    const uint64_t allowed = limit - std::min(limit, used);
    const uint64_t kept = std::min(freed_->bytes(index), allowed);
    if (free_bytes >= allowed - kept) return {used, allowed};
    // The driver does not hand out its last unit: an H200 with 3.1 MiB free refuses 2 MiB.
    const uint64_t unit = info(index).granularity_bytes;
    const uint64_t whole = free_bytes / unit * unit;
    return {used, kept + whole - std::min(whole, unit)};
}

DeviceSet::Space DeviceSet::real_space(DeviceIndex index) {
    if (!info(index).knows_free_bytes) return space(index);
    // Memory that is allocated or freed between two looks would count twice or not at all.
    constexpr int kLooks = 4;
    Space found = space(index, device(index).free_bytes());
    for (int i = 1; i < kLooks; ++i) {
        const Space before = std::exchange(found, space(index, device(index).free_bytes()));
        if (before.used_bytes == found.used_bytes && before.available_bytes == found.available_bytes) break;
    }
    return found;
}

std::vector<DeviceInfo> DeviceSet::infos() const {
    std::vector<DeviceInfo> infos;
    for (const auto& slot : slots_) infos.push_back(slot.device->info());
    return infos;
}

Result<DeviceIndex> DeviceSet::find(std::string_view name) const {
    if (name.empty() && !slots_.empty()) return 0;
    std::string names;
    for (DeviceIndex i = 0; i < slots_.size(); ++i) {
        if (info(i).name == name) return i;
        names += (names.empty() ? "" : ", ") + info(i).name;
    }
    return fail(ENODEV, "there is no device \"{}\"; gshmd has: {}", name, names);
}

Status DeviceSet::check(DeviceIndex index) const {
    if (slots_[index].failure.empty()) return {};
    return fail(ENODEV, "{} has failed and is refused until gshmd is started again: {}", info(index).name,
                slots_[index].failure);
}

void DeviceSet::report(DeviceIndex index, const Error& error) {
    if (!error.device_lost || !slots_[index].failure.empty()) return;
    slots_[index].failure = error.message;
    log_error("{} has failed: {}", info(index).name, error.message);
}

void DeviceSet::submit(DeviceIndex index, Work work, Done done) {
    submit_to(*slots_[index].worker, index, std::move(work), std::move(done));
}

void DeviceSet::submit_reclaim(DeviceIndex index, Work work, Done done) {
    submit_to(*slots_[index].reclaimer, index, std::move(work), std::move(done));
}

void DeviceSet::wait_for_reclaimed(DeviceIndex index) {
    std::promise<void> reached;
    slots_[index].reclaimer->submit([&] { reached.set_value(); });
    reached.get_future().wait();
    if (also_wait_) also_wait_();
}

std::optional<int> DeviceSet::host_folder() {
    return host_ == nullptr ? std::nullopt : host_->folder();
}

void DeviceSet::remove_host_files(const std::function<bool(uint64_t key)>& is_used) {
    if (host_ != nullptr) host_->remove_files(is_used);
}

void DeviceSet::submit_to(Worker& worker, DeviceIndex index, Work work, Done done) {
    worker.submit(
        [this, index, device = slots_[index].device.get(), work = std::move(work), done = std::move(done)]() mutable {
            Status status = work(*device);
            work = nullptr;  // destroyed in this thread: it may hold the last reference to an extent
            loop_.post([this, index, status = std::move(status), done = std::move(done)]() mutable {
                store_lock.assert_held();
                if (!status) report(index, status.error());
                if (done) done(std::move(status));
            });
        });
}

}  // namespace gshm::core

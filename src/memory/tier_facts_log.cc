#include "memory/tier_facts_log.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>

#include "base/log.h"
#include "base/size.h"

namespace gshm::core {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;  // of a write when the file is written anew

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

std::string part_name() {
    return kTierFactsName + std::string(kTierPart);
}

}  // namespace

Result<std::unique_ptr<TierFactsLog>> TierFactsLog::open(TierDisk& disk, int folder, const std::string& path,
                                                         uint64_t tier, uint64_t instance) {
    std::unique_ptr<TierFactsLog> log(new TierFactsLog(disk, folder, path, tier, instance));
    TRY(log->load());
    return log;
}

Status TierFactsLog::remove(TierDisk& disk, int folder) {
    if (disk.remove(folder, kTierFactsName) != 0 && errno != ENOENT) return fail_errno(kTierFactsName);
    return {};
}

Status TierFactsLog::load() {
    file_ = TRY(disk_.open_file(folder_, kTierFactsName, O_RDWR | O_CREAT, false, path_));
    struct stat status = {};
    if (::fstat(file_.get(), &status) != 0) return fail_errno(path_.c_str());
    std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
    bytes.resize(TRY(disk_.read_all(file_.get(), bytes, 0, path_)));
    std::vector<TierFactsFound> found;
    const bool intact = find_tier_facts(bytes, tier_, found);
    for (const auto& [header, offset] : found) put(header, offset);
    end_ = bytes.size();
    if (intact) return {};
    // The end of a killed gshmd's last write, or damage.
    log_warning("{} has damaged facts, which are left out; {} objects have intact ones", path_, places_.size());
    if (auto compacted = compact(); !compacted) {  // for example on a full disk
        log_warning("they stay there for now: {}", compacted.error().message);
        end_ = round_up(end_, kTierFactsAlignment);
    }
    return {};
}

void TierFactsLog::put(const TierFactsHeader& header, uint64_t offset) {
    forget(header.number);
    places_[header.number] = {offset, header.bytes, header.instance, header.checksum};
    live_bytes_ += header.record_bytes();
}

void TierFactsLog::forget(uint64_t number) {
    const auto found = places_.find(number);
    if (found == places_.end()) return;
    live_bytes_ -= found->second.record_bytes();
    places_.erase(found);
}

uint64_t TierFactsLog::instance_of(uint64_t number) const {
    const auto found = places_.find(number);
    return found == places_.end() ? 0 : found->second.instance;
}

std::vector<uint64_t> TierFactsLog::numbers() const {
    std::vector<uint64_t> numbers;
    numbers.reserve(places_.size());
    for (const auto& [number, place] : places_) numbers.push_back(number);
    std::ranges::sort(numbers);
    return numbers;
}

Result<std::string> TierFactsLog::read(uint64_t number) const {
    const auto found = places_.find(number);
    if (found == places_.end()) return fail(ENOENT, "{} has no facts of {:016x}", path_, number);
    const Place& place = found->second;
    std::string facts(place.bytes, '\0');
    const auto bytes = std::as_writable_bytes(std::span(facts.data(), facts.size()));
    const size_t got = TRY(disk_.read_all(file_.get(), bytes, place.offset, path_));
    if (got != bytes.size() || checksum_of(bytes) != place.checksum)
        return fail(EBADMSG, "{}: the facts of {:016x}, at byte {}, are damaged", path_, number, place.offset);
    return facts;
}

uint64_t TierFactsLog::bytes_of(const Batch& batch) {
    uint64_t bytes = 0;
    for (const auto& [number, facts] : batch) bytes += TierFactsHeader{.bytes = facts.size()}.record_bytes();
    return bytes;
}

Status TierFactsLog::append(const Batch& batch) {
    std::string records;
    std::vector<TierFactsFound> places;
    for (const auto& [number, facts] : batch) {
        TierFactsHeader header{tier_, number, instance_, facts.size(), checksum_of(as_bytes(facts))};
        places.push_back({header, end_ + records.size() + header.kBytes});
        records += encode_tier_facts(header, facts);
    }
    // At the end of what counts: a part that a failed write has left there is overwritten.
    TRY(disk_.write_all(file_.get(), as_bytes(records), end_, path_));
    if (disk_.sync(file_.get()) != 0) return fail_errno(path_.c_str());
    for (const auto& [header, offset] : places) put(header, offset);
    end_ += records.size();
    return {};
}

bool TierFactsLog::is_wasteful() const {
    constexpr uint64_t kSlackBytes = uint64_t{1} << 20;
    return end_ > 2 * live_bytes_ + kSlackBytes;
}

Status TierFactsLog::compact() {
    const std::string part = part_name();
    disk_.remove(folder_, part.c_str());  // of an earlier attempt
    auto file = TRY(disk_.open_file(folder_, part, O_RDWR | O_CREAT | O_EXCL, false, path_));
    std::vector<std::pair<uint64_t, TierFactsFound>> order;
    for (const auto& [number, place] : places_)
        order.push_back({place.offset, {{tier_, number, place.instance, place.bytes, place.checksum}, 0}});
    std::ranges::sort(order, {}, [](const auto& entry) { return entry.first; });
    auto attempt = [&]() -> Status {
        std::string piece;
        uint64_t written = 0;
        for (auto& [former, entry] : order) {
            auto facts = read(entry.header.number);
            if (!facts && facts.error().code != EBADMSG) return std::unexpected(std::move(facts.error()));
            if (!facts) {
                log_error("{}", facts.error().message);
                entry.header.number = 0;
                continue;
            }
            entry.offset = written + piece.size() + TierFactsHeader::kBytes;
            piece += encode_tier_facts(entry.header, *facts);
            if (piece.size() < kPieceBytes) continue;
            TRY(disk_.write_all(file.get(), as_bytes(piece), written, path_));
            written += piece.size();
            piece.clear();
        }
        TRY(disk_.write_all(file.get(), as_bytes(piece), written, path_));
        written += piece.size();
        if (disk_.sync(file.get()) != 0 || disk_.rename(folder_, part.c_str(), kTierFactsName) != 0)
            return fail_errno(path_.c_str());
        file_ = std::move(file);
        places_.clear();
        live_bytes_ = 0;
        end_ = written;
        for (const auto& [former, entry] : order)
            if (entry.header.number != 0) put(entry.header, entry.offset);
        if (disk_.sync(folder_) != 0) return fail_errno(path_.c_str());
        return {};
    };
    auto compacted = attempt();
    if (!compacted && file) disk_.remove(folder_, part.c_str());
    return compacted;
}

}  // namespace gshm::core

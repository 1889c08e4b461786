#include "io/engine_core.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <future>
#include <sys/resource.h>

#include "base/log.h"

namespace gshm::core::io {
namespace {

constexpr uint64_t kMailTag = 1;
constexpr size_t kEvents = 256;
// After so many events the sources hear of completions and are asked for work: if all waited for the last event, the disk
// would be idle until the sources have prepared their next work.
constexpr size_t kEventsAtOnce = 8;

// Odd, like all tags of watches, and never reused: a late event of an old doorbell is not mistaken for that of the next
// one in its slot. The lower half is the slot, the upper half the number of the watch.
uint64_t doorbell_tag(uint32_t watches, size_t slot) {
    return (uint64_t{watches} << 32) | (2 * slot + 3);
}
size_t slot_of(uint64_t tag) {
    return ((tag & UINT32_MAX) - 3) / 2;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<Staging> staging, const Options& options) {
    return EngineCore::create(std::move(staging), options, [options]() -> Result<std::unique_ptr<Queue>> {
        if (options.allow_uring) {
            auto uring = make_uring_queue(options.depth, options.threads, options.rights);
            if (uring) return uring;
            log_info("{}: files are read and written by threads", uring.error().message);
        }
        return make_thread_queue(options.threads, options.rights);
    });
}

Result<std::unique_ptr<Engine>> EngineCore::create(std::shared_ptr<Staging> staging, const Options& options,
                                                   MakeQueue make_queue) {
    std::unique_ptr<EngineCore> made(new EngineCore(std::move(staging), options));
    made->mailbox_ = TRY(Mailbox::create());
    std::promise<Status> opened;
    // Other threads handle signals; a write beyond the file size limit would end the process with SIGXFSZ.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    made->thread_ = std::thread([core = made.get(), &opened, &make_queue] {
        auto status = core->open(make_queue);
        const bool good = status.has_value();
        opened.set_value(std::move(status));
        if (good) core->run();
        core->queue_.reset();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    TRY(opened.get_future().get());
    return made;
}

EngineCore::EngineCore(std::shared_ptr<Staging> staging, const Options& options)
    : staging_(std::move(staging)), options_(options), pieces_(std::max(options.depth, 1U)) {
    for (Piece& piece : pieces_) {
        piece.next = free_pieces_;
        free_pieces_ = &piece;
    }
    free_count_ = static_cast<unsigned>(pieces_.size());
}

EngineCore::~EngineCore() {
    if (thread_.joinable()) {
        mailbox_->post([this] { ending_ = true; });
        thread_.join();
    }
    if (staging_ != nullptr) staging_->forget(*mailbox_);
}

Status EngineCore::open(MakeQueue& make_queue) {
    pthread_setname_np(pthread_self(), "gshm-io");
    // Threads of the queue, the kernel's too, inherit it.
    if (options_.nice > 0) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + options_.nice);
    queue_ = TRY(make_queue());
    uses_uring_ = queue_->is_uring();
    zeros_ = UniqueFd::adopt(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    if (!zeros_) return fail_errno("/dev/zero");
    return queue_->watch(mailbox_->fd(), kMailTag);
}

void EngineCore::run() {
    Event events[kEvents];
    for (;;) {
        poll_sources();
        begin_waiting();
        while (!finished_.empty()) finish(*finished_.pop());
        if (ending_ && std::ranges::none_of(slots_, [](const SourceSlot& slot) { return slot.source != nullptr; }))
            return;
        // Work started by done() is handled before the engine sleeps.
        const bool block = awake_.empty() && finished_.empty();
        const size_t count = queue_->wait(events, block);
        for (size_t i = 0; i < count; ++i) {
            if (i % kEventsAtOnce == kEventsAtOnce - 1) serve_sources();
            handle(events[i]);
        }
    }
}

void EngineCore::handle(const Event& event) {
    if ((event.tag & 1) == 0) {
        moved(*reinterpret_cast<Piece*>(event.tag), event.result);
    } else if (event.tag == kMailTag) {
        read_mail();
    } else {
        SourceSlot& slot = slots_[slot_of(event.tag)];
        if (slot.source != nullptr && slot.tag == event.tag) wake(slot);
    }
}

void EngineCore::read_mail() {
    mailbox_->heard();
    for (Piece* piece = mailbox_->take_copied(); piece != nullptr;) {
        Piece* next = piece->next;
        copied(*piece);
        piece = next;
    }
    if (mailbox_->take_chunk_is_back()) {
        stage_after_all();
        while (!starved_.empty()) queue(*starved_.pop());
    }
    for (auto& command : mailbox_->take_commands()) command();
}

// Each source is told that its doorbell is needed, and polled once more: later work rings the doorbell, so the engine
// may sleep.
void EngineCore::poll_sources() {
    for (size_t i = 0; i < awake_.size(); ++i) {
        SourceSlot& slot = *awake_[i];
        slot.is_awake = false;
        slot.source->sleep(true);
        current_ = &slot;
        slot.source->poll();
    }
    awake_.clear();
}

void EngineCore::serve_sources() {
    for (size_t i = 0; i < awake_.size(); ++i) {
        current_ = awake_[i];
        current_->source->poll();
    }
    begin_waiting();
}

void EngineCore::wake(SourceSlot& slot) {
    if (slot.is_awake || slot.removed) return;
    slot.is_awake = true;
    awake_.push_back(&slot);
    slot.source->sleep(false);
}

Status EngineCore::add(Source& source) {
    std::promise<Status> added;
    mailbox_->post([&] { added.set_value(add_slot(source)); });
    return added.get_future().get();
}

void EngineCore::remove(Source& source) {
    std::promise<void> removed;
    mailbox_->post([&] { remove_slot(source, [&] { removed.set_value(); }); });
    removed.get_future().get();
}

void EngineCore::poke(Source& source) {
    mailbox_->post([this, &source] { poke_slot(source); });
}

void EngineCore::poke_slot(Source& source) {
    // The source may be gone; another one in its place is polled needlessly.
    auto slot = std::ranges::find(slots_, &source, &SourceSlot::source);
    if (slot != slots_.end()) wake(*slot);
}

Status EngineCore::add_slot(Source& source) {
    auto slot = std::ranges::find(slots_, nullptr, &SourceSlot::source);
    if (slot == slots_.end()) slot = slots_.emplace(slots_.end());
    slot->tag = doorbell_tag(++watches_, static_cast<size_t>(slot - slots_.begin()));
    TRY(queue_->watch(source.doorbell(), slot->tag));
    slot->source = &source;
    wake(*slot);
    return {};
}

void EngineCore::remove_slot(Source& source, std::move_only_function<void()> removed) {
    auto slot = std::ranges::find(slots_, &source, &SourceSlot::source);
    if (slot == slots_.end()) return removed();
    queue_->unwatch(source.doorbell(), slot->tag);
    std::erase(awake_, &*slot);
    slot->is_awake = false;
    slot->removed = std::move(removed);
    // Transfers that are not in flight are cancelled; see serve().
    while (!starved_.empty()) queue(*starved_.pop());
    drop_if_over(*slot);
}

void EngineCore::drop_if_over(SourceSlot& slot) {
    if (!slot.removed || slot.transfers != 0) return;
    slot.source = nullptr;
    std::exchange(slot.removed, nullptr)();
}

}  // namespace gshm::core::io

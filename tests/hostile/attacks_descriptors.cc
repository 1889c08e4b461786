// Descriptors that are passed to gshmd, and rings.
#include <arpa/inet.h>
#include <fcntl.h>
#include <memory>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile/attack.h"
#include "hostile/client.h"
#include "hostile/raw_session.h"
#include "ring/producer.h"
#include "support/silent_file.h"

namespace gshm::core::hostile {
namespace {

using Builder = RawSession::Builder;

flatbuffers::Offset<void> ping(Builder& builder) {
    return wire::CreatePing(builder).Union();
}

// A connected TCP socket with unsent bytes: closing its last descriptor blocks until they are sent, which is never.
UniqueFd lingering_socket(int listener, std::vector<UniqueFd>& peers) {
    sockaddr_in address = {};
    socklen_t length = sizeof address;
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    UniqueFd socket = UniqueFd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return {};
    peers.push_back(UniqueFd::adopt(accept(listener, nullptr, nullptr)));
    const linger wait = {1, 5};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
    const std::string bytes(1 << 16, 'x');
    while (send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
    return socket;
}

// A ring with one object, which the library holds until the process ends.
struct OpenRing {
    gshm_ring* ring = nullptr;
    gshm_object* object = nullptr;
};

OpenRing open_ring(Client& client, const std::string& name, uint64_t bytes, uint32_t entries) {
    OpenRing opened;
    opened.object = client.create(name, bytes, GSHM_CREATE_NO_MAP);
    gshm_ring_options options = GSHM_RING_OPTIONS_INIT;
    options.entries = entries;
    if (opened.object != nullptr) gshm_ring_create(client.get(), &options, &opened.ring);
    return opened;
}

bool prepare_read(const OpenRing& opened, uint32_t file, uint64_t bytes) {
    const gshm_range range = {opened.object, 0, bytes};
    gshm_io io = GSHM_IO_INIT;
    io.operation = GSHM_IO_READ;
    io.file = file;
    io.ranges = &range;
    io.range_count = 1;
    return gshm_ring_prepare(opened.ring, &io) == 0;
}

std::unique_ptr<test::SilentFile> silent_file;

}  // namespace

void use_ordinarily(const Stage& stage) {
    constexpr uint64_t kBytes = 8 << 20;
    Client client(stage.dir);
    for (uint32_t i = 0; i < limits::kEmptySlabs; ++i) {
        gshm_create_spec spec = GSHM_CREATE_SPEC_INIT;
        const std::string name = "at/small" + std::to_string(i);
        spec.name = name.c_str();
        spec.size_bytes = 256;
        spec.mode = 0600 + i;
        spec.flags = GSHM_CREATE_NO_MAP;
        gshm_object* object = nullptr;
        if (client.get() != nullptr) gshm_create(client.get(), &spec, &object);
    }
    const UniqueFd file = UniqueFd::adopt(memfd_create("ordinary", MFD_CLOEXEC));
    if (ftruncate(file.get(), kBytes) != 0) return;
    std::vector<OpenRing> rings;
    for (int i = 0; i < 8; ++i) rings.push_back(open_ring(client, "at/large" + std::to_string(i), kBytes, 8));
    for (const auto& ring : rings) {
        uint32_t index = 0;
        gshm_completion completion = {};
        if (ring.ring == nullptr || gshm_ring_add_file(ring.ring, file.get(), &index) != 0) continue;
        if (prepare_read(ring, index, kBytes) && gshm_ring_submit(ring.ring) > 0)
            gshm_ring_wait(ring.ring, &completion, 1, 1, -1);
    }
}

void lingering_sockets(const Stage& stage) {
    UniqueFd listener = UniqueFd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int small = 4096;
    setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener.get(), 100) != 0) {
        stage.skip("no TCP sockets on 127.0.0.1");
    }
    std::vector<UniqueFd> peers;
    RawSession session;
    bool connected = false;
    while (stage.more()) {
        if (!connected) connected = session.greet(stage.socket());
        const UniqueFd socket = lingering_socket(listener.get(), peers);
        const int fd = socket.get();
        if (fd < 0) break;
        connected = connected && session.send(wire::RequestBody::Ping, ping, std::span(&fd, 1));
        if (!stage.did(connected)) usleep(1000);
        if (connected) connected = session.receive() >= 0;
    }
    stage.hold();
}

void pipes(const Stage& stage) {
    const std::string path = stage.scratch + "/fifo";
    mkfifo(path.c_str(), 0600);
    const UniqueFd fifo = UniqueFd::adopt(open(path.c_str(), O_RDWR | O_CLOEXEC));
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) stage.hold();
    const UniqueFd zero = UniqueFd::adopt(open("/dev/zero", O_RDWR | O_CLOEXEC));
    const int odd[] = {fifo.get(), ends[0], ends[1], zero.get()};
    RawSession session;
    auto ring = ring::Producer::create(8);
    for (uint32_t i = 0;; ++i) {
        if (!session.greet(stage.socket())) {
            stage.did(false);
            usleep(1000);
            continue;
        }
        const int fd = odd[i % 4];
        const auto staging = [](Builder& builder) { return wire::CreateAttachStaging(builder, 1 << 20).Union(); };
        const auto create = [&](Builder& builder) { return wire::CreateRingCreate(builder, i).Union(); };
        const auto file = [&](Builder& builder) { return wire::CreateRingFile(builder, i, 0).Union(); };
        stage.did(session.ask(wire::RequestBody::AttachStaging, staging, std::span(&fd, 1)) == 0);
        const int both[] = {fd, fd};
        stage.did(session.ask(wire::RequestBody::RingCreate, create, both) == 0);
        if (!ring || session.socket() < 0) continue;
        const int good[] = {ring->memory(), i % 2 == 0 ? ring->doorbell() : fd};
        stage.did(session.ask(wire::RequestBody::RingCreate, create, good) == 0);
        stage.did(session.ask(wire::RequestBody::RingFile, file, std::span(&fd, 1)) == 0);
    }
}

// As root, as fusermount3 does it for users. The thread that serves the file becomes the user with the process.
void make_silent_file(const Stage& stage) {
    silent_file = test::SilentFile::create(stage.scratch + "/silent", 1 << 20);
}

void silent_files(const Stage& stage) {
    if (!silent_file) stage.skip("no FUSE mount can be made here");
    // The process that serves the file must not have it open: the kernel would wait for its answer when it is killed.
    if (fork() != 0) stage.wait_for_end();
    close_range(3, ~0u, 0);
    const UniqueFd file = UniqueFd::adopt(open((stage.scratch + "/silent").c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) stage.skip("the file of another file system cannot be opened");
    constexpr uint32_t kEntries = 64;
    Client client(stage.dir);
    size_t refusals = 0;
    for (uint64_t i = 0; stage.more() && refusals < 20; ++i) {
        const auto ring = open_ring(client, "at/silent" + std::to_string(i), 4096, kEntries);
        uint32_t index = 0;
        bool granted = ring.ring != nullptr && gshm_ring_add_file(ring.ring, file.get(), &index) == 0;
        for (uint32_t entry = 0; entry < kEntries; ++entry) {
            granted = granted && prepare_read(ring, index, 4096);
            stage.did(granted);
        }
        refusals = granted && gshm_ring_submit(ring.ring) >= 0 ? 0 : refusals + 1;
    }
    stage.hold();
}

void many_descriptors(const Stage& stage) {
    stage.in_processes(2, [&](unsigned) {
        const UniqueFd memory = UniqueFd::adopt(memfd_create("hostile", MFD_CLOEXEC));
        const std::vector<int> descriptors(253, memory.get());
        RawSession session;
        for (;;) {
            if (!session.greet(stage.socket())) usleep(1000);
            // Packets that gshmd has not read yet hold their descriptors.
            while (stage.did(session.send(wire::RequestBody::Ping, ping, descriptors, false))) session.receive(false);
        }
    });
}

void ring_submissions(const Stage& stage) {
    constexpr uint64_t kBytes = 1 << 20;
    constexpr uint32_t kEntries = 256;
    const std::string path = stage.scratch + "/source";
    const UniqueFd file = UniqueFd::adopt(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const std::string bytes(kBytes, 's');
    if (write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        stage.skip("no room for a file");
    stage.in_processes(2, [&](unsigned process) {
        Client client(stage.dir);
        client.wait();
        const auto ring = open_ring(client, "at/ring" + std::to_string(process), kBytes, kEntries);
        uint32_t index = 0;
        if (ring.ring == nullptr || gshm_ring_add_file(ring.ring, file.get(), &index) != 0) stage.hold();
        std::vector<gshm_completion> completions(kEntries);
        for (;;) {
            while (prepare_read(ring, index, kBytes)) continue;
            gshm_ring_submit(ring.ring);
            const int taken = gshm_ring_wait(ring.ring, completions.data(), kEntries, 1, -1);
            for (int i = 0; i < taken; ++i) stage.did(completions[static_cast<size_t>(i)].result >= 0);
            if (taken <= 0) stage.did(false);
        }
    });
}

void ring_kernel_files(const Stage& stage) {
    const char* paths[] = {
        "/proc/self/mem", "/proc/kmsg",         "/proc/self/maps",       "/proc/sys/kernel/random/boot_id",
        "/sys/kernel/mm", "/proc/self/pagemap", "/sys/kernel/profiling", "/proc/pressure/cpu"};
    Client client(stage.dir);
    const auto ring = open_ring(client, "at/kernel", 4096, 64);
    for (uint64_t i = 0;; ++i) {
        const UniqueFd file = UniqueFd::adopt(open(paths[i % std::size(paths)], O_RDONLY | O_CLOEXEC));
        uint32_t index = 0;
        bool granted = ring.ring != nullptr && gshm_ring_add_file(ring.ring, file.get(), &index) == 0;
        if (granted) {
            gshm_completion completion = {};
            granted = prepare_read(ring, index, 4096) && gshm_ring_submit(ring.ring) > 0 &&
                      gshm_ring_wait(ring.ring, &completion, 1, 1, -1) == 1 && completion.result >= 0;
            gshm_ring_remove_file(ring.ring, index);
        }
        // The library refuses some of these by itself.
        RawSession session;
        const int fd = file.get();
        auto memory = ring::Producer::create(8);
        if (fd >= 0 && memory && session.greet(stage.socket())) {
            const int both[] = {memory->memory(), memory->doorbell()};
            session.ask(
                wire::RequestBody::RingCreate, [](Builder& b) { return wire::CreateRingCreate(b, 1).Union(); }, both);
            session.ask(
                wire::RequestBody::RingFile, [](Builder& b) { return wire::CreateRingFile(b, 1, 0).Union(); },
                std::span(&fd, 1));
        }
        stage.did(granted);
    }
}

}  // namespace gshm::core::hostile

// What sessions hold: waits, watches, leases, fences; and copies.
#include <algorithm>
#include <sys/wait.h>

#include "hostile/attack.h"
#include "hostile/client.h"
#include "hostile/raw_session.h"

namespace gshm::core::hostile {
namespace {

using Builder = RawSession::Builder;

}  // namespace

// The bystander creates and removes by/again, on which all these names depend.
void waits(const Stage& stage) {
    constexpr uint64_t kOfSession = limits::kSessionWaits;
    std::vector<RawSession> sessions;
    for (uint64_t i = 0; stage.more(); ++i) {
        if (i % kOfSession == 0) {
            RawSession session;
            if (!session.greet(stage.socket())) break;
            sessions.push_back(std::move(session));
        }
        auto& session = sessions.back();
        stage.did(session.send(wire::RequestBody::Wait, [&](Builder& builder) {
            return wire::CreateWait(builder, builder.CreateString("by/again/" + std::to_string(i)), false, -1).Union();
        }));
        while (session.receive(false) >= 0) ++stage.progress->refused;  // a wait is answered if it is refused
    }
    stage.hold();
}

void watches(const Stage& stage) {
    const uint64_t count = stage.number / 50;
    std::vector<RawSession> sessions;
    for (uint64_t i = 0; i < count; ++i) {
        RawSession session;
        const bool granted =
            session.greet(stage.socket()) && session.ask(wire::RequestBody::WatchCreate, [](Builder& builder) {
                return wire::CreateWatchCreate(builder, builder.CreateString("")).Union();
            }) == 0;
        if (!stage.did(granted)) break;
        sessions.push_back(std::move(session));
    }
    Client client(stage.dir);
    for (uint64_t i = 0;; ++i) {
        const std::string name = "at/event" + std::to_string(i % 100);
        gshm_object* object = client.create(name, 0, GSHM_CREATE_EMPTY | GSHM_CREATE_NO_MAP);
        if (!stage.did(object != nullptr)) {
            usleep(1000);
            continue;
        }
        gshm_rename(client.get(), name.c_str(), (name + "-renamed").c_str(), GSHM_RENAME_REPLACE);
        gshm_unlink(client.get(), (name + "-renamed").c_str());
        gshm_close(object);
    }
}

void leases(const Stage& stage) {
    Client client(stage.dir);
    gshm_object* object = client.create("at/leased", 4096, 0);
    if (object == nullptr) stage.hold();
    RawSession session;
    if (!session.greet(stage.socket())) stage.hold();
    const std::vector<std::string> names(limits::kBatchItems, "at/leased");
    while (stage.more()) {
        const int error = session.ask(wire::RequestBody::OpenObjects, [&](Builder& builder) {
            const auto vector = builder.CreateVectorOfStrings(names);
            wire::OpenObjectsBuilder open(builder);
            open.add_names(vector);
            return open.Finish().Union();
        });
        for (size_t i = 0; i < names.size(); ++i) stage.did(error == 0);
        if (error < 0) break;
    }
    stage.hold();
}

// The objects outlive the processes, and with them their fences.
void fences(const Stage& stage) {
    constexpr uint64_t kOfProcess = 300;
    size_t refusals = 0;
    while (stage.more() && refusals < 10) {
        const uint64_t first = stage.progress->attempts;
        const uint64_t refused = stage.progress->refused;
        const pid_t child = fork();
        if (child == 0) {
            Client client(stage.dir);
            for (uint64_t i = 0; i < kOfProcess && stage.more(); ++i) {
                gshm_object* object =
                    client.create("at/f" + std::to_string(first + i), 256, GSHM_CREATE_KEEP | GSHM_CREATE_NO_MAP);
                gshm_fence* fence = nullptr;
                stage.did(object != nullptr && gshm_fence_open(object, GSHM_FENCE_WRITE, &fence) == 0);
            }
            _exit(0);
        }
        if (child > 0) waitpid(child, nullptr, 0);
        refusals = stage.progress->refused - refused >= kOfProcess ? refusals + 1 : 0;
    }
    stage.hold();
}

void copies(const Stage& stage) {
    constexpr uint64_t kBytes = uint64_t{64} << 20;
    stage.in_processes(2, [&](unsigned process) {
        Client client(stage.dir);
        client.wait();
        gshm_object* object = client.create("at/copied" + std::to_string(process), kBytes, GSHM_CREATE_NO_MAP);
        if (object == nullptr) stage.hold();
        const std::string bytes(kBytes / 2, 'x');
        for (;;) {
            stage.did(gshm_fill(object, 0, kBytes, 7) == 0);
            stage.did(gshm_copy_in(object, 0, bytes.data(), bytes.size()) == 0);
        }
    });
}

}  // namespace gshm::core::hostile

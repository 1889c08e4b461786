// Connections and packets.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <random>
#include <sys/wait.h>

#include "hostile/attack.h"
#include "hostile/client.h"
#include "hostile/raw_session.h"

namespace gshm::core::hostile {
namespace {

using Builder = RawSession::Builder;

constexpr unsigned kProcesses = 2;  // more descriptors than one process may have

// Opens connections until the number is reached, and again those that gshmd closes. `begin` is called for each.
void keep_connections(const Stage& stage, const std::function<bool(RawSession&)>& begin) {
    stage.in_processes(kProcesses, [&](unsigned) {
        std::vector<RawSession> sessions;
        auto open_one = [&] {
            RawSession session;
            if (!stage.did(session.connect(stage.socket()) && begin(session))) return false;
            sessions.push_back(std::move(session));
            return true;
        };
        while (stage.more()) {
            if (!open_one()) usleep(1000);
        }
        for (;;) {
            std::vector<pollfd> polled;
            for (const auto& session : sessions) polled.push_back({session.socket(), POLLIN, 0});
            poll(polled.data(), polled.size(), 10);
            std::vector<RawSession> open;
            for (size_t i = 0; i < sessions.size(); ++i) {
                if (polled[i].revents == 0) open.push_back(std::move(sessions[i]));
            }
            const size_t closed = sessions.size() - open.size();
            sessions = std::move(open);
            for (size_t i = 0; i < std::max<size_t>(closed, 1); ++i) {
                if (!open_one()) break;
            }
        }
    });
}

std::vector<std::vector<uint8_t>> golden_requests(const std::string& folder) {
    std::vector<std::vector<uint8_t>> packets;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const auto name = entry.path().stem().string();
        // A changed size could take the whole device, which gshmd grants to any user.
        if (!name.starts_with("request-") || name.find("Create") != name.npos) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        packets.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return packets;
}

}  // namespace

void connect_ordinarily(const Stage& stage) {
    constexpr size_t kConnections = 16;
    std::vector<RawSession> sessions(kConnections);
    for (auto& session : sessions) session.greet(stage.socket());
    stage.wait_for_end();
}

void silent_connections(const Stage& stage) {
    keep_connections(stage, [](RawSession&) { return true; });
}

void half_packets(const Stage& stage) {
    const auto whole = RawSession::packet(wire::RequestBody::Hello, RawSession::hello);
    keep_connections(
        stage, [&](RawSession& session) { return session.send(std::span(whole).first(whole.size() / 2), {}, false); });
}

void malformed_packets(const Stage& stage) {
    const auto samples = golden_requests(stage.golden);
    if (samples.empty()) stage.skip("there are no messages in " + stage.golden);
    stage.in_processes(kProcesses, [&](unsigned process) {
        std::mt19937 random(process);
        auto below = [&](size_t bound) { return random() % bound; };
        RawSession session;
        for (;;) {
            if (!(below(2) == 0 ? session.greet(stage.socket()) : session.connect(stage.socket()))) {
                stage.did(false);
                usleep(1000);
                continue;
            }
            for (int i = 0; i < 50; ++i) {
                std::vector<uint8_t> packet = samples[below(samples.size())];
                switch (below(4)) {
                    case 0:
                        packet.resize(1 + below(limits::kMessageBytes));
                        std::ranges::generate(packet, random);
                        break;
                    case 1: packet.resize(below(packet.size() + 1)); break;
                    default:
                        for (size_t changes = 1 + below(8); changes > 0; --changes) {
                            packet[below(packet.size())] = static_cast<uint8_t>(random());
                        }
                }
                const std::vector<int> descriptors(below(4) == 0 ? below(4) : 0, 0);
                if (!stage.did(session.send(packet, descriptors, false))) break;
                while (session.receive(false) >= 0) continue;
            }
        }
    });
}

void connection_storm(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned) {
        for (;;) {
            RawSession session;
            stage.did(session.greet(stage.socket()));
        }
    });
}

void short_clients(const Stage& stage) {
    constexpr unsigned kAtOnce = 30;
    unsigned running = 0;
    for (uint64_t i = 0;; ++i) {
        if (running == kAtOnce && wait(nullptr) > 0) --running;
        const pid_t child = fork();
        if (child == 0) {
            Client client(stage.dir);
            const bool granted = client.create("at/short" + std::to_string(i), 4096, 0) != nullptr;
            stage.did(granted);
            _exit(0);
        }
        if (child > 0) ++running;
    }
}

void unread_replies(const Stage& stage) {
    constexpr size_t kSessions = 1000;
    std::vector<RawSession> sessions;
    const auto request = RawSession::packet(wire::RequestBody::List, [](Builder& builder) {
        return wire::CreateList(builder, builder.CreateString("")).Union();
    });
    for (size_t i = 0; i < std::min<size_t>(kSessions, stage.number / 100); ++i) {
        RawSession session;
        if (!stage.did(session.greet(stage.socket()))) break;
        sessions.push_back(std::move(session));
    }
    for (;;) {
        bool blocked = true;
        for (auto& session : sessions) {
            if (stage.did(session.send(request, {}, false))) blocked = false;
        }
        if (blocked) usleep(1000);
    }
}

void refused_requests(const Stage& stage) {
    stage.in_processes(kProcesses, [&](unsigned) {
        RawSession session;
        bool connected = false;
        const std::pair<wire::RequestBody, RawSession::Build> requests[] = {
            {wire::RequestBody::GetAttribute,
             [](Builder& builder) {
                 return wire::CreateGetAttribute(builder, builder.CreateString("at/none"), builder.CreateString("x"))
                     .Union();
             }},
            {wire::RequestBody::Shutdown, [](Builder& builder) { return wire::CreateShutdown(builder).Union(); }},
            {wire::RequestBody::Unmount, [](Builder& builder) { return wire::CreateUnmount(builder).Union(); }},
            {wire::RequestBody::Rename,
             [](Builder& builder) {
                 return wire::CreateRename(builder, builder.CreateString("by"), builder.CreateString("at/by")).Union();
             }},
            {wire::RequestBody::Copy, [](Builder& builder) { return wire::CreateCopy(builder, 1, 0, 1).Union(); }},
        };
        for (;;) {
            if (!connected && !(connected = session.greet(stage.socket()))) {
                stage.did(false);
                usleep(1000);
                continue;
            }
            size_t sent = 0;
            for (int i = 0; i < 20; ++i) {
                for (const auto& [kind, build] : requests) sent += session.send(kind, build);
            }
            for (; sent > 0; --sent) stage.did(session.receive() == 0);
            connected = session.send(wire::RequestBody::Ping, [](Builder& b) { return wire::CreatePing(b).Union(); }) &&
                        session.receive() == 0;
        }
    });
}

}  // namespace gshm::core::hostile

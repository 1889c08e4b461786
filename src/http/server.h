// A small HTTP server in a thread of its own, for pages that are made at once. It answers GET and HEAD, and closes the
// connection after each answer. Slow and idle clients delay no others: all sockets are polled, a request has a time
// limit, and a client over the bounds takes the place of one that has its answer, or else of the one that has waited longest
// without a whole request.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "http/request.h"

namespace gshm::core::http {

struct Response {
    int status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
};

class Server {
public:
    struct Limits {
        size_t connections = 32;         // on each listener
        size_t connections_of_user = 8;  // on a Unix socket, of one user
        size_t head_bytes = 8 << 10;
        std::chrono::milliseconds request_time{5000};  // from the connection to the whole request
        std::chrono::milliseconds answer_time{10000};  // until the answer is sent
        std::chrono::milliseconds close_time{1000};    // from then until the client closes the connection
    };
    // For GET requests of that path. Called in the server's thread.
    using Handler = std::function<Response(const Request&)>;

    // listeners: stream sockets that listen. after_answers: called in the server's thread when no answer is waiting to
    // be sent, after at least one was.
    static Result<std::unique_ptr<Server>> create(std::vector<UniqueFd> listeners, std::string path, Handler handler,
                                                  Limits limits, std::function<void()> after_answers = {});
    // A further one, from any thread.
    void add_listener(UniqueFd listener) EXCLUDES(mutex_);
    // Closes all sockets.
    ~Server();

private:
    struct Connection;
    using Clock = std::chrono::steady_clock;

    Server(std::vector<UniqueFd> listeners, UniqueFd wake, std::string path, Handler handler, Limits limits,
           std::function<void()> after_answers);
    void run();
    // False: the server ends.
    bool take_added() EXCLUDES(mutex_);
    void wake() const;
    void accept_at(size_t listener);
    // False: all places are taken by clients whose requests are being answered.
    bool make_place(size_t listener, uint32_t user);
    // False: the connection is over.
    bool serve(Connection& connection, short events);
    bool read(Connection& connection);
    bool write(Connection& connection);
    void answer(Connection& connection, Response response, bool with_body);
    Response respond(const Connection& connection, const Request& request) const;

    const UniqueFd wake_;
    const std::string path_;
    const Handler handler_;
    const Limits limits_;
    const std::function<void()> after_answers_;
    Mutex mutex_;
    bool ends_ GUARDED_BY(mutex_) = false;
    std::vector<UniqueFd> added_ GUARDED_BY(mutex_);
    // Of the thread.
    std::vector<UniqueFd> listeners_;
    std::list<Connection> connections_;
    bool has_answered_ = false;
    bool is_short_of_descriptors_ = false;
    std::thread thread_;
};

// ---- listeners ----
// "127.0.0.1:9402", "[::1]:9402", "localhost:9402". EINVAL: it is no such address.
Status check_address(std::string_view address);
// Also in different words. Port 0 is another one each time.
bool are_one_address(std::string_view one, std::string_view other);
struct TcpListener {
    UniqueFd socket;
    std::string address;  // with the port that the kernel has chosen for port 0
    bool is_loopback = true;
};
Result<TcpListener> listen_at(std::string_view address);
// A Unix socket with that mode, where nothing is.
Result<UniqueFd> listen_at_path(const std::string& path, mode_t mode);

}  // namespace gshm::core::http

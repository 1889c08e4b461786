// A Client's connection to gshmd. It lives until the last call that uses it has returned.
#pragma once

#include <atomic>

#include "buffer.h"
#include "status.h"

namespace vineyard::detail {

class Connection {
public:
    // Connects, and makes the folder for buffers if it does not exist.
    static Status open(const std::string& ipc_socket, std::shared_ptr<Connection>& ret_connection);

    const gshm::Client& client() const { return client_; }
    const std::string& ipc_socket() const { return ipc_socket_; }
    // The default device of new buffers.
    const std::string& device() const { return device_; }
    uint32_t mode() const { return mode_; }
    const std::shared_ptr<CreatedBuffers>& created() const { return created_; }
    // Makes the folder for names, before the first name.
    Status make_names_folder();

private:
    std::string ipc_socket_;
    gshm::Client client_;
    std::string device_;
    uint32_t mode_ = 0600;
    std::shared_ptr<CreatedBuffers> created_ = std::make_shared<CreatedBuffers>();
    std::atomic<bool> has_names_folder_ = false;
};

struct ClientState {
    mutable std::mutex mutex;
    std::shared_ptr<Connection> connection;  // null: not connected

    Status get(std::shared_ptr<Connection>& ret_connection) const;
};

}  // namespace vineyard::detail

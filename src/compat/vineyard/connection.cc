#include "connection.h"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>

#include "ids.h"

namespace vineyard::detail {
namespace {

constexpr char kSocket[] = GSHM_SOCKET_NAME;

bool is_socket(const std::string& path) {
    struct stat status = {};
    return stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

// The runtime folder for the argument of Connect().
gshm::Result<std::string> find_folder(const std::string& ipc_socket) {
    if (ipc_socket.empty()) return std::string();
    char path[PATH_MAX];
    if (realpath(ipc_socket.c_str(), path) == nullptr) {
        return gshm::Error{errno, ipc_socket + ": " + std::strerror(errno)};
    }
    const std::string real = path;
    if (is_socket(real + "/" + kSocket)) return real;
    if (is_socket(real)) {
        const size_t slash = real.rfind('/');
        if (real.substr(slash + 1) == kSocket) return real.substr(0, slash);
        return gshm::Error{EINVAL, ipc_socket + " is not a gshmd's socket, which is called " + kSocket};
    }
    if (auto found = gshm::find_daemon(real)) return *found;
    return gshm::Error{
        EINVAL, ipc_socket + " is neither the runtime folder or the socket of a gshmd that runs, nor in its mount"};
}

// GSHM_VINEYARD_MODE: permission bits of new buffers.
gshm::Result<uint32_t> chosen_mode() {
    const char* text = getenv("GSHM_VINEYARD_MODE");
    if (text == nullptr || *text == '\0') return 0600u;
    char* end = nullptr;
    const unsigned long mode = std::strtoul(text, &end, 8);
    if (*end != '\0' || *text == '-' || (mode & ~0777ul) != 0 || (mode & 0600) != 0600) {
        return gshm::Error{EINVAL, std::string("GSHM_VINEYARD_MODE=") + text +
                                       ": this must be an octal mode that lets the owner read and write, such as 0644"};
    }
    return static_cast<uint32_t>(mode);
}

// GSHM_VINEYARD_DEVICE, else the first GPU; "" (the daemon's first device) if there is none.
gshm::Result<std::string> chosen_device(const gshm::Client& client) {
    if (const char* device = getenv("GSHM_VINEYARD_DEVICE"); device != nullptr && *device != '\0') {
        return std::string(device);
    }
    const auto devices = client.devices();
    if (!devices) return devices.error();
    for (const auto& device : *devices) {
        if (device.failed == 0 && std::string_view(device.name) != "host") return std::string(device.name);
    }
    return std::string();
}

// All users may add entries, and only their owners remove them.
gshm::Result<void> make_shared_folder(const gshm::Client& client, const char* name) {
    auto made = client.make_directory(name, 01777);
    if (!made && made.error().code != EEXIST) return made;
    return {};
}

Status failed_to_connect(const gshm::Error& error) {
    return Status::ConnectionFailed(error.message);
}

}  // namespace

Status Connection::open(const std::string& ipc_socket, std::shared_ptr<Connection>& ret_connection) {
    const auto mode = chosen_mode();
    if (!mode) return to_status(mode.error());
    const auto folder = find_folder(ipc_socket);
    if (!folder) return failed_to_connect(folder.error());
    auto client = gshm::Client::connect({.dir = *folder});
    if (!client) return failed_to_connect(client.error());
    const auto device = chosen_device(*client);
    if (!device) return failed_to_connect(device.error());
    if (auto made = make_shared_folder(*client, kFolder); !made) return failed_to_connect(made.error());

    auto connection = std::make_shared<Connection>();
    connection->ipc_socket_ = ipc_socket;
    connection->client_ = *std::move(client);
    connection->device_ = *device;
    connection->mode_ = *mode;
    ret_connection = std::move(connection);
    return Status::OK();
}

Status Connection::make_names_folder() {
    if (has_names_folder_) return Status::OK();
    if (auto made = make_shared_folder(client_, kNamesFolder); !made) return to_status(made.error());
    has_names_folder_ = true;
    return Status::OK();
}

Status ClientState::get(std::shared_ptr<Connection>& ret_connection) const {
    std::lock_guard lock(mutex);
    if (connection == nullptr) return Status::ConnectionError("the client is not connected");
    ret_connection = connection;
    return Status::OK();
}

}  // namespace vineyard::detail

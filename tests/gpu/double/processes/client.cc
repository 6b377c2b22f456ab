// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/double/processes/client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace gpu_double::processes {
namespace {

[[noreturn]] void give_up(const std::string &why) {
    std::fprintf(stderr, "gpu double: %s\n", why.c_str());
    std::_Exit(70);
}

// A connection, after its first message.
int connected(const Hello &hello, Welcome &welcome) {
    const char *path = std::getenv(socket_variable);
    if (path == nullptr)
        give_up("these libraries work in programs that are started by gpu_double_run");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0 ||
        connect(made, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
        !send_all(made, &hello, sizeof hello) || !receive_all(made, &welcome, sizeof welcome))
        give_up(std::string("no connection to gpu_double_run at ") + path);
    return made;
}

void map(std::uint64_t address, std::size_t bytes, int access, int flags, int file) {
    void *wanted = reinterpret_cast<void *>(address);
    if (mmap(wanted, bytes, access, flags | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0) != wanted)
        give_up(std::string("memory of gpu_double_run cannot be mapped at its address: ") +
                std::strerror(errno));
}

// This process. Its connection ends with it.
class Process {
public:
    Process() {
        connected({}, welcome_);
        const std::string file = "/proc/" + std::to_string(welcome_.server) + "/fd/" +
                                 std::to_string(welcome_.pinned_file);
        const int opened = open(file.c_str(), O_RDWR | O_CLOEXEC);
        if (opened < 0) give_up(file + " cannot be opened: " + std::strerror(errno));
        map(welcome_.pinned, welcome_.pinned_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened);
        close(opened);
        // No other memory of this process has addresses of the device.
        map(welcome_.device, welcome_.device_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    }

    int connect_thread() const {
        Welcome ignored;
        return connected({welcome_.process}, ignored);
    }
    bool shares(const void *address) const {
        const auto at = reinterpret_cast<std::uint64_t>(address);
        return (at >= welcome_.device && at < welcome_.device + welcome_.device_bytes) ||
               (at >= welcome_.pinned && at < welcome_.pinned + welcome_.pinned_bytes);
    }

private:
    Welcome welcome_;
};
// Never destroyed: threads make calls until the process ends.
const Process &process() {
    static const Process *const the_process = new Process;
    return *the_process;
}

thread_local int device_of_thread = 0;

// True when the connection of the calling thread has ended, and the thread still makes calls.
thread_local bool thread_has_ended = false;

struct Connection {
    Connection() : socket(process().connect_thread()) {}
    ~Connection() {
        send_message(socket, static_cast<std::uint32_t>(Function::the_thread_ends), {});
        close(socket);
        thread_has_ended = true;
    }
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    const int socket;
};

Answer ask(const Connection &connection, Function function, const Writer &call) {
    std::uint32_t result = 0;
    std::vector<char> bytes;
    if (!send_message(connection.socket, static_cast<std::uint32_t>(function), call) ||
        !receive_message(connection.socket, result, bytes))
        give_up("gpu_double_run has ended");
    return {static_cast<int>(result), Reader(std::move(bytes))};
}

}  // namespace

Answer ask(Function function, const Writer &call) {
    if (thread_has_ended) {
        const Connection again;
        Writer device;
        device.put(device_of_thread);
        ask(again, Function::cudaSetDevice, device);
        return ask(again, function, call);
    }
    thread_local const Connection connection;
    return ask(connection, function, call);
}

void keep_device(int device) {
    device_of_thread = device;
}

bool is_shared(const void *address) {
    return process().shares(address);
}

const char *text_of(Function function, int number) {
    Writer call;
    call.put(number);
    Answer answer = ask(function, call);
    const std::span<const char> text = answer.rest.get_bytes();
    struct Texts {
        std::mutex mutex;
        std::map<std::pair<Function, int>, std::string> known;
    };
    static Texts *const texts = new Texts;
    const std::lock_guard<std::mutex> lock(texts->mutex);
    return texts->known.try_emplace({function, number}, text.data(), text.size())
        .first->second.c_str();
}

}  // namespace gpu_double::processes

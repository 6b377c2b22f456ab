// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/os_network.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

// Included first: defines the asio macros.
#include "bootstrap/os_stream.h"

#include "bootstrap/os_listener.h"

#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include "base/signals.h"
#include "base/system.h"

namespace vescomm::internal {

namespace {

// Interval between attempts to connect while the queue of a local socket is full.
constexpr auto local_pause = std::chrono::milliseconds(5);
// Time after which another socket connects to an address that has not answered, and the number of
// such sockets. They fill the second until the kernel repeats the packets of the first one.
constexpr auto unanswered_pause = std::chrono::milliseconds(100);
constexpr std::size_t max_sockets = 8;

class OsTimer final : public Timer {
public:
    OsTimer(asio::io_context &context, Clock::time_point when, std::function<void()> function)
        : timer_(context, when) {
        timer_.async_wait(
            [alive = alive_, function = std::move(function)](const std::error_code &error) {
                if (!error && *alive) function();
            });
    }
    ~OsTimer() override { *alive_ = false; }

private:
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
    asio::steady_timer timer_;
};

// ---- connecting ----

std::string reason_of(int code) {
    return std::generic_category().message(code);
}

// A socket can connect to itself when its own port is the one it connects to.
bool connected_to_itself(int socket) {
    SocketAddress here, there;
    here.length = there.length = sizeof(sockaddr_storage);
    return getsockname(socket, reinterpret_cast<sockaddr *>(&here.storage), &here.length) == 0 &&
           getpeername(socket, reinterpret_cast<sockaddr *>(&there.storage), &there.length) == 0 &&
           here.length == there.length &&
           std::memcmp(&here.storage, &there.storage, here.length) == 0;
}

// Tries the socket addresses of one name in order. If a flood has filled the queue of a listener,
// the kernel drops the first packet of a connection and sends it again a second later, then two
// seconds later. Further sockets that connect to the same address meanwhile get through sooner; the
// first one that is connected counts.
struct Connecting : std::enable_shared_from_this<Connecting> {
    // A socket that connects.
    struct Candidate {
        Candidate(asio::io_context &context, Descriptor descriptor)
            : socket(std::move(descriptor)), handle(context, socket.get()) {}
        ~Candidate() { handle.release(); }

        Descriptor socket;
        asio::posix::stream_descriptor handle;  // borrows `socket`, to wait
    };
    using Place = std::list<Candidate>::iterator;

    Connecting(asio::io_context &context, std::vector<SocketAddress> where, Network::Connected done)
        : context(context), where(std::move(where)), done(std::move(done)), timer(context) {}

    void next() {
        if (cancelled) return;
        timer.cancel();
        if (at == where.size()) return finish(nullptr);
        ++at;
        sockets = 0;
        connect();
    }

    // Connects one more socket to the address.
    void connect() {
        const SocketAddress &address = where[at - 1];
        Descriptor socket(
            ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!socket.open()) return fail(errno);
        if (address.family() != AF_UNIX) {
            // The local port of this connection must not prevent the hub from listening on it.
            const int yes = 1;
            setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        }
        if (::connect(socket.get(), address.get(), address.length) == 0)
            return established(std::move(socket));
        // The queue of a local socket is full; the listener will empty it.
        if (address.family() == AF_UNIX && errno == EAGAIN) return connect_after(local_pause);
        if (errno != EINPROGRESS && errno != EINTR) return fail(errno);
        const Place place = candidates.emplace(candidates.end(), context, std::move(socket));
        place->handle.async_wait(asio::posix::descriptor_base::wait_write,
                                 [self = shared_from_this(), place](const std::error_code &error) {
                                     if (!error && !self->cancelled) self->look(place);
                                 });
        if (++sockets < max_sockets) connect_after(unanswered_pause);
    }

    void connect_after(Clock::duration pause) {
        timer.expires_after(pause);
        timer.async_wait([self = shared_from_this()](const std::error_code &error) {
            if (!error && !self->cancelled) self->connect();
        });
    }

    void look(Place place) {
        int code = 0;
        socklen_t size = sizeof code;
        getsockopt(place->socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
        place->handle.release();
        Descriptor socket = std::move(place->socket);
        candidates.erase(place);
        if (code != 0) return fail(code);
        established(std::move(socket));
    }

    void established(Descriptor socket) {
        if (where[at - 1].family() != AF_UNIX && connected_to_itself(socket.get())) {
            socket = Descriptor();
            return fail(ECONNREFUSED);
        }
        finish(make_os_stream(context, std::move(socket)));
    }

    // A socket cannot connect. Others may be under way.
    void fail(int code) {
        why = reason_of(code);
        if (candidates.empty()) next();
    }

    void finish(std::unique_ptr<Stream> stream) {
        if (cancelled) return;
        const Network::Connected call = std::move(done);
        cancel();
        call(std::move(stream), why);
    }

    void cancel() {
        if (std::exchange(cancelled, true)) return;
        candidates.clear();
        timer.cancel();
        done = nullptr;
    }

    asio::io_context &context;
    std::vector<SocketAddress> where;
    Network::Connected done;
    std::size_t at = 0;
    std::string why = "it has no address";
    std::list<Candidate> candidates;
    std::size_t sockets = 0;  // that were connected to the current address
    asio::steady_timer timer;
    bool cancelled = false;
};

class OsAttempt final : public Attempt {
public:
    explicit OsAttempt(std::shared_ptr<Connecting> connecting)
        : connecting_(std::move(connecting)) {}
    ~OsAttempt() override { connecting_->cancel(); }

private:
    std::shared_ptr<Connecting> connecting_;
};

// A leading zero byte makes the name abstract: it appears in no file system.
SocketAddress local_name(const std::string &name) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    if (name.size() > sizeof local.sun_path - 1)
        throw Error(VESCOMM_ERROR_INTERNAL, "the name of a local socket is too long");
    std::memcpy(local.sun_path + 1, name.data(), name.size());
    SocketAddress address;
    std::memcpy(&address.storage, &local, sizeof local);
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

}  // namespace

struct OsNetwork::Machinery {
    // One thread runs the loop, so asio may omit its own synchronisation.
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::thread thread;
};

OsNetwork::OsNetwork(std::function<void(const std::exception &)> caught)
    : machinery_(std::make_shared<Machinery>()) {
    const SignalsBlocked blocked;
    try {
        machinery_->thread =
            std::thread([machinery = machinery_.get(), caught = std::move(caught)] {
                pthread_setname_np(pthread_self(), "vescomm-control");  // at most 15 characters
                while (!machinery->context.stopped()) {
                    try {
                        machinery->context.run();
                    } catch (const std::exception &error) {
                        caught(error);
                    }
                }
            });
    } catch (const std::system_error &error) {
        throw Error(VESCOMM_ERROR_SYSTEM,
                    std::string("cannot start the thread of the control plane: ") + error.what());
    }
}

OsNetwork::~OsNetwork() {
    machinery_->context.stop();
    machinery_->thread.join();
}

void OsNetwork::post(std::function<void()> function) {
    asio::post(machinery_->context, std::move(function));
}

void OsNetwork::run(const std::function<void()> &function) {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr thrown;
    post([&] {
        try {
            function();
        } catch (...) {
            thrown = std::current_exception();
        }
        // Notified under the lock, because the waiter destroys both when it sees `done`.
        const std::lock_guard lock(mutex);
        done = true;
        changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    if (thrown) std::rethrow_exception(thrown);
}

bool OsNetwork::is_own_thread() const noexcept {
    return machinery_->thread.get_id() == std::this_thread::get_id();
}

std::unique_ptr<Timer> OsNetwork::at(Clock::time_point when, std::function<void()> function) {
    return std::make_unique<OsTimer>(machinery_->context, when, std::move(function));
}

std::unique_ptr<Attempt> OsNetwork::connect(const TcpAddress &address, Connected done) {
    const auto connecting = std::make_shared<Connecting>(
        machinery_->context, std::vector<SocketAddress>{}, std::move(done));
    // May be called in another thread, after the network is gone.
    const auto resolved = [machinery = machinery_, connecting](std::vector<SocketAddress> found,
                                                               const std::string &why) {
        asio::post(machinery->context, [connecting, found, why] {
            connecting->where = found;
            if (found.empty()) connecting->why = why;
            connecting->next();
        });
    };
    resolve_in_background(address, resolved);
    return std::make_unique<OsAttempt>(connecting);
}

std::unique_ptr<Listener> OsNetwork::listen(const TcpAddress &address, Accepted accepted) {
    std::vector<Descriptor> listeners = listen_on(address);
    const std::uint16_t port = port_of(listeners.front().get());
    return make_os_listener(machinery_->context, std::move(listeners), accepted,
                            TcpAddress{address.host, port}, false);
}

std::unique_ptr<Listener> OsNetwork::listen_with(int descriptor, Accepted accepted) {
    std::vector<Descriptor> listeners;
    listeners.push_back(copy_of_listener(descriptor));
    const TcpAddress address = local_address_of(listeners.front().get());
    return make_os_listener(machinery_->context, std::move(listeners), accepted, address, false);
}

std::unique_ptr<Attempt> OsNetwork::connect_local(const std::string &name, Connected done) {
    const auto connecting = std::make_shared<Connecting>(
        machinery_->context, std::vector<SocketAddress>{local_name(name)}, std::move(done));
    post([connecting] { connecting->next(); });
    return std::make_unique<OsAttempt>(connecting);
}

std::unique_ptr<Listener> OsNetwork::listen_local(const std::string &name, Accepted accepted) {
    const SocketAddress address = local_name(name);
    std::vector<Descriptor> listeners;
    listeners.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listeners[0].open() || bind(listeners[0].get(), address.get(), address.length) != 0 ||
        ::listen(listeners[0].get(), SOMAXCONN) != 0)
        throw system_error("cannot listen on a socket within this machine");
    return make_os_listener(machinery_->context, std::move(listeners), accepted,
                            TcpAddress{name, 0}, true);
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>

// Included first: defines the asio macros.
#include "bootstrap/os_stream.h"

#include "bootstrap/os_listener.h"

#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "base/system.h"

namespace vescomm::internal {

namespace {

// Number of connections accepted in a row before other events are handled.
constexpr int accepted_at_once = 64;
// Interval between attempts to accept while descriptors are used up.
constexpr auto local_pause = std::chrono::milliseconds(5);

struct ListeningSocket : std::enable_shared_from_this<ListeningSocket> {
    // `local`: retry() is not called. The socket then keeps a spare descriptor, so that connections
    // are accepted one after another while the process has reached its limit of open files.
    ListeningSocket(asio::io_context &context, Descriptor descriptor, Network::Accepted accepted,
                    bool local)
        : context(context),
          owner(std::move(descriptor)),
          handle(context, owner.get()),
          accepted(std::move(accepted)),
          local(local),
          timer(context) {
        if (local && !keep_spare())
            throw system_error("cannot listen on a socket within this machine");
    }
    ~ListeningSocket() { close(); }

    void close() {
        if (!owner.open()) return;
        handle.release();
        timer.cancel();
        spare = Descriptor();
        owner = Descriptor();
    }

    bool keep_spare() {
        if (!spare.open()) spare = Descriptor(fcntl(owner.get(), F_DUPFD_CLOEXEC, 0));
        return spare.open();
    }

    void wait() {
        handle.async_wait(asio::posix::descriptor_base::wait_read,
                          [self = shared_from_this()](const std::error_code &error) {
                              if (!error) self->accept_some();
                          });
    }

    void accept_some() {
        if (local) keep_spare();
        for (int i = 0; i < accepted_at_once && owner.open(); ++i) {
            Descriptor socket(accept4(owner.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (socket.open()) {
                accepted(make_os_stream(context, std::move(socket)));
                continue;
            }
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                if (spare.open()) {
                    spare = Descriptor();
                    continue;
                }
                // The connection is still pending, so waiting for it again would spin.
                if (local) return accept_soon();
                starved = true;
                return;
            }
            if (errno == EAGAIN) break;
            // Any other error concerns the connection to be accepted, which is gone.
        }
        if (owner.open()) wait();
    }

    void accept_soon() {
        timer.expires_after(local_pause);
        timer.async_wait([self = shared_from_this()](const std::error_code &error) {
            if (!error && self->owner.open()) self->accept_some();
        });
    }

    asio::io_context &context;
    Descriptor owner;
    asio::posix::stream_descriptor handle;
    Network::Accepted accepted;
    bool local;
    Descriptor spare;
    asio::steady_timer timer;
    bool starved = false;
};

class OsListener final : public Listener {
public:
    OsListener(asio::io_context &context, std::vector<Descriptor> descriptors,
               const Network::Accepted &accepted, TcpAddress address, bool local)
        : context_(context), accepted_(accepted), address_(std::move(address)) {
        for (Descriptor &descriptor : descriptors) {
            sockets_.push_back(
                std::make_shared<ListeningSocket>(context, std::move(descriptor), accepted, local));
            sockets_.back()->wait();
        }
    }
    ~OsListener() override {
        for (const auto &socket : sockets_) socket->close();
    }

    TcpAddress address() const override { return address_; }
    bool narrow(const std::string &host) override {
        if (sockets_.size() != 1) return false;
        Descriptor beside = listen_beside(sockets_[0]->owner.get(), host);
        if (!beside.open()) return false;
        sockets_[0]->close();
        sockets_[0] =
            std::make_shared<ListeningSocket>(context_, std::move(beside), accepted_, false);
        sockets_[0]->wait();
        address_.host = host;
        return true;
    }
    bool starved() const override {
        for (const auto &socket : sockets_)
            if (socket->starved) return true;
        return false;
    }
    void retry() override {
        for (const auto &socket : sockets_) {
            if (!socket->starved) continue;
            socket->starved = false;
            socket->wait();
        }
    }

private:
    asio::io_context &context_;
    const Network::Accepted accepted_;
    TcpAddress address_;
    std::vector<std::shared_ptr<ListeningSocket>> sockets_;
};

}  // namespace

std::unique_ptr<Listener> make_os_listener(asio::io_context &context,
                                           std::vector<Descriptor> descriptors,
                                           const Network::Accepted &accepted, TcpAddress address,
                                           bool local) {
    return std::make_unique<OsListener>(context, std::move(descriptors), accepted,
                                        std::move(address), local);
}

}  // namespace vescomm::internal

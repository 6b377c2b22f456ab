// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/os_stream.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/system.h"

namespace vescomm::internal {

namespace {

constexpr std::size_t read_bytes = std::size_t{64} << 10;

// A socket, kept alive by pending waits. Closing it ends the waits.
struct Socket : std::enable_shared_from_this<Socket> {
    Socket(asio::io_context &context, Descriptor descriptor)
        : context(context), owner(std::move(descriptor)) {}
    ~Socket() { close(); }

    void close() {
        if (!owner.open()) return;
        if (handle) handle->release();
        owner = Descriptor();
    }

    // Registers the socket at its first wait: most connections of a flood end before.
    asio::posix::stream_descriptor &waiter() {
        if (!handle) handle.emplace(context, owner.get());
        return *handle;
    }

    void wait_to_read() {
        waiter().async_wait(asio::posix::descriptor_base::wait_read,
                            [self = shared_from_this()](const std::error_code &error) {
                                if (!error) self->read_some();
                            });
    }

    void read_some() {
        // One buffer serves all sockets of the thread: each call empties it.
        thread_local std::array<char, read_bytes> buffer;
        if (!owner.open()) return;
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        iovec data{buffer.data(), buffer.size()};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        // Only one descriptor is taken, although `control` could hold two. The system closes the
        // others.
        message.msg_controllen = CMSG_LEN(sizeof(int));
        const ssize_t got = recvmsg(owner.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got == 0) return end("closed");
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return end("broke: " + std::generic_category().message(errno));
        if (got > 0) {
            received = descriptor_of(message);
            const auto called = events;
            try {
                called->bytes({buffer.data(), static_cast<std::size_t>(got)});
            } catch (const std::exception &) {
                // Memory ran out. The network reports it; the peer is not silent.
                received = Descriptor();
                if (owner.open()) wait_to_read();
                throw;
            }
            received = Descriptor();
        }
        if (owner.open()) wait_to_read();
    }

    static Descriptor descriptor_of(msghdr &message) {
        const cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
            header->cmsg_type != SCM_RIGHTS)
            return {};
        int number = -1;
        std::memcpy(&number, CMSG_DATA(header), sizeof number);
        return Descriptor(number);
    }

    void write_some() {
        if (!owner.open() || waiting) return;
        while (sent < outgoing.size()) {
            const ssize_t count = send(owner.get(), outgoing.data() + sent, outgoing.size() - sent,
                                       MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count >= 0) {
                sent += static_cast<std::size_t>(count);
                continue;
            }
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return wait_to_write();
            // Reading reports the same error, after the bytes that the peer sent before.
            break;
        }
        outgoing.clear();
        sent = 0;
    }

    void wait_to_write() {
        waiting = true;
        waiter().async_wait(asio::posix::descriptor_base::wait_write,
                            [self = shared_from_this()](const std::error_code &error) {
                                self->waiting = false;
                                if (error || !self->owner.open()) return;
                                self->write_some();
                                const auto called = self->events;
                                if (self->outgoing.empty() && called && called->drained)
                                    called->drained();
                            });
    }

    void end(const std::string &how) {
        close();
        const auto called = events;
        called->ended(how);
    }

    asio::io_context &context;
    Descriptor owner;
    std::optional<asio::posix::stream_descriptor> handle;  // borrows `owner`, to wait
    std::shared_ptr<const Stream::Events> events;  // copied during a call, which may replace them
    std::string outgoing;
    std::size_t sent = 0;
    bool waiting = false;  // for the socket to take more bytes
    Descriptor received;
};

class OsStream final : public Stream {
public:
    OsStream(asio::io_context &context, Descriptor descriptor)
        : socket_(std::make_shared<Socket>(context, std::move(descriptor))) {}
    ~OsStream() override { socket_->close(); }

    void start(Events events) override {
        const bool reading = socket_->events != nullptr;
        socket_->events = std::make_shared<const Events>(std::move(events));
        if (!reading) socket_->wait_to_read();
    }
    void start_at_once(Events events) override {
        const std::shared_ptr<Socket> kept = socket_;
        kept->events = std::make_shared<const Events>(std::move(events));
        kept->read_some();
    }
    void write(std::string_view bytes) override {
        if (!socket_->owner.open()) return;
        socket_->outgoing += bytes;
        socket_->write_some();
    }
    bool drained() const override { return socket_->outgoing.empty(); }

    std::string peer() const override { return peer_text(socket_->owner.get()); }
    TcpAddress local() const override { return local_address_of(socket_->owner.get()); }
    void limit_silence(double seconds) override { tune_connection(socket_->owner.get(), seconds); }

    void write_descriptor(int descriptor) override {
        if (!socket_->owner.open()) return;
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        char byte = descriptor_byte;
        iovec data{&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
        // Sending one byte into an empty socket never blocks.
        [[maybe_unused]] const ssize_t sent =
            sendmsg(socket_->owner.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    Descriptor take_descriptor() override { return std::move(socket_->received); }
    bool same_user() const override {
        ucred peer{};
        socklen_t length = sizeof peer;
        return getsockopt(socket_->owner.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
               peer.uid == geteuid();
    }

private:
    std::shared_ptr<Socket> socket_;
};

}  // namespace

std::unique_ptr<Stream> make_os_stream(asio::io_context &context, Descriptor socket) {
    return std::make_unique<OsStream>(context, std::move(socket));
}

}  // namespace vescomm::internal

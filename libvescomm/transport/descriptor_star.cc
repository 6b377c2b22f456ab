// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/descriptor_star.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>

#include "base/system.h"

namespace vescomm {

namespace {

constexpr std::size_t name_bytes = 16;
constexpr std::size_t token_bytes = 32;
// Linux passes at most 253 descriptors in one message (SCM_MAX_FD).
constexpr std::size_t most_in_a_message = 250;

std::string random_bytes(std::size_t count) {
    std::string bytes(count, '\0');
    if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count))
        throw system_error("cannot get random bytes from the system");
    return bytes;
}

sockaddr_un address_of(const std::string &name, socklen_t &length) {
    static constexpr char digits[] = "0123456789abcdef";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string text = "vescomm-";
    for (const unsigned char byte : name) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    // A leading zero byte makes the name abstract.
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return address;
}

// Waits end this often to see whether the communicator has broken meanwhile: a rank that dies
// before it connects closes no socket here.
constexpr double slice_milliseconds = 20;

int milliseconds_to_poll(Deadline deadline) {
    return static_cast<int>(std::min(deadline.seconds_left() * 1000 + 1, slice_milliseconds));
}

void wait_until_ready(int socket, short events, int peer, const Failure &failure,
                      Deadline deadline) {
    for (;;) {
        failure.check();
        pollfd entry{socket, events, 0};
        const int ready = poll(&entry, 1, milliseconds_to_poll(deadline));
        if (ready > 0) return;
        if (ready < 0 && errno != EINTR)
            throw system_error("cannot wait for a socket of this node");
        if (deadline.expired())
            throw Error(VESCOMM_ERROR_TIMEOUT, "rank " + std::to_string(peer) +
                                                   " of this node did not exchange descriptors in "
                                                   "time; see whether it is still running");
    }
}

Error lost(int peer) {
    return Error(VESCOMM_ERROR_PEER_FAILED, "rank " + std::to_string(peer) +
                                                " of this node closed its connection while "
                                                "memory was being shared");
}

void send_all(int socket, const std::string &bytes, int peer, const Failure &failure,
              Deadline deadline) {
    for (std::size_t done = 0; done < bytes.size();) {
        wait_until_ready(socket, POLLOUT, peer, failure, deadline);
        const ssize_t sent =
            send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) done += static_cast<std::size_t>(sent);
        else if (errno != EAGAIN && errno != EINTR) throw lost(peer);
    }
}

// False when the other side closes first or the deadline passes.
bool receive_exactly(int socket, void *bytes, std::size_t count, Deadline deadline) {
    auto *at = static_cast<char *>(bytes);
    while (count > 0) {
        pollfd entry{socket, POLLIN, 0};
        if (poll(&entry, 1, milliseconds_to_poll(deadline)) == 0 && deadline.expired())
            return false;
        const ssize_t got = recv(socket, at, count, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (got < 0) continue;
        at += got;
        count -= static_cast<std::size_t>(got);
    }
    return true;
}

// The byte that travels with descriptors, and the one that travels alone when there are none.
constexpr char with_descriptors = 'd', without_descriptors = 'n';

void send_descriptors(int socket, const std::vector<int> &descriptors, int peer,
                      const Failure &failure, Deadline deadline) {
    for (std::size_t begin = 0; begin < descriptors.size(); begin += most_in_a_message) {
        const std::size_t count = std::min(most_in_a_message, descriptors.size() - begin);
        alignas(cmsghdr) char control[CMSG_SPACE(most_in_a_message * sizeof(int))] = {};
        char byte = with_descriptors;
        iovec data{&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(header), descriptors.data() + begin, count * sizeof(int));
        for (;;) {
            wait_until_ready(socket, POLLOUT, peer, failure, deadline);
            if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) break;
            if (errno != EAGAIN && errno != EINTR) throw lost(peer);
        }
    }
}

std::vector<Descriptor> receive_descriptors(int socket, std::size_t count, int peer,
                                            const Failure &failure, Deadline deadline) {
    std::vector<Descriptor> descriptors;
    while (descriptors.size() < count) {
        wait_until_ready(socket, POLLIN, peer, failure, deadline);
        alignas(cmsghdr) char control[CMSG_SPACE(most_in_a_message * sizeof(int))];
        char byte = 0;
        iovec data{&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) throw lost(peer);
        // Taken first, whatever else the message is: the descriptors are open in this process.
        const std::size_t before = descriptors.size();
        for (cmsghdr *header = CMSG_FIRSTHDR(&message); header != nullptr;
             header = CMSG_NXTHDR(&message, header)) {
            if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
            const std::size_t number = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (std::size_t i = 0; i < number; ++i) {
                int descriptor = -1;
                std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
                descriptors.emplace_back(descriptor);
            }
        }
        if (byte == without_descriptors)
            throw Error(VESCOMM_ERROR_SYSTEM, "rank " + std::to_string(peer) +
                                                  " could not make what this node was to share");
        if (descriptors.size() > count)
            throw Error(VESCOMM_ERROR_SYSTEM,
                        "rank " + std::to_string(peer) + " of this node sent " +
                            std::to_string(descriptors.size()) + " descriptors instead of " +
                            std::to_string(count) +
                            "; all ranks must run the same version of vescomm");
        if (descriptors.size() == before || (message.msg_flags & MSG_CTRUNC) != 0)
            throw Error(VESCOMM_ERROR_SYSTEM,
                        "a descriptor from rank " + std::to_string(peer) +
                            " was lost; this process may have too many files open (ulimit -n)");
    }
    return descriptors;
}

}  // namespace

DescriptorStar::DescriptorStar(const Nodes &nodes, Control &control, const Failure &failure,
                               Deadline deadline)
    : failure_(failure) {
    const auto members = nodes.members(nodes.node_of(control.rank()));
    members_.assign(members.begin(), members.end());
    local_rank_ = nodes.local_rank(control.rank());

    Descriptor listener;
    std::string name(name_bytes, '\0');
    std::string token(token_bytes, '\0');
    if (first() && members_.size() > 1) {
        name = random_bytes(name_bytes);
        token = random_bytes(token_bytes);
        listener = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        socklen_t length = 0;
        const sockaddr_un address = address_of(name, length);
        if (!listener.open() ||
            bind(listener.get(), reinterpret_cast<const sockaddr *>(&address), length) != 0 ||
            listen(listener.get(), static_cast<int>(members_.size())) != 0)
            throw system_error("cannot listen on a Unix socket");
    }
    const auto names = control.all_gather("node sockets", name + token, deadline);
    const std::string &from_first = names[members_[0]];
    if (members_.size() == 1) return;
    if (from_first.size() != name_bytes + token_bytes)
        throw Error(VESCOMM_ERROR_INTERNAL, "the name of this node's socket has the wrong size");
    if (first()) welcome(std::move(listener), token, deadline);
    else join(from_first.substr(0, name_bytes), from_first.substr(name_bytes), deadline);
}

void DescriptorStar::welcome(Descriptor listener, const std::string &token, Deadline deadline) {
    sockets_.resize(members_.size());
    for (std::size_t missing = members_.size() - 1; missing > 0;) {
        wait_until_ready(listener.get(), POLLIN, members_[1], failure_, deadline);
        Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket.open()) continue;
        ucred peer{};
        socklen_t length = sizeof peer;
        if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
            peer.uid != geteuid())
            continue;
        // Whoever does not say the token at once is a stray; the real ranks do.
        char hello[token_bytes + sizeof(std::int32_t)];
        if (!receive_exactly(socket.get(), hello, sizeof hello, Deadline::after(1.0))) continue;
        unsigned difference = 0;
        for (std::size_t i = 0; i < token_bytes; ++i)
            difference |= static_cast<unsigned char>(hello[i] ^ token[i]);
        std::int32_t local_rank = 0;
        std::memcpy(&local_rank, hello + token_bytes, sizeof local_rank);
        if (difference != 0 || local_rank < 1 ||
            static_cast<std::size_t>(local_rank) >= members_.size() || sockets_[local_rank].open())
            continue;
        sockets_[local_rank] = std::move(socket);
        --missing;
    }
}

void DescriptorStar::join(const std::string &name, const std::string &token, Deadline deadline) {
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t length = 0;
    const sockaddr_un address = address_of(name, length);
    if (!socket.open() ||
        connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), length) != 0)
        throw system_error("cannot reach rank " + std::to_string(members_[0]) +
                           ", which is said to be on this node; if it is not, give the ranks "
                           "different names in VESCOMM_NODE");
    std::string hello = token;
    const std::int32_t local_rank = local_rank_;
    hello.append(reinterpret_cast<const char *>(&local_rank), sizeof local_rank);
    send_all(socket.get(), hello, members_[0], failure_, deadline);
    sockets_.push_back(std::move(socket));
}

Descriptor DescriptorStar::broadcast(int descriptor, Deadline deadline) {
    if (!first())
        return std::move(
            receive_descriptors(sockets_[0].get(), 1, members_[0], failure_, deadline)[0]);
    for (std::size_t i = 1; i < members_.size(); ++i) {
        if (descriptor >= 0)
            send_descriptors(sockets_[i].get(), {descriptor}, members_[i], failure_, deadline);
        else
            send_all(sockets_[i].get(), std::string(1, without_descriptors), members_[i], failure_,
                     deadline);
    }
    if (descriptor < 0) return {};
    Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy.open()) throw system_error("cannot duplicate a descriptor");
    return copy;
}

std::vector<Descriptor> DescriptorStar::all_gather(int descriptor, Deadline deadline) {
    if (!first()) {
        send_descriptors(sockets_[0].get(), {descriptor}, members_[0], failure_, deadline);
        return receive_descriptors(sockets_[0].get(), members_.size(), members_[0], failure_,
                                   deadline);
    }
    std::vector<Descriptor> all(members_.size());
    all[0] = Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!all[0].open()) throw system_error("cannot duplicate a descriptor");
    std::vector<int> numbers{all[0].get()};
    for (std::size_t i = 1; i < members_.size(); ++i) {
        all[i] = std::move(
            receive_descriptors(sockets_[i].get(), 1, members_[i], failure_, deadline)[0]);
        numbers.push_back(all[i].get());
    }
    for (std::size_t i = 1; i < members_.size(); ++i)
        send_descriptors(sockets_[i].get(), numbers, members_[i], failure_, deadline);
    return all;
}

}  // namespace vescomm

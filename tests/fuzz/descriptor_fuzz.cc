// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The exchange of descriptors between the ranks of a node (transport/descriptor_star.h), over real
// Unix sockets. The script plays everyone but one rank.
//
//     byte 0    even: the first rank of the node is real, and others connect to its socket, some of
//               them without the token; odd: another rank is real, and the first rank sends it
//               whatever the script says
//
// Invariants: only connections with the token become ranks; every wait ends; every descriptor that
// was opened is closed.
#include "transport/descriptor_star.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm;
using fuzz::require;

constexpr std::size_t name_bytes = 16, token_bytes = 32;
constexpr int node_ranks = 3;
constexpr double patience_seconds = 60;

int open_descriptors() {
    DIR *folder = opendir("/proc/self/fd");
    if (folder == nullptr) return 0;
    int count = 0;
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

sockaddr_un address_of(std::string_view name, socklen_t &length) {
    std::string text = "vescomm-";
    for (const unsigned char byte : name) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return address;
}

void write_all(int socket, std::string_view bytes) {
    (void)!send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// A control plane with one real rank: `answer` gives what all ranks contribute.
class ScriptedControl : public Control {
public:
    using Answer = std::function<std::string(std::string_view mine)>;
    ScriptedControl(int rank, Answer answer) : rank_(rank), answer_(std::move(answer)) {}

    int rank() const override { return rank_; }
    int ranks() const override { return all; }
    std::vector<std::string> all_gather(std::string_view, std::string_view mine,
                                        Deadline) override {
        return std::vector<std::string>(all, answer_(mine));
    }
    void listen(Listener) override {}
    void fail(vescomm_status_t, const std::string &) noexcept override {}
    void leave(Deadline) noexcept override {}

private:
    static constexpr int all = node_ranks;
    int rank_;
    Answer answer_;
};

class Memfd : public Descriptor {
public:
    Memfd() : Descriptor(memfd_create("fuzz", MFD_CLOEXEC)) {}
};

void first_is_real(fuzz::Input input) {
    std::vector<Descriptor> strangers, members(node_ranks);
    ScriptedControl control(0, [&](std::string_view mine) {
        require(mine.size() == name_bytes + token_bytes, "a name and a token are told");
        const std::string token(mine.substr(name_bytes));
        const auto connect_with = [&](std::string_view hello) {
            socklen_t length = 0;
            const sockaddr_un address = address_of(mine.substr(0, name_bytes), length);
            Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            require(
                connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), length) == 0,
                "the first rank listens");
            write_all(socket.get(), hello);
            return socket;
        };
        const auto hello_of = [&](std::int32_t local_rank) {
            return token + std::string(reinterpret_cast<const char *>(&local_rank), 4);
        };
        for (std::size_t i = 0, count = input.below(3); i < count; ++i) {
            std::string hello = hello_of(static_cast<std::int32_t>(input.number<std::uint32_t>()));
            // A wrong token, or a rank that is none.
            const std::size_t at = input.below(token_bytes);
            hello[at] = static_cast<char>(hello[at] ^ (1 + input.below(255)));
            if (input.below(4) == 0)
                hello = hello_of(node_ranks + static_cast<int>(input.below(9)));
            hello.resize(std::min<std::size_t>(hello.size(), input.byte()));
            strangers.push_back(connect_with(hello));
            shutdown(strangers.back().get(), SHUT_WR);
        }
        for (int local_rank = 1; local_rank < node_ranks; ++local_rank)
            members[local_rank] = connect_with(hello_of(local_rank));
        return std::string(mine);
    });
    Failure failure;
    const Nodes nodes = Nodes::single(node_ranks);
    DescriptorStar star(nodes, control, failure, Deadline::after(patience_seconds));
    const Memfd file;
    require(star.broadcast(file.get(), Deadline::after(patience_seconds)).open(),
            "the first rank gets a copy");
    for (const Descriptor &stranger : strangers) {
        char byte;
        require(recv(stranger.get(), &byte, 1, MSG_DONTWAIT) <= 0, "a stranger is sent nothing");
    }
    for (int local_rank = 1; local_rank < node_ranks; ++local_rank) {
        char byte;
        require(recv(members[local_rank].get(), &byte, 1, MSG_DONTWAIT) == 1,
                "a rank is sent a descriptor");
    }
}

// What the script makes the first rank send: bytes, some of them with descriptors.
void send_script(int socket, fuzz::Input &input) {
    const Memfd file;
    for (std::size_t i = 0, count = input.below(6); i < count; ++i) {
        char byte = static_cast<char>(input.byte());
        const std::size_t descriptors = input.below(4);
        alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {};
        iovec data{&byte, 1};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        if (descriptors > 0) {
            message.msg_control = control;
            message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
            cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
            for (std::size_t k = 0; k < descriptors; ++k) {
                const int number = file.get();
                std::memcpy(CMSG_DATA(header) + k * sizeof(int), &number, sizeof number);
            }
        }
        (void)!sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(socket, SHUT_WR);
}

void other_is_real(fuzz::Input input) {
    const std::string token(token_bytes, 't');
    std::string name = "fuzz " + std::to_string(getpid());
    name.resize(name_bytes);
    Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t length = 0;
    const sockaddr_un address = address_of(name, length);
    require(bind(listener.get(), reinterpret_cast<const sockaddr *>(&address), length) == 0 &&
                listen(listener.get(), node_ranks) == 0,
            "the script listens");
    std::string told = name + token;
    // The size is the one that is agreed on, or another.
    if (input.below(8) == 7) told.resize(input.byte() % 100);
    ScriptedControl control(1, [&](std::string_view) { return told; });
    Failure failure;
    const Nodes nodes = Nodes::single(node_ranks);
    DescriptorStar star(nodes, control, failure, Deadline::after(patience_seconds));
    const Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char hello[token_bytes + 4];
    require(recv(accepted.get(), hello, sizeof hello, MSG_DONTWAIT) == sizeof hello &&
                std::string_view(hello, token_bytes) == token,
            "a rank says the token");
    const bool gather = input.below(2) == 1;
    send_script(accepted.get(), input);
    if (!gather) {
        require(star.broadcast(-1, Deadline::after(patience_seconds)).open(),
                "a descriptor that arrives is open");
        return;
    }
    const Memfd file;
    const auto all = star.all_gather(file.get(), Deadline::after(patience_seconds));
    require(all.size() == node_ranks, "there is a descriptor of every rank");
    for (const Descriptor &each : all) require(each.open(), "a descriptor that arrives is open");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const int before = open_descriptors();
    fuzz::Input input(fuzz::view(data, size));
    try {
        if (input.below(2) == 0) first_is_real(input);
        else other_is_real(input);
    } catch (const Error &error) {
        fuzz::require_sentence(error.what());
    }
    require(open_descriptors() == before, "every descriptor is closed");
    return 0;
}

std::vector<fuzz::Seed> vescomm::fuzz::seeds() {
    return {
        {"ranks-only", std::string("\0\0", 2)},
        {"wrong-token", std::string("\0\1\1\0\0\0\5\0\1\xff", 10)},
        {"no-such-rank", std::string("\0\1\1\0\0\0\5\0\0\0\xff", 11)},
        {"cut-short", std::string("\0\2\1\0\0\0\5\0\1\7\1\0\0\0\5\0\1\0", 18)},
        {"broadcast", std::string("\1\0\0\1d\1", 6)},
        {"broadcast-none", std::string("\1\0\0\1n\0", 6)},
        {"broadcast-none-with-one", std::string("\1\0\0\1n\1", 6)},
        {"broadcast-two", std::string("\1\0\0\1d\2", 6)},
        {"broadcast-nothing", std::string("\1\0\0\1d\0", 6)},
        {"gather", std::string("\1\0\1\1d\3", 6)},
        {"gather-too-many", std::string("\1\0\1\2d\2d\3", 8)},
        {"gather-too-few", std::string("\1\0\1\1d\2", 6)},
        {"wrong-size", std::string("\1\7\5", 3)},
    };
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_control.h"

#include <fmt/format.h>

#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/failure.h"
#include "bootstrap/tcp_join.h"
#include "bootstrap/tcp_leaf.h"
#include "bootstrap/tcp_root.h"

namespace vescomm {

namespace {

// One rank: nobody to talk to.
class AloneControl final : public Control {
public:
    int rank() const override { return 0; }
    int ranks() const override { return 1; }

    void start_all_gather(std::string_view, std::string_view bytes) override { mine_ = bytes; }
    std::optional<std::vector<std::string>> test_all_gather() override {
        failure_.check();
        return std::vector<std::string>{std::move(mine_)};
    }
    void expire_all_gather(double) override {
        failure_.check();
        throw Error(VESCOMM_ERROR_INTERNAL, "an all-gather of one rank cannot expire");
    }
    void on_event(std::function<void()>) override {}

    void listen(Listener listener) override {
        failure_.on_first([this, listener = std::move(listener)] {
            if (listener) listener(failure_.status(), failure_.why());
        });
    }

    void fail(vescomm_status_t status, const std::string &why) noexcept override {
        failure_.set(status, why);
    }

    void start_leave() override {}
    bool test_leave() override { return true; }
    bool has_left(int) const override { return false; }

private:
    void sleep_until_event(Deadline) override {}

    std::string mine_;
    Failure failure_;
};

void check(const TcpControlOptions &options) {
    const auto wrong = [](const std::string &text) {
        return Error(VESCOMM_ERROR_INVALID_ARGUMENT, text);
    };
    if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
        throw wrong(fmt::format("rank {} of {} does not exist; ranks count from 0", options.rank,
                                options.ranks));
    if (options.ranks == 1) return;
    if (options.secret.empty())
        throw wrong(
            fmt::format("rank {} of {} has no secret; give all ranks the same one, such as "
                        "32 random bytes",
                        options.rank, options.ranks));
    if (options.addresses.empty() && (options.rank != 0 || options.listen_descriptor < 0))
        throw wrong(fmt::format("rank {} of {} has no address of rank 0; give one as \"host:port\"",
                                options.rank, options.ranks));
    for (const TcpAddress &address : options.addresses)
        if (address.port == 0 && options.listen_descriptor < 0)
            throw wrong(fmt::format("{} has no port", to_text(address)));
    if (!(options.heartbeat_seconds > 0 && options.silence_seconds > options.heartbeat_seconds))
        throw wrong(
            fmt::format("a heartbeat every {} s cannot show a silence of {} s; the silence "
                        "must be the longer of the two",
                        options.heartbeat_seconds, options.silence_seconds));
}

std::vector<Descriptor> listeners_for(const TcpControlOptions &options) {
    if (options.listen_descriptor < 0) return listen_on(options.addresses.front());
    std::vector<Descriptor> listeners;
    listeners.push_back(copy_of_listener(options.listen_descriptor));
    return listeners;
}

std::unique_ptr<TcpMember> make_member(const TcpControlOptions &options, Deadline deadline) {
    if (options.rank == 0) return std::make_unique<TcpRoot>(options, listeners_for(options));
    const Claim claim{static_cast<std::uint32_t>(options.rank),
                      static_cast<std::uint32_t>(options.ranks)};
    Joined joined = join_rank_0(options.addresses, options.secret, claim, deadline);
    return std::make_unique<TcpLeaf>(options, std::move(joined));
}

}  // namespace

std::unique_ptr<Control> connect_tcp_control(const TcpControlOptions &options, Deadline deadline) {
    check(options);
    if (options.ranks == 1) return std::make_unique<AloneControl>();
    try {
        std::unique_ptr<TcpMember> member = make_member(options, deadline);
        member->meet(deadline);
        return member;
    } catch (const std::system_error &error) {
        // What asio throws, such as for want of descriptors.
        throw Error(VESCOMM_ERROR_SYSTEM, fmt::format("rank {} cannot set up the control plane: {}",
                                                      options.rank, error.what()));
    }
}

TcpMeetingPoint open_tcp_meeting_point() {
    TcpMeetingPoint point;
    point.listener = listen_everywhere();
    point.addresses = own_addresses(port_of(point.listener.get()));
    return point;
}

}  // namespace vescomm

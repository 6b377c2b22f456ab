// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "bootstrap/tcp_door.h"
#include "bootstrap/tcp_link.h"
#include "bootstrap/tcp_member.h"

namespace vescomm {

// Rank 0: lets the others in, gathers what they contribute, and passes on bad news.
class TcpRoot final : public TcpMember {
public:
    TcpRoot(const TcpControlOptions &options, std::vector<Descriptor> listeners);
    ~TcpRoot() override { end_thread(); }

    void meet(Deadline deadline) override;

private:
    // What rank 0 knows of a rank; of itself only whether it has said goodbye.
    struct Seat {
        std::shared_ptr<TcpLink> link;
        std::string address;
        bool goodbye = false;
    };

    void contribute(ContributionHead head, std::string bytes) override;
    void expire(std::uint64_t sequence, double waited_seconds) override;
    void say_goodbye() override;
    void spread_failure(vescomm_status_t status, const std::string &why) override;
    void look_after_peers(Clock::time_point now, Clock::duration stalled) override;
    bool finish_links() override;

    // Coming.
    void admit(TcpDoor::Visitor visitor);
    void check_claim(const Claim &claim, const std::string &address);
    void refuse(TcpDoor::Visitor visitor);
    void note_who_was_told();
    void expire_meeting(int asking, double waited_seconds);

    // Staying.
    void hear(int rank, FrameType type, std::string_view payload);
    void add_head(int rank, ContributionHead head);
    void add_bytes(int rank, std::string_view bytes);
    void answer_if_complete();
    void expire_gathering(int asking, std::uint64_t sequence, double waited_seconds);
    void report_defect(int rank);

    // Going.
    void take_goodbye(int rank);
    void take_end(int rank, const std::string &how);
    bool everyone_gone() const;

    const double linger_seconds_;
    std::vector<Seat> seats_;
    int awaited_;
    int goodbyes_ = 0;
    Gathering gathering_;
    TcpDoor door_;

    // Authentic processes that came, and how many ranks there are by the largest count they gave.
    std::uint32_t visitors_ = 0;
    std::uint32_t expected_;
    bool everyone_told_ = false;  // guarded by mutex_
    bool farewell_ = false;
};

}  // namespace vescomm

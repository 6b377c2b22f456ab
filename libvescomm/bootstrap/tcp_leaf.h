// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bootstrap/tcp_join.h"
#include "bootstrap/tcp_link.h"
#include "bootstrap/tcp_member.h"

namespace vescomm {

// Every rank but 0: one connection, to rank 0.
class TcpLeaf final : public TcpMember {
public:
    TcpLeaf(const TcpControlOptions &options, Joined joined);
    ~TcpLeaf() override { end_thread(); }

private:
    void contribute(ContributionHead head, std::string bytes) override;
    void expire(std::uint64_t sequence, double waited_seconds) override;
    void say_goodbye() override;
    void spread_failure(vescomm_status_t status, const std::string &why) override;
    void look_after_peers(Clock::time_point now, Clock::duration stalled) override;
    bool finish_links() override;

    void hear(FrameType type, std::string_view payload);
    void take_end(const std::string &how);
    void report_defect();
    void report_left_root();

    const std::string address_;
    std::shared_ptr<TcpLink> link_;
    std::uint64_t answered_ = 0;
    std::optional<GatherReader> answer_;  // a result of which more is to come
    bool contributed_ = false;  // and not answered yet
    std::string label_;  // of the contribution
    bool root_left_ = false;
    bool farewell_ = false;
};

}  // namespace vescomm

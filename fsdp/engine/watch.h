// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Detects ranks that announce different events. Every collective of the engine is accompanied by a
// small all_gather of an announcement, which ranks compare before they wait for the collective. The
// n-th announcement of a rank meets the n-th of every other rank, whatever the collectives are. So
// ranks that wait for different ones get an error instead of a timeout.
//
// Source: the idea is that of the signatures of calls, docs/design/0017.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/event_log.h"

namespace vescomm::fsdp {

class Watch {
public:
    // `unit_names` must outlive the watch.
    Watch(Comms &comms, std::span<const std::string> unit_names);
    ~Watch();
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

    // Starts an announcement and returns its number. Waits for an old one if too many are running.
    std::uint64_t post(const Announcement &announcement);
    // Waits until all ranks have made announcement `number` and those before it, and throws Failure
    // if they differ.
    void verify(std::uint64_t number);
    // Throws Failure if announcements differ that all ranks have made. Does not wait.
    void look();

private:
    // Compares the oldest announcement, which is complete.
    void compare_oldest();

    // Announcements that may be running.
    static constexpr std::size_t depth = 8;

    struct Entry {
        vescomm_request_t *request = nullptr;
        Announcement mine;
        std::vector<Announcement> all;
    };

    Comms &comms_;
    std::span<const std::string> unit_names_;
    std::array<Entry, depth> entries_;
    std::uint64_t posted_ = 0;
    std::uint64_t verified_ = 0;
};

}  // namespace vescomm::fsdp

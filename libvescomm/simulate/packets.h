// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/fabric.h"
#include "simulate/index_list.h"

namespace vescomm::internal {

// A chunk of a put, or a signal.
struct Packet {
    int from = 0, to = 0;
    bool signal = false;
    bool first = false, last = false;  // first chunk, last chunk of its put
    std::uint32_t key = 0, value = 0;  // flag that the last chunk raises
    // Eager put: index of the counter that says whether the put is expected, and the value from
    // which on it is.
    std::uint32_t counter = no_index, expected = 0;
    double bytes = 0;
    SimulatedMessage message;
    std::uint32_t next = no_index;
};

// All packets under way. An index stays valid until its packet is freed.
class Packets {
public:
    // The index of a new packet.
    std::uint32_t make() {
        auto number = static_cast<std::uint32_t>(packets_.size());
        if (free_.empty()) {
            packets_.emplace_back();
        } else {
            number = free_.back();
            free_.pop_back();
        }
        packets_[number] = {};
        return number;
    }
    void free(std::uint32_t packet) { free_.push_back(packet); }
    Packet &operator[](std::uint32_t packet) { return packets_[packet]; }

private:
    std::vector<Packet> packets_;
    std::vector<std::uint32_t> free_;
};

}  // namespace vescomm::internal

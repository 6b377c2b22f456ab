// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <queue>

namespace vescomm::internal {

enum class EventKind : std::uint8_t {
    resume,  // a rank continues
    worked,  // a core of a host has finished its work
    seen,  // local peers see a flag
    arriving,  // the first byte of a packet has reached the links of the receiver
    arrived,  // the last byte of a packet has arrived
};
struct Event {
    EventKind kind;
    std::int32_t rank = 0;  // worked: the host
    std::uint32_t key = 0;  // flag_key(), index of a packet, or version of a SharedClock
    std::uint32_t value = 0;
    double time = 0;
    std::uint64_t order = 0;
    // The earliest event is on top; ties are in order of creation.
    bool operator<(const Event &other) const {
        return time != other.time ? time > other.time : order > other.order;
    }
};

// Events in the order of their times.
class EventQueue {
public:
    bool empty() const { return events_.empty(); }
    void add(double time, Event event) {
        event.time = time;
        event.order = made_++;
        events_.push(event);
    }
    Event next() {
        const Event event = events_.top();
        events_.pop();
        return event;
    }

private:
    std::priority_queue<Event> events_;
    std::uint64_t made_ = 0;
};

}  // namespace vescomm::internal

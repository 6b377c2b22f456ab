// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpu_double {

// A vector clock: for each stream the number of works that happened before.
using StreamClock = std::map<std::uint64_t, std::uint64_t>;

inline void join(StreamClock &clock, const StreamClock &other) {
    for (const auto &[stream, tick] : other) clock[stream] = std::max(clock[stream], tick);
}

// The accesses to the bytes of one allocation, and whether they are ordered.
//
// Source: FastTrack (Flanagan, Freund, PLDI 2009), on ranges of bytes instead of variables.
class AccessOrder {
public:
    struct Work {
        std::uint64_t stream = 0, tick = 0;
        std::string name;
    };

    // Adds an access of `work` to [begin, end), whose clock is `clock`. Returns the name of an
    // earlier work that conflicts with it and is not ordered before it; empty if there is none.
    std::string add(std::size_t begin, std::size_t end, bool write, const Work &work,
                    const StreamClock &clock) {
        std::string conflict;
        std::vector<Record> rest;
        for (Record &record : records_) {
            const bool apart = record.end <= begin || end <= record.begin;
            if (!apart && (write || record.write)) {
                const auto known = clock.find(record.work.stream);
                if ((known == clock.end() || known->second < record.work.tick) && conflict.empty())
                    conflict = record.work.name;
            }
            // A write replaces what it covers, and a read the earlier read of its stream.
            const bool replaced =
                !apart && (write || (!record.write && record.work.stream == work.stream));
            if (!replaced) {
                rest.push_back(record);
                continue;
            }
            if (record.begin < begin)
                rest.push_back({record.begin, begin, record.write, record.work});
            if (end < record.end) rest.push_back({end, record.end, record.write, record.work});
        }
        rest.push_back({begin, end, write, work});
        records_ = std::move(rest);
        return conflict;
    }

    // The name of a work that did not happen before the clock; empty if there is none.
    std::string after(const StreamClock &clock) const {
        for (const Record &record : records_) {
            const auto known = clock.find(record.work.stream);
            if (known == clock.end() || known->second < record.work.tick) return record.work.name;
        }
        return {};
    }

private:
    struct Record {
        std::size_t begin = 0, end = 0;
        bool write = false;
        Work work;
    };
    std::vector<Record> records_;
};

}  // namespace gpu_double

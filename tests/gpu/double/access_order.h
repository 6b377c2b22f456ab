// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpu_double {

// A vector clock: for each stream the number of works that happened before. Sorted by stream.
class StreamClock {
public:
    using Entries = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    using Iterator = Entries::const_iterator;

    Iterator begin() const { return entries_.begin(); }
    Iterator end() const { return entries_.end(); }
    bool empty() const { return entries_.empty(); }
    Iterator find(std::uint64_t stream) const {
        const Iterator found = lower_bound(stream);
        return found != end() && found->first == stream ? found : end();
    }
    std::uint64_t at(std::uint64_t stream) const {
        const Iterator found = find(stream);
        return found == end() ? 0 : found->second;
    }
    std::uint64_t &operator[](std::uint64_t stream) {
        const auto at = entries_.begin() + (lower_bound(stream) - begin());
        if (at != entries_.end() && at->first == stream) return at->second;
        return entries_.insert(at, {stream, 0})->second;
    }
    void join(const StreamClock &other) {
        Entries both;
        both.reserve(entries_.size() + other.entries_.size());
        Iterator next = other.begin();
        for (const auto &[stream, tick] : entries_) {
            while (next != other.end() && next->first < stream) both.push_back(*next++);
            const bool shared = next != other.end() && next->first == stream;
            both.emplace_back(stream, shared ? std::max(tick, next->second) : tick);
            if (shared) ++next;
        }
        both.insert(both.end(), next, other.end());
        entries_ = std::move(both);
    }

private:
    Iterator lower_bound(std::uint64_t stream) const {
        return std::lower_bound(begin(), end(), stream,
                                [](const auto &entry, std::uint64_t s) { return entry.first < s; });
    }

    Entries entries_;
};

inline void join(StreamClock &clock, const StreamClock &other) {
    clock.join(other);
}

// The accesses to the bytes of one allocation, and whether they are ordered.
//
// Source: FastTrack (Flanagan, Freund, PLDI 2009), on ranges of bytes instead of variables.
class AccessOrder {
public:
    struct Work {
        std::uint64_t stream = 0, tick = 0;
        std::string name;
        int device = 0;
        bool foreign = false;  // the memory is that of another device
    };
    // The pairs of accesses that must be ordered.
    enum class Compared {
        all,
        // those of different devices, and those of one device that does not own the memory
        across_devices,
        within_device,
    };

    explicit AccessOrder(Compared compared = Compared::all) : compared_(compared) {}

    // Adds an access of `work` to [begin, end), whose clock is `clock`. Returns the name of an
    // earlier work that conflicts with it and is not ordered before it; empty if there is none.
    std::string add(std::size_t begin, std::size_t end, bool write, const Work &work,
                    const StreamClock &clock) {
        std::string conflict;
        std::vector<Record> rest;
        rest.reserve(records_.size() + 2);
        for (Record &record : records_) {
            const bool apart = record.end <= begin || end <= record.begin;
            if (!apart && compares(record.work, work) && (write || record.write)) {
                const auto known = clock.find(record.work.stream);
                if ((known == clock.end() || known->second < record.work.tick) && conflict.empty())
                    conflict = record.work.name;
            }
            // A write replaces what it covers, and a read the earlier read of its stream.
            const bool replaced =
                !apart && (write || (!record.write && record.work.stream == work.stream));
            if (!replaced) {
                rest.push_back(std::move(record));
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

    // All accesses so far happened before later ones.
    void forget() { records_.clear(); }
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

    bool compares(const Work &one, const Work &other) const {
        const bool same_device = one.device == other.device;
        switch (compared_) {
            case Compared::across_devices:
                return !same_device || other.foreign;
            case Compared::within_device:
                return same_device;
            default:
                return true;
        }
    }

    Compared compared_;
    std::vector<Record> records_;
};

}  // namespace gpu_double

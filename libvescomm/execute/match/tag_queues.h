// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vescomm::internal {

// Receives or messages, in one queue for each tag, oldest first. Owns none of them. No function
// depends on the number of things or tags: a hash table holds the oldest thing of each tag, and the
// others hang on it.
//
//     bucket ──► oldest of tag 7 ──other_tag──► oldest of tag 15 ──► ...
//                     │ next                          │ next
//                     ▼                               ▼
//
// Thing: has tag(), and the members `Thing *next, *last, *other_tag`, which the queues use.
// Zone: per operation, no allocation but for a number of tags that is larger than ever before.
template <typename Thing>
class TagQueues {
public:
    TagQueues() : buckets_(8) {}

    void add(Thing &thing) noexcept {
        thing.next = thing.other_tag = nullptr;
        thing.last = &thing;
        if (Thing *oldest = find(thing.tag())) {
            oldest->last->next = &thing;
            oldest->last = &thing;
            return;
        }
        if (++tags_ > buckets_.size()) grow();
        link(buckets_, thing);
    }

    // The oldest thing with this tag, or nullptr.
    Thing *find(std::int32_t tag) const noexcept {
        Thing *thing = buckets_[bucket_of(tag, buckets_)];
        while (thing != nullptr && thing->tag() != tag) thing = thing->other_tag;
        return thing;
    }

    // Removes the oldest thing with its tag.
    void remove(Thing &oldest) noexcept {
        Thing **link = &buckets_[bucket_of(oldest.tag(), buckets_)];
        while (*link != &oldest) link = &(*link)->other_tag;
        Thing *next = oldest.next;
        if (next != nullptr) {
            next->last = oldest.last;
            next->other_tag = oldest.other_tag;
        } else {
            next = oldest.other_tag;
            --tags_;
        }
        *link = next;
        oldest.next = oldest.last = oldest.other_tag = nullptr;
    }

private:
    using Buckets = std::vector<Thing *>;  // their number is a power of two

    // Programs count their tags up, or leave some of their bits unused.
    static std::size_t bucket_of(std::int32_t tag, const Buckets &buckets) noexcept {
        constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: Knuth, 6.4
        const std::uint64_t mixed = static_cast<std::uint32_t>(tag) * golden;
        return static_cast<std::size_t>(mixed >> 32) & (buckets.size() - 1);
    }

    static void link(Buckets &buckets, Thing &oldest) noexcept {
        Thing *&bucket = buckets[bucket_of(oldest.tag(), buckets)];
        oldest.other_tag = bucket;
        bucket = &oldest;
    }

    // Without memory the buckets become fuller.
    void grow() noexcept {
        Buckets more;
        try {
            more.resize(2 * buckets_.size());
        } catch (...) {
            return;
        }
        for (Thing *oldest : buckets_) {
            while (oldest != nullptr) {
                Thing *next = oldest->other_tag;
                link(more, *oldest);
                oldest = next;
            }
        }
        buckets_.swap(more);
    }

    Buckets buckets_;
    std::size_t tags_ = 0;
};

// The older one of two, of which each may be nullptr.
template <typename Thing>
Thing *older(Thing *a, Thing *b) noexcept {
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    return a->order < b->order ? a : b;
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vescomm::internal {

// A hash table of small indices, of which several may have the same hash. Linear probing: an index
// lies at the place of its hash, or behind it with no free place in between.
//
// Zone: per call, no allocation.
class CallSites {
public:
    using Index = std::uint8_t;
    static constexpr Index none = 255;
    // At most this many indices at once: the table stays a quarter full.
    static constexpr std::size_t max_indices = 128;

    CallSites() { sites_.fill({.hash = 0, .index = none}); }

    // An index with this hash for which `equals` returns true, or `none`. `equals` may also be
    // called for an index with another hash.
    template <typename Equals>
    Index find(std::uint32_t hash, const Equals &equals) const noexcept {
        for (std::size_t at = place_of(hash);; at = behind(at)) {
            const Site &site = sites_[at];
            if (site.index == none) return none;
            if (site.hash == shortened(hash) && equals(site.index)) return site.index;
        }
    }

    void add(std::uint32_t hash, Index index) noexcept {
        std::size_t at = place_of(hash);
        while (sites_[at].index != none) at = behind(at);
        sites_[at] = {.hash = shortened(hash), .index = index};
    }

    // The index has been added with this hash.
    void remove(std::uint32_t hash, Index index) noexcept {
        std::size_t gap = place_of(hash);
        while (sites_[gap].index != index) gap = behind(gap);
        // Fills the gap, so that no index behind it is lost (Knuth, 6.4, algorithm R).
        for (std::size_t at = behind(gap); sites_[at].index != none; at = behind(at)) {
            if (distance(place_of(sites_[at].hash), at) < distance(gap, at)) continue;
            sites_[gap] = sites_[at];
            gap = at;
        }
        sites_[gap].index = none;
    }

private:
    static constexpr std::size_t sites = 4 * max_indices;  // a power of two

    struct Site {
        std::uint16_t hash;  // shortened
        Index index;
    };

    static std::uint16_t shortened(std::uint32_t hash) noexcept {
        return static_cast<std::uint16_t>(hash);
    }
    static std::size_t place_of(std::uint32_t hash) noexcept { return hash % sites; }
    static std::size_t behind(std::size_t at) noexcept { return (at + 1) % sites; }
    static std::size_t distance(std::size_t from, std::size_t to) noexcept {
        return (to - from) % sites;
    }

    std::array<Site, sites> sites_;
};

}  // namespace vescomm::internal

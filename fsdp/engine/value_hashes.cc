// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/value_hashes.h"

#include <fmt/format.h>

#include <algorithm>

#include "fsdp/hash.h"

namespace vescomm::fsdp {

namespace {

constexpr std::uint64_t no_rank = ~std::uint64_t{0};

// One hash: of the masters of a bucket, or of a state.
struct Part {
    std::size_t bucket = 0;
    std::optional<std::size_t> state;
};

std::vector<Part> parts_of(const ModelPlan &plan) {
    std::vector<Part> parts;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        parts.push_back({bucket, {}});
        for (std::size_t state = 0; state < plan.buckets[bucket].states.size(); ++state)
            parts.push_back({bucket, state});
    }
    return parts;
}

// A rank with its own shard, or with its copy of another one.
struct Holder {
    int rank = 0;
    bool copy = false;
    std::uint64_t hash = 0;

    std::string text() const {
        return fmt::format("rank {}{}", rank, copy ? " (in its partner copy)" : "");
    }
};

// Returns "" if all holders have the same hash.
template <typename Describe>
std::string difference(std::span<const Holder> holders, Describe &&describe) {
    const std::uint64_t first = holders.front().hash;
    if (std::ranges::all_of(holders, [&](const Holder &one) { return one.hash == first; }))
        return {};
    const std::string values = describe();
    const auto times = [&](const Holder &one) {
        return std::ranges::count(holders, one.hash, &Holder::hash);
    };
    const Holder &usual = *std::ranges::max_element(holders, {}, times);
    const auto other =
        std::ranges::find_if(holders, [&](const Holder &one) { return one.hash != usual.hash; });
    const bool majority = 2 * times(usual) > static_cast<std::ptrdiff_t>(holders.size());
    if (majority && holders.size() > 2)
        return fmt::format(
            "{} of {} differ from those of most of the {} ranks that hold them, such "
            "as {}",
            values, other->text(), holders.size(), usual.text());
    return fmt::format("{} of {} and {} differ", values, usual.text(), other->text());
}

}  // namespace

std::vector<std::uint64_t> hash_values(const ModelPlan &plan, const Shards &shards, int rank) {
    std::vector<std::uint64_t> hashes;
    const int position = plan.mesh.position(rank);
    for (const Part &part : parts_of(plan)) {
        const Bucket &bucket = plan.buckets[part.bucket];
        if (!part.state) {
            const auto masters = shards.master(part.bucket).bytes();
            hashes.push_back(hash_of(masters.data(), masters.size()));
            continue;
        }
        const auto elements =
            static_cast<std::size_t>(bucket.state_elements(*part.state, position));
        hashes.push_back(hash_of(shards.state(part.bucket, *part.state),
                                 elements * bucket.states[*part.state].bytes()));
    }
    return hashes;
}

std::vector<std::uint64_t> HeldValues::words() const {
    std::vector<std::uint64_t> words{copied_rank ? static_cast<std::uint64_t>(*copied_rank)
                                                 : no_rank};
    words.insert(words.end(), own.begin(), own.end());
    words.insert(words.end(), copy.begin(), copy.end());
    return words;
}

HeldValues HeldValues::of_words(std::span<const std::uint64_t> words) {
    HeldValues held;
    const auto hashes = words.subspan(1);
    std::size_t own = hashes.size();
    if (words[0] != no_rank) {
        held.copied_rank = static_cast<int>(words[0]);
        own /= 2;
        held.copy.assign(hashes.begin() + static_cast<std::ptrdiff_t>(own), hashes.end());
    }
    held.own.assign(hashes.begin(), hashes.begin() + static_cast<std::ptrdiff_t>(own));
    return held;
}

std::string compare_values(const ModelPlan &plan, std::span<const HeldValues> of_ranks,
                           std::span<const std::string> unit_names) {
    const std::vector<Part> parts = parts_of(plan);
    // By position: the ranks that hold its shard.
    std::vector<std::vector<Holder>> holders(static_cast<std::size_t>(plan.mesh.shard_ranks));
    const auto holders_of = [&](int rank) -> std::vector<Holder> & {
        return holders[static_cast<std::size_t>(plan.mesh.position(rank))];
    };
    for (int rank = 0; rank < static_cast<int>(of_ranks.size()); ++rank) {
        holders_of(rank).push_back({rank, false});
        const auto copied = of_ranks[static_cast<std::size_t>(rank)].copied_rank;
        if (copied) holders_of(*copied).push_back({rank, true});
    }
    std::vector<std::vector<Holder>> all(1);  // the ranks that hold replicated parameters
    for (const std::vector<Holder> &of_shard : holders)
        all[0].insert(all[0].end(), of_shard.begin(), of_shard.end());
    for (std::size_t part = 0; part < parts.size(); ++part) {
        const Bucket &bucket = plan.buckets[parts[part].bucket];
        for (std::vector<Holder> &of_values : bucket.replicated ? all : holders) {
            for (Holder &one : of_values) {
                const HeldValues &held = of_ranks[static_cast<std::size_t>(one.rank)];
                one.hash = (one.copy ? held.copy : held.own)[part];
            }
            const std::string found = difference(of_values, [&] {
                const std::string values =
                    parts[part].state ? fmt::format("state {}", *parts[part].state) : "the masters";
                return fmt::format("{} of {}unit \"{}\"{}", values,
                                   bucket.replicated ? "replicated parameters of " : "",
                                   unit_names[bucket.unit],
                                   bucket.replicated ? "" : " in the shard");
            });
            if (!found.empty()) return found;
        }
    }
    return {};
}

}  // namespace vescomm::fsdp

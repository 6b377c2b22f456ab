// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "bootstrap/wire.h"

namespace vescomm::internal {

namespace {

// A fabric has the number of the communicator with which it was made, which is equal on all
// processes of the session.
using Number = std::uint32_t;

struct Entry {
    std::uint64_t session = 0;
    Number number = 0;
    std::string kind;
    std::unordered_map<int, int> numbers;  // number on the fabric, by process of the session
    std::weak_ptr<Fabric> fabric;
};

class Register {
public:
    void add(Entry entry) {
        const std::lock_guard lock(mutex_);
        std::erase_if(entries_, [](const Entry &old) { return old.fabric.expired(); });
        entries_.push_back(std::move(entry));
    }

    // Returns the fabrics that connect this process with all its peers.
    std::map<Number, FabricShare> find(const Membership &membership, const std::string &kind,
                                       const std::vector<bool> &peers) {
        std::map<Number, FabricShare> found;
        const std::lock_guard lock(mutex_);
        for (const Entry &entry : entries_) {
            if (entry.session != membership.session || entry.kind != kind) continue;
            FabricShare share{entry.fabric.lock(), {}};
            if (share.fabric && connect(entry, membership, peers, share))
                found.emplace(entry.number, std::move(share));
        }
        return found;
    }

private:
    static bool connect(const Entry &entry, const Membership &membership,
                        const std::vector<bool> &peers, FabricShare &share) {
        share.peers.assign(peers.size(), -1);
        for (std::size_t peer = 0; peer < peers.size(); ++peer) {
            if (!peers[peer]) continue;
            const auto found = entry.numbers.find(membership.processes[peer]);
            if (found == entry.numbers.end() || !share.fabric->connects(found->second))
                return false;
            share.peers[peer] = found->second;
        }
        return true;
    }

    std::mutex mutex_;
    std::vector<Entry> entries_;
};

Register &all_fabrics() {
    // Never destroyed: threads may create communicators while the process exits.
    static Register &fabrics = *new Register;
    return fabrics;
}

std::string write_numbers(const std::map<Number, FabricShare> &shares) {
    std::string text;
    for (const auto &[number, share] : shares) put_number(text, number);
    return text;
}

bool has_number(std::string_view text, Number number) {
    WireReader reader(text);
    while (!reader.rest().empty())
        if (reader.number<Number>() == number && reader.good()) return true;
    return false;
}

}  // namespace

FabricShare share_fabric(Control &control, const std::string &kind, const std::vector<bool> &peers,
                         const std::function<std::shared_ptr<Fabric>()> &make, Deadline deadline) {
    const Membership membership = control.membership();
    std::map<Number, FabricShare> mine;
    if (membership.session != 0) mine = all_fabrics().find(membership, kind, peers);
    const auto all = control.all_gather(kind + " connections", write_numbers(mine), deadline);
    // A fabric that only some ranks have cannot be shared: its connections to the others may have
    // ended, or another thread is still making it.
    for (auto &[number, share] : mine)
        if (std::ranges::all_of(
                all, [number = number](const auto &its) { return has_number(its, number); }))
            return share;
    FabricShare made{make(), std::vector<int>(peers.size(), -1)};
    for (std::size_t peer = 0; peer < peers.size(); ++peer)
        if (peers[peer]) made.peers[peer] = static_cast<int>(peer);
    if (membership.session == 0) return made;
    Entry entry{membership.session, membership.group, kind, {}, made.fabric};
    for (std::size_t peer = 0; peer < peers.size(); ++peer)
        entry.numbers[membership.processes[peer]] = static_cast<int>(peer);
    all_fabrics().add(std::move(entry));
    return made;
}

}  // namespace vescomm::internal

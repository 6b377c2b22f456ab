// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vescomm::perf {

// Emulated hosts on this machine: network namespaces connected by a switch. Needs root.
//
//     switch: a bridge ── veth ── host 0, 10.79.0.1
//                     └── veth ── host 1, 10.79.0.2   ...
//
// The destructor removes them.
class Hosts {
public:
    // `gbits`: limit in Gbit/s of the bytes that each host sends; 0: no limit.
    Hosts(int count, double gbits);
    ~Hosts();
    Hosts(const Hosts &) = delete;
    Hosts &operator=(const Hosts &) = delete;

    int count() const { return static_cast<int>(names_.size()); }
    const std::string &network(int host) const { return names_[static_cast<std::size_t>(host)]; }
    std::string address(int host) const;
    // Consecutive ranks share a host. The numbers of ranks on hosts differ by at most one.
    int host_of(int rank, int ranks) const { return rank * count() / ranks; }

private:
    void make();
    void slow_down(const std::string &host);
    void remove() noexcept;

    double gbits_;
    std::string switch_;
    std::vector<std::string> names_;
};

}  // namespace vescomm::perf

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "perf/run/exit_codes.h"
#include "perf/run/process.h"

namespace vescomm::perf {
namespace {

constexpr const char *await_carrier =
    "for i in {1..200}; do grep -q 1 /sys/class/net/eth0/carrier && exit; sleep 0.05; done; exit 1";

void ip(std::vector<std::string> words) {
    words.insert(words.begin(), "ip");
    run_program(words);
}

}  // namespace

Hosts::Hosts(int count, double gbits) : gbits_(gbits) {
    if (geteuid() != 0)
        throw Failure(ExitCode::usage, "--hosts makes network namespaces, which needs root");
    const std::string prefix = "vescomm-perf-" + std::to_string(getpid());
    switch_ = prefix + "-switch";
    for (int i = 0; i < count; ++i) names_.push_back(prefix + "-" + std::to_string(i));
    try {
        make();
    } catch (...) {
        remove();
        throw;
    }
}

Hosts::~Hosts() {
    remove();
}

std::string Hosts::address(int host) const {
    return "10.79.0." + std::to_string(host + 1);
}

void Hosts::make() {
    ip({"netns", "add", switch_});
    ip({"-n", switch_, "link", "add", "bridge", "type", "bridge"});
    ip({"-n", switch_, "link", "set", "bridge", "up"});
    for (int host = 0; host < count(); ++host) {
        const std::string &name = network(host);
        const std::string port = "port" + std::to_string(host);
        ip({"netns", "add", name});
        ip({"link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns",
            switch_});
        ip({"-n", switch_, "link", "set", port, "master", "bridge", "up"});
        ip({"-n", name, "address", "add", address(host) + "/24", "dev", "eth0"});
        ip({"-n", name, "link", "set", "lo", "up"});
        ip({"-n", name, "link", "set", "eth0", "up"});
        if (gbits_ > 0) slow_down(name);
    }
    // Wait for carriers, because UCX ignores interfaces without one.
    for (const std::string &name : names_) ip({"netns", "exec", name, "bash", "-c", await_carrier});
}

// Limits the rate at which a host sends, with a token bucket. The burst holds a few of the largest
// segments. The queue is long enough to lose nothing, because TCP keeps it short.
void Hosts::slow_down(const std::string &host) {
    const std::string rate = std::to_string(std::max(1L, std::lround(gbits_ * 1000))) + "mbit";
    run_program({"tc", "-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate,
                 "burst", "256kb", "limit", "16mb"});
}

void Hosts::remove() noexcept {
    for (const std::string &name : names_) {
        try {
            ip({"netns", "delete", name});
        } catch (const std::exception &) {
            // The namespace does not exist.
            continue;
        }
    }
    try {
        ip({"netns", "delete", switch_});
    } catch (const std::exception &) {
        return;
    }
}

}  // namespace vescomm::perf

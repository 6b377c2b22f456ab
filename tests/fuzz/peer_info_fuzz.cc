// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The information that ranks exchange when they meet (comm/peer_info.h), and the machine that each
// rank derives from it (comm/machine_exchange.h). The input is the information of three ranks,
// separated by bytes 0x01.
//
// Invariants: the text of parsed information parses to the same information; all ranks get a
// machine with cores, or an error sentence.
#include "comm/peer_info.h"

#include "base/error.h"
#include "comm/machine_exchange.h"
#include "fuzz/fuzz.h"
#include "topology/cores.h"

using namespace vescomm::internal;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    std::vector<std::string> names, machines;
    for (int rank = 0; rank < 3; ++rank) {
        const PeerInfo peer_info = PeerInfo::parse(input.until('\1'));
        require(PeerInfo::parse(peer_info.text()) == peer_info,
                "the text of a peer info parses to the same peer info");
        names.push_back(peer_info.node);
        machines.push_back(peer_info.machine);
        const std::string cores[] = {peer_info.machine};
        require(count_cores(cores) >= 1, "a rank has a core");
    }
    const Nodes nodes = Nodes::from_names(names);
    try {
        const MachineExchange result = machine_exchange(nodes, machines);
        require(result.cores.size() == static_cast<std::size_t>(nodes.count()),
                "every node has its cores");
        for (const int cores : result.cores) require(cores >= 1, "a node has a core");
        require(result.machine.cores >= 0 && result.machine.nodes_per_host >= 1,
                "a host has nodes");
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT,
                "the exchanged information is to blame");
        fuzz::require_sentence(error.what());
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const auto text = [](const std::string &node, const std::string &machine) {
        return PeerInfo{node, machine, "all_reduce=flat", "no", "4096", ""}.text();
    };
    const std::string file = to_text({"AMD EPYC 9575F", 64, MachineFile::Links::tcp, {}});
    const std::string next(1, '\1');
    return {
        {"one-node", text("a", "3\nhost\nrdma\n") + next + text("a", "c\nhost\n") + next +
                         text("a", "f\nhost\n")},
        {"crowded", text("a", "1\nhost\ntcp\n") + next + text("b", "1\nhost\n") + next +
                        text("c", "1\nother\n")},
        {"measured", text("a", "f\nhost\ntcp\n" + file) + next + text("b", "f\nother\n") + next +
                         text("b", "f\nother\n")},
        {"measured-wrongly", text("a", "f\nhost\ntcp\nvescomm machine 9\n")},
        {"no-cores", text("a", "xyz\n\n\n") + next + text("", "") + next + text("", "0\n")},
        {"cut-short", text("a", "3\nhost").substr(0, 4)},
        {"nothing", ""},
    };
}

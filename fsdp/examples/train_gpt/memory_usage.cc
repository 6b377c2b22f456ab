// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/memory_usage.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "fsdp/examples/train_gpt/gather.h"

namespace train_gpt {

namespace {

// Returns the bytes of an entry such as "VmHWM:     1234 kB".
double bytes_of(const char *path, const std::string &name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string label;
        double kibibytes = 0;
        if (words >> label >> kibibytes && label == name) return kibibytes * 1024;
    }
    return 0;
}

template <typename Combine>
void combine(Holdings &into, const Holdings &other, Combine &&with) {
    for (double Holdings::*member :
         {&Holdings::shards, &Holdings::gradients, &Holdings::gradient_slots, &Holdings::optimizer,
          &Holdings::slabs, &Holdings::replicated, &Holdings::activations})
        into.*member = with(into.*member, other.*member);
    into.process.proportional = with(into.process.proportional, other.process.proportional);
    into.process.peak = with(into.process.peak, other.process.peak);
    into.process.before = with(into.process.before, other.process.before);
}

}  // namespace

ProcessMemory process_memory() {
    return {.proportional = bytes_of("/proc/self/smaps_rollup", "Pss:"),
            .peak = bytes_of("/proc/self/status", "VmHWM:"),
            .before = 0};
}

Holdings MemoryUse::largest(const std::vector<Holdings> &all) {
    Holdings largest;
    for (const Holdings &one : all)
        combine(largest, one, [](double a, double b) { return std::max(a, b); });
    return largest;
}

MemoryUse measure_memory(const vescomm::Communicator &comm, const vescomm_fsdp_report_t &report,
                         std::size_t activation_bytes, double before) {
    const ProcessMemory process = process_memory();
    const vescomm_comm_info_t info = comm.info();
    const double mine[] = {static_cast<double>(info.node),
                           static_cast<double>(report.master_bytes),
                           static_cast<double>(report.gradient_bytes),
                           static_cast<double>(report.gradient_slot_bytes + report.scratch_bytes),
                           static_cast<double>(report.optimizer_bytes),
                           static_cast<double>(activation_bytes),
                           process.proportional,
                           process.peak,
                           before};
    MemoryUse use;
    use.nodes.resize(static_cast<std::size_t>(info.nodes));
    // The ranks of a node that gather together share one copy of the slots.
    std::set<std::pair<int, int>> copies;
    for (const std::vector<double> &numbers : gather(comm, mine)) {
        const int node = static_cast<int>(numbers[0]);
        copies.emplace(node, static_cast<int>(use.ranks.size()) / report.gather_ranks);
        Holdings rank;
        rank.shards = numbers[1];
        rank.gradients = numbers[2] + numbers[3];
        rank.gradient_slots = numbers[3];
        rank.optimizer = numbers[4];
        rank.replicated = static_cast<double>(report.replicated_bytes);
        rank.activations = numbers[5];
        rank.process = {.proportional = numbers[6], .peak = numbers[7], .before = numbers[8]};
        use.ranks.push_back(rank);
        combine(use.nodes[static_cast<std::size_t>(node)], rank,
                [](double a, double b) { return a + b; });
    }
    for (const auto &[node, group] : copies)
        use.nodes[static_cast<std::size_t>(node)].slabs += static_cast<double>(report.slot_bytes);
    return use;
}

}  // namespace train_gpt

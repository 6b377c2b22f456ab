// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace vescomm::planner {

// The unchecked command line: the value of each option as typed. Numbers are kept as text, because
// CLI11's own messages about numbers are not helpful.
struct PlanFlags {
    std::string model;
    std::string safetensors;
    std::string tensors;
    std::string ranks;
    std::string mode = "ragged";
    std::string align_start = "128";
    std::string align_cut = "128";
    std::string weights;
    std::string search_steps = "20,000,000";
    std::string block_rows = "1";
    std::vector<std::string> blocks;
    std::vector<std::string> units;
    std::string ranks_per_node = "8";
    std::string node_bandwidth = "300GB";
    std::string network_bandwidth = "50GB";
    bool compare = false;
    bool advise = false;
    std::string memory;
    std::string owned_bytes = "4,8,4";
    std::string slots = "2,2";
    std::string json;
    bool no_cuts = false;
    std::string picture;
    bool version = false;
};

// Adds all options and the --help text to `app`.
void add_options(CLI::App &app, PlanFlags &flags);

}  // namespace vescomm::planner

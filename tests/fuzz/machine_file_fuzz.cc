// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Machine files (topology/machine_file.h).
//
// Invariants: the text of an accepted file parses to the same file; every resulting machine has
// numbers by which the simulator can divide.
#include "topology/machine_file.h"

#include <cmath>

#include "base/error.h"
#include "fuzz/fuzz.h"

using namespace vescomm::internal;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    try {
        const MachineFile file = parse_machine_file(fuzz::view(data, size), "the file");
        const std::string text = to_text(file);
        require(parse_machine_file(text, "the file") == file,
                "the text of a file parses to the same file");
        require(std::ranges::count(text, '\n') == std::ranges::count(fuzz::view(data, size), '\n'),
                "every line of a file counts");
        require(file.cores >= 1 && !file.processor.empty(), "a file names the measured machine");
        const std::string name = machine_file_name("folder", file.processor, file.cores);
        require(name.find('/', sizeof("folder")) == std::string::npos,
                "a processor's name leads to no other folder");
        for (const bool tcp : {false, true}) {
            Machine machine;
            apply(file, tcp, machine);
            require(std::isfinite(machine.in_memory.copy) && machine.in_memory.copy > 0 &&
                        machine.in_cache.reduce > 0 && machine.cache_bytes > 0,
                    "speeds are above 0");
        }
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the file is to blame");
        require(std::string_view(error.what()).starts_with("the file, line "),
                "a sentence names the file and the line");
        fuzz::require_sentence(error.what());
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    MachineFile file{"AMD EPYC 9575F", 64, MachineFile::Links::none, {}};
    const std::string within_node = to_text(file);
    file.links = MachineFile::Links::tcp;
    const std::string tcp = to_text(file);
    file.links = MachineFile::Links::rdma;
    const auto changed = [&tcp](std::string_view from, std::string_view to) {
        std::string text = tcp;
        return text.replace(text.find(from), from.size(), to);
    };
    // Fields that end at the maximum length of the text, and a field behind them.
    MachineFile longest{"", 1, MachineFile::Links::none, {}};
    longest.processor.assign((16 << 10) - to_text(longest).size(), 'x');
    return {
        {"within-node", within_node},
        {"tcp", tcp},
        {"rdma", to_text(file)},
        {"too-long", to_text(longest) + "links tcp\n"},
        {"cut-short", tcp.substr(0, tcp.size() - 10)},
        {"too-many", tcp + "more 1\n"},
        {"no-number", changed("cores 64", "cores many")},
        {"out-of-range", changed("cores 64", "cores 0")},
        {"no-links", changed("links tcp", "links usb")},
        {"control-character", changed("AMD", "\033[2J")},
        {"other-version", "vescomm machine 2\n"},
        {"nothing", ""},
    };
}

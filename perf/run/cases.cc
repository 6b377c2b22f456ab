// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes cases from options: every valid combination of collective, type, op and size.
//
// Zone: set-up.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "perf/case/collectives.h"
#include "perf/case/ops.h"
#include "perf/run/options.h"

namespace vescomm::perf {
namespace {

void check(const Options &options, int ranks) {
    const auto refuse = [](const std::string &sentence) { throw std::invalid_argument(sentence); };
    if (options.root < 0 || options.root >= ranks)
        refuse(fmt::format("--root {}: there are {} ranks", options.root, ranks));
    if (options.late_rank >= ranks)
        refuse(fmt::format("--skew: rank {} of {} ranks", options.late_rank, ranks));
    if (options.overlap && options.skew_us > 0) refuse("--overlap and --skew exclude each other");
    for (const std::string &name : options.collectives) {
        const Collective &row = find_collective(name);
        const bool overwrites =
            row.reduces() &&
            (options.on_device ? options.places.back() == "in" || options.places.front() == "in"
                               : row.in_place);
        const char *advice = options.on_device ? "; give --place out" : "";
        if (options.keep_sources && overwrites)
            refuse(fmt::format("--sources kept: {} works in place, and overwrites its source{}",
                               name, advice));
        if (options.shared && !row.may_share)
            refuse(fmt::format("--shared: {} has a result for each rank", name));
        if (options.wide_output && !row.converts)
            refuse(fmt::format("--f32-output: {} leaves its type as it is", name));
        const bool adds_up = std::ranges::any_of(
            options.ops, [](const std::string &op) { return !is_idempotent(find_op(op)); });
        if (options.operations > 1 && overwrites && adds_up)
            refuse(
                fmt::format("--agg_iters {}: {} works in place, and would add up its own "
                            "results; give --op max{}",
                            options.operations, name, options.on_device ? ", or --place out" : ""));
    }
}

Case make_case(const Options &options, const Ragged &ragged, const Collective &row,
               const std::string &type, const std::string &op, std::int64_t size, bool in_place) {
    Case what;
    what.in_place = in_place;
    what.on_device = options.on_device;
    what.collective = row.name;
    what.type = type;
    what.output_type = options.wide_output ? "f32" : type;
    what.op = op;
    what.root = row.rooted ? options.root : -1;
    what.shared = options.shared;
    what.non_blocking = options.overlap;
    what.block = options.block;
    // No type has 0 bytes, but static analysers do not know this.
    const std::int64_t element = std::max<std::int64_t>(find_type(type).bytes(), 1);
    what.cuts = cut(ragged, size / element, options.block);
    what.tensors = split_evenly(what.elements(), options.tensors, options.block);
    return what;
}

}  // namespace

std::vector<Case> make_cases(const Options &options, int ranks) {
    check(options, ranks);
    const Ragged ragged = parse_ragged(options.ragged, ranks);
    std::vector<Case> cases;
    for (const std::string &name : options.collectives) {
        const Collective &row = find_collective(name);
        const bool sized = row.result != Contents::nothing;
        const std::vector<std::string> ops =
            row.reduces() ? options.ops : std::vector<std::string>{"none"};
        const std::vector<std::string> types =
            sized ? options.types : std::vector<std::string>{"u8"};
        const std::vector<std::int64_t> sizes =
            sized ? options.sizes : std::vector<std::int64_t>{0};
        const bool usual = row.in_place && !options.shared;
        const std::vector<std::string> places =
            options.on_device ? options.places : std::vector<std::string>{usual ? "in" : "out"};
        for (const std::string &type : types)
            for (const std::string &op : ops)
                for (const std::int64_t size : sizes)
                    for (const std::string &place : places)
                        if (!row.reduces() || combines(find_op(op), find_type(type).kind))
                            cases.push_back(
                                make_case(options, ragged, row, type, op, size, place == "in"));
    }
    if (cases.empty())
        throw std::invalid_argument(
            fmt::format("--op {}: {} has no such operator", options.ops[0], options.types[0]));
    return cases;
}

}  // namespace vescomm::perf

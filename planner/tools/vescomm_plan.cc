// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm-plan reads tensors, calls the planner, and prints layouts as text and JSON.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <fstream>

#include "planner/formats/quoted.h"
#include "planner/input/safetensors.h"
#include "planner/input/tensor_file.h"
#include "planner/models/models.h"
#include "planner/tools/report.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

using formats::quoted_text;

// Thrown when the input is valid but the request cannot be fulfilled.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::vector<InputTensor> read_tensors(const PlanOptions &options) {
    if (!options.model.empty()) return make_built_in_model(options.model);
    if (!options.safetensors.empty()) return read_safetensors(options.safetensors);
    return read_tensor_file(options.tensors);
}

// Converts an alignment from bytes to elements. The planner has one alignment for all buffers, so
// the smallest type is used. Buffers of larger types are aligned to more than requested.
std::int64_t to_elements(const Model &model, std::int64_t bytes, const char *option) {
    std::int64_t smallest = model.units.empty() ? 1 : bytes_of(model.units.front().type);
    for (const Unit &unit : model.units) smallest = std::min(smallest, bytes_of(unit.type));
    constexpr std::int64_t max = std::int64_t{1} << 30;
    if (bytes < 1 || bytes > max || bytes % smallest != 0)
        throw InputError(
            fmt::format("{} {}: give at most 1GiB, in multiples of the smallest elements of the "
                        "model, which have {}",
                        option, bytes, count_of(smallest, "byte")));
    return bytes / smallest;
}

Report make_report(const PlanOptions &options) {
    const std::vector<InputTensor> tensors = read_tensors(options);
    Report report;
    report.assumed = options.advice;
    report.title = options.title();
    report.model = make_model(tensors, options.rules);
    report.model.ranks = options.ranks;
    report.model.weights = options.weights;
    report.options.mode = options.mode;
    report.options.start_alignment =
        to_elements(report.model, options.align_start, "--align-start");
    report.options.cut_alignment = to_elements(report.model, options.align_cut, "--align-cut");
    report.options.search_steps = options.search_steps;
    report.options.costs.bytes_per_second = options.ranks <= options.advice.ranks_per_node
                                                ? options.advice.node_bytes_per_second
                                                : options.advice.network_bytes_per_second;
    const auto start = std::chrono::steady_clock::now();
    report.answer = plan(report.model, report.options);
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!report.answer.feasible) return report;
    if (options.compare) report.comparison = compare(report);
    if (options.advise) report.advice = advise(report.model, report.assumed, report.options);
    return report;
}

void write_file(const std::string &path, const std::string &text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw Failure(fmt::format("file {} cannot be written", quoted_text(path)));
}

void print(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
}

void run(const PlanOptions &options) {
    const Report report = make_report(options);
    const bool quiet = options.json == "-";
    if (quiet) print(to_json(report, options.cuts));
    else if (!options.json.empty()) write_file(options.json, to_json(report, options.cuts));
    if (!report.answer.feasible) throw Failure(report.answer.explanation);
    if (!quiet) print(describe(report));
    if (!quiet && report.comparison) print("\n" + describe(*report.comparison));
    if (!quiet && report.advice) print("\n" + describe(*report.advice, report.assumed));
    if (!options.picture.empty()) {
        std::fflush(stdout);
        draw(to_json(report, true), options.picture);
    }
    if (std::fflush(stdout) != 0) throw Failure("standard output cannot be written");
}

}  // namespace
}  // namespace vescomm::planner

int main(int argc, char **argv) {
    using namespace vescomm::planner;
    const std::variant<PlanOptions, PlanAnswer> read = read_plan_options(argc, argv);
    if (const auto *answer = std::get_if<PlanAnswer>(&read)) {
        std::fputs(answer->text.c_str(), answer->exit_code == 0 ? stdout : stderr);
        return answer->exit_code;
    }
    const auto complain = [](const std::exception &error, int exit_code) {
        std::fprintf(stderr, "vescomm-plan: %s\n", error.what());
        return exit_code;
    };
    try {
        run(std::get<PlanOptions>(read));
        return 0;
    } catch (const InputError &error) {
        return complain(error, 2);
    } catch (const std::invalid_argument &error) {
        return complain(error, 2);
    } catch (const std::exception &error) {
        return complain(error, 1);
    }
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// train_gpt trains one model with all parts of vescomm, using only its public API.
//
//     options ──► communicator ──► text ──► trainer ──► steps ──► report, sample, JSON, picture
//
// Every rank runs this program; rank 0 prints.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "fsdp/examples/train_gpt/gather.h"
#include "fsdp/examples/train_gpt/options.h"
#include "fsdp/examples/train_gpt/picture.h"
#include "fsdp/examples/train_gpt/recommendation.h"
#include "fsdp/examples/train_gpt/report.h"
#include "fsdp/examples/train_gpt/sample.h"
#include "fsdp/examples/train_gpt/step_times.h"
#include "fsdp/examples/train_gpt/text_data.h"
#include "fsdp/examples/train_gpt/trainer.h"
#include "fsdp/examples/train_gpt/training.h"

namespace train_gpt {

namespace {

// Checks that a file can be written, before the training instead of after it. A run that writes no
// results leaves files as they were.
void require_writable(const char *option, const std::string &path) {
    if (path.empty()) return;
    constexpr int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
    int file = open(path.c_str(), flags | O_EXCL, 0666);
    if (file >= 0) unlink(path.c_str());
    else if (errno == EEXIST) file = open(path.c_str(), flags, 0666);
    if (file < 0)
        throw std::runtime_error(fmt::format("{} {} cannot be written: {}", option, path,
                                             std::generic_category().message(errno)));
    close(file);
}

// True if a model can be exported there.
bool is_new_folder(const std::string &path) {
    std::error_code error;
    return !std::filesystem::exists(path, error) ||
           (std::filesystem::is_directory(path, error) && std::filesystem::is_empty(path, error));
}

// Checks that the model can be exported there, before the training instead of after it.
void require_new_folder(const char *option, const std::string &path) {
    if (!path.empty() && !is_new_folder(path))
        throw std::runtime_error(
            fmt::format("{} {} exists and is not an empty folder; give a new one", option, path));
}

// Checks that all ranks have the same options and text. Two hosts may have different files under
// one name, which would only change the loss slightly and remain undetected. Collective.
void require_same_everywhere(const vescomm::Communicator &comm, const Options &options,
                             const TextData &text) {
    // A double holds 52 bits of a hash exactly.
    const auto number = [](std::uint64_t hash) { return static_cast<double>(hash >> 12); };
    const std::string choices = options.of_all_ranks();
    const std::uint64_t choice_hash =
        hash_of({reinterpret_cast<const std::uint8_t *>(choices.data()), choices.size()});
    const double mine[] = {static_cast<double>(text.size()), number(text.hash()),
                           number(choice_hash)};
    const auto all = gather(comm, mine);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        if (all[rank][2] != all[0][2])
            throw std::runtime_error(fmt::format(
                "the options of ranks 0 and {} differ; start every rank with the same ones", rank));
        if (all[rank][0] != all[0][0] || all[rank][1] != all[0][1])
            throw std::runtime_error(fmt::format(
                "ranks 0 and {} read different texts: {:.0f} bytes with hash {:013x} and {:.0f} "
                "bytes with hash {:013x}; give every host the same --data",
                rank, all[0][0], static_cast<std::uint64_t>(all[0][1]), all[rank][0],
                static_cast<std::uint64_t>(all[rank][1])));
    }
}

// Computes averages over ranks and steps. Collective.
void add_communication(Trainer &trainer, Results &results) {
    double communication = 0;
    double exposed = 0;
    for (const StepResult &step : results.steps) {
        communication += step.communication_seconds;
        exposed += step.exposed_seconds;
    }
    const double all = static_cast<double>(results.steps.size()) * results.comm.ranks;
    results.communication_seconds = sum_over_ranks(trainer.comm(), communication) / all;
    results.exposed_seconds = sum_over_ranks(trainer.comm(), exposed) / all;
}

void write_file(const std::string &path, const std::string &text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file)
        throw std::runtime_error(
            fmt::format("{} cannot be written: {}", path, std::generic_category().message(errno)));
}

// Draws the picture. A failure only causes a warning. The script reads the JSON from a file.
void draw_or_warn(const Options &options, const std::string &json) {
    std::string path = options.json;
    if (path.empty()) {
        path = (std::filesystem::temp_directory_path() / "train_gpt.XXXXXX").string();
        const int file = mkstemp(path.data());
        if (file >= 0) close(file);
    }
    try {
        if (options.json.empty()) write_file(path, json);
        draw_loss(path, options.picture);
    } catch (const std::exception &error) {
        fmt::print(stderr, "train_gpt: the picture {} was not drawn: {}\n", options.picture,
                   error.what());
    }
    std::error_code ignored;
    if (options.json.empty()) std::filesystem::remove(path, ignored);
}

void export_model(const Options &options, const std::string &checkpoints) {
    // An export is complete or does not exist. A rank may have made it before it died.
    if (options.elastic && !is_new_folder(options.export_folder)) return;
    vescomm::check(vescomm_fsdp_export(checkpoints.c_str(), options.export_folder.c_str(), 0));
}

void write_results(const Options &options, const TextData &text, const Results &results) {
    const std::string json = json_text(options, text, results);
    if (!options.json.empty()) write_file(options.json, json);
    if (!options.picture.empty()) draw_or_warn(options, json);
    if (!options.export_folder.empty()) export_model(options, options.save);
}

// Exports a checkpoint that has done all steps.
void export_loaded(const Options &options, int done) {
    export_model(options, options.load);
    if (!options.quiet)
        fmt::print(
            "--load {} has done {} steps, and --steps is {}: its model is exported to {}, "
            "without training\n",
            options.load, done, options.steps, options.export_folder);
}

// Removes the checkpoint of an export, which survivors of a death may need until all ranks have
// their results. All ranks remove it, because one may die now: each finds files that another one
// removes.
void remove_save(const std::string &folder) {
    constexpr int attempts = 10;
    std::error_code ignored;
    for (int i = 0; i < attempts && std::filesystem::exists(folder, ignored); ++i)
        std::filesystem::remove_all(folder, ignored);
}

// Measures, and reports the results. Collective.
void finish(Trainer &trainer, const Options &options, Results &results, double begin) {
    add_communication(trainer, results);
    const bool first = results.comm.rank == 0;
    const auto say = [quiet = options.quiet || !first](const std::string &text) {
        if (!quiet) fmt::print("{}", text);
        std::fflush(stdout);
    };
    results.memory = measure_memory(trainer.comm(), results.mine, trainer.activation_bytes(),
                                    results.memory_before);
    say("\n" + memory_text(options, results) + "\n");
    say(summary_text(options, results, vescomm_trace_get_seconds() - begin));
    if (options.summary) say("\n" + text_of(step_times(results.steps)));

    if (options.sample > 0) {
        const std::string sample = write_sample(trainer.engine(), results.comm.rank, options);
        say("\nsample:\n" + printable(sample) + "\n");
    }
    if (!options.trace.empty())
        vescomm::check(vescomm_trace_write(trainer.engine().comm(), options.trace.c_str()));
}

void run(vescomm::Communicator &comm, std::optional<TextData> &text,
         std::optional<Trainer> &trainer, const Options &options) {
    const double begin = vescomm_trace_get_seconds();
    Results results;
    results.comm = comm.info();
    const bool first = results.comm.rank == 0;
    for (const Options::Death &death : options.deaths)
        if (death.rank >= results.comm.ranks)
            throw std::runtime_error(fmt::format("--kill-after {}:{}: there are {} ranks",
                                                 death.step, death.rank, results.comm.ranks));
    if (first) {
        require_writable("--json", options.json);
        require_writable("--picture", options.picture);
        require_writable("--trace", options.trace);
        require_new_folder("--export", options.export_folder);
    }
    if (std::error_code error; !options.offload.empty()) {
        std::filesystem::create_directories(options.offload, error);
        if (error)
            throw std::runtime_error(
                fmt::format("--offload {}: {}", options.offload, error.message()));
    }
    text.emplace(load_text(options.data, options.shape.context));
    require_same_everywhere(comm, options, *text);
    results.memory_before = process_memory().proportional;
    trainer.emplace(comm, options, *text);
    results.predict(trainer->spec(), comm, nodes_of_ranks(comm), options.accumulate);
    if (first && !options.quiet) fmt::print("{}", header_text(options, *text, results));
    if (first && !options.quiet && options.recommend > 0)
        fmt::print("{}", recommendation_text(trainer->spec(), results.comm, options.recommend,
                                             options.accumulate));
    std::fflush(stdout);

    // The engine has a communicator of its own.
    if (!options.trace.empty()) vescomm::check(vescomm_trace_start(trainer->engine().comm(), 0));
    const auto trained = [&] { return results.first_step < options.steps; };
    Training(comm, trainer, options, *text, results)
        .run(
            [&] {
                if (trained()) finish(*trainer, options, results, begin);
            },
            [&](bool again) {
                if (!trained()) return export_loaded(options, results.first_step);
                write_results(options, *text, results);
                if (again && !options.quiet)
                    fmt::print("ranks died after the training; its results are written again\n");
            });
    if (!options.keep_save && trained()) remove_save(options.save);
}

int run_and_report(const Options &options) {
    // Declared in this order so that after a failure the communicator is aborted before the
    // trainer, which may have active requests, is destroyed.
    std::optional<vescomm::Communicator> comm;
    std::optional<TextData> text;
    std::optional<Trainer> trainer;
    std::string prefix = "train_gpt";
    try {
        comm.emplace(vescomm::Communicator::from_environment());
        prefix += fmt::format(": rank {}", comm->rank());
        run(*comm, text, trainer, options);
        return 0;
    } catch (const std::exception &error) {
        fmt::print(stderr, "{}: {}\n", prefix, error.what());
        // Other ranks wait for this one, and destroying the communicator would wait for them.
        if (comm) vescomm_comm_abort(comm->get(), error.what());
        return 1;
    }
}

}  // namespace

}  // namespace train_gpt

int main(int argc, char **argv) {
    try {
        const auto options = train_gpt::parse_options(argc, argv);
        return options ? train_gpt::run_and_report(*options) : 0;
    } catch (const train_gpt::UsageError &error) {
        std::fprintf(stderr, "train_gpt: %s; see train_gpt --help\n", error.what());
        return 2;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "train_gpt: %s\n", error.what());
        return 1;
    }
}

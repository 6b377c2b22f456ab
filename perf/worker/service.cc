// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in run_once(), which times only start() and wait().
#include "perf/worker/service.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "perf/case/collectives.h"

namespace vescomm::perf {
namespace {

double now_us() {
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double median(std::vector<double> values) {
    if (values.empty()) return -1;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

Fault Fault::of_environment(const std::string &name, int rank) {
    const char *text = std::getenv("VESCOMM_PERF_FAULT");
    const std::string given = text == nullptr ? "" : text;
    const std::string ending = ":" + name + ":" + std::to_string(rank);
    return {given.ends_with(ending) ? given.substr(0, given.size() - ending.size()) : ""};
}

Service::Service(Implementation &implementation, int rank, Fault fault, std::function<void()> meet)
    : implementation_(implementation),
      rank_(rank),
      fault_(std::move(fault)),
      meet_(std::move(meet)) {}

Answer Service::answer(const Command &command) noexcept {
    Answer answer;
    try {
        if (command.name == "hello") answer.version = implementation_.version();
        else if (command.name == "prepare") answer = prepare(command.what);
        else if (command.name == "run") answer = run(command.turn);
        else if (command.name == "verify") answer = verify();
        else if (command.name == "end") end();
        else answer.error = "there is no command " + command.name;
    } catch (const Unsupported &error) {
        answer.unsupported = error.what();
    } catch (const std::exception &error) {
        answer.error = error.what();
    }
    answer.rank = rank_;
    return answer;
}

Answer Service::prepare(const Case &what) {
    end();
    Answer answer;
    answer.costs = implementation_.prepare(what);
    if (what.non_blocking && !implementation_.starts_non_blocking()) {
        implementation_.end();
        throw Unsupported("it has only operations that return when they are complete");
    }
    pattern_.emplace(what, rank_);
    output_bytes_ = find_collective(what.collective).output(what, rank_).elements() *
                    find_type(what.output_type).bytes();
    return answer;
}

Answer Service::run(const Turn &turn) {
    if (!pattern_) throw std::logic_error("run without prepare");
    if (fault_.kind == "die") kill(getpid(), SIGKILL);
    if (fault_.kind == "hang") pause();
    Answer answer;
    round_ = turn.round;
    // Reading the clock takes as long as a small operation, so the duration of start() is measured
    // in the warm-up only.
    std::vector<double> starts;
    for (int i = 0; i < turn.warm_up; ++i, ++round_) run_once(turn, &starts);
    answer.times_us.reserve(static_cast<std::size_t>(turn.iterations));
    for (int i = 0; i < turn.iterations; ++i, ++round_) {
        if (turn.compute_us > 0) answer.compute_us.push_back(compute_once(turn));
        answer.times_us.push_back(run_once(turn, nullptr));
    }
    --round_;
    if (!starts.empty()) answer.start_us = median(std::move(starts));
    return answer;
}

void Service::write_source(const Turn &turn) {
    if (turn.keep_source && round_ != turn.round) return;
    pattern_->write_input(round_, implementation_.input());
    implementation_.input_written();
    written_ = round_;
}

// Returns the microseconds of one operation, from the time at which the last rank is due.
double Service::run_once(const Turn &turn, std::vector<double> *starts) {
    write_source(turn);
    const bool timed_starts = starts != nullptr && implementation_.starts_non_blocking();
    const bool in_stream = implementation_.has_stream();
    meet_();
    const double begin = now_us() + turn.skew_us;
    if (turn.skew_us > 0 && rank_ == turn.late_rank)
        while (now_us() < begin) continue;
    for (int i = 0; i < turn.operations; ++i) {
        const double before = timed_starts ? now_us() : 0;
        implementation_.start();
        if (timed_starts) starts->push_back(now_us() - before);
        if (turn.compute_us > 0) computation_.run(turn.compute_us);
        if (!in_stream) implementation_.wait();
    }
    if (in_stream) implementation_.wait();
    const double time = (now_us() - begin) / turn.operations;
    implementation_.settle();
    // An early rank may be done before the late one is due: the root of a broadcast does not wait.
    return std::max(time, 0.0);
}

// Times the computation without the operation, on all ranks at the same time.
double Service::compute_once(const Turn &turn) {
    meet_();
    const double begin = now_us();
    computation_.run(turn.compute_us);
    return now_us() - begin;
}

Answer Service::verify() {
    if (!pattern_) throw std::logic_error("verify without prepare");
    std::byte *output = implementation_.output();
    if (fault_.kind == "corrupt" && output_bytes_ > 0) output[output_bytes_ / 2] ^= std::byte{0x55};
    Answer answer;
    answer.verdict = pattern_->verify(written_, output);
    return answer;
}

void Service::end() {
    if (!pattern_) return;
    pattern_.reset();
    implementation_.end();
}

}  // namespace vescomm::perf

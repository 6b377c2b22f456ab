// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "execute/kernels.h"
#include "fsdp/adamw.h"
#include "fsdp/rank_sum.h"
#include "fsdp/slots.h"
#include "vescomm/fsdp.hpp"

namespace vescomm::fsdp {

namespace {

// Shards of units start at multiples of this many floats: a cache line, more than kernels need.
constexpr std::size_t shard_alignment = 16;

std::size_t aligned(std::int64_t elements) {
    return (static_cast<std::size_t>(elements) + shard_alignment - 1) / shard_alignment *
           shard_alignment;
}

// Adds its lifetime to a sum.
class Stopwatch {
public:
    explicit Stopwatch(double &sum) : sum_(sum), begin_(std::chrono::steady_clock::now()) {}
    ~Stopwatch() {
        sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

private:
    double &sum_;
    std::chrono::steady_clock::time_point begin_;
};

}  // namespace

struct Engine::State {
    State(Communicator &comm, const std::vector<UnitSpec> &specs, const EngineOptions &options)
        : comm(comm), options(options), rank(comm.rank()), sum(comm) {
        if (options.slots < 1 || options.gradient_slots < 1)
            throw std::invalid_argument(
                "slots is " + std::to_string(options.slots) + " and gradient_slots " +
                std::to_string(options.gradient_slots) + "; both must be at least 1");
        const int ranks = comm.ranks();
        std::size_t total = 0;
        for (const UnitSpec &spec : specs) {
            units.push_back(plan_unit(spec, ranks, options.uniform));
            const auto [begin, end] = units.back().layout.shard(rank);
            starts.push_back(total);
            total += aligned(end - begin);
        }
        // One array for all units, so that a step is one pass over it.
        master.assign(total, 0);
        gradient.assign(total, 0);
        first_moment.assign(total, 0);
        second_moment.assign(total, 0);
        for (std::size_t unit = 0; unit < units.size(); ++unit) {
            const auto [begin, end] = units[unit].layout.shard(rank);
            const auto size = static_cast<std::size_t>(end - begin);
            shards.push_back({std::span(master).subspan(starts[unit], size),
                              std::span(gradient).subspan(starts[unit], size)});
        }
        parameters =
            std::make_unique<ParameterSlots>(comm, units, shards, options.compute, options.slots);
        gradients = std::make_unique<GradientSlots>(comm, units, shards, options.compute,
                                                    options.gradient_slots);
        summed.assign(units.size(), false);
    }

    int count() const { return static_cast<int>(units.size()); }

    void require_unit(int unit) const {
        if (unit < 0 || unit >= count())
            throw std::invalid_argument("there is no unit " + std::to_string(unit) +
                                        "; units are 0 to " + std::to_string(count() - 1));
    }

    Communicator &comm;
    EngineOptions options;
    int rank;
    std::vector<PlannedUnit> units;
    std::vector<std::size_t> starts;
    std::vector<float> master, gradient, first_moment, second_moment;
    std::vector<UnitShard> shards;
    RankSum sum;
    std::unique_ptr<ParameterSlots> parameters;
    std::unique_ptr<GradientSlots> gradients;
    std::vector<bool> summed;  // by unit: went through backward since the last step
    std::int64_t steps = 0;
    double exposed_seconds = 0;
    double optimizer_seconds = 0;
};

Engine::Engine(Communicator &comm, const std::vector<UnitSpec> &units, const EngineOptions &options)
    : state_(std::make_unique<State>(comm, units, options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine &&) noexcept = default;
Engine &Engine::operator=(Engine &&) noexcept = default;

int Engine::units() const {
    return state_->count();
}

void Engine::initialise(const Fill &fill) {
    State &s = *state_;
    for (int unit = 0; unit < s.count(); ++unit) {
        const PlannedUnit &planned = s.units[unit];
        for (const vescomm_piece_t &piece : planned.layout.pieces(s.rank)) {
            const auto tensor =
                std::find(planned.index.begin(), planned.index.end(), piece.tensor) -
                planned.index.begin();
            fill(unit, static_cast<int>(tensor), piece.first,
                 s.shards[unit].master.subspan(static_cast<std::size_t>(piece.offset),
                                               static_cast<std::size_t>(piece.elements)));
        }
    }
    s.parameters->invalidate();
}

void Engine::before_forward(int unit) {
    State &s = *state_;
    const Stopwatch watch(s.exposed_seconds);
    s.require_unit(unit);
    s.parameters->fetch(unit);
    s.parameters->await(unit);
    const int last = std::min(s.count() - 1, unit + s.parameters->count() - 1);
    for (int next = unit + 1; next <= last; ++next) s.parameters->fetch(next);
}

void Engine::after_forward(int unit) {
    State &s = *state_;
    const Stopwatch watch(s.exposed_seconds);
    s.require_unit(unit);
    // The last units stay gathered, because the backward pass begins with them.
    if (unit + s.parameters->count() < s.count()) s.parameters->release(unit);
    s.comm.progress();
}

void Engine::before_backward(int unit) {
    State &s = *state_;
    const Stopwatch watch(s.exposed_seconds);
    s.require_unit(unit);
    if (s.summed[unit])
        throw std::invalid_argument("unit \"" + s.units[unit].spec.name +
                                    "\" goes through backward a second time; call step() first");
    s.parameters->fetch(unit);
    s.parameters->await(unit);
    const int last = std::max(0, unit - s.parameters->count() + 1);
    for (int next = unit - 1; next >= last; --next) s.parameters->fetch(next);
    s.gradients->prepare(unit);
}

void Engine::after_backward(int unit) {
    State &s = *state_;
    const Stopwatch watch(s.exposed_seconds);
    s.require_unit(unit);
    s.gradients->send(unit);
    s.summed[unit] = true;
    // The first units stay gathered, because the next forward pass begins with them. A step makes
    // them stale.
    if (unit >= s.parameters->count()) s.parameters->release(unit);
    s.comm.progress();
}

std::span<const void *const> Engine::parameters(int unit) const {
    state_->require_unit(unit);
    return state_->parameters->pointers(unit);
}

std::span<void *const> Engine::gradients(int unit) const {
    state_->require_unit(unit);
    return state_->gradients->pointers(unit);
}

double Engine::step(const StepOptions &options) {
    State &s = *state_;
    const Stopwatch watch(s.exposed_seconds);
    for (int unit = 0; unit < s.count(); ++unit)
        if (!s.summed[unit])
            throw std::invalid_argument(
                "unit \"" + s.units[unit].spec.name +
                "\" has not gone through backward since the last step; announce every unit on "
                "every rank, with gradients of zero where it was not used");
    s.gradients->finish();
    double squares = 0;
    {
        const Stopwatch compute(s.optimizer_seconds);
        squares =
            internal::kernels().sum_of_squares(s.gradient.data(), VESCOMM_F32, s.gradient.size());
    }
    const double norm = std::sqrt(s.sum(squares));
    // The formula of torch.nn.utils.clip_grad_norm_.
    const double clip =
        options.max_norm > 0 ? std::min(1.0, options.max_norm / (norm + 1e-6)) : 1.0;
    {
        const Stopwatch compute(s.optimizer_seconds);
        adamw(s.master.data(), s.gradient.data(), s.first_moment.data(), s.second_moment.data(),
              s.master.size(),
              {.learning_rate = options.learning_rate,
               .beta1 = options.beta1,
               .beta2 = options.beta2,
               .epsilon = options.epsilon,
               .weight_decay = options.weight_decay,
               .gradient_scale = static_cast<float>(clip),
               .step = ++s.steps});
    }
    s.parameters->invalidate();
    s.summed.assign(s.units.size(), false);
    return norm;
}

double Engine::sum(double mine) {
    const Stopwatch watch(state_->exposed_seconds);
    return state_->sum(mine);
}

MemoryReport Engine::memory() const {
    const State &s = *state_;
    MemoryReport report;
    for (const PlannedUnit &unit : s.units) {
        report.parameters += static_cast<std::uint64_t>(unit.elements - unit.padding);
        report.padding += static_cast<std::uint64_t>(unit.padding);
        report.largest_shard += static_cast<std::uint64_t>(unit.largest_shard);
    }
    report.shards = s.master.size() * sizeof(float);
    report.gradient_shards = s.gradient.size() * sizeof(float);
    report.optimizer = 2 * s.first_moment.size() * sizeof(float);
    report.slabs_per_node = s.parameters->bytes();
    report.gradient_slots = s.gradients->bytes();
    const std::uint64_t copies = s.options.compute == Precision::bf16 ? 2 : 0;
    report.replicated = report.parameters * (4 * sizeof(float) + copies);
    return report;
}

double Engine::exposed_seconds() const {
    return state_->exposed_seconds - state_->optimizer_seconds;
}

double Engine::optimizer_seconds() const {
    return state_->optimizer_seconds;
}

}  // namespace vescomm::fsdp

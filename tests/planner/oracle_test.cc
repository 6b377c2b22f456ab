// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the planner with an independent solution: Z3 solves the layout problem as formulas,
// without orders, greedy filling or bounds.
//
//     test_planner_oracle [instances [seed]]
#include <gtest/gtest.h>
#include <z3++.h>

#include <cstdlib>

#include "planner_reference.h"
#include "random_options.h"

namespace vescomm::planner {
namespace {

int instances = 500;
unsigned seed = 21;

class Oracle {
public:
    Oracle(const Problem &problem, const Options &options)
        : problem_(problem), options_(options), solver_(context_) {
        for (const Tensor &tensor : problem.tensors) {
            if (reference::elements(tensor) > 0) tensors_.push_back(&tensor);
        }
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            const z3::expr multiple = context_.int_const(("m" + std::to_string(i)).c_str());
            solver_.add(multiple >= 0);
            starts_.push_back(multiple * number(alignment(*tensors_[i])));
        }
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            for (std::size_t k = 0; k < i; ++k) {
                solver_.add(end(i) <= starts_[k] || end(k) <= starts_[i]);
                // Break the symmetry between equal tensors: the first one comes first.
                if (alike(i, k)) solver_.add(starts_[k] < starts_[i]);
            }
        }
    }

    // Returns true if there is a layout with equal shards, or with shards of at most `shard`
    // elements.
    bool possible(std::int64_t shard) {
        solver_.push();
        std::vector<z3::expr> cuts;
        for (int rank = 0; rank <= problem_.ranks; ++rank) {
            if (options_.mode == Mode::uniform || rank == 0) {
                cuts.push_back(number(rank * shard));
                continue;
            }
            cuts.push_back(context_.int_const(("c" + std::to_string(rank)).c_str()));
            solver_.add(cuts[rank] >= cuts[rank - 1] &&
                        cuts[rank] <= cuts[rank - 1] + number(shard));
        }
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            solver_.add(end(i) <= cuts.back());
            for (int rank = 1; rank < problem_.ranks; ++rank) solver_.add(legal(i, cuts[rank]));
        }
        const z3::check_result result = solver_.check();
        solver_.pop();
        EXPECT_NE(result, z3::unknown);
        return result == z3::sat;
    }

private:
    // Returns the alignment of a tensor's start.
    std::int64_t alignment(const Tensor &tensor) const {
        return std::lcm(options_.start_alignment, std::max<std::int64_t>(tensor.alignment, 1));
    }

    z3::expr number(std::int64_t value) { return context_.int_val(value); }
    z3::expr end(std::size_t i) { return starts_[i] + number(reference::elements(*tensors_[i])); }

    bool alike(std::size_t i, std::size_t k) const {
        return reference::legal_cuts(*tensors_[i]) == reference::legal_cuts(*tensors_[k]) &&
               alignment(*tensors_[i]) == alignment(*tensors_[k]);
    }

    z3::expr legal(std::size_t i, const z3::expr &cut) {
        z3::expr result = cut <= starts_[i] || cut >= end(i);
        for (std::int64_t at = 1; at < reference::elements(*tensors_[i]); ++at) {
            if (reference::may_cut(*tensors_[i], at))
                result = result || cut == starts_[i] + number(at);
        }
        return result;
    }

    const Problem &problem_;
    const Options &options_;
    std::vector<const Tensor *> tensors_;
    z3::context context_;
    z3::solver solver_;
    std::vector<z3::expr> starts_;
};

// Checks the planner with few search steps and with more than enough.
void expect_proofs_hold(Mode mode) {
    std::mt19937 random(seed + (mode == Mode::uniform ? 0 : 1));
    for (int i = 0; i < instances; ++i) {
        Problem problem = reference::random_problem_with_twins(random, 6, 5);
        Options options = reference::random_options(random, mode);
        std::int64_t unit = mode == Mode::uniform ? options.start_alignment : options.cut_alignment;
        // Some tensors have their own alignment; uniform shards are a multiple of all alignments.
        const bool own = reference::draw(random, 0, 3) == 0;
        if (own) {
            problem.tensors[0].alignment = reference::draw(random, 2, 5);
            if (mode == Mode::uniform) unit = std::lcm(unit, problem.tensors[0].alignment);
        }
        options.search_steps = reference::draw(random, 0, 300);
        const Answer few = plan(problem, options);
        options.search_steps = 1000000;
        const Answer many = plan(problem, options);
        SCOPED_TRACE(reference::print(problem, options) + ": " + many.explanation);
        // For ragged shards with different alignments, the search solves a relaxation.
        if (mode == Mode::uniform || !own) {
            ASSERT_TRUE(many.optimal);
        }
        if (!many.optimal) continue;
        const auto in_units = [unit](std::int64_t elements) {
            return (elements + unit - 1) / unit * unit;
        };
        const std::int64_t shard = in_units(many.largest_shard);
        ASSERT_GE(in_units(few.largest_shard), shard);
        ASSERT_LE(in_units(few.lower_bound), shard);
        if (few.optimal) {
            ASSERT_EQ(in_units(few.largest_shard), shard);
        }

        Oracle oracle(problem, options);
        ASSERT_TRUE(oracle.possible(shard)) << shard;
        // Ragged: if a shard is impossible, so are all smaller ones. Uniform: ask about each.
        for (std::int64_t smaller = shard - unit; smaller > 0; smaller -= unit) {
            ASSERT_FALSE(oracle.possible(smaller)) << smaller;
            if (mode == Mode::ragged) break;
        }
    }
}

TEST(PlannerOracle, AgreesOnUniformShards) {
    expect_proofs_hold(Mode::uniform);
}

TEST(PlannerOracle, AgreesOnRaggedShards) {
    expect_proofs_hold(Mode::ragged);
}

}  // namespace
}  // namespace vescomm::planner

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (argc > 1) vescomm::planner::instances = std::atoi(argv[1]);
    if (argc > 2) vescomm::planner::seed = static_cast<unsigned>(std::atoi(argv[2]));
    return RUN_ALL_TESTS();
}

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests on arrays of the callers.
#include <algorithm>
#include <utility>

#include "base/types.h"
#include "comm/flight.h"
#include "comm/request.h"
#include "comm/schedule_check.h"
#include "execute/match/signature.h"

namespace vescomm::internal {

namespace {

class StagingPath final : public CollectivePath {
public:
    StagingPath(Communicator &comm, const AlgorithmEntry &algorithm, const AnyProblem &problem,
                vescomm_type_t type, std::int64_t elements, std::shared_ptr<StagingBuffer> staging)
        : CollectivePath(comm, algorithm, problem, bytes_of(type)),
          type_(type),
          elements_(elements),
          staging_(std::move(staging)) {}

    Run next(const Operation &operation) override {
        return staging_->next(is_uncompared() ? operation.signature() : 0);
    }
    std::string object() const override {
        return " of " + std::to_string(elements_) + " " + name_of_type(type_);
    }

private:
    // True: a rank may complete the call although the others made another one. In a gather_v or
    // scatter_v it may have nothing to exchange; the root of a broadcast does not wait for ranks of
    // other nodes.
    bool is_uncompared() const noexcept {
        switch (problem_->collective) {
            case Collective::gather_v:
            case Collective::scatter_v:
                return true;
            case Collective::broadcast:
                return problem_->nodes.count() > 1;
            default:
                return false;
        }
    }

    const vescomm_type_t type_;
    const std::int64_t elements_;
    const std::shared_ptr<StagingBuffer> staging_;
};

ArrayProblem problem_of(const StagingBuffer &staging, const RequestArrays &arrays,
                        const RequestOptions &options) {
    const Communicator &comm = *staging.comm();
    ArrayProblem problem;
    problem.collective = options.collective;
    problem.nodes = comm.nodes();
    problem.root = options.root;
    problem.in_order = comm.reproducible();
    problem.cuts = arrays.cuts;
    problem.exchange = arrays.exchange;
    staging.give_space(problem, options.type);
    return problem;
}

// The blocks of an all_to_all_v for the local peers of a rank, by local rank. The one for itself is
// empty, because nobody else reads it.
std::vector<Extent> local_blocks(const ArrayProblem &problem, int rank) {
    std::vector<Extent> blocks;
    for (const int peer : problem.nodes.members(problem.nodes.node_of(rank)))
        blocks.push_back(peer == rank ? Extent{}
                                      : Extent{problem.exchange.sent_at(rank, peer),
                                               problem.exchange.count(rank, peer)});
    return blocks;
}

}  // namespace

std::unique_ptr<Request> Request::create(const std::shared_ptr<StagingBuffer> &staging,
                                         Arrays arrays, const Options &options) {
    Communicator &comm = *staging->comm();
    comm.check();
    check(comm, options, options.type);
    const AnyProblem any = problem_of(*staging, arrays, options);
    const ArrayProblem &problem = *any.arrays();
    const AlgorithmOverride forced = override_of(comm, options);
    const Choice choice = select({&any, 1}, bytes_of(options.type), comm.machine(),
                                 forced.algorithm, forced.variable);
    const AlgorithmEntry &algorithm = *choice.algorithm;
    if (checks_schedules && comm.rank() == 0) check_if_small(algorithm, any);

    const std::int64_t elements = std::max(problem.elements(), problem.source_size(comm.rank()));
    Bindings bindings = bindings_of(comm, options);
    bindings.flight_word =
        flight_word(algorithm, options.type, options.op,
                    static_cast<std::uint64_t>(elements) * size_of(options.type));
    staging->bind(bindings, algorithm, options.type);
    bindings.match.signature = Signature(problem, algorithm.name, options.type, options.op,
                                         options.factor, arrays.boundaries.counts)
                                   .bits();
    // The sums of an all_reduce are read again soon.
    const auto locals = comm.nodes().members(comm.nodes().node_of(comm.rank())).size();
    bindings.streaming = !reduces(options.collective) &&
                         static_cast<std::uint64_t>(problem.output_size(comm.rank())) *
                                 size_of(options.type) * locals >
                             last_level_cache;
    bindings.match.pair_digests = pair_digests(problem, comm.rank(), arrays.boundaries.pairs);
    if (options.collective == Collective::all_to_all_v)
        bindings.registration.blocks = local_blocks(problem, comm.rank());
    bindings.source.type = bindings.output.type = options.type;
    bindings.source.pieces = arrays.source;
    bindings.output.pieces = arrays.output;
    auto path =
        std::make_unique<StagingPath>(comm, algorithm, any, options.type, elements, staging);
    return std::unique_ptr<Request>(new Request(staging->comm(), options, std::move(arrays),
                                                std::move(path), algorithm, choice.why, bindings));
}

}  // namespace vescomm::internal

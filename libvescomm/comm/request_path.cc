// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/request_path.h"

#include "base/types.h"
#include "execute/kernels.h"

namespace vescomm::internal {

Schedule CollectivePath::schedule() const {
    return algorithm_.make(problem_, comm_.rank());
}

std::optional<double> CollectivePath::predict() const {
    return vescomm::internal::predict(algorithm_, problem_, bytes_, comm_.machine());
}

AlgorithmOverride override_of(const Communicator &comm, const RequestOptions &options) {
    if (!options.algorithm.empty()) return {options.algorithm, {}};
    const std::string_view forced = comm.forced().of(options.collective);
    if (forced.empty()) return {};
    return {forced, "VESCOMM_ALGORITHM"};
}

ElementBytes bytes_of(vescomm_type_t type) {
    return {static_cast<int>(size_of(type)), static_cast<int>(size_of(accumulator_of(type)))};
}

Bindings bindings_of(Communicator &comm, const RequestOptions &options) {
    Bindings bindings;
    bindings.rank = comm.rank();
    bindings.nodes = comm.nodes();
    bindings.intra_node = &comm.intra_node();
    bindings.transports = comm.routes();
    bindings.reduction.op = options.op;
    bindings.reduction.factor = options.factor;
    if (options.op == VESCOMM_AVERAGE) bindings.reduction.divisor = comm.ranks();
    return bindings;
}

}  // namespace vescomm::internal

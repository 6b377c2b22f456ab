// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/node_bytes.h"

#include "fsdp/report/recommend.h"

namespace vescomm::fsdp::testing {

std::uint64_t node_bytes_of(const std::string &preset, const vescomm_fsdp_spec_options_t &options,
                            int ranks, int node_ranks, int units, std::int64_t rows,
                            std::int64_t columns) {
    Spec spec(options);
    const std::int64_t shape[] = {rows, columns};
    for (int unit = 0; unit < units; ++unit) {
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "w";
        parameter.shape = shape;
        parameter.dimensions = 2;
        spec.add_parameter(spec.add_unit("block." + std::to_string(unit)), parameter);
    }
    spec.complete();
    for (const Candidate &one : candidates(spec, {ranks, node_ranks}, 1))
        if (one.preset == preset) return one.node_bytes;
    return 0;
}

}  // namespace vescomm::fsdp::testing

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm_perf measures collectives of vescomm and other libraries. The program has three roles:
//
//     coordinator   starts teams of workers, sends them commands, prints their results
//     worker        a rank of vescomm, limit or NCCL, started by the coordinator with
//                   --worker NAME MEMORY
//     rank          under torchrun, mpirun, srun or vescomm-run; rank 0 also coordinates
#include <cstdio>
#include <cstring>
#include <optional>

#include "perf/implementations/arrays.h"
#include "perf/implementations/device_buffers.h"
#include "perf/implementations/device_nccl.h"
#include "perf/implementations/device_vescomm.h"
#include "perf/implementations/limit.h"
#include "perf/implementations/vescomm.h"
#include "perf/run/coordinate.h"
#include "perf/run/launched_team.h"
#include "perf/worker/serve.h"

namespace {

using namespace vescomm::perf;

int work_on_device(const std::string &name) {
    return serve(name, [&](const Worker &worker) {
        if (name == "vescomm") return make_vescomm_on_device(worker);
        if (name == "vescomm-buffers") return make_buffers_on_device(nullptr, worker);
        if (name == "vescomm-peer") return make_buffers_on_device("peer", worker);
        if (name == "vescomm-copies") return make_buffers_on_device("copy_engine", worker);
        return make_nccl_on_device(name == "nccl-padded"    ? NcclWay::padded
                                   : name == "nccl-grouped" ? NcclWay::grouped
                                                            : NcclWay::equal,
                                   worker);
    });
}

int work(const std::string &name) {
    if (name == "limit") return serve(name, make_limit);
    std::optional<vescomm::Communicator> comm;
    return serve(name, [&](const Worker &) {
        comm.emplace(vescomm::Communicator::from_environment());
        if (name == "vescomm") return make_vescomm(*comm);
        return make_arrays(*comm, name == "vescomm-registered");
    });
}

int complain(const char *sentence, ExitCode code) {
    std::fprintf(stderr, "vescomm_perf: %s\n", sentence);
    return static_cast<int>(code);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 4 && std::strcmp(argv[1], "--worker") == 0)
        return std::strcmp(argv[3], "device") == 0 ? work_on_device(argv[2]) : work(argv[2]);
    const std::variant<Options, OptionsAnswer> read = read_options(argc, argv);
    if (const auto *answer = std::get_if<OptionsAnswer>(&read)) {
        std::fputs(answer->text.c_str(), answer->exit_code == 0 ? stdout : stderr);
        return answer->exit_code;
    }
    const auto &options = std::get<Options>(read);
    try {
        const bool here = options.ranks > 0 || options.hosts > 1 || !launched();
        return static_cast<int>(here ? coordinate_here(options) : take_part(options));
    } catch (const Failure &failure) {
        return complain(failure.what(), failure.code);
    } catch (const vescomm::Error &error) {
        return complain(error.what(), error.status() == VESCOMM_ERROR_TIMEOUT ? ExitCode::timeout
                                                                              : ExitCode::failed);
    } catch (const std::exception &error) {
        return complain(error.what(), ExitCode::internal);
    }
}

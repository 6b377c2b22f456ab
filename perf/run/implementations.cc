// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of implementations. A new one is a row here and a worker (see worker/serve.h).
//
// Zone: set-up.
#include "perf/run/implementations.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "perf/implementations/device_functions.h"
#include "perf/worker/cores.h"

namespace vescomm::perf {
namespace {

using Words = std::vector<std::string>;

Words open_mpi(const Launch &launch, Words details) {
    Words words = {"mpirun.openmpi",
                   "--allow-run-as-root",
                   "--oversubscribe",
                   "--bind-to",
                   "none",
                   "-n",
                   std::to_string(launch.ranks)};
    // Without this, a waiting rank keeps the core from the rank that it waits for.
    if (more_ranks_than_cores(launch.ranks))
        details.insert(details.end(), {"mpi_yield_when_idle", "1"});
    if (!launch.hosts.empty()) {
        std::string hosts;
        for (const auto &[address, ranks] : launch.hosts)
            hosts += (hosts.empty() ? "" : ",") + address + ":" + std::to_string(ranks);
        words.insert(words.end(), {"--host", hosts});
        details.insert(details.end(),
                       {"plm", "rsh", "plm_rsh_agent", launch.agent, "oob_tcp_if_include", "eth0"});
    }
    for (std::size_t i = 0; i < details.size(); i += 2)
        words.insert(words.end(), {"--mca", details[i], details[i + 1]});
    return words;
}

// The sm transport of Open MPI 4 is called vader; CMA copies once between processes.
Words mpi(const Launch &launch) {
    Words details = {
        "pml", "ob1", "btl_vader_single_copy_mechanism", "cma", "btl_base_warn_component_unused",
        "0"};
    if (launch.hosts.empty()) details.insert(details.end(), {"btl", "self,vader"});
    else details.insert(details.end(), {"btl", "self,vader,tcp", "btl_tcp_if_include", "eth0"});
    return open_mpi(launch, details);
}

Words mpi_ucx(const Launch &launch) {
    // Without "any", Open MPI uses UCX only on certain networks.
    return open_mpi(launch, {"pml", "ucx", "pml_ucx_tls", "any", "pml_ucx_devices", "any"});
}

Words mpich(const Launch &launch) {
    return {"mpiexec.mpich", "-n", std::to_string(launch.ranks)};
}

constexpr int any_number = 1 << 30;

// Columns: name, memory of GPUs, summary, worker, launcher, ranks on each of several hosts, remedy
// if missing.
//
// UCX takes emulated hosts for one machine and would use shared memory between them. So UCC and
// Open MPI over UCX are restricted to TCP and, because that is slow between local peers, to one
// rank on each host.
const ImplementationRow table[] = {
    {"vescomm", false, "this library", "", nullptr, any_number, ""},
    {"vescomm-arrays", false, "this library on arrays of the caller, called at once", "", nullptr,
     any_number, ""},
    {"vescomm-registered", false, "the same on arrays in memory of vescomm_malloc()", "", nullptr,
     any_number, ""},
    {"limit", false,
     "direct copies and sums in shared memory with counters, or plain TCP between hosts", "",
     nullptr, 1, ""},
    {"mpi", false, "Open MPI, shared memory (ob1, vader, CMA), and TCP", "vescomm_perf_mpi", mpi,
     any_number, "install libopenmpi-dev and openmpi-bin, and configure again"},
    {"mpi-ucx", false, "Open MPI over UCX", "vescomm_perf_mpi", mpi_ucx, 1,
     "install libopenmpi-dev and openmpi-bin, and configure again"},
    {"mpich", false, "MPICH", "vescomm_perf_mpich", mpich, 0,
     "install libmpich-dev and mpich, and configure again"},
    {"gloo", false, "Gloo over TCP", "vescomm_perf_gloo", nullptr, any_number,
     "install libgloo-dev, and configure again"},
    {"ucc", false, "UCC over UCX", "vescomm_perf_ucc", nullptr, 1,
     "install UCC where the compiler finds it, and configure again"},
    {"vescomm", true, "this library on the memory of GPUs (gpu.h)", "", nullptr, 0, ""},
    {"vescomm-buffers", true, "this library on device buffers, in place", "", nullptr, 0, ""},
    {"vescomm-peer", true, "the same, by kernels that read the memory of other ranks", "", nullptr,
     0, ""},
    {"vescomm-copies", true, "the same, all_gather_v by the copy engines of the GPUs", "", nullptr,
     0, ""},
    {"nccl", true, "NCCL's own calls; shards of equal size only", "", nullptr, 0, ""},
    {"nccl-padded", true, "NCCL on shards padded to the largest size, with copies", "", nullptr, 0,
     ""},
    {"nccl-grouped", true, "a group of NCCL's broadcasts or reductions, one for each rank", "",
     nullptr, 0, ""},
};

// Looks in the build folder of this program, then in the folder of installed baselines.
std::string find_worker(std::string_view worker) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    for (const std::filesystem::path &folder :
         {self.parent_path() / "baselines", std::filesystem::path(VESCOMM_PERF_WORKERS)}) {
        std::string path = folder / worker;
        if (access(path.c_str(), X_OK) == 0) return path;
    }
    return "";
}

bool in_path(const std::string &program) {
    const char *variable = std::getenv("PATH");
    const std::string path = variable == nullptr ? "" : variable;
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        const std::string file = path.substr(begin, end - begin) + "/" + program;
        if (access(file.c_str(), X_OK) == 0) return true;
        begin = end + 1;
    }
    return false;
}

}  // namespace

std::span<const ImplementationRow> implementation_rows() {
    return table;
}

const ImplementationRow &find_implementation(std::string_view name, bool on_device) {
    const ImplementationRow *other = nullptr;
    std::string known;
    for (const ImplementationRow &row : table) {
        if (row.name == name && row.on_device == on_device) return row;
        if (row.name == name) other = &row;
        if (row.on_device == on_device)
            known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    if (other != nullptr) return *other;
    throw std::invalid_argument("--impl " + std::string(name) + ": there is " + known);
}

std::vector<std::string> worker_command(const ImplementationRow &row) {
    // Resolve the link, because /proc/self/exe names another program in the worker.
    if (row.worker.empty())
        return {std::filesystem::read_symlink("/proc/self/exe"), "--worker", std::string(row.name),
                row.on_device ? "device" : "host"};
    return {find_worker(row.worker)};
}

std::string why_not(const ImplementationRow &row, int ranks, const Options &options) {
    if (row.on_device && !options.on_device)
        return "it moves the memory of GPUs: give --memory device";
    if (!row.on_device && options.on_device) return "it moves host memory only";
    if (row.on_device) return why_no_devices(ranks, options.threads);
    const int hosts = options.hosts;
    if (!row.worker.empty() && find_worker(row.worker).empty())
        return "not built in: " + std::string(row.missing);
    if (hosts > 1 && row.ranks_on_host == 0) return "it is measured on one host only";
    if (hosts > 1 && ranks > row.ranks_on_host * static_cast<std::int64_t>(hosts))
        return "on several hosts it is measured with one rank on each";
    if (row.launcher != nullptr) {
        const std::string program = row.launcher({}).front();
        if (!in_path(program)) return program + " is not installed";
    }
    return "";
}

}  // namespace vescomm::perf

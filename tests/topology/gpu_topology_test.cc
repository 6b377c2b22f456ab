// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of eight_gpus.xml: two packages, each with two PCIe host bridges, each with two
// switches, each with a GPU and a network card. NVML is the test double.
#include "topology/gpu_topology.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace vescomm::internal {
namespace {

std::string xml_file() {
    return std::getenv("EIGHT_GPUS_XML");
}

std::string double_library() {
    return std::string(std::getenv("GPU_DOUBLE_FOLDER")) + "/libnvidia-ml.so.1";
}

// Reads the topology while a variable is set.
GpuTopology read_with(const char *variable, const char *value) {
    setenv(variable, value, 1);
    GpuTopology topology = read_gpu_topology(read_nvlinks(double_library()), xml_file());
    unsetenv(variable);
    return topology;
}

// The path between devices of the file, by the numbers of their switches.
PciPath expected(std::size_t a, std::size_t b) {
    return a == b           ? PciPath::pci_switch
           : a / 2 == b / 2 ? PciPath::host_bridge
           : a / 4 == b / 4 ? PciPath::numa_node
                            : PciPath::machine;
}

TEST(GpuTopology, HasThePathsOnPci) {
    const GpuTopology topology = read_with("GPU_DOUBLE_NVLINK", "none");
    EXPECT_EQ(topology.nvml, "");
    ASSERT_EQ(topology.gpus.size(), 8u);
    ASSERT_EQ(topology.nics.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(topology.gpus[i].name, "a double");
        EXPECT_EQ(topology.nics[i].name, "mlx5_" + std::to_string(i));
        for (std::size_t k = 0; k < 8; ++k) {
            EXPECT_EQ(topology.nvlinks[i][k], 0);
            EXPECT_EQ(topology.gpu_paths[i][k], i == k ? PciPath::same : expected(i, k))
                << i << " " << k;
            EXPECT_EQ(topology.nic_paths[i][k], expected(i, k)) << i << " " << k;
        }
    }
}

TEST(GpuTopology, CountsNvlinksThroughSwitches) {
    const GpuTopology topology = read_with("GPU_DOUBLE_NVLINK", "switch");
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t k = 0; k < 8; ++k) EXPECT_EQ(topology.nvlinks[i][k], i == k ? 0 : 18);
}

TEST(GpuTopology, CountsActiveNvlinksBetweenGpus) {
    const GpuTopology topology = read_with("GPU_DOUBLE_NVLINK", "pairs");
    for (std::size_t i = 0; i < 8; ++i)
        for (std::size_t k = 0; k < 8; ++k)
            EXPECT_EQ(topology.nvlinks[i][k], i != k && i / 2 == k / 2 ? 4 : 0);
}

TEST(GpuTopology, IsATable) {
    const std::string text = describe(read_with("GPU_DOUBLE_NVLINK", "pairs"));
    EXPECT_NE(text.find("GPU0: a double, 0000:12:00.0\n"), std::string::npos) << text;
    EXPECT_NE(text.find("        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    "
                        "mlx5_0  mlx5_1  mlx5_2  mlx5_3  mlx5_4  mlx5_5  mlx5_6  mlx5_7\n"
                        "GPU0    -       NV4     node    node    system  system  system  system  "
                        "switch  bridge  node    node    system  system  system  system\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("not known"), std::string::npos);
}

TEST(GpuTopology, WithoutNvmlHasTheGpusOnPci) {
    const GpuTopology topology = read_gpu_topology(read_nvlinks("libno_nvml.so.1"), xml_file());
    ASSERT_EQ(topology.gpus.size(), 8u);
    EXPECT_EQ(to_string(topology.gpus[7].address), "0000:46:00.0");
    EXPECT_EQ(topology.gpu_paths[0][1], PciPath::host_bridge);
    const std::string text = describe(topology);
    EXPECT_NE(text.find("NVLinks are not known: NVML cannot be loaded: libno_nvml.so.1"),
              std::string::npos)
        << text;
}

TEST(GpuTopology, StatesWhyNvmlIsNotUsable) {
    EXPECT_EQ(read_with("GPU_DOUBLE_NVML", "9").nvml, "NVML does not start: Driver Not Loaded");
    EXPECT_EQ(read_nvlinks("libc.so.6").missing, "NVML lacks nvmlInit_v2(): the driver is too old");
}

TEST(GpuTopology, OfDevicesThatPciDoesNotShowIsUnknown) {
    Nvlinks nvlinks;
    nvlinks.gpus.push_back({"hidden", {0, 0xee, 0}, 0, {}});
    nvlinks.gpus.push_back({"shown", {0, 0x12, 0}, 0, {}});
    const GpuTopology topology = read_gpu_topology(nvlinks, xml_file());
    EXPECT_EQ(topology.gpu_paths[0][0], PciPath::same);
    EXPECT_EQ(topology.gpu_paths[0][1], PciPath::unknown);
    EXPECT_EQ(topology.nic_paths[0][0], PciPath::unknown);
    EXPECT_EQ(topology.nic_paths[1][0], PciPath::pci_switch);
}

TEST(GpuTopology, OfAMachineWithoutGpusIsEmpty) {
    EXPECT_EQ(describe(read_gpu_topology({}, xml_file())), "");
}

TEST(GpuTopology, RefusesAFileThatIsNotThere) {
    EXPECT_THROW(read_gpu_topology({}, "/no/such/file.xml"), Error);
}

}  // namespace
}  // namespace vescomm::internal

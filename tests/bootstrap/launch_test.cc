// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"

namespace vescomm::internal {
namespace {

using Environment = std::map<std::string, std::string>;

Launch launch_in(const Environment &environment) {
    return read_launch([&](const char *name) -> const char * {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
    });
}

Environment operator+(Environment one, const Environment &other) {
    for (const auto &[name, value] : other) one[name] = value;
    return one;
}

Environment without(Environment environment, const std::string &name) {
    environment.erase(name);
    return environment;
}

void expect_error(const Environment &environment, const std::vector<std::string> &parts) {
    try {
        launch_in(environment);
        ADD_FAILURE() << "no error";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        for (const std::string &part : parts)
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                << "\"" << part << "\" is not in: " << error.what();
    }
}

const Environment vescomm{{"VESCOMM_RANK", "2"},
                          {"VESCOMM_RANKS", "4"},
                          {"VESCOMM_ADDRESS", "10.0.0.1:4711"},
                          {"VESCOMM_SECRET", "s3cret"}};
const Environment torchrun{{"RANK", "3"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "head"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RUN_ID", "job"}};
const Environment open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "606928897"}};
const Environment hydra{{"PMI_RANK", "1"},        {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"},
                        {"MPI_LOCALNRANKS", "2"}, {"USER", "u"},     {"PWD", "/home/u"}};
const Environment slurm{{"SLURM_PROCID", "5"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_JOB_ID", "4242"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_NNODES", "2"},
                        {"SLURM_STEP_NODELIST", "node[003-004]"},
                        {"SLURM_JOB_NODELIST", "node[001-008]"}};

TEST(Launch, IsOneRankWithoutALauncher) {
    const Launch launch = launch_in({});
    EXPECT_EQ(launch.rank, 0);
    EXPECT_EQ(launch.ranks, 1);
    EXPECT_EQ(launch.local_rank, -1);
    EXPECT_EQ(launch.source, "nobody");
    EXPECT_TRUE(launch.ignored.empty());
    EXPECT_EQ(launch.listen_descriptor, -1);
}

TEST(Launch, ReadsOurOwnVariables) {
    const Launch launch = launch_in(vescomm);
    EXPECT_EQ(launch.rank, 2);
    EXPECT_EQ(launch.ranks, 4);
    EXPECT_EQ(launch.host, "10.0.0.1");
    EXPECT_EQ(launch.port, 4711);
    EXPECT_EQ(launch.secret, "s3cret");
    EXPECT_FALSE(launch.secret_derived);
    EXPECT_EQ(launch.source, "vescomm");

    const Launch ipv6 = launch_in(vescomm + Environment{{"VESCOMM_ADDRESS", "[fd00::2]:1"}});
    EXPECT_EQ(ipv6.host, "fd00::2");
}

TEST(Launch, TakesAListeningDescriptorOnlyAtRankZero) {
    const Environment given = vescomm + Environment{{"VESCOMM_LISTEN_DESCRIPTOR", "7"}};
    EXPECT_EQ(launch_in(given).listen_descriptor, -1);
    EXPECT_EQ(launch_in(given + Environment{{"VESCOMM_RANK", "0"}}).listen_descriptor, 7);
    EXPECT_EQ(launch_in(torchrun + Environment{{"RANK", "0"}, {"VESCOMM_LISTEN_DESCRIPTOR", "7"}})
                  .listen_descriptor,
              -1);
}

TEST(Launch, AvoidsThePortOfTorchrunsStore) {
    const Launch launch = launch_in(torchrun);
    EXPECT_EQ(launch.source, "torchrun");
    EXPECT_EQ(launch.rank, 3);
    EXPECT_EQ(launch.ranks, 8);
    EXPECT_EQ(launch.local_rank, 1);
    EXPECT_EQ(launch.host, "head");
    EXPECT_EQ(launch.port, 29501);
    EXPECT_TRUE(launch.secret_derived);
    EXPECT_EQ(launch_in(torchrun + Environment{{"VESCOMM_PORT", "77"}}).port, 77);
    // Only this machine needs to reach rank 0.
    EXPECT_EQ(launch_in(torchrun + Environment{{"LOCAL_WORLD_SIZE", "8"}}).host, "127.0.0.1");
    EXPECT_EQ(launch_in(torchrun + Environment{{"LOCAL_WORLD_SIZE", "4"}}).host, "head");
    expect_error(torchrun + Environment{{"MASTER_PORT", "65535"}}, {"MASTER_PORT=65535"});
    expect_error(without(torchrun, "MASTER_PORT"), {"MASTER_PORT", "VESCOMM_PORT"});
    expect_error(without(torchrun, "MASTER_ADDR"), {"MASTER_ADDR", "VESCOMM_ADDRESS"});
}

TEST(Launch, FindsOpenMpiAndHydraOnOneMachine) {
    for (const Environment &environment : {open_mpi, hydra}) {
        const Launch launch = launch_in(environment);
        EXPECT_EQ(launch.rank, 1);
        EXPECT_EQ(launch.ranks, 2);
        EXPECT_EQ(launch.local_rank, 1);
        EXPECT_EQ(launch.host, "127.0.0.1");
        EXPECT_GE(launch.port, first_derived_port);
        EXPECT_LT(launch.port, first_derived_port + derived_ports);
        EXPECT_FALSE(launch.secret.empty());
        EXPECT_TRUE(launch.secret_derived);
    }
}

TEST(Launch, NamesTheVariableToSetWhenOpenMpiRunsOnSeveralMachines) {
    const Environment spread = open_mpi + Environment{{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
    expect_error(spread, {"Open MPI", "VESCOMM_ADDRESS"});
    const Launch named = launch_in(spread + Environment{{"MASTER_ADDR", "head"}});
    EXPECT_EQ(named.host, "head");
    EXPECT_EQ(named.port, launch_in(open_mpi).port);
    const Launch full =
        launch_in(spread + Environment{{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1000"}});
    EXPECT_EQ(full.port, 1001);
    const Launch explicitly = launch_in(spread + Environment{{"VESCOMM_ADDRESS", "a:5"}});
    EXPECT_EQ(explicitly.host, "a");
    EXPECT_EQ(explicitly.port, 5);
}

TEST(Launch, FindsTheFirstHostOfASlurmStep) {
    const Launch launch = launch_in(slurm);
    EXPECT_EQ(launch.rank, 5);
    EXPECT_EQ(launch.ranks, 8);
    EXPECT_EQ(launch.local_rank, 1);
    EXPECT_EQ(launch.host, "node003");
    EXPECT_EQ(launch_in(without(slurm, "SLURM_STEP_NODELIST")).host, "node001");
    EXPECT_EQ(launch_in(slurm + Environment{{"SLURM_NNODES", "1"}}).host, "127.0.0.1");
    EXPECT_EQ(launch_in(slurm + Environment{{"SLURM_STEP_NUM_TASKS", "6"}}).ranks, 6);
    expect_error(slurm + Environment{{"SLURM_STEP_NODELIST", "node[003"}},
                 {"SLURM_STEP_NODELIST=node[003", "VESCOMM_ADDRESS"});
}

TEST(Launch, IgnoresSlurmVariablesOutsideOfAStep) {
    // sbatch and salloc set SLURM_PROCID or SLURM_NTASKS in their shells.
    EXPECT_EQ(launch_in(without(slurm, "SLURM_STEP_ID")).ranks, 1);
    EXPECT_EQ(launch_in(without(slurm, "SLURM_PROCID")).ranks, 1);
}

TEST(Launch, PrefersVescommVariablesThenTorchrunAndSlurmLast) {
    Environment all = slurm;
    std::vector<std::string> expected;
    EXPECT_EQ(launch_in(all).source, "Slurm");
    const std::vector<std::pair<Environment, std::string>> later{
        {hydra, "Hydra"}, {open_mpi, "Open MPI"}, {torchrun, "torchrun"}, {vescomm, "vescomm"}};
    std::vector<std::string> ignored{"Slurm"};
    for (const auto &[environment, name] : later) {
        all = all + environment;
        const Launch launch = launch_in(all);
        EXPECT_EQ(launch.source, name);
        EXPECT_EQ(launch.ignored, ignored);
        ignored.insert(ignored.begin(), name);
    }
}

TEST(Launch, DerivesPortAndSecretFromTheJob) {
    const Launch one = launch_in(slurm);
    EXPECT_EQ(one.port, launch_in(slurm + Environment{{"SLURM_PROCID", "0"}}).port);
    EXPECT_EQ(one.secret, launch_in(slurm + Environment{{"SLURM_PROCID", "0"}}).secret);
    std::set<std::uint16_t> ports;
    for (int job = 0; job < 100; ++job) {
        const Launch other = launch_in(slurm + Environment{{"SLURM_JOB_ID", std::to_string(job)}});
        EXPECT_NE(other.secret, one.secret);
        EXPECT_GE(other.port, first_derived_port);
        EXPECT_LT(other.port, first_derived_port + derived_ports);
        ports.insert(other.port);
    }
    EXPECT_GT(ports.size(), 90u) << "jobs on one machine should rarely collide";
    // A restart is another job: processes that remain from the first run must not join.
    EXPECT_NE(launch_in(torchrun + Environment{{"TORCHELASTIC_RESTART_COUNT", "1"}}).secret,
              launch_in(torchrun + Environment{{"TORCHELASTIC_RESTART_COUNT", "0"}}).secret);
    EXPECT_EQ(launch_in(slurm + Environment{{"VESCOMM_SECRET", "mine"}}).secret, "mine");
}

TEST(Launch, NamesTheVariableAndItsValueWhenItIsNotANumber) {
    for (const char *value :
         {"12abc", "-1", " 1", "1 ", "0x1", "1.0", "99999999999", "one", "+1"}) {
        const std::string shown = value;
        expect_error(vescomm + Environment{{"VESCOMM_RANK", value}}, {"VESCOMM_RANK=" + shown});
        expect_error(vescomm + Environment{{"VESCOMM_RANKS", value}}, {"VESCOMM_RANKS=" + shown});
        expect_error(torchrun + Environment{{"MASTER_PORT", value}}, {"MASTER_PORT=" + shown});
    }
    expect_error(vescomm + Environment{{"VESCOMM_RANKS", "0"}}, {"VESCOMM_RANKS=0"});
    expect_error(vescomm + Environment{{"VESCOMM_RANK", "4"}},
                 {"VESCOMM_RANK=4", "VESCOMM_RANKS=4"});
    expect_error(vescomm + Environment{{"VESCOMM_ADDRESS", "nonsense"}},
                 {"VESCOMM_ADDRESS=nonsense"});
    expect_error(without(vescomm, "VESCOMM_ADDRESS"), {"VESCOMM_ADDRESS"});
    expect_error(without(vescomm, "VESCOMM_RANK"), {"VESCOMM_RANKS=4", "VESCOMM_RANK is not"});
    expect_error(without(vescomm, "VESCOMM_RANKS"), {"VESCOMM_RANK=2", "VESCOMM_RANKS is not"});
    expect_error({{"PMIX_RANK", "3"}}, {"PMIX_RANK=3", "VESCOMM_RANKS"});
}

TEST(Launch, TreatsAnEmptyVariableAsNotSet) {
    EXPECT_EQ(launch_in({{"VESCOMM_RANK", ""}, {"RANK", ""}}).ranks, 1);
    EXPECT_TRUE(launch_in(vescomm + Environment{{"VESCOMM_SECRET", ""}}).secret_derived);
}

TEST(Launch, NeedsNoAddressForOneRank) {
    EXPECT_EQ(launch_in({{"VESCOMM_RANK", "0"}, {"VESCOMM_RANKS", "1"}}).ranks, 1);
    EXPECT_EQ(launch_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).source, "torchrun");
}

TEST(Launch, ExpandsTheFirstEntryOfASlurmList) {
    const std::vector<std::pair<std::string, std::string>> cases{
        {"node1", "node1"},
        {"a,b", "a"},
        {"node[003-005,7]", "node003"},
        {"gpu-[1,3],other", "gpu-1"},
        {"rack[1-2]n[01-04]", "rack1n01"},
        {"n1,n[2-3]", "n1"},
        {"n[7].example.org", "n7.example.org"},
        {"", ""},
        {"n[", ""},
        {"n[1", ""},
        {"n[]", ""},
        {"n]", ""},
        {"n[-3]", ""},
    };
    for (const auto &[list, host] : cases) EXPECT_EQ(first_slurm_host(list), host) << list;
}

}  // namespace
}  // namespace vescomm::internal

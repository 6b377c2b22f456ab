// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The settings of a program that are passed to NCCL.
#include "gpu/device_ranks.h"
#include "gpu/nccl_config.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

std::string refusal(const std::string &settings) {
    try {
        check_nccl_settings("f", settings);
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

TEST(NcclConfig, HasEachSettingInItsMember) {
    const nccl::Config config = make_nccl_config(
        "cgaClusterSize=1,netName=IB,trafficClass=3,commName=a=b c,collnetEnable=0,CTAPolicy=2,"
        "nvlsCTAs=7,nChannelsPerNetPeer=8,nvlinkCentricSched=1,graphUsageMode=2,numRmaCtx=10,"
        "maxP2pPeers=11,graphStreamOrdering=-1",
        23203);
    EXPECT_EQ(config.size, sizeof config);
    EXPECT_EQ(config.version, 23005);
    EXPECT_EQ(config.blocking, 1);
    EXPECT_EQ(config.cga_cluster_size, 1);
    EXPECT_STREQ(config.net_name, "IB");
    EXPECT_EQ(config.traffic_class, 3);
    EXPECT_STREQ(config.comm_name, "a=b c");
    EXPECT_EQ(config.collnet_enable, 0);
    EXPECT_EQ(config.cta_policy, 2);
    EXPECT_EQ(config.nvls_ctas, 7);
    EXPECT_EQ(config.channels_per_net_peer, 8);
    EXPECT_EQ(config.nvlink_centric_sched, 1);
    EXPECT_EQ(config.graph_usage_mode, 2);
    EXPECT_EQ(config.rma_contexts, 10);
    EXPECT_EQ(config.max_p2p_peers, 11);
    EXPECT_EQ(config.graph_stream_ordering, -1);
    // Left out: NCCL's own.
    EXPECT_EQ(config.min_ctas, INT_MIN);
    EXPECT_EQ(config.split_share, INT_MIN);
}

// NCCL drops members that are younger than the version of the configuration.
TEST(NcclConfig, StatesTheYoungestVersionThatNcclKnows) {
    const auto expect = [](int of_nccl, unsigned version, std::size_t bytes) {
        const nccl::Config config = make_nccl_config("", of_nccl);
        EXPECT_EQ(config.version, version) << of_nccl;
        EXPECT_EQ(config.size, bytes) << of_nccl;
    };
    expect(22800, 22809, 80);
    expect(22900, 22900, 88);
    expect(23000, 23000, 96);
    expect(23005, 23005, 96);
    expect(23203, 23005, 96);
}

TEST(NcclConfig, IsThatOfAnOlderNccl) {
    const nccl::Config config = make_nccl_config("", 22809);
    EXPECT_EQ(config.size, nccl::oldest_config_bytes);
    EXPECT_EQ(config.version, 22809);
    try {
        make_nccl_config("CTAPolicy=1,maxP2pPeers=4", 22907);
        ADD_FAILURE();
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_UNSUPPORTED);
        EXPECT_STREQ(error.what(),
                     "nccl_config: maxP2pPeers needs NCCL 2.30.0 or later, and 2.29.7 is loaded");
    }
}

TEST(NcclConfig, RefusesWhatIsNoSetting) {
    EXPECT_EQ(refusal(""), "");
    EXPECT_EQ(refusal("cgaClusterSize=4"), "");
    EXPECT_NE(refusal("cgaclustersize=4")
                  .find("f: nccl_config: \"cgaclustersize\" is no setting; "
                        "there are cgaClusterSize, netName, "),
              std::string::npos);
    EXPECT_EQ(refusal("blocking=0"), "f: nccl_config: blocking is set by vescomm; leave it out");
    EXPECT_EQ(refusal("maxCTAs=8"),
              "f: nccl_config: maxCTAs is the member max_ctas of the options; leave it out");
    EXPECT_EQ(refusal("netName="), "f: nccl_config: netName has no value; write netName=VALUE");
    EXPECT_EQ(refusal("nvlsCTAs"), "f: nccl_config: nvlsCTAs has no value; write nvlsCTAs=VALUE");
    EXPECT_EQ(refusal("netName=IB,netName=IB"), "f: nccl_config: netName is given twice");
    for (const char *number : {"4x", "4 ", " 4", "2147483648", "-2147483648", "1.5", "IB"})
        EXPECT_EQ(refusal(std::string("nvlsCTAs=") + number),
                  std::string("f: nccl_config: nvlsCTAs is \"") + number +
                      "\"; it must be a whole number from -2147483647 to 2147483647");
    for (const char *text :
         {",", "=", "=4", ",nvlsCTAs=4", "nvlsCTAs=4,,netName=IB", "nvlsCTAs=4,"})
        EXPECT_NE(refusal(text).find("\"\" is no setting"), std::string::npos) << text;
}

TEST(NcclConfig, ReachesNcclFromEveryCreation) {
    run_devices(node_of_ranks(2), [](DeviceRank &r) {
        vescomm_gpu_comm_options_t options = device_options();
        // The text may be reused after the call.
        std::string settings = "CTAPolicy=1,netName=Socket";
        options.nccl_config = settings.c_str();
        options.max_ctas = 5;
        ASSERT_EQ(r.create(options), VESCOMM_OK) << vescomm_get_last_error();
        settings.assign(settings.size(), 'x');
        const nccl::Config seen = gpu_double::last_config();
        EXPECT_EQ(seen.cta_policy, 1);
        EXPECT_STREQ(seen.net_name, "Socket");
        EXPECT_EQ(seen.max_ctas, 5);
        EXPECT_EQ(seen.size, nccl::oldest_config_bytes);

        r.parent.value->barrier();
        vescomm_comm_t *part = nullptr;
        ASSERT_EQ(vescomm_comm_split(&r.parent, 0, 0, nullptr, &part), VESCOMM_OK);
        options.nccl_config = "trafficClass=9";
        vescomm_gpu_comm_t *made = nullptr;
        ASSERT_EQ(vescomm_gpu_comm_split(r.gpu, part, &options, &made), VESCOMM_OK);
        EXPECT_EQ(gpu_double::last_config().traffic_class, 9);
        EXPECT_EQ(gpu_double::last_config().cta_policy, INT_MIN);
        EXPECT_EQ(vescomm_gpu_comm_free(made), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// Rank 2 is a part of its own, whose setting this NCCL does not have. NCCL is not called, so no
// rank waits for it, and the parent stays usable.
TEST(NcclConfig, OfOnePartIsAnErrorOfAllRanksOfASplit) {
    run_devices(node_of_ranks(3), [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK) << vescomm_get_last_error();
        vescomm_comm_t *part = nullptr;
        ASSERT_EQ(vescomm_comm_split(&r.parent, r.rank == 2 ? 1 : 0, 0, nullptr, &part),
                  VESCOMM_OK);
        vescomm_gpu_comm_options_t options = device_options();
        if (r.rank == 2) options.nccl_config = "maxP2pPeers=4";
        vescomm_gpu_comm_t *made = nullptr;
        expect_error(vescomm_gpu_comm_split(r.gpu, part, &options, &made),
                     VESCOMM_ERROR_UNSUPPORTED, "maxP2pPeers needs NCCL 2.30.0 or later");
        EXPECT_EQ(made, nullptr);
        auto *data = r.upload(std::vector<float>{1});
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(r.read(data, 1), std::vector<float>{3});
        EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(NcclConfig, IsTheSameOnAllRanks) {
    run_devices(node_of_ranks(2), [](DeviceRank &r) {
        vescomm_gpu_comm_options_t options = device_options();
        options.nccl_config = "nvlsCTAs=x";
        expect_error(r.create(options), VESCOMM_ERROR_INVALID_ARGUMENT,
                     "vescomm_gpu_comm_create: nccl_config: nvlsCTAs is \"x\"");
        options.nccl_config = "maxP2pPeers=4";
        expect_error(r.create(options), VESCOMM_ERROR_UNSUPPORTED, "needs NCCL 2.30.0 or later");
        options.nccl_config = r.rank == 0 ? "nvlsCTAs=2" : "nvlsCTAs=3";
        expect_error(r.create(options), VESCOMM_ERROR_MISMATCH,
                     "nccl_config is nvlsCTAs=2 on rank 0 and nvlsCTAs=3 on rank 1");
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/forced.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace vescomm::internal {
namespace {

std::string refusal(const std::string &text) {
    try {
        Forced::parse(text);
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

TEST(Forced, ParsesTheAlgorithmsOfSomeCollectives) {
    const Forced forced = Forced::parse("all_reduce=two_phase,all_gather_v=ring");
    EXPECT_EQ(forced.of(Collective::all_reduce), "two_phase");
    EXPECT_EQ(forced.of(Collective::all_gather_v), "ring");
    EXPECT_EQ(forced.of(Collective::broadcast), "");
    EXPECT_EQ(Forced::parse("").of(Collective::all_reduce), "");
}

TEST(Forced, AcceptsEveryRowOfTheTable) {
    for (const AlgorithmEntry &entry : algorithms()) {
        const std::string text =
            std::string(name_of(entry.collective)) + "=" + std::string(entry.name);
        EXPECT_EQ(Forced::parse(text).of(entry.collective), entry.name);
    }
}

TEST(Forced, ReportsTheWrongPartAndTheValidNames) {
    EXPECT_EQ(refusal("barrier=disemination"),
              "VESCOMM_ALGORITHM=barrier=disemination: there is no algorithm \"disemination\" for "
              "barrier; there is: dissemination");
    EXPECT_EQ(refusal("broadcast=tree,allreduce=flat"),
              "VESCOMM_ALGORITHM=broadcast=tree,allreduce=flat: there is no collective "
              "\"allreduce\"; there is: all_gather_v, reduce_scatter_v, all_reduce, reduce, "
              "gather_v, scatter_v, all_to_all_v, broadcast, barrier");
    EXPECT_EQ(refusal("all_reduce=flat,all_reduce=flat"),
              "VESCOMM_ALGORITHM=all_reduce=flat,all_reduce=flat: all_reduce is there twice");
    for (const char *text : {"ring", ",", "all_reduce=flat,", ",all_reduce=flat", "all_reduce"})
        EXPECT_NE(refusal(text).find("is no COLLECTIVE=ALGORITHM"), std::string::npos) << text;
    for (const char *text : {"=", "=flat", "all_reduce=", "all_reduce= flat", "all_reduce==flat"})
        EXPECT_NE(refusal(text).find("there is no "), std::string::npos) << text;
}

}  // namespace
}  // namespace vescomm::internal

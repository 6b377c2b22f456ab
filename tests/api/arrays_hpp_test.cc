// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The C++ collectives on arrays, on a communicator of one rank: their checks and their results.
// tests/conformance has tests with several ranks.
#include <gtest/gtest.h>

#include <numeric>

#include "vescomm/vescomm.hpp"

namespace {

using Floats = std::vector<float>;

class ArraysHpp : public testing::Test {
protected:
    vescomm::Communicator comm = vescomm::Communicator::from_environment();
    Floats source = {1, 2, 3};
    Floats output = {0, 0, 0};
    const std::vector<std::int64_t> counts = {3};
};

TEST_F(ArraysHpp, EveryCollectiveOfOneRankIsACopy) {
    const auto expect_copy = [&] {
        EXPECT_EQ(output, source);
        output = {0, 0, 0};
    };
    using Span = std::span<const float>;
    vescomm::all_gather_v<float>(comm, Span(source), output, counts);
    expect_copy();
    vescomm::reduce_scatter_v<float>(comm, Span(source), output, counts, VESCOMM_MAX);
    expect_copy();
    vescomm::all_reduce<float>(comm, Span(source), output);
    expect_copy();
    vescomm::reduce<float>(comm, Span(source), output);
    expect_copy();
    vescomm::gather_v<float>(comm, Span(source), output, counts);
    expect_copy();
    vescomm::scatter_v<float>(comm, Span(source), output, counts);
    expect_copy();
    vescomm::all_to_all_v<float>(comm, Span(source), counts, output, counts);
    expect_copy();
    vescomm::broadcast<float>(comm, source);
    EXPECT_EQ(source, (Floats{1, 2, 3}));
}

TEST_F(ArraysHpp, AMessageToItselfIsACopy) {
    vescomm::Request request;
    vescomm::receive<float>(comm, output, 0, &request);
    vescomm::send<float>(comm, source, 0);
    request.wait();
    EXPECT_EQ(output, source);
    output = {0, 0, 0};
    vescomm::group(comm, [&] {
        vescomm::send<float>(comm, source, 0);
        vescomm::receive<float>(comm, output, 0);
    });
    EXPECT_EQ(output, source);
}

TEST_F(ArraysHpp, ARequestCanBeStartedAgain) {
    vescomm::Request request;
    vescomm::all_reduce<float>(comm, std::span<const float>(source), output, VESCOMM_SUM, &request);
    request.wait();
    EXPECT_EQ(output, source);
    source = {4, 5, 6};
    request.run();
    EXPECT_EQ(output, source);
}

TEST_F(ArraysHpp, AGroupRunsAllItsCollectives) {
    std::vector<std::int32_t> numbers(5), sums(5);
    std::iota(numbers.begin(), numbers.end(), 1);
    vescomm::Request request;
    vescomm::group(
        comm,
        [&] {
            vescomm::all_reduce<float>(comm, std::span<const float>(source), output);
            vescomm::all_reduce<std::int32_t>(comm, std::span<const std::int32_t>(numbers), sums,
                                              VESCOMM_MIN);
        },
        &request);
    request.wait();
    EXPECT_EQ(output, source);
    EXPECT_EQ(sums, numbers);
}

TEST_F(ArraysHpp, RefusesArraysThatAreTooShort) {
    const std::span<float> two(output.data(), 2);
    const std::span<const float> all(source);
    EXPECT_THROW(vescomm::all_reduce<float>(comm, all, two), std::invalid_argument);
    EXPECT_THROW(vescomm::all_gather_v<float>(comm, all, two, counts), std::invalid_argument);
    EXPECT_THROW(vescomm::reduce_scatter_v<float>(comm, two, output, counts),
                 std::invalid_argument);
    EXPECT_THROW(vescomm::gather_v<float>(comm, all, output, {}), std::invalid_argument);
}

TEST_F(ArraysHpp, AnExceptionInAGroupBreaksTheCommunicator) {
    EXPECT_THROW(vescomm::group(comm, [] { throw std::runtime_error("mine"); }),
                 std::runtime_error);
    EXPECT_THROW(vescomm::all_reduce<float>(comm, std::span<const float>(source), output),
                 vescomm::Error);
}

}  // namespace

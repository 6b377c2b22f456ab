// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The C++ collectives on arrays, on a communicator of one rank: their checks and their results.
// tests/conformance has tests with several ranks.
#include <gtest/gtest.h>

#include <array>
#include <complex>
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
    vescomm::all_gather_v(comm, Span(source), output, counts);
    expect_copy();
    vescomm::all_gather(comm, Span(source), output);
    expect_copy();
    vescomm::reduce_scatter_v(comm, Span(source), output, counts, VESCOMM_MAX);
    expect_copy();
    vescomm::reduce_scatter(comm, Span(source), output, VESCOMM_MIN);
    expect_copy();
    vescomm::all_to_all(comm, Span(source), output);
    expect_copy();
    vescomm::all_reduce(comm, Span(source), output);
    expect_copy();
    vescomm::reduce(comm, Span(source), output);
    expect_copy();
    vescomm::gather_v(comm, Span(source), output, counts);
    expect_copy();
    vescomm::scatter_v(comm, Span(source), output, counts);
    expect_copy();
    vescomm::all_to_all_v(comm, Span(source), counts, output, counts);
    expect_copy();
    vescomm::broadcast(comm, source);
    EXPECT_EQ(source, (Floats{1, 2, 3}));
}

TEST_F(ArraysHpp, TheTypeIsDeducedFromAnyContiguousRange) {
    std::array<double, 3> doubles = {1, 2, 3};
    vescomm::all_reduce(comm, doubles, VESCOMM_AVERAGE);
    EXPECT_EQ(doubles, (std::array<double, 3>{1, 2, 3}));
    std::vector<std::uint8_t> bytes = {255, 7};
    vescomm::all_reduce(comm, std::span(bytes), VESCOMM_MAX);
    EXPECT_EQ(bytes, (std::vector<std::uint8_t>{255, 7}));
    std::array<bool, 2> flags = {true, false};
    vescomm::all_reduce(comm, flags, VESCOMM_LOGICAL_AND);
    EXPECT_EQ(flags, (std::array<bool, 2>{true, false}));
    std::vector<std::complex<double>> waves = {{1, 2}, {3, 4}};
    vescomm::all_reduce(comm, waves, VESCOMM_PROD);
    EXPECT_EQ(waves, (std::vector<std::complex<double>>{{1, 2}, {3, 4}}));
    static_assert(vescomm::type_of<const std::complex<float>>() == VESCOMM_C64);
    const Floats constant = source;
    vescomm::all_reduce(comm, constant, output, VESCOMM_PROD);
    EXPECT_EQ(output, source);
    vescomm::reduce(comm, output, VESCOMM_MIN);
    EXPECT_EQ(output, source);
    // Two types, and an output that is constant.
    static_assert(
        !std::is_invocable_v<decltype([](auto &out) -> decltype(vescomm::all_reduce(
                                                        std::declval<vescomm::Communicator &>(),
                                                        std::declval<Floats &>(), out)) {}),
                             std::vector<double> &>);
    static_assert(!std::is_invocable_v<
                  decltype([](auto &out) -> decltype(vescomm::all_reduce(
                                             std::declval<vescomm::Communicator &>(), out)) {}),
                  const Floats &>);
}

// A call in the background would read and write a temporary after its end.
TEST_F(ArraysHpp, ARequestTakesNoTemporaryArray) {
    const auto reduces = []<typename Source, typename Output, typename Slot>(
                             std::type_identity<Source>, std::type_identity<Output>,
                             std::type_identity<Slot>) {
        return requires(vescomm::Communicator & c, Slot slot) {
            vescomm::all_reduce(c, std::declval<Source>(), std::declval<Output>(), VESCOMM_SUM,
                                slot);
        };
    };
    constexpr std::type_identity<const Floats &> kept;
    constexpr std::type_identity<Floats &> target;
    constexpr std::type_identity<Floats> temporary;
    constexpr std::type_identity<std::span<float>> view;
    constexpr std::type_identity<vescomm::Request *> background;
    constexpr std::type_identity<std::nullptr_t> waits;
    static_assert(reduces(kept, target, background));
    static_assert(reduces(view, view, background));
    static_assert(!reduces(temporary, target, background));
    static_assert(!reduces(kept, temporary, background));
    static_assert(reduces(temporary, target, waits));
    vescomm::all_reduce(comm, Floats{4, 5, 6}, output);
    EXPECT_EQ(output, (Floats{4, 5, 6}));
}

// Host memory has no streams.
TEST_F(ArraysHpp, RefusesAStream) {
    int stream = 0;
    EXPECT_THROW(vescomm::all_reduce(comm, output, VESCOMM_SUM, nullptr, &stream), vescomm::Error);
    EXPECT_NE(std::string(vescomm_get_last_error()).find("vescomm_all_reduce: a stream was given"),
              std::string::npos)
        << vescomm_get_last_error();
    vescomm::all_reduce(comm, output);
}

TEST_F(ArraysHpp, ErrorIsTheNameOfTheException) {
    try {
        vescomm::send(comm, source, 1);
        FAIL();
    } catch (const vescomm::Error &error) {
        EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(std::string(error.what()), vescomm_get_last_error());
    }
}

TEST_F(ArraysHpp, NothingIsStartedAfterFinalize) {
    vescomm::Request request;
    vescomm::all_reduce(comm, source, output, VESCOMM_SUM, &request);
    comm.finalize();
    EXPECT_TRUE(request.test());
    EXPECT_EQ(output, source);
    EXPECT_THROW(vescomm::all_reduce(comm, source), vescomm::Error);
    EXPECT_THROW(request.start(), vescomm::Error);
    EXPECT_THROW(comm.barrier(), vescomm::Error);
    comm.finalize();
    EXPECT_EQ(comm.ranks(), 1);
}

TEST_F(ArraysHpp, AMessageToItselfIsACopy) {
    vescomm::Request request;
    vescomm::receive(comm, output, 0, &request);
    vescomm::send(comm, source, 0);
    request.wait();
    EXPECT_EQ(output, source);
    output = {0, 0, 0};
    vescomm::group(comm, [&] {
        vescomm::send(comm, source, 0);
        vescomm::receive(comm, output, 0);
    });
    EXPECT_EQ(output, source);
}

TEST_F(ArraysHpp, MessagesHaveTags) {
    const std::vector<float> other = {7, 8, 9};
    vescomm::send(comm, source, 0, 4);
    vescomm::send(comm, other, 0, 5);
    vescomm::Request request;
    vescomm::receive(comm, output, vescomm::any_source, 5, &request);
    request.wait();
    EXPECT_EQ(output, other);
    EXPECT_EQ(request.message().source, 0);
    EXPECT_EQ(request.message().tag, 5);
    EXPECT_EQ(request.message().count, 3);
    vescomm::receive(comm, output, 0, 4);
    EXPECT_EQ(output, source);
    EXPECT_THROW(request.message(1), vescomm::Error);
    EXPECT_THROW(vescomm::send(comm, source, 0, -1), vescomm::Error);
}

TEST_F(ArraysHpp, ARequestCanBeStartedAgain) {
    vescomm::Request request;
    vescomm::all_reduce(comm, std::span<const float>(source), output, VESCOMM_SUM, &request);
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
            vescomm::all_reduce(comm, std::span<const float>(source), output);
            vescomm::all_reduce(comm, std::span<const std::int32_t>(numbers), sums, VESCOMM_MIN);
        },
        &request);
    request.wait();
    EXPECT_EQ(output, source);
    EXPECT_EQ(sums, numbers);
}

TEST_F(ArraysHpp, RefusesArraysThatAreTooShort) {
    const std::span<float> two(output.data(), 2);
    const std::span<const float> all(source);
    EXPECT_THROW(vescomm::all_reduce(comm, all, two), std::invalid_argument);
    EXPECT_THROW(vescomm::all_gather_v(comm, all, two, counts), std::invalid_argument);
    EXPECT_THROW(vescomm::reduce_scatter_v(comm, two, output, counts), std::invalid_argument);
    EXPECT_THROW(vescomm::all_gather(comm, all, two), std::invalid_argument);
    EXPECT_THROW(vescomm::reduce_scatter(comm, two, output), std::invalid_argument);
    EXPECT_THROW(vescomm::all_to_all(comm, all, two), std::invalid_argument);
    EXPECT_THROW(vescomm::gather_v(comm, all, output, {}), std::invalid_argument);
}

TEST_F(ArraysHpp, AnExceptionInAGroupBreaksTheCommunicator) {
    EXPECT_THROW(vescomm::group(comm, [] { throw std::runtime_error("mine"); }),
                 std::runtime_error);
    EXPECT_THROW(vescomm::all_reduce(comm, std::span<const float>(source), output), vescomm::Error);
}

}  // namespace

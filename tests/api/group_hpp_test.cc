// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// C++ groups of calls without memory: no group stays open, so no later call is collected and lost.
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "support/failing_allocations.h"
#include "vescomm/vescomm.hpp"

namespace {

using vescomm::Communicator;
using vescomm::internal::testing_support::Failing;
using Floats = std::vector<float>;
using Span = std::span<const float>;

namespace memory = vescomm::internal::testing_support;

class GroupHpp : public testing::TestWithParam<Failing> {
protected:
    const Floats source = {1, 2, 3};

    // A call is done, or throws.
    void expect_no_lost_call(Communicator &comm) {
        Floats later = {0, 0, 0};
        try {
            vescomm::all_reduce(comm, Span(source), later);
        } catch (const vescomm::Error &) {
            return;
        }
        EXPECT_EQ(later, source) << "the call returned, and was not made";
    }
};

TEST_P(GroupHpp, EveryFailedAllocationOfItsEndClosesTheGroup) {
    bool failed = true;
    for (std::uint64_t number = 1; failed; ++number) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        Communicator comm = Communicator::from_environment();
        Floats output = {0, 0, 0};
        bool thrown = false;
        try {
            vescomm::group(comm, [&] {
                vescomm::all_reduce(comm, Span(source), output);
                memory::fail_allocation(number, GetParam());
            });
        } catch (const vescomm::Error &error) {
            thrown = error.status() == VESCOMM_ERROR_OUT_OF_MEMORY;
        } catch (const std::bad_alloc &) {
            thrown = true;  // no memory for the text of an Error
        }
        failed = memory::stop_failing().failed > 0;
        EXPECT_EQ(thrown, failed);
        EXPECT_EQ(output, thrown ? Floats(3, 0) : source);
        expect_no_lost_call(comm);
    }
}

TEST_P(GroupHpp, AnExceptionOfItsCallsClosesTheGroup) {
    Communicator comm = Communicator::from_environment();
    Floats output = {0, 0, 0};
    const auto calls = [&] {
        vescomm::all_reduce(comm, Span(source), output);
        memory::fail_allocation(1, GetParam());
        throw 7;
    };
    EXPECT_THROW(vescomm::group(comm, calls), int);
    memory::stop_failing();
    EXPECT_EQ(output, Floats(3, 0));
    EXPECT_THROW(vescomm::all_reduce(comm, Span(source), output), vescomm::Error);
}

INSTANTIATE_TEST_SUITE_P(Allocations, GroupHpp, testing::Values(Failing::one, Failing::and_later));

}  // namespace

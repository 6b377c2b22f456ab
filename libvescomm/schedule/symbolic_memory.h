// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "schedule/problem.h"

namespace vescomm::internal::symbolic {

// A fault of a schedule, as a sentence.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Vector clock: by thread, the last time of it that is known to have passed.
using Clock = std::vector<std::uint32_t>;

struct Thread {
    int id = 0;
    Clock clock;

    void tick() { ++clock[id]; }
    std::uint32_t now() const { return clock[id]; }
    void join(const Clock &other) {
        for (std::size_t i = 0; i < clock.size(); ++i)
            if (other[i] > clock[i]) clock[i] = other[i];
    }
};

// The memories of all ranks, cut into cells. A step covers whole cells. A cell records the
// contributions summed in it, their element and operation, and the threads and times of accesses.
class Memory {
public:
    Memory(const AnyProblem &problem, std::span<const Schedule> schedules,
           const CheckedRegistrations &registered);

    // The caller of `rank` writes its contribution to an operation.
    void fill_inputs(int rank, int operation, const Thread &thread);
    // The caller of `rank` reads its results, and may write to them from then on. Throws Fault if
    // one is wrong.
    void verify_outputs(int rank, int operation, const Thread &thread);
    // A copy, reduce or put by `rank`. An eager put is written later than it is read, so reader and
    // writer may differ.
    void move(int rank, const Lane &lane, const Step &step, const Thread &reader,
              const Thread &writer);

private:
    struct Access {
        int thread;
        std::uint32_t time;
    };
    struct Cell {
        std::int64_t element = -1;  // of the layout; -1: undefined
        int operation = -1;
        bool scaled = false;
        std::vector<std::uint8_t> contributions;  // by rank: how often its contribution is in here
        std::vector<Access> writes;  // the last one, if any
        std::vector<Access> reads;  // since the last write
    };
    struct Store {
        std::int64_t size = 0;
        std::vector<std::int64_t> starts;
        std::vector<Cell> cells;
    };

    std::size_t index(const Place &place) const;
    std::string name(const Place &place) const;
    void require_reachable(int rank, const Lane &lane, const Step &step, const Place &place) const;
    // The number of the first element of the block from `from` to `to`.
    std::int64_t element(int from, int to) const;
    void cut_into_cells(std::span<const Schedule> schedules);
    void cut_where_blocks_meet(int rank,
                               const std::function<void(Region, std::int64_t)> &cut) const;
    // First and past-the-end cell of [place, place + count).
    std::pair<std::size_t, std::size_t> cells(const Place &place, std::int64_t count) const;

    void read(Cell &cell, const Place &place, const Thread &thread);
    void write(Cell &cell, const Place &place, const Thread &thread);
    void fill(const Place &place, std::int64_t first_element, std::int64_t count, int rank,
              int operation, const Thread &thread);
    void expect(const Place &place, std::int64_t first_element, std::int64_t count,
                const std::vector<std::uint8_t> &contributions, bool scaled, int operation,
                const Thread &thread);

    const Problem &problem_;
    const BufferProblem *const buffers_;  // nullptr: a problem on arrays
    const ArrayProblem *const arrays_;  // nullptr: a problem on buffers
    const CheckedRegistrations registered_;
    std::vector<Store> stores_;
};

}  // namespace vescomm::internal::symbolic

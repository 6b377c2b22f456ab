// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arrays in memory of vescomm_memory_create(): local peers read them in place. Ranks free memory at
// any time, and addresses are used again only when no rank maps the earlier memory there. The test
// replaces mremap() to simulate a system that refuses it.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>

#include "comm/split.h"
#include "support/array_ranks.h"
#include "support/registered_vector.h"

namespace {

// The mremap() of this thread with this number fails, counted down; 0: none does.
thread_local int failing_mremap = 0;
thread_local bool leaves_hole = false;  // it has unmapped the target before
thread_local void *refused_target = nullptr;

}  // namespace

extern "C" void *mremap(void *old, std::size_t old_bytes, std::size_t bytes, int flags,
                        ...) noexcept {
    va_list more;
    va_start(more, flags);
    void *target = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void *) : nullptr;
    va_end(more);
    if (old_bytes == 0 && failing_mremap > 0 && --failing_mremap == 0) {
        refused_target = target;
        if (leaves_hole) munmap(target, bytes);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return reinterpret_cast<void *>(syscall(SYS_mremap, old, old_bytes, bytes, flags, target));
}

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::handle_of;
using testing_support::Kind;
using testing_support::PoolAllocator;
using testing_support::RegisteredVector;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

const TestSetup two{Kind::node, {0, 0}, {}};
const TestSetup three{Kind::node, {0, 0, 0}, {}};
const TestSetup five{Kind::node, {0, 0, 0, 0, 0}, {}};
const TestSetup two_nodes{Kind::tcp, {0, 0, 1, 1, 1}, {}};

constexpr std::int64_t many = 300'000;  // elements, several chunks

std::uint64_t registered_bytes(vescomm_comm_t *comm) {
    return comm->value->counters().bytes_registered;
}

// A memory with a slab for each rank, which is freed with the object.
class TestMemory {
public:
    TestMemory(vescomm_comm_t *comm, std::uint64_t bytes,
               vescomm_sharing_t sharing = VESCOMM_PER_RANK) {
        vescomm_memory_options_t options = vescomm_memory_options_init();
        options.bytes = bytes;
        options.sharing = sharing;
        check(vescomm_memory_create(comm, &options, &memory_));
    }
    TestMemory(const TestMemory &) = delete;
    TestMemory &operator=(const TestMemory &) = delete;
    ~TestMemory() { free(); }

    void free() { vescomm_memory_free(std::exchange(memory_, nullptr)); }
    vescomm_memory_t *get() const { return memory_; }
    std::byte *data() const {
        void *data = nullptr;
        check(vescomm_memory_get_data(memory_, &data, nullptr));
        return static_cast<std::byte *>(data);
    }
    // The first elements of the slab of this rank.
    std::span<float> floats(std::int64_t count) const {
        return {reinterpret_cast<float *>(data()), static_cast<std::size_t>(count)};
    }

private:
    vescomm_memory_t *memory_ = nullptr;
};

// Gathers `source` of all ranks, and compares the result: all elements of rank k are first + k.
void gather(vescomm_comm_t *comm, std::span<float> source, float first) {
    const int rank = comm->value->rank(), ranks = comm->value->ranks();
    const auto count = static_cast<std::int64_t>(source.size());
    std::ranges::fill(source, first + static_cast<float>(rank));
    std::vector<float> output(source.size() * static_cast<std::size_t>(ranks), -1);
    check(vescomm_all_gather(comm, source.data(), output.data(), count, VESCOMM_F32, nullptr,
                             nullptr, nullptr));
    for (int k = 0; k < ranks; ++k)
        ASSERT_EQ(std::count(output.begin() + k * count, output.begin() + (k + 1) * count,
                             first + static_cast<float>(k)),
                  count)
            << "of rank " << k;
}

// Lines of /proc/self/maps.
std::size_t mappings() {
    std::ifstream file("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
}

// The line of /proc/self/maps for an address.
std::string mapping_at(const void *address) {
    std::ifstream file("/proc/self/maps");
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (std::string line; std::getline(file, line);) {
        std::uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::istringstream(line) >> std::hex >> begin >> dash >> end;
        if (begin <= at && at < end) return line;
    }
    return {};
}

bool resident(const void *page) {
    unsigned char vector = 0;
    EXPECT_EQ(mincore(const_cast<void *>(page), 1, &vector), 0);
    return (vector & 1) != 0;
}

TEST(MemoryAliases, ArraysAreReadInPlaceByAllRanksOfTheNode) {
    for (const TestSetup &setup : {two, three, five}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const int rank = comm->value->rank(), ranks = comm->value->ranks();
            const std::int64_t others = ranks - 1, all = many * ranks;
            const TestMemory sources(comm, static_cast<std::uint64_t>(all) * 4 + 12);
            const TestMemory outputs(comm, static_cast<std::uint64_t>(all) * 4);
            const auto source = sources.floats(all), output = outputs.floats(all);
            EXPECT_EQ(std::ranges::count(source, 0.0f), all);
            std::ranges::fill(source, static_cast<float>(rank + 1));
            std::uint64_t before = registered_bytes(comm);
            const auto expect_read = [&](const char *what, std::int64_t elements) {
                EXPECT_EQ(registered_bytes(comm) - before,
                          static_cast<std::uint64_t>(elements) * sizeof(float))
                    << what;
                before = registered_bytes(comm);
            };
            check(vescomm_all_gather(comm, source.data(), output.data(), many, VESCOMM_F32, nullptr,
                                     nullptr, nullptr));
            for (int k = 0; k < ranks; ++k)
                EXPECT_EQ(output[static_cast<std::size_t>(many * k + many - 1)],
                          static_cast<float>(k + 1));
            expect_read("all_gather_v", many * others);
            check(vescomm_all_to_all(comm, source.data(), output.data(), many, VESCOMM_F32, nullptr,
                                     nullptr, nullptr));
            for (int k = 0; k < ranks; ++k)
                EXPECT_EQ(output[static_cast<std::size_t>(many * k)], static_cast<float>(k + 1));
            expect_read("all_to_all_v", many * others);
            check(vescomm_reduce_scatter(comm, source.data(), output.data(), many, VESCOMM_F32,
                                         VESCOMM_SUM, nullptr, nullptr, nullptr));
            EXPECT_EQ(
                std::ranges::count(output.first(many), static_cast<float>(ranks * (ranks + 1)) / 2),
                many);
            expect_read("reduce_scatter_v", many * others);
        });
    }
}

// Each array of each call is private, of vescomm_malloc(), or of vescomm_memory_create().
TEST(MemoryAliases, MixWithPrivateAndAllocatedArrays) {
    for (const TestSetup &setup : {two, three, five, two_nodes}) {
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const int rank = comm->value->rank(), ranks = comm->value->ranks();
            std::vector<std::int64_t> counts;
            for (int k = 0; k < ranks; ++k) counts.push_back(k == 1 ? 0 : many / (k + 1) + 7);
            const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
            const TestMemory memory(comm, static_cast<std::uint64_t>(all) * 8);
            const auto slab = memory.floats(2 * all);
            using Vector = RegisteredVector<float>;
            const auto size = static_cast<std::size_t>(all);
            Vector heap[2] = {Vector(size, 0, PoolAllocator<float>(nullptr)),
                              Vector(size, 0, PoolAllocator<float>(nullptr))};
            Vector allocated[2] = {Vector(size, 0, PoolAllocator<float>(comm)),
                                   Vector(size, 0, PoolAllocator<float>(comm))};
            for (int call = 0; call < 12; ++call) {
                const auto array = [&](int which) {
                    const int kind = (rank + call / (which == 0 ? 1 : 3)) % 3;
                    if (kind == 0) return std::span<float>(heap[which]);
                    if (kind == 1) return std::span<float>(allocated[which]);
                    return slab.subspan(which == 0 ? 0 : size, size);
                };
                const auto source = array(0), output = array(1);
                std::ranges::fill(source, static_cast<float>(10 * call + rank));
                if (call % 2 == 0) {
                    check(vescomm_all_gather_v(comm, source.data(), output.data(), counts.data(),
                                               nullptr, VESCOMM_F32, nullptr, nullptr, nullptr));
                    std::int64_t begin = 0;
                    for (int k = 0; k < ranks; ++k) {
                        ASSERT_EQ(
                            std::count(output.begin() + begin, output.begin() + begin + counts[k],
                                       static_cast<float>(10 * call + k)),
                            counts[k]);
                        begin += counts[k];
                    }
                } else {
                    check(vescomm_all_reduce(comm, source.data(), output.data(), all, VESCOMM_F32,
                                             VESCOMM_SUM, nullptr, nullptr, nullptr));
                    const int sum = 10 * call * ranks + ranks * (ranks - 1) / 2;
                    ASSERT_EQ(std::ranges::count(output, static_cast<float>(sum)), all);
                }
            }
            EXPECT_GT(registered_bytes(comm), 0u);
        });
    }
}

TEST(MemoryAliases, ARankFreesWhileOthersPassTheirArrays) {
    run_array_ranks(three, [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        TestMemory memory(comm, many * 4);
        const std::byte *first = memory.data();
        std::vector<float> own(many);
        for (int free = 0; free < 3; ++free) {
            if (rank == free) memory.free();
            for (int call = 0; call < 20; ++call) {
                const std::uint64_t before = registered_bytes(comm);
                const bool uses = memory.get() != nullptr;
                gather(comm, uses ? memory.floats(many) : std::span<float>(own),
                       static_cast<float>(call));
                const std::uint64_t slabs = 2 - free + (uses ? -1 : 0);
                EXPECT_EQ(registered_bytes(comm) - before, slabs * many * 4);
            }
            // An address is in use until all ranks have freed the memory.
            TestMemory other(comm, many * 4);
            EXPECT_EQ(other.data() == first, free == 2);
            gather(comm, other.floats(many), 100);
        }
    });
}

// The rank that frees last returns the pages, although the others still map them.
TEST(MemoryAliases, PagesAreReturnedWhenAllRanksHaveFreed) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        TestMemory memory(comm, 1 << 20);
        const std::byte *data = memory.data();
        std::ranges::fill(memory.floats(1 << 18), 1.0f);
        check(vescomm_barrier(comm));
        if (comm->value->rank() == 0) memory.free();
        EXPECT_TRUE(resident(data));
        check(vescomm_barrier(comm));
        EXPECT_TRUE(resident(data));
        check(vescomm_barrier(comm));
        memory.free();
        check(vescomm_barrier(comm));
        EXPECT_FALSE(resident(data));
    });
}

TEST(MemoryAliases, ARankWhoseSystemRefusesMremapMakesAllUseTheFirstMapping) {
    for (const TestSetup &setup : {two, three, two_nodes})
        for (int fails = 1; fails <= 3; ++fails)
            for (const bool hole : {false, true})
                run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                    const int rank = comm->value->rank();
                    const Nodes &nodes = comm->value->nodes();
                    const int locals = static_cast<int>(nodes.members(nodes.node_of(rank)).size());
                    const bool refused = nodes.node_of(rank) == 0 && fails <= locals;
                    TestMemory before(comm, many * 4);
                    refused_target = nullptr;
                    leaves_hole = hole;
                    failing_mremap = rank == 1 && fails <= locals ? fails : 0;
                    TestMemory memory(comm, many * 4);
                    failing_mremap = 0;
                    TestMemory after(comm, many * 4);
                    if (refused_target != nullptr) {
                        EXPECT_NE(mapping_at(refused_target), "");
                    }
                    EXPECT_EQ(refused_target != nullptr, rank == 1 && fails <= locals);
                    for (TestMemory *each : {&memory, &after, &before}) {
                        const std::uint64_t earlier = registered_bytes(comm);
                        gather(comm, each->floats(many), 3);
                        gather(comm, each->floats(many), 4);
                        EXPECT_EQ(registered_bytes(comm) > earlier, !refused || each == &before);
                        each->free();
                    }
                });
}

// A child of fork() that destroys its copy does not free the memory of its parent.
TEST(MemoryAliases, AForkedProcessChangesNothing) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        TestMemory memory(comm, many * 4);
        std::vector<float> own(many);
        std::ranges::fill(memory.floats(many), 5.0f);
        check(vescomm_barrier(comm));
        if (comm->value->rank() == 0) {
            const pid_t child = fork();
            if (child == 0) {
                memory.get()->value.reset();
                _exit(0);
            }
            int status = -1;
            waitpid(child, &status, 0);
            EXPECT_EQ(status, 0);
        }
        check(vescomm_barrier(comm));
        if (comm->value->rank() == 1) memory.free();
        check(vescomm_barrier(comm));
        if (comm->value->rank() == 0) {
            EXPECT_EQ(std::ranges::count(memory.floats(many), 5.0f), many);
        }
        const std::uint64_t before = registered_bytes(comm);
        gather(comm, comm->value->rank() == 0 ? memory.floats(many) : std::span<float>(own), 7);
        EXPECT_EQ(registered_bytes(comm) - before,
                  comm->value->rank() == 0 ? 0u : static_cast<std::uint64_t>(many) * 4);
    });
}

// A rank that does not map a memory could not read arrays in it.
TEST(MemoryAliases, NeedAllRanksOfTheNode) {
    run_array_ranks(three, [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        const auto part = split(*comm->value, rank == 1 ? 1 : 0, 0, {});
        const auto all = split(*comm->value, 0, -rank, {});
        const auto in_part = handle_of(part), in_all = handle_of(all);
        {
            TestMemory of_part(in_part.get(), many * 4), of_all(in_all.get(), many * 4),
                of_parent(comm, many * 4);
            gather(comm, of_part.floats(many), 1);
            gather(in_part.get(), of_part.floats(many), 1);
            EXPECT_EQ(registered_bytes(comm), 0u);
            EXPECT_EQ(registered_bytes(in_part.get()), 0u);
            for (TestMemory *memory : {&of_all, &of_parent}) {
                const std::uint64_t before = registered_bytes(comm);
                gather(comm, memory->floats(many), 2);
                EXPECT_EQ(registered_bytes(comm) - before, 2 * many * 4u);
                gather(in_all.get(), memory->floats(many), 3);
                gather(in_part.get(), memory->floats(many), 4);
            }
            EXPECT_EQ(registered_bytes(in_all.get()), 4 * many * 4u);
            EXPECT_EQ(registered_bytes(in_part.get()), rank == 1 ? 0u : 2 * many * 4u);
        }
        part->finalize();
        all->finalize();
    });
}

// The memory belongs to a copy of the communicator that has been freed.
TEST(MemoryAliases, AreRecognisedWithoutTheCommunicatorOfTheMemory) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        auto copy = duplicate(*comm->value, {});
        auto handle = handle_of(copy);
        TestMemory memory(handle.get(), many * 4);
        copy->finalize();
        handle.reset();
        copy.reset();
        gather(comm, memory.floats(many), 1);
        EXPECT_EQ(registered_bytes(comm), many * 4u);
    });
}

TEST(MemoryAliases, ExistForMemoryOfOneSlabForEachRankOnly) {
    TestSetup empty = two;
    empty.config.malloc_bytes = "0";
    TestSetup small = two;
    small.config.malloc_bytes = "65536";
    for (const TestSetup &setup : {empty, small, TestSetup{Kind::loopback, {0, 0}, {}}})
        run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const TestMemory memory(comm, many * 4);
            gather(comm, memory.floats(many), 1);
            EXPECT_EQ(registered_bytes(comm), 0u);
        });
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        const TestMemory none(comm, 0);
        const TestMemory memory(comm, many * 8, VESCOMM_PER_NODE);
        gather(comm, memory.floats(2 * many).subspan(comm->value->rank() == 0 ? 0 : many, many), 1);
        EXPECT_EQ(registered_bytes(comm), 0u);
    });
}

// The mappings of a process are limited.
TEST(MemoryAliases, AreNotMadeBeyondALimit) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        const std::size_t before = mappings();
        std::vector<std::unique_ptr<TestMemory>> memories;
        for (int i = 0; i < 2'200; ++i)
            memories.push_back(std::make_unique<TestMemory>(comm, many / 100 * 4));
        EXPECT_LE(mappings(), before + 20'000);
        std::uint64_t earlier = registered_bytes(comm);
        gather(comm, memories.back()->floats(many / 100), 1);
        EXPECT_EQ(registered_bytes(comm), earlier);
        gather(comm, memories.front()->floats(many / 100), 1);
        EXPECT_GT(registered_bytes(comm), earlier);
        memories.clear();
        check(vescomm_barrier(comm));
        earlier = registered_bytes(comm);
        TestMemory memory(comm, many / 100 * 4);
        gather(comm, memory.floats(many / 100), 1);
        EXPECT_GT(registered_bytes(comm), earlier);
    });
}

}  // namespace
}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of vescomm_memory_create() in processes: the pages and mappings that it takes, also after
// the death of a rank.
//
//     VESCOMM_TEST_REPETITIONS    memories that are created and freed one after another
#include <fstream>
#include <iterator>
#include <sstream>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

constexpr std::int64_t count = 1 << 20;  // elements of a slab

struct Memory {
    vescomm_memory_t *handle = nullptr;
    float *data = nullptr;
};

Memory create(vescomm_comm_t *comm) {
    vescomm_memory_options_t options = vescomm_memory_options_init();
    options.bytes = count * sizeof(float);
    Memory memory;
    require(vescomm_memory_create(comm, &options, &memory.handle), "create memory");
    void *data = nullptr;
    require(vescomm_memory_get_data(memory.handle, &data, nullptr), "the address");
    memory.data = static_cast<float *>(data);
    return memory;
}

struct MappedFile {
    std::string inode;
    std::size_t mappings = 0;
};

// Counts the mappings of the file with this inode, or of the one that is mapped at the address.
MappedFile find_mappings(const void *address, std::string inode = {}) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (;;) {
        std::ifstream file("/proc/self/maps");
        MappedFile found{inode, 0};
        for (std::string line; std::getline(file, line);) {
            std::uintptr_t begin = 0, end = 0;
            char dash = 0;
            std::string access, offset, device, number;
            std::istringstream words(line);
            words >> std::hex >> begin >> dash >> end >> access >> offset >> device >> number;
            if (inode.empty() && begin <= at && at < end) found.inode = number;
            if (number == inode) ++found.mappings;
        }
        if (!inode.empty()) return found;
        inode = found.inode;
        expect(!inode.empty(), "the address is mapped");
    }
}

bool resident(void *page) {
    unsigned char vector = 0;
    expect(mincore(page, 1, &vector) == 0, "mincore");
    return (vector & 1) != 0;
}

std::uint64_t registered_bytes(const vescomm_comm_t *comm) {
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    require(vescomm_comm_get_counters(comm, &counters), "counters");
    return counters.bytes_registered;
}

void expect_sums(vescomm_comm_t *comm, float *source) {
    std::fill_n(source, count, 1.0f);
    std::vector<float> sums(count);
    require(vescomm_all_reduce(comm, source, sums.data(), count, VESCOMM_F32, VESCOMM_SUM, nullptr,
                               nullptr, nullptr),
            "all_reduce");
    for (const float sum : sums) expect(sum == static_cast<float>(ranks_of(comm)), "a sum");
}

// A number in /proc/self/status, in kB.
long status_kilobytes(const std::string &name) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
    return -1;
}

std::ptrdiff_t count_mappings() {
    std::ifstream file("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
}

TEST(MemoryLife, CreationAndFreeingTakeNothingForEver) {
    const Job job{2, 2};
    const int creations = repetitions(1000);
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        std::ptrdiff_t mappings = 0;
        long own = 0, shared = 0;
        for (int i = 0; i < creations; ++i) {
            const Memory memory = create(comm);
            memory.data[0] = 1;
            memory.data[count - 1] = 1;
            // The first calls touch all slots of the staging buffer.
            if (i < 8 || i % 100 == 0) expect_sums(comm, memory.data);
            require(vescomm_memory_free(memory.handle), "free");
            if (i != creations / 10 && i != creations - 1) continue;
            const auto expect_same = [](const char *what, long before, long now, long more) {
                if (now <= before + more) return;
                std::fprintf(stderr, "%s: %ld before, %ld now\n", what, before, now);
                _exit(1);
            };
            if (i == creations - 1) {
                // Sanitizers have an allocator of their own, which grows.
                if (std::getenv("VESCOMM_TEST_SLOW") == nullptr) {
                    expect_same("mappings", mappings, count_mappings(), 4);
                    expect_same("RssAnon", own, status_kilobytes("RssAnon"), 1000);
                }
                expect_same("RssShmem", shared, status_kilobytes("RssShmem"), 1000);
            }
            mappings = count_mappings();
            own = status_kilobytes("RssAnon");
            shared = status_kilobytes("RssShmem");
        }
        expect(registered_bytes(comm) > 0, "memory is read in place");
        require(vescomm_comm_free(comm), "free");
    });
}

// `frees_first`: the survivors free the memory before they shrink the communicator.
void run_job(int ranks, bool frees_first) {
    const Job job{ranks, ranks};
    run(job,
        [&](int rank) {
            vescomm_comm_t *comm = nullptr, *less = nullptr;
            require(job.create(rank, nullptr, &comm), "create");
            const Memory memory = create(comm);
            expect_sums(comm, memory.data);
            expect(registered_bytes(comm) > 0, "memory is read in place");
            if (rank == 1) {
                require(vescomm_barrier(comm), "barrier");
                raise(SIGKILL);
            }
            while (vescomm_barrier(comm) == VESCOMM_OK) continue;
            const std::string inode = find_mappings(memory.data).inode;
            expect(find_mappings(memory.data, inode).mappings == static_cast<std::size_t>(ranks),
                   "every slab is mapped once");
            if (frees_first) require(vescomm_memory_free(memory.handle), "free");
            require(vescomm_comm_shrink(comm, nullptr, 0, &less), "shrink");
            require(vescomm_barrier(less), "barrier");
            expect(frees_first || resident(memory.data), "the memory is not freed yet");
            require(vescomm_barrier(less), "barrier");
            if (!frees_first) require(vescomm_memory_free(memory.handle), "free");
            require(vescomm_barrier(less), "barrier");
            expect(!resident(memory.data), "the pages are returned");
            require(vescomm_comm_free(comm), "free the broken one");
            const Memory again = create(less);
            expect(again.data == memory.data, "the address is used again");
            expect(find_mappings(memory.data, inode).mappings == 0, "nothing maps the old memory");
            const std::uint64_t before = registered_bytes(less);
            expect_sums(less, again.data);
            expect(registered_bytes(less) > before, "the new memory is read in place");
            require(vescomm_memory_free(again.handle), "free");
            require(vescomm_comm_free(less), "free");
        },
        {1});
}

TEST(MemoryLife, EndsWhenTheSurvivorsOfADeadRankFreeIt) {
    for (const int ranks : {3, 5}) run_job(ranks, false);
}

TEST(MemoryLife, EndsWhenTheSurvivorsShrinkAfterTheyFreedIt) {
    for (const int ranks : {3, 5}) run_job(ranks, true);
}

// A rank that is named as failed may be alive and read arrays on another communicator, so its node
// copies through the staging buffer.
TEST(MemoryLife, GoesOnInARankThatIsNamedAsFailed) {
    const Job job{3, 3};
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr, *other = nullptr, *less = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        require(vescomm_comm_dup(comm, nullptr, &other), "dup");
        const Memory memory = create(comm);
        expect_sums(comm, memory.data);
        require(vescomm_barrier(other), "barrier");
        if (rank != 1) {
            const std::int32_t failed = 1;
            require(vescomm_comm_shrink(comm, &failed, 1, &less), "shrink");
            const Memory again = create(less);
            const std::uint64_t before = registered_bytes(less);
            expect_sums(less, again.data);
            expect(registered_bytes(less) == before, "nothing is read in place");
            if (rank == 0) require(vescomm_memory_free(memory.handle), "free");
            require(vescomm_memory_free(again.handle), "free");
        }
        // The others pass their arrays, on a communicator that is not broken.
        require(vescomm_barrier(other), "barrier");
        std::vector<float> own(count);
        expect_sums(other, rank == 0 ? own.data() : memory.data);
        if (rank != 0) require(vescomm_memory_free(memory.handle), "free");
        if (less != nullptr) vescomm_comm_free(less);
        vescomm_comm_free(other);
        vescomm_comm_free(comm);
    });
}

}  // namespace

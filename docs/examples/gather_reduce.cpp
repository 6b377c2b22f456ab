// Gathers ragged shards and sums ragged shards: vescomm-run -n 3 ./gather_reduce
#include <cstdio>
#include <vescomm/vescomm.hpp>

int main() try {
    vescomm::Communicator comm = vescomm::Communicator::from_environment();
    std::vector<std::int64_t> counts;  // rank k owns k + 1 elements, all of them k
    for (int k = 0; k < comm.ranks(); ++k) counts.push_back(k + 1);
    vescomm::Buffer buffer(comm, vescomm::Layout::from_counts(counts));

    vescomm::Request gather = vescomm::Request::all_gather_v(comm, buffer);
    for (float &x : buffer.shard<float>()) x = static_cast<float>(comm.rank());
    gather.run();
    for (const float x : buffer.data<float>()) std::printf("%g ", x);

    vescomm::Request reduce = vescomm::Request::reduce_scatter_v(comm, buffer);
    reduce.run();
    std::printf("| rank %d: %g\n", comm.rank(), buffer.shard<float>()[0]);
    comm.finalize();  // collective; the destructor then does not wait
} catch (const vescomm::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}

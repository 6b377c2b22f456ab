// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A sharded data-parallel trainer. Each rank owns a ragged shard of the parameters and of the
// optimizer's state, and computes the gradients of its part of the batch.
//
//     c++ -std=c++20 trainer.cpp $(pkg-config --cflags --libs vescomm-planner) -o trainer
//     vescomm-run -n 3 ./trainer
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vescomm/planner.hpp>
#include <vescomm/vescomm.hpp>
#include "trainer_model.h"

namespace {

vescomm::Layout plan(int ranks) {
    vescomm::planner::Problem problem{{}, ranks};
    for (int t = 0; t < TENSORS; ++t)
        problem.tensors.push_back(
            {names[t], {shapes[t], shapes[t] + dimensions[t]}, block_rows[t]});
    const vescomm::planner::Answer answer = vescomm::planner::plan(problem);
    if (!answer.feasible) throw std::runtime_error(answer.explanation);
    return vescomm::Layout(vescomm::planner::make_layout(problem, answer).release());
}

// The tensors of a buffer, where they are in the planner's order.
struct Tensors {
    float *data[TENSORS];
    Tensors(const vescomm::Layout &layout, const vescomm::Buffer &buffer) {
        for (int t = 0; t < TENSORS; ++t)
            data[t] = buffer.tensor<float>(layout.find(names[t])).data();
    }
};

// The initial values of a rank's shard.
std::vector<float> initial(const vescomm::Layout &layout, int rank) {
    const auto [begin, end] = layout.shard(rank);
    std::vector<float> shard(end - begin);
    for (const vescomm_piece_t &piece : layout.pieces(rank)) {
        const std::string name = layout.tensor(piece.tensor).name;
        for (std::int64_t i = 0; i < piece.elements; ++i)
            shard[piece.offset + i] = 0.3f * noise(name.c_str(), piece.first + i);
    }
    return shard;
}

void train(vescomm::Communicator &comm, int steps) {
    const int rank = comm.rank(), ranks = comm.ranks();
    const vescomm::Layout layout = plan(ranks);

    // One copy of the parameters for the node; gradients for each rank.
    vescomm_buffer_options_t shared = vescomm_buffer_options_init();
    shared.sharing = VESCOMM_PER_NODE;
    shared.name = "parameters";
    const vescomm::Buffer parameters(comm, layout, shared), gradients(comm, layout);
    const Tensors p(layout, parameters), g(layout, gradients);
    const std::span<float> shard = gradients.shard<float>();

    // This rank's master parameters, and the momentum of SGD. A shard may be empty.
    std::vector<float> master = initial(layout, rank), momentum(master.size());
    vescomm_request_options_t from_master = vescomm_request_options_init();
    from_master.source = master.data();
    vescomm::Request gather = vescomm::Request::all_gather_v(comm, parameters, from_master);
    vescomm::Request reduce = vescomm::Request::reduce_scatter_v(comm, gradients);

    for (int step = 0; step <= steps; ++step) {
        gather.run();
        std::ranges::fill(gradients.data<float>(), 0.0f);
        std::vector<double> loss = {0};
        for (int sample = rank; sample < BATCH; sample += ranks)
            loss[0] += backward(p.data, g.data, sample);
        reduce.start();  // runs while the losses are summed
        vescomm::all_reduce(comm, loss);
        reduce.wait();
        if (!std::isfinite(loss[0])) throw std::runtime_error("the loss is not finite");
        if (rank == 0 && step % 50 == 0) std::printf("step %d loss %.5f\n", step, loss[0]);
        for (std::size_t i = 0; i < shard.size(); ++i) {
            momentum[i] = 0.9f * momentum[i] + shard[i];
            master[i] -= 0.1f * momentum[i];
        }
    }
}

}  // namespace

int main(int count, char **arguments) try {
    vescomm::Communicator comm = vescomm::Communicator::from_environment();
    train(comm, count > 1 ? std::atoi(arguments[1]) : 200);
    comm.finalize();  // collective; the destructor then does not wait
} catch (const std::exception &error) {
    // The destructor of the communicator has aborted it, so the other ranks get an error too.
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}

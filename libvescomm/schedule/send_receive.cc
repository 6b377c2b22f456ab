// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/send_receive.h"

#include <algorithm>

#include "schedule/chunks.h"

namespace vescomm::internal {

namespace {

std::int64_t chunk_of(const ArrayProblem &problem) {
    return problem.staging.count / (2 * problem.ranks());
}

// A message in chunks: their places at both ends, and in the eager buffer.
class MessageChunks {
public:
    MessageChunks(const Nodes &nodes, std::int64_t size, const Message &message)
        : chunks_(message.count, size), message_(message) {
        const int from = message.source.rank, to = message.output.rank;
        local_ = nodes.together(from, to);
        eager_buffer_ = local_ ? Place{from, Region::staging, 2 * size * to}
                               : Place{to, Region::staging, 2 * size * from};
    }

    bool local() const { return local_; }
    // Number of chunks, at least 1.
    std::uint32_t count() const {
        return static_cast<std::uint32_t>(std::max<std::int64_t>(1, chunks_.count()));
    }
    // Elements of chunk k.
    std::int64_t elements(std::uint32_t k) const { return chunks_.elements(k); }
    Place given(std::uint32_t k) const { return later(message_.source, chunks_.begin(k)); }
    Place taken(std::uint32_t k) const { return later(message_.output, chunks_.begin(k)); }
    Place slot(std::uint32_t k) const { return later(eager_buffer_, chunks_.slot(k)); }

private:
    Chunks chunks_;
    const Message &message_;
    bool local_ = false;
    Place eager_buffer_;
};

}  // namespace

Lane send(const Nodes &nodes, std::int64_t chunk, const Message &message) {
    const MessageChunks chunks(nodes, chunk, message);
    const int to = message.output.rank;
    Lane lane;
    lane.acquire_from(to, read_flag, chunks.count());
    for (std::uint32_t k = 0; k < chunks.count(); ++k) {
        if (k >= 2) lane.wait(to, read_flag, k - 1);
        if (chunks.local()) {
            lane.copy(chunks.given(k), chunks.slot(k), chunks.elements(k));
            lane.signal(to, written_flag, k + 1);
        } else {
            lane.put(chunks.given(k), chunks.slot(k), chunks.elements(k), written_flag, k + 1);
        }
    }
    return lane;
}

Lane receive(const Nodes &nodes, std::int64_t chunk, const Message &message) {
    const MessageChunks chunks(nodes, chunk, message);
    const int from = message.source.rank;
    Lane lane;
    lane.acquire_from(from, written_flag, 0);
    for (std::uint32_t k = 0; k < chunks.count(); ++k) {
        lane.wait(from, written_flag, k + 1);
        lane.copy(chunks.slot(k), chunks.taken(k), chunks.elements(k));
        lane.signal(from, read_flag, k + 1);
    }
    return lane;
}

Schedule send_receive(const ArrayProblem &problem, int rank) {
    Schedule schedule;
    schedule.staging = problem.staging.count;
    const auto message = [&](int from, int to) {
        return Message{problem.given(from, to), problem.taken(from, to), problem.block(from, to)};
    };
    for (int peer = 0; peer < problem.ranks(); ++peer) {
        if (problem.block(rank, peer) > 0)
            schedule.lanes.push_back(send(problem.nodes, chunk_of(problem), message(rank, peer)));
        if (problem.block(peer, rank) > 0)
            schedule.lanes.push_back(
                receive(problem.nodes, chunk_of(problem), message(peer, rank)));
    }
    return schedule;
}

bool can_send_receive(const ArrayProblem &problem) {
    return chunk_of(problem) > 0;
}

}  // namespace vescomm::internal

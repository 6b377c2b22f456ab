// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/launched_team.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "perf/implementations/vescomm.h"
#include "perf/run/exit_codes.h"

namespace vescomm::perf {

// The part of a line that one collective transfers, for each rank.
struct LineExchange::Piece {
    std::uint32_t bytes = 0;
    std::uint32_t more = 0;  // 1 if the line continues in the next piece
    char text[4088];

    explicit Piece(const std::string &line) {
        bytes = static_cast<std::uint32_t>(std::min(line.size(), sizeof text));
        more = bytes < line.size() ? 1 : 0;
        std::memcpy(text, line.data(), bytes);
    }
};

LineExchange::LineExchange(const Communicator &comm) : rank_(comm.rank()), ranks_(comm.ranks()) {
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.type = VESCOMM_U8;
    options.name = "command";
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks_), 0);
    counts[0] = sizeof(Piece);
    command_ = Buffer(comm, Layout::from_counts(counts), options);
    broadcast_ = Request::broadcast(comm, command_);
    options.name = "answers";
    std::fill(counts.begin(), counts.end(), sizeof(Piece));
    answers_ = Buffer(comm, Layout::from_counts(counts), options);
    gather_ = Request::all_gather_v(comm, answers_);
}

std::string LineExchange::broadcast(std::string line) {
    std::string whole;
    auto *piece = reinterpret_cast<Piece *>(command_.data<std::byte>().data());
    do {
        if (rank_ == 0) *piece = Piece(line);
        broadcast_.run();
        whole.append(piece->text, piece->bytes);
        line.erase(0, piece->bytes);
    } while (piece->more != 0);
    return whole;
}

std::vector<std::string> LineExchange::gather(std::string line) {
    std::vector<std::string> whole(static_cast<std::size_t>(ranks_));
    auto *pieces = reinterpret_cast<Piece *>(answers_.data<std::byte>().data());
    bool more = true;
    while (more) {
        pieces[rank_] = Piece(line);
        line.erase(0, pieces[rank_].bytes);
        gather_.run();
        more = false;
        for (int rank = 0; rank < ranks_; ++rank) {
            whole[rank].append(pieces[rank].text, pieces[rank].bytes);
            more = more || pieces[rank].more != 0;
        }
    }
    return whole;
}

LaunchedTeam::LaunchedTeam(Communicator &comm)
    : comm_(comm),
      exchange_(comm),
      implementation_(make_vescomm(comm)),
      service_(*implementation_, comm.rank(), Fault::of_environment(name_, comm.rank()),
               [this] { implementation_->meet(); }) {
    version_ = implementation_->version();
}

LaunchedTeam::~LaunchedTeam() {
    if (comm_.rank() != 0 || std::uncaught_exceptions() > exceptions_) return;
    try {
        exchange_.broadcast("");
    } catch (const std::exception &) {
        return;  // the run ends in any case
    }
}

std::vector<Answer> LaunchedTeam::obey(const std::string &line) {
    const Answer mine = service_.answer(command_of(line));
    // Other ranks wait inside the operation that failed here; the abort passes the cause to them.
    if (!mine.error.empty())
        throw Failure(ExitCode::failed, fmt::format("rank {}: {}", comm_.rank(), mine.error));
    std::vector<Answer> answers;
    for (const std::string &line_of_rank : exchange_.gather(to_line(mine)))
        answers.push_back(answer_of(line_of_rank));
    return answers;
}

std::vector<Answer> LaunchedTeam::ask(const Command &command) {
    return obey(exchange_.broadcast(to_line(command)));
}

void LaunchedTeam::follow() {
    for (std::string line = exchange_.broadcast(""); !line.empty(); line = exchange_.broadcast(""))
        obey(line);
}

bool launched() {
    for (const char *variable :
         {"VESCOMM_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID"}) {
        const char *value = std::getenv(variable);
        if (value != nullptr && *value != 0) return true;
    }
    return false;
}

}  // namespace vescomm::perf

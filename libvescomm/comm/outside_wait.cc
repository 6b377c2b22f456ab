// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/outside_wait.h"

#include <utility>
#include <vector>

namespace vescomm::internal {

ProgressEngine::OutsideWait::OutsideWait(ProgressEngine &engine, const RunId &run,
                                         std::function<std::string()> what)
    : engine_(engine),
      waiting_{.limit = Deadline::after(engine.timeout_seconds_),
               .what = std::move(what),
               .runs =
                   [&engine, run] {
                       // Any rank may wait elsewhere; each rank asks the next ones.
                       std::vector<int> others;
                       const int ranks = engine.control_.ranks(), rank = engine.control_.rank();
                       for (int k = 1; k < ranks; ++k) others.push_back((rank + k) % ranks);
                       return std::vector<RunWait>{{run, others}};
                   }},
      listed_(engine, waiting_),
      questions_(engine.timeout_seconds_) {}

void ProgressEngine::OutsideWait::pass_notes(double waited_seconds) noexcept {
    if (engine_.control_.has_notes()) engine_.read_notes();
    if (!questions_.due(waited_seconds)) return;
    listed_.list();
    engine_.ask(waiting_);
}

}  // namespace vescomm::internal

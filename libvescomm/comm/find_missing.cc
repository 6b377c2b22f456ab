// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Notes between ranks about their waits: a rank that waits long asks whether the others wait
// elsewhere, and a rank whose deadline has passed asks which are missing.
#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "comm/progress_engine.h"

namespace vescomm::internal {

namespace {

// The search prolongs a wait by at most this time. A rank that is in no call of the library, and
// has no progress thread, does not answer.
constexpr auto max_search_time = std::chrono::milliseconds(700);

// Without an event of the control plane, the search makes progress at this interval.
constexpr auto search_interval = std::chrono::milliseconds(10);

}  // namespace

void ProgressEngine::Search::add(const WaitNote &note, int from) {
    if (note.run != run_for(from)) return;
    if (note.kind == WaitNote::Kind::absent) return ranks.add_absent(from);
    const RunId their = note.kind == WaitNote::Kind::elsewhere ? note.other : note.run;
    if (their != run)
        for (const int rank : note.awaited) earlier.try_emplace(rank, their);
    ranks.add_waiting(from, note.awaited);
}

std::vector<ProgressEngine::RunWait> ProgressEngine::wait_of(const Operation &operation) {
    if (operation.is_message() || operation.settled()) return {};
    return {{operation.run_id(), operation.waiting_for(true)}};
}

const ProgressEngine::Waiting *ProgressEngine::long_wait(const std::optional<RunId> &run) const {
    for (const Waiting *waiting : long_waits_.waits)
        for (const RunWait &each : waiting->runs())
            if (!run || each.run == *run) return waiting;
    return nullptr;
}

// The lanes are as far as they can be: `awaited` has no rank whose flag this rank has not seen yet.
WaitNote ProgressEngine::answer_to(int from, const RunId &run) {
    const EngineLock::Caller lock(lock_);
    running_.progress();
    for (const Operation *operation : running_.running())
        for (const RunWait &wait : wait_of(*operation))
            if (wait.run == run) return {WaitNote::Kind::waits, run, wait.awaited};
    if (!running_.started().contains(run)) {
        if (const Waiting *waiting = long_wait({})) return elsewhere(run, *waiting);
        if (long_waits_.questions.size() < LongWaits::max_questions)
            long_waits_.questions.emplace_back(from, run);
    }
    return {WaitNote::Kind::absent, run};
}

WaitNote ProgressEngine::elsewhere(const RunId &run, const Waiting &waiting) {
    const RunWait other = waiting.runs()[0];
    return {WaitNote::Kind::elsewhere, run, other.awaited, other.run, waiting.what()};
}

void ProgressEngine::list(const Waiting &waiting) noexcept {
    try {
        std::vector<std::pair<int, WaitNote>> answers;
        {
            const EngineLock::Caller lock(lock_);
            long_waits_.waits.push_back(&waiting);
            const auto questions = std::exchange(long_waits_.questions, {});
            if (waiting.runs().empty()) return;
            for (const auto &[from, run] : questions)
                if (!running_.started().contains(run))
                    answers.emplace_back(from, elsewhere(run, waiting));
        }
        for (const auto &[from, answer] : answers) control_.send_note(from, encode(answer));
    } catch (const std::bad_alloc &) {
        // A rank without memory does not answer.
    }
}

// This rank has started `note.run` and not `note.other`, the sender the other way round: it does
// not matter that the note is old.
void ProgressEngine::compare_orders(int from, const WaitNote &note) {
    const EngineLock::Caller lock(lock_);
    const Waiting *waiting = long_wait(note.run);
    if (waiting == nullptr || running_.started().contains(note.other)) return;
    failure_.fail(VESCOMM_ERROR_MISMATCH, [&] {
        return fmt::format(
            "rank {} waits in {}, where rank {} waits in {}; every rank must make the same calls "
            "in the same order",
            control_.rank(), waiting->what(), from, note.call);
    });
}

void ProgressEngine::ask(const Waiting &waiting) noexcept {
    constexpr std::size_t max_asked = 8;
    try {
        std::vector<RunWait> runs;
        {
            const EngineLock::Caller lock(lock_);
            runs = waiting.runs();
        }
        std::size_t asked = 0;
        for (const RunWait &each : runs)
            for (const int rank : each.awaited)
                if (asked++ < max_asked && !control_.has_left(rank))
                    control_.send_note(rank, encode({WaitNote::Kind::question, each.run}));
    } catch (const std::bad_alloc &) {
        // A rank without memory does not ask.
    }
}

void ProgressEngine::read_notes() noexcept {
    try {
        for (const auto &[from, bytes] : control_.take_notes()) {
            const auto note = decode_wait_note(bytes, control_.ranks());
            if (!note) continue;
            if (note->kind == WaitNote::Kind::question) {
                control_.send_note(from, encode(answer_to(from, note->run)));
                continue;
            }
            if (note->kind == WaitNote::Kind::elsewhere) compare_orders(from, *note);
            const std::lock_guard lock(searches_mutex_);
            for (Search *search : searches_) search->add(*note, from);
        }
    } catch (const std::bad_alloc &) {
        // A rank without memory does not answer.
    }
}

// A search, which read_notes() finds for as long as this object exists.
class ProgressEngine::ListedSearch {
public:
    ListedSearch(ProgressEngine &engine, const RunId &run, const std::vector<int> &awaited)
        : engine_(engine), search_{run, MissingRanks(engine.control_.rank(), awaited), {}} {
        const std::lock_guard lock(engine_.searches_mutex_);
        engine_.searches_.push_back(&search_);
    }
    ~ListedSearch() {
        const std::lock_guard lock(engine_.searches_mutex_);
        std::erase(engine_.searches_, &search_);
    }
    ListedSearch(const ListedSearch &) = delete;
    ListedSearch &operator=(const ListedSearch &) = delete;

    template <typename Use>
    auto with(const Use &use) {
        const std::lock_guard lock(engine_.searches_mutex_);
        return use(search_.ranks);
    }
    RunId run_for(int rank) const {
        const std::lock_guard lock(engine_.searches_mutex_);
        return search_.run_for(rank);
    }

private:
    ProgressEngine &engine_;
    Search search_;
};

bool ProgressEngine::search(ListedSearch &search, const std::function<bool()> &done,
                            Clock::time_point until) {
    for (;;) {
        const std::uint64_t seen = control_.events();
        const auto questions =
            search.with([](MissingRanks &ranks) { return ranks.take_questions(); });
        for (const int rank : questions) {
            // A rank that has left does not answer.
            const RunId run = search.run_for(rank);
            if (control_.has_left(rank) ||
                !control_.send_note(rank, encode({WaitNote::Kind::question, run})))
                search.with([rank](MissingRanks &ranks) { ranks.add_absent(rank); });
        }
        // Throws if another rank has reported a failure.
        if (attempt(done)) return true;
        read_notes();
        if (search.with([](const MissingRanks &ranks) { return ranks.complete(); }) ||
            Clock::now() >= until)
            return false;
        control_.wait_event(seen, std::min(until, Clock::now() + search_interval));
    }
}

bool ProgressEngine::find_missing(const std::function<bool()> &done, const Waiting &waiting,
                                  std::vector<int> &missing) {
    std::vector<RunWait> runs;
    if (waiting.runs) {
        const EngineLock::Caller lock(lock_);
        runs = waiting.runs();
    }
    const Clock::time_point until = Clock::now() + max_search_time;
    std::vector<int> found;
    for (const RunWait &each : runs) {
        if (each.awaited.empty()) continue;
        ListedSearch listed(*this, each.run, each.awaited);
        if (search(listed, done, until)) return true;
        for (const int rank : listed.with([](MissingRanks &ranks) { return ranks.missing(); }))
            found.push_back(rank);
    }
    if (found.empty()) return false;
    std::ranges::sort(found);
    // std::ranges::unique() does not compile with clang 14.
    found.erase(std::unique(found.begin(), found.end()), found.end());
    missing = std::move(found);
    return false;
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up, and one copy of every byte.
#include "fsdp/checkpoint/save_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/signals.h"
#include "fsdp/checkpoint/error.h"
#include "planner/formats/quoted.h"

namespace vescomm::fsdp::checkpoint {
namespace {

// The time for a cancelled save to end: it tests the flag before each chunk, and one chunk is
// written in much less.
constexpr std::chrono::seconds time_to_cancel{10};

// Copies of pieces, in one allocation.
class Snapshot {
public:
    // Throws Error for a wrong piece, and std::bad_alloc.
    void copy(std::span<const Piece> pieces) {
        pieces_.assign(pieces.begin(), pieces.end());
        std::size_t bytes = 0;
        for (const Piece &piece : pieces_) bytes += size_of(piece);
        bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
        std::size_t at = 0;
        for (Piece &piece : pieces_) {
            const std::size_t size = size_of(piece);
            if (size == 0) continue;
            // A NULL pointer is an error of save(), which names the tensor.
            if (piece.data == nullptr) continue;
            std::memcpy(bytes_.get() + at, piece.data, size);
            piece.data = bytes_.get() + at;
            at += size;
        }
    }

    std::span<const Piece> pieces() const { return pieces_; }

private:
    static std::size_t size_of(const Piece &piece) {
        return static_cast<std::size_t>(
            check_piece(piece.tensor, piece.first, piece.count, "saving"));
    }

    std::vector<Piece> pieces_;
    std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace

struct SaveJob::State {
    // Set before the thread starts.
    std::string folder;
    Snapshot snapshot;
    std::vector<Extra> extras;
    std::unique_ptr<Agreement> agreement;
    SaveOptions options;
    SaveContext context;

    std::atomic<bool> cancelled = false;
    std::mutex mutex;
    std::condition_variable ended;
    bool complete = false;  // guarded by `mutex`, as the members below
    std::exception_ptr error;
    SaveResult result;

    void run() noexcept {
        SaveResult made;
        std::exception_ptr failure;
        try {
            made = save(folder, snapshot.pieces(), extras, *agreement, options, context);
        } catch (...) {
            failure = std::current_exception();
        }
        // Collective: the threads of all ranks end their communicator here, together.
        agreement.reset();
        const std::lock_guard lock(mutex);
        snapshot = Snapshot();
        result = std::move(made);
        error = failure;
        complete = true;
        ended.notify_all();
    }

    bool wait_until(std::chrono::steady_clock::time_point deadline) {
        std::unique_lock lock(mutex);
        return ended.wait_until(lock, deadline, [&] { return complete; });
    }
};

SaveJob::SaveJob(const std::string &folder, const std::function<Contents()> &contents,
                 std::unique_ptr<Agreement> agreement, const SaveOptions &options,
                 SystemCalls &calls)
    : state_(std::make_shared<State>()) {
    state_->folder = folder;
    state_->agreement = std::move(agreement);
    state_->options = options;
    state_->context.calls = &calls;
    state_->context.cancelled = &state_->cancelled;
    try {
        Contents made = contents();
        state_->extras = std::move(made.extras);
        state_->snapshot.copy(made.pieces);
    } catch (...) {
        state_->snapshot = Snapshot();
        state_->context.failure = std::current_exception();
    }
    try {
        // A write beyond RLIMIT_FSIZE then fails instead of ending the process.
        const internal::SignalsBlocked blocked;
        std::thread([state = state_] { state->run(); }).detach();
    } catch (const std::system_error &error) {
        state_->context.failure = std::make_exception_ptr(
            Error(VESCOMM_ERROR_SYSTEM,
                  fmt::format("the thread of a save cannot be started: {}; raise the limit of "
                              "threads (ulimit -u)",
                              error.code().message())));
        // Other ranks wait for the error.
        state_->run();
    }
}

SaveJob::~SaveJob() {
    state_->cancelled = true;
    // A thread that does not end, because a file system hangs, keeps the state.
    state_->wait_until(std::chrono::steady_clock::now() + time_to_cancel);
}

bool SaveJob::test() const {
    const std::lock_guard lock(state_->mutex);
    return state_->complete;
}

SaveResult SaveJob::wait(double timeout_seconds) {
    // A year is longer than any save, and small enough for the clock.
    constexpr double max_seconds = 365.0 * 86400;
    const auto timeout = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(timeout_seconds > 0 ? std::min(timeout_seconds, max_seconds)
                                                          : 0));
    if (!state_->wait_until(std::chrono::steady_clock::now() + timeout))
        throw Error(VESCOMM_ERROR_TIMEOUT,
                    fmt::format("the save to {} is not complete after {} s; it goes on, wait again",
                                formats::quoted_text(state_->folder), timeout_seconds));
    const std::lock_guard lock(state_->mutex);
    if (state_->error) std::rethrow_exception(state_->error);
    return state_->result;
}

}  // namespace vescomm::fsdp::checkpoint

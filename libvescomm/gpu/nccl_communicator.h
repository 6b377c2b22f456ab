// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device_ends.h"
#include "gpu/gpu_libraries.h"
#include "gpu/nccl_watch.h"

namespace vescomm::internal {

// The communicator of NCCL of a device communicator: its calls, and its end.
//
// Its end unmaps the windows of other ranks, and does not wait for copies of vescomm that read
// them: see keep_windows().
//
// It ends when no graph holds its work any more, and its kernels end only if the earlier work of
// their streams does. After a limit it is forgotten: it, the memory that its kernels may use and
// the waiting thread are leaked.
//
// Threads: one at a time.
class NcclCommunicator {
public:
    struct Options {
        bool shrinkable = false;  // end() revokes it instead of aborting it
        bool borrowed = false;  // it is the program's: nothing watches or ends it
    };

    // `comm` and `libraries` outlive it.
    NcclCommunicator(Communicator &comm, const GpuLibraries &libraries, const Options &options)
        : comm_(comm), libraries_(libraries), options_(options) {}

    // Sets the device, and begins to watch calls. Throws std::system_error without a thread.
    void use_device(int device);
    int device() const { return device_; }
    void set(nccl::Comm comm) { nccl_ = comm; }
    // nullptr: not connected, or aborted.
    nccl::Comm get() const { return nccl_; }

    // False if it was aborted or revoked, also by the watch.
    bool usable() const { return nccl_ != nullptr && state_ == State::usable; }
    // True: the watch has ended a call that waited until its deadline.
    bool watch_ended() const { return watch_ && watch_->ended(); }
    // True: its kernels may still run after its end.
    bool forgotten() const { return state_ == State::forgotten; }

    // Makes a call of NCCL that may wait for other ranks, while NCCL connects: in the first calls.
    // The wait ends when the communicator breaks, and at the deadline. Returns NCCL's result.
    template <typename Call>
    auto watched(const Call &call) {
        const NcclWatch::Scope scope(watch_.get());
        return call();
    }
    // A word in host memory that ends the waits of kernels of vescomm: end() and abort() set it,
    // and the watch, once the ranks have failed. nullptr: there is none any more.
    void set_end_word(std::uint32_t *word);
    // A graph has captured its calls.
    void note_capture() { captured_ = true; }
    // Result of the call that it makes in the background, or its asynchronous error.
    nccl::Result result() const;
    // The text of a result.
    std::string reason(nccl::Result result) const;

    // Work on streams that NCCL does not know may read windows of other ranks from now on. A
    // failure then revokes it, which keeps the windows, and an abort first waits until the device
    // is idle.
    void keep_windows() { keeps_windows_ = true; }

    struct End {
        enum class Kind {
            ended,
            late,  // it does not end: within the deadline, or because `comm` breaks
            failed,
        };
        Kind kind = Kind::ended;
        nccl::Result result = nccl::success;  // if it has failed
        const char *function = "";  // that has failed
    };
    // Ends it in an orderly way. Needs no progress of `comm`, which may have been freed. No effect
    // on one of the program. `idle`: no work of the device is left. Otherwise forgets one whose
    // windows are kept.
    End finalize(bool idle) noexcept;
    // After a failure: ends the kernels of NCCL within the limit, by a revocation or by an abort.
    // Work that reads windows may follow until abort().
    void end() noexcept;
    // Ends the kernels and the communicator of NCCL within the limit; forgets one of the program.
    void abort() noexcept;
    // Forgets it, because something still uses it, and logs the leak.
    void forget(const char *why) noexcept;

    // ---- a call that creates another one from it ----

    struct Derivation {
        nccl::Config config;
        std::vector<int> excluded;
        nccl::Comm comm = nullptr;  // valid after the call; nullptr: this rank is in none
        std::atomic<bool> given_up{false};  // a thread that has not begun does not call NCCL
    };
    // Starts `call`, which fills `made`, in a thread of its own.
    template <typename Call>
    void start_derivation(const std::shared_ptr<Derivation> &made, const Call &call) {
        derived_ = made;
        // A revocation does not end a call that begins after it.
        derivation_.emplace(
            call_on_device(libraries_.cuda, device_, [made, call](const cuda::Runtime &cuda) {
                return made->given_up ? nccl::system_error : call(cuda);
            }));
    }
    // The call; empty: none was started, or it was ended.
    const std::optional<BackgroundCall> &derivation() const { return derivation_; }
    void forget_derivation() { derivation_.reset(); }
    // Gives up the call after a failure, by a revocation, and ends both communicators of NCCL.
    void abandon_derivation() noexcept;
    // Ends what a derivation has created, within the limit.
    void abort_derived(Derivation &made) const noexcept;

private:
    enum class State {
        usable,
        revoked,  // its kernels have ended, and it still exists
        revocation_failed,  // NCCL revokes a communicator once: only an abort ends it
        aborted,  // by the watch
        end_hangs,  // the call that the watch has made does not return
        forgotten,
    };

    void end_waits_of_kernels() noexcept;
    // Makes a call that waits for other ranks return, or ends kernels between calls, in the thread
    // of the watch.
    void end_call() noexcept;
    // The watch ends nothing any more.
    void stop_watch() noexcept {
        if (watch_) watch_->stop_ending();
    }
    static nccl::Result finalize_and_wait(const nccl::Library &nccl, nccl::Comm comm);
    // Returns true if it is revoked. Forgets it if the call does not return within the limit.
    bool revoke() noexcept;
    // Returns false if ncclCommAbort() does not return within the limit.
    bool abort_within_limit(nccl::Comm ended) const noexcept;
    // Revokes it, and waits for all work of the device. Returns false if some may still run after
    // the limit.
    bool end_reads_of_windows() noexcept;
    // Ends the call of a derivation within the limit. Returns false if it still runs.
    bool end_derivation() noexcept;

    Communicator &comm_;
    const GpuLibraries &libraries_;
    const Options options_;
    int device_ = -1;
    std::atomic<nccl::Comm> nccl_ = nullptr;  // changes only while the watch ends nothing
    std::atomic<State> state_{State::usable};
    bool keeps_windows_ = false;
    bool captured_ = false;
    std::mutex end_word_mutex_;
    std::uint32_t *end_word_ = nullptr;
    std::unique_ptr<NcclWatch> watch_;  // nullptr: it is the program's
    std::optional<BackgroundCall> derivation_;
    std::shared_ptr<Derivation> derived_;  // what derivation_ fills
};

}  // namespace vescomm::internal

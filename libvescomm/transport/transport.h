// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "vescomm/vescomm.h"

namespace vescomm {

// Number of a memory within its communicator: the same on every rank.
using MemoryId = std::uint32_t;

// A signal is a counter that one rank raises and others watch; it never falls. `channel` is the
// number of the request within its communicator, `flag` tells apart the counters of one request.
struct SignalName {
    std::uint32_t channel = 0;
    std::uint32_t flag = 0;
};

// Most flags of one request, over all algorithms. Eight counters fill a cache line.
inline constexpr std::uint32_t flags_per_channel = 8;

// What a rank has called in the run that a value belongs to, as the value of signature_flag. What
// it says to another node without bytes is the value of advertised_flag: that may be of a later run
// before anyone has looked at the bytes.
inline constexpr std::uint32_t signature_flag = 5;
inline constexpr std::uint32_t advertised_flag = 6;
constexpr std::uint32_t signature_flag_for(std::uint64_t bytes) {
    return bytes > 0 ? signature_flag : advertised_flag;
}
constexpr std::uint64_t signature_value(std::uint64_t value, std::uint32_t called) {
    return (value >> 32 << 32) | called;
}

// Where the memory of a node's ranks is mapped in this process.
class Mapping {
public:
    virtual ~Mapping() = default;
    // Start of the slab of `peer` (of its node, for VESCOMM_PER_NODE); nullptr when not mapped.
    virtual std::byte *base(int peer) const noexcept = 0;
};

// Bytes for the memory of a peer on another node, and the signal that follows them.
struct Put {
    int peer = 0;
    const std::byte *from = nullptr;  // within a registered memory of this rank, or any address
    MemoryId memory = 0;  // of the target
    std::uint64_t offset = 0;  // bytes, within the target's slab
    std::uint64_t bytes = 0;  // may be 0: then only the signal travels
    SignalName signal;
    // Raised at the peer after all bytes are visible there, and those of the puts before it. 0: a
    // part of the next put to this peer, which follows at once; small parts go as one message.
    std::uint64_t value = 0;
    // Counted down by one when `from` may be written again. Incremented by the caller before.
    std::atomic<std::uint32_t> *pending = nullptr;
    // Not 0: raises signature_flag of the channel as well, or advertised_flag where there are no
    // bytes, with this in the lower half of the value.
    std::uint32_t called = 0;
    // Not 0: may come early. It takes effect once the target expects this value of `credit_flag` of
    // the channel. Until then the target keeps it, and what comes later passes it.
    std::uint64_t eager = 0;
    std::uint32_t credit_flag = 0;
};

class SignalBoard;

// How bytes and signals travel between this rank and some of its peers. transports.cc holds the
// table of all of them; tests/conformance is the suite that every one passes.
//
// A transport either *maps* a peer (its memory can be loaded and stored by pointer) or *puts* to it
// (bytes are handed over and arrive later); loopback does both, for tests.
//
// Threads: the owner serialises all calls, except signalled(), which may be called by any thread,
// and map(), which may be called while one of the others is.
class Transport {
public:
    virtual ~Transport() = default;

    virtual std::string_view name() const = 0;
    virtual bool maps(int peer) const noexcept = 0;
    virtual bool puts(int peer) const noexcept = 0;
    virtual bool supports(vescomm_memory_kind_t kind) const noexcept = 0;

    // ---- set-up; throws Error ----

    // Memory for the ranks that this transport maps, in three steps, each collective over those
    // ranks. Only for a transport that maps its own rank.
    //
    // share(): allocates it, zeroed, on one of the ranks, and returns what the others must know to
    // map it. The caller carries that to them.
    //   OUT_OF_MEMORY  there is not enough; the caller tells the other ranks
    //   SYSTEM         the operating system refused
    // `reserve`: running out of memory is an error here; otherwise pages are taken when they are
    // first touched, as of memory from malloc().
    virtual std::string share(std::uint64_t bytes, vescomm_sharing_t sharing, bool reserve);
    // map(): maps it; `shared` is what share() has returned on each rank of the communicator.
    virtual std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                         const std::vector<std::string> &shared, Deadline deadline);
    // end_sharing(): every rank has mapped it, or will not.
    virtual void end_sharing() noexcept {}

    // Makes memory a target of puts, and returns what a peer must know to do so (at most 64 KiB).
    // The caller carries it to the peers through the authenticated control plane.
    virtual std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes);

    // Learns how to put into the memory of a peer. An empty offer means that none was made.
    virtual void accept(MemoryId memory, int peer, std::string_view offer);

    // Ends what offer() and accept() began. The bytes are no longer touched when it returns.
    virtual void forget(MemoryId memory) noexcept;

    // ---- per operation; a failure is told once, through the Failure given at creation ----

    // Hands bytes over. Puts and signals to one peer take effect in the order of the calls, but for
    // puts that come early.
    virtual void put(const Put &put) noexcept;

    // Raises a signal of this rank at one peer. For a peer that is mapped, all ranks of the node
    // see it at once, this one included.
    virtual void signal(int peer, SignalName signal, std::uint64_t value) noexcept = 0;

    // Whether this rank's transport and its peers' keep puts that come early.
    virtual bool keeps_unexpected() const noexcept { return false; }

    // From now on puts of `peer` that came early for this value of the signal, or a lower one, take
    // effect. Where keeps_unexpected().
    virtual void expect(int /* peer */, SignalName /* signal */,
                        std::uint64_t /* value */) noexcept {}

    // The value to which `peer` has raised a signal for this rank; 0 before the first. What the
    // peer wrote before it raised the signal is visible to the caller afterwards.
    virtual std::uint64_t signalled(int peer, SignalName signal) const noexcept = 0;

    // Moves things along; true when something moved. Nothing to do for a transport that only maps.
    virtual bool progress() noexcept { return false; }

    // ---- sleeping ----

    // Where this rank's threads sleep and who wakes them: of the transport that maps this rank,
    // which every communicator has exactly one of. nullptr for the others.
    virtual SignalBoard *board() noexcept { return nullptr; }

    // A descriptor that becomes readable when progress() has something to do; -1: none is needed.
    virtual int descriptor() const noexcept { return -1; }

    // Prepares descriptor() for a poll. False: something arrived meanwhile, call progress()
    // instead.
    virtual bool arm() noexcept { return true; }

    // Stops all traffic: when it returns no byte of any memory is written by this transport any
    // more, and nothing that this rank has put is read.
    virtual void stop() noexcept {}
};

}  // namespace vescomm

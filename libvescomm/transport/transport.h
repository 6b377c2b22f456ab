// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/flags.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Number of a memory within its communicator, equal on every rank.
using MemoryId = std::uint32_t;

// A signal is a flag of a schedule as transports see it: a counter that one rank raises and others
// watch; it never decreases. `channel` is the number of a set of flags (of a request, a memory or a
// slot), the same on every rank. `flag` is one of its counters (base/flags.h).
struct SignalName {
    std::uint32_t channel = 0;
    std::uint32_t flag = 0;
};

// The value of signature_flag, advertised_flag or tag_flag that is raised with a signal of `value`.
constexpr std::uint64_t signature_value(std::uint64_t value, std::uint32_t signature) {
    return (value >> 32 << 32) | signature;
}

// Addresses in this process at which the memory of a node's ranks is mapped.
class Mapping {
public:
    virtual ~Mapping() = default;
    // Start of the slab of `peer` (of its node for VESCOMM_PER_NODE), or nullptr if it is not
    // mapped.
    virtual std::byte *base(int peer) const noexcept = 0;
    // True: mremap() can map a slab once more, at another address.
    virtual bool duplicable() const noexcept { return false; }
};

// See Put::kind.
enum class PutKind : std::uint8_t { put, request_to_send, acknowledgement };

// A transfer of bytes into the memory of a peer on another node, and the signal that follows them.
struct Put {
    int peer = 0;
    // source: within a registered memory of this rank, or any other address
    const std::byte *from = nullptr;
    MemoryId memory = 0;  // number of the target memory
    std::uint64_t offset = 0;  // target: bytes from the start of the peer's slab
    std::uint64_t bytes = 0;  // may be 0: then only the signal is sent
    SignalName signal;
    // Value of the signal at the peer. It is raised after all bytes of this put and of earlier puts
    // to the peer are visible there. 0: no signal; this is a part of the next put to the peer,
    // which must follow at once. Small parts are sent as one message.
    std::uint64_t value = 0;
    // Decremented by one when `from` may be written again. The caller increments it before the put.
    std::atomic<std::uint32_t> *pending = nullptr;
    // Signature of the call. If it is not 0, the put also raises signature_flag of the channel
    // (without bytes: advertised_flag), with the signature in the lower half of the value.
    std::uint32_t signature = 0;
    // Tag of a point-to-point message, below 2^31. If it is not 0, a put with a signature raises
    // tag_flag of the channel before the signature, with the tag in the lower half of the value.
    std::uint32_t tag = 0;
    // The credit that an eager put needs; 0: not eager. The put takes effect once the target has
    // granted at least this value of `credit_flag` of the channel. Until then the target keeps it
    // in its unexpected queue, and later puts may pass it. See may_put_eagerly().
    std::uint64_t credit = 0;
    std::uint32_t credit_flag = 0;
    // Transports use the other kinds for their flow control (eager_flow.h). They have no bytes.
    PutKind kind = PutKind::put;
};

// Limit of Put::tag.
inline constexpr std::uint32_t max_tag = std::numeric_limits<std::int32_t>::max();

class SignalBoard;

// Moves bytes and signals between this rank and some of its peers. transports.cc holds the table of
// all transports; tests/conformance is the suite that every transport passes.
//
// A transport either *maps* a peer (its memory is loaded and stored by pointer) or *puts* to it
// (bytes are handed over and arrive later). loopback does both, for tests.
//
// Threads: the owner serialises all calls. Exceptions: signalled() may be called by any thread, and
// map() may be called while another call runs.
class Transport {
public:
    virtual ~Transport() = default;

    virtual std::string_view name() const = 0;
    virtual bool maps(int peer) const noexcept = 0;
    virtual bool puts(int peer) const noexcept = 0;
    virtual bool supports(vescomm_memory_kind_t kind) const noexcept = 0;

    // ---- set-up; throws Error ----

    // Shared memory for the ranks that this transport maps, made in three steps. Each step is
    // collective over these ranks. Only for a transport that maps its own rank.
    //
    // share(): allocates the memory, zeroed, on one of the ranks, and returns what the other ranks
    // need to map it. The caller sends that to them.
    //   OUT_OF_MEMORY  not enough memory is free; the caller notifies the other ranks
    //   SYSTEM         the operating system refused
    // `reserved`: this many bytes of each slab are allocated now, so that running out of memory is
    // an error here. The pages after them are allocated when they are first touched, as with
    // malloc(). The same at map().
    virtual std::string share(std::uint64_t bytes, vescomm_sharing_t sharing,
                              std::uint64_t reserved);
    // map(): maps the memory; `shared` holds the result of share() of every rank of the
    // communicator.
    virtual std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                         const std::vector<std::string> &shared, Deadline deadline);
    // end_sharing(): called when every rank has mapped the memory or has given up.
    virtual void end_sharing() noexcept {}

    // Makes memory a target of puts, and returns what a peer needs to put into it (at most 64 KiB).
    // The caller sends that to the peers through the authenticated control plane.
    virtual std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes);

    // Accepts the offer of a peer for its memory. An empty offer means that the peer made none.
    virtual void accept(MemoryId memory, int peer, std::string_view offer);

    // Ends offer() and accept() of a memory. Its bytes are not touched after the return.
    virtual void forget(MemoryId memory) noexcept;

    // ---- per operation; a failure is reported once, through the Failure given at creation ----

    // Hands bytes over. Puts and signals to one peer take effect in the order of the calls, except
    // eager puts.
    virtual void put(const Put &put) noexcept;

    // Raises a signal of this rank at one peer. If the peer is mapped, all ranks of the node,
    // including this one, see the signal at once.
    virtual void signal(int peer, SignalName signal, std::uint64_t value) noexcept = 0;

    // True if this rank's transport and its peers' keep eager puts in an unexpected queue.
    virtual bool keeps_unexpected() const noexcept { return false; }

    // True if this rank may make an eager put to `peer` that needs this value of the signal
    // `credit`. False: the eager puts to `peer` that have not taken effect use up its budget
    // (eager_flow.h), or `waits` is set. Call again after progress(): it becomes true once the peer
    // has granted the credit or, without `waits`, there is budget again. Always true if not
    // keeps_unexpected().
    virtual bool may_put_eagerly(int /* peer */, SignalName /* credit */, std::uint64_t /* value */,
                                 bool /* waits */) noexcept {
        return true;
    }

    // Grants `peer` the credit for eager puts that need this value of the signal, or a lower one:
    // they take effect from now on. Only if keeps_unexpected().
    virtual void grant_credit(int /* peer */, SignalName /* signal */,
                              std::uint64_t /* value */) noexcept {}

    // The value to which `peer` has raised a signal for this rank; 0 before the first. Everything
    // that the peer wrote before it raised the signal is visible to the caller afterwards.
    virtual std::uint64_t signalled(int peer, SignalName signal) const noexcept = 0;

    // Advances transfers; returns true if anything advanced. A transport that only maps has nothing
    // to do.
    virtual bool progress() noexcept { return false; }

    // ---- sleeping ----

    // The board on which this rank's threads sleep and are woken. Every communicator has exactly
    // one transport that maps its own rank; the others return nullptr.
    virtual SignalBoard *board() noexcept { return nullptr; }

    // A descriptor that becomes readable when progress() has work; -1: none is needed.
    virtual int descriptor() const noexcept { return -1; }

    // Prepares descriptor() for a poll. Returns false if something arrived meanwhile; then call
    // progress() instead.
    virtual bool arm() noexcept { return true; }

    // Stops all traffic. After the return this transport writes no byte of any memory and reads no
    // byte that this rank has put.
    virtual void stop() noexcept {}
};

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "bootstrap/network.h"

namespace vescomm::internal {

// Passes file descriptors between processes of one machine (SCM_RIGHTS). One process offers a
// descriptor under a random ticket and sends the ticket to the others through the authenticated
// control plane; each of them fetches a copy. The connection is a Unix socket in the abstract
// namespace, which leaves nothing in any file system. Only processes of the same user that present
// the ticket are served. A connection ends with its fetch, and a slow process delays no other.
//
// Used in the network's thread only; DescriptorExchange below is for other threads.
class DescriptorServer {
public:
    explicit DescriptorServer(Network &network) : network_(network) {}

    // Offers a copy of the descriptor and returns its ticket. Throws Error.
    std::string offer(int descriptor);
    void withdraw(const std::string &ticket) { offers_.erase(ticket); }

    static constexpr std::size_t max_pending = 128;

private:
    struct Pending {
        std::unique_ptr<Stream> stream;
        std::string received;
    };
    using Place = std::list<Pending>::iterator;

    void accept(std::unique_ptr<Stream> stream);
    void read(Place pending, std::string_view bytes);

    Network &network_;
    std::string name_;
    std::unique_ptr<Listener> listener_;
    std::map<std::string, Descriptor> offers_;  // by ticket
    std::list<Pending> pending_;
};

// Fetches one descriptor. Used in the network's thread only.
class DescriptorFetch {
public:
    // Called with a descriptor, or with an empty one and the reason.
    using Done = std::function<void(Descriptor, const std::string &why)>;

    DescriptorFetch(Network &network, const std::string &ticket, Done done);

private:
    void connected(std::unique_ptr<Stream> stream, const std::string &why);
    void finish(Descriptor descriptor, const std::string &why);

    std::string token_;
    Done done_;
    std::unique_ptr<Attempt> attempt_;
    std::unique_ptr<Stream> stream_;
};

class OsNetwork;

// Server and fetch for threads that wait. Threads: safe.
class DescriptorExchange {
public:
    // Borrows the network.
    explicit DescriptorExchange(OsNetwork &network);
    ~DescriptorExchange();
    DescriptorExchange(const DescriptorExchange &) = delete;
    DescriptorExchange &operator=(const DescriptorExchange &) = delete;

    // An offer; its destructor withdraws it.
    class Offer {
    public:
        Offer() = default;
        Offer(DescriptorExchange &exchange, std::string ticket)
            : exchange_(&exchange), ticket_(std::move(ticket)) {}
        Offer(Offer &&other) noexcept { *this = std::move(other); }
        Offer &operator=(Offer &&other) noexcept {
            std::swap(exchange_, other.exchange_);
            ticket_.swap(other.ticket_);
            return *this;
        }
        ~Offer() {
            if (exchange_ != nullptr) exchange_->withdraw(ticket_);
        }
        const std::string &ticket() const { return ticket_; }

    private:
        DescriptorExchange *exchange_ = nullptr;
        std::string ticket_;
    };

    // Throws Error(SYSTEM).
    Offer offer(int descriptor);

    // A fetch under way, started by fetch().
    class Fetch {
    public:
        // Returns the descriptor, or nothing until it has arrived. Throws Error(SYSTEM) when the
        // fetch fails.
        std::optional<Descriptor> test();
        // Blocks. Throws Error(TIMEOUT) at the deadline, and Error(ABORTED) if the program ends the
        // wait. `rank` waits for `owner`.
        Descriptor wait(Deadline deadline, int rank, int owner);

    private:
        friend class DescriptorExchange;
        struct State;
        std::shared_ptr<State> state_;
    };
    Fetch fetch(const std::string &ticket);

private:
    void withdraw(const std::string &ticket) noexcept;

    OsNetwork &network_;
    std::unique_ptr<DescriptorServer> server_;  // the network's thread only
};

}  // namespace vescomm::internal

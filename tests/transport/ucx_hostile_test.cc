// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The UCX transport against a peer that sends invalid messages: rank 0 is real, rank 1 is played by
// the test.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <thread>

#include "base/error.h"
#include "support/local_control.h"
#include "transport/ucx.h"
#include "transport/ucx_inbox.h"
#include "transport/ucx_wire.h"
#include "transport/ucx_worker.h"

namespace vescomm::internal {
namespace {

using testing_support::LocalControl;
using testing_support::LocalControlHub;

constexpr double patience_seconds = 20;
constexpr MemoryId memory = 1;
constexpr std::uint32_t context = 7;
constexpr std::size_t memory_bytes = 4096;

class HostilePeer {
public:
    explicit HostilePeer(std::shared_ptr<LocalControlHub> hub)
        : ucx_(load_ucx()), worker_(ucx_, 1, "lo"), control_(hub, 1) {
        ucx_.get_version(&own_.ucx_major, &own_.ucx_minor, &release_);
        own_.rank = 1;
        own_.token = 42;
        own_.worker = worker_.address();
        // UCX 1.13 aborts on a message that has no handler.
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
        handler.id = ucx_message_id;
        handler.cb = [](void *, const void *, std::size_t, void *, std::size_t,
                        const ucp_am_recv_param_t *) { return UCS_OK; };
        ucx_.check(ucx_.worker_set_am_recv_handler(worker_.handle(), &handler), "am_recv_handler");
    }
    ~HostilePeer() {
        if (endpoint_ == nullptr) return;
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        ucx_.ep_close_nbx(endpoint_, &force);
    }

    UcxAddress &own() { return own_; }
    LocalControl &control() { return control_; }

    void exchange_addresses() {
        const auto all = control_.all_gather("ucx addresses", serialise(own_),
                                             Deadline::after(patience_seconds));
        const UcxAddress victim = parse_ucx_address(all[0], 0);
        token_ = victim.token;
        ucp_ep_params_t parameters{};
        parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                UCP_EP_PARAM_FIELD_ERR_HANDLER;
        parameters.err_handler.cb = [](void *, ucp_ep_h, ucs_status_t) {};
        parameters.address = reinterpret_cast<const ucp_address_t *>(victim.worker.data());
        parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        ucx_.check(ucx_.ep_create(worker_.handle(), &parameters, &endpoint_), "ep_create");
    }

    // Returns a valid message; tests then change single fields.
    UcxMessage next(MessageKind kind) {
        UcxMessage message;
        message.kind = kind;
        message.from = 1;
        message.token = token_;
        message.number = number_++;
        message.context = context;
        message.memory = memory;
        return message;
    }

    void send(const UcxMessage &message, std::size_t payload_bytes = 0, unsigned flags = 0,
              std::size_t header_bytes = sizeof(UcxMessage)) {
        // Header and payload outlive the request, whose end is not reported.
        headers_.push_back(message);
        ucp_request_param_t parameters{};
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = flags;
        void *request = ucx_.am_send_nbx(endpoint_, ucx_message_id, &headers_.back(), header_bytes,
                                         payload_.data(), payload_bytes, &parameters);
        if (UCS_PTR_IS_PTR(request)) ucx_.request_free(request);
    }

    void say_hello() {
        send(next(MessageKind::hello));
        send(next(MessageKind::welcome));
    }

    std::byte *payload() { return payload_.data(); }

    void progress() { ucx_.worker_progress(worker_.handle()); }

private:
    const UcxLibrary &ucx_;
    UcxWorker worker_;
    LocalControl control_;
    UcxAddress own_;
    unsigned release_ = 0;
    ucp_ep_h endpoint_ = nullptr;
    std::uint64_t token_ = 0;
    std::uint64_t number_ = 0;
    std::deque<UcxMessage> headers_;
    std::vector<std::byte> payload_ = std::vector<std::byte>(1 << 20, std::byte{0xee});
};

// Rank 0, which runs in a thread until it fails or is stopped. It has two communicators on one
// fabric; invalid messages are sent to one of them.
struct Victim {
    Victim(std::shared_ptr<LocalControlHub> hub, double seconds) {
        thread = std::thread([this, hub, seconds] {
            LocalControl control(hub, 0);
            try {
                const auto fabric =
                    UcxFabric::connect(control, {false, true}, failure, Deadline::after(seconds));
                const auto transport = make_ucx_transport(fabric, context, 0, {-1, 1}, failure, {});
                const auto other =
                    make_ucx_transport(fabric, context + 1, 0, {-1, 1}, other_failure, {});
                arena.assign(memory_bytes, std::byte{0});
                transport->offer(memory, arena.data(), arena.size());
                wired = true;
                const Deadline deadline = Deadline::after(patience_seconds);
                while (!failure.broken() && !deadline.expired() && !stop) {
                    if (!transport->progress()) std::this_thread::yield();
                    observed = transport->signalled(1, {0, 0});
                    other_observed = other->signalled(1, {0, 0});
                }
                signalled = transport->signalled(1, {0, 0});
                while (waits_for_other && !other_failure.broken() && !deadline.expired() &&
                       other->signalled(1, {0, 0}) == 0)
                    if (!other->progress()) std::this_thread::yield();
                other_observed = other->signalled(1, {0, 0});
            } catch (const Error &error) {
                status = error.status;
                why = error.what();
            }
            done = true;
        });
    }
    ~Victim() {
        if (thread.joinable()) thread.join();
    }

    Failure failure, other_failure;
    std::vector<std::byte> arena;
    std::atomic<bool> wired{false}, done{false}, stop{false}, waits_for_other{false};
    std::atomic<std::uint64_t> observed{0}, other_observed{0};  // values of the signal {0, 0}
    std::uint64_t signalled = 0;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
    std::thread thread;
};

// The extent of a failure.
enum class Reach { communicator, peer };

struct InvalidMessage {
    const char *name;
    const char *why;
    std::function<void(HostilePeer &)> send;
    Reach reach = Reach::communicator;
};

void PrintTo(const InvalidMessage &invalid, std::ostream *out) {
    *out << invalid.name;
}

class UcxInvalidMessages : public testing::TestWithParam<InvalidMessage> {};

TEST_P(UcxInvalidMessages, FailTheCommunicatorAndWriteNothing) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, patience_seconds);
    HostilePeer peer(hub);
    peer.exchange_addresses();
    peer.say_hello();
    while (!victim.wired && !victim.done) peer.progress();
    ASSERT_TRUE(victim.wired) << victim.why;
    victim.waits_for_other = true;
    GetParam().send(peer);
    if (GetParam().reach == Reach::communicator) {
        // A signal of the other communicator, which must continue.
        UcxMessage message = peer.next(MessageKind::put);
        message.context = context + 1;
        message.value = 5;
        peer.send(message);
    }
    while (!victim.done) peer.progress();
    victim.thread.join();
    const bool spared = GetParam().reach == Reach::communicator;
    EXPECT_EQ(victim.other_failure.broken(), !spared) << victim.other_failure.why();
    EXPECT_EQ(victim.other_observed, spared ? 5u : 0u);
    EXPECT_TRUE(victim.failure.broken());
    EXPECT_EQ(victim.failure.status(), VESCOMM_ERROR_PEER_FAILED);
    EXPECT_NE(victim.failure.why().find(GetParam().why), std::string::npos) << victim.failure.why();
    EXPECT_EQ(victim.signalled, 0u);
    for (const std::byte byte : victim.arena) ASSERT_EQ(byte, std::byte{0});
}

UcxMessage put_of(HostilePeer &peer, std::uint64_t offset, std::uint64_t bytes) {
    UcxMessage message = peer.next(MessageKind::put);
    message.offset = offset;
    message.bytes = bytes;
    message.value = 1;
    return message;
}

// The parts are written into the payload of the peer.
UcxMessage batch_of(HostilePeer &peer, std::initializer_list<BatchPart> parts) {
    std::size_t at = 0;
    for (const BatchPart &part : parts) {
        std::memcpy(peer.payload() + at, &part, sizeof part);
        at += sizeof part + (part.bytes < 8 ? part.bytes : 0);
    }
    UcxMessage message = peer.next(MessageKind::batch);
    message.bytes = at;
    message.value = 1;
    return message;
}

const InvalidMessage invalid_messages[] = {
    {"beyond the end", "do not fit",
     [](HostilePeer &peer) { peer.send(put_of(peer, memory_bytes - 3, 4), 4); }},
    {"offset wraps around", "do not fit",
     [](HostilePeer &peer) { peer.send(put_of(peer, ~0ull, 4), 4); }},
    {"unknown memory", "not offered",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 4);
         message.memory = 999;
         peer.send(message, 4);
     }},
    {"large and beyond the end", "do not fit",
     [](HostilePeer &peer) {
         peer.send(put_of(peer, 0, 1 << 20), 1 << 20, UCP_AM_SEND_FLAG_RNDV);
     }},
    {"rendezvous of another length", "length is not the one",
     [](HostilePeer &peer) { peer.send(put_of(peer, 0, 64), 1 << 20, UCP_AM_SEND_FLAG_RNDV); },
     Reach::peer},
    {"length too small", "length is not the one",
     [](HostilePeer &peer) { peer.send(put_of(peer, 0, 3), 4); }, Reach::peer},
    {"length too large", "length is not the one",
     [](HostilePeer &peer) { peer.send(put_of(peer, 0, 5000), 4); }, Reach::peer},
    {"short header", "header has the wrong length",
     [](HostilePeer &peer) { peer.send(put_of(peer, 0, 4), 4, 0, sizeof(UcxMessage) - 1); },
     Reach::peer},
    {"no header", "header has the wrong length",
     [](HostilePeer &peer) { peer.send(put_of(peer, 0, 4), 4, 0, 0); }, Reach::peer},
    {"guessed token", "secret of this job",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 4);
         message.token ^= 1;
         peer.send(message, 4);
     },
     Reach::peer},
    {"another sender", "should not send here",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 4);
         message.from = 0;
         peer.send(message, 4);
     },
     Reach::peer},
    {"repeated number", "not the next one",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 0);
         --message.number;
         peer.send(message);
     },
     Reach::peer},
    {"missing number", "not the next one",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 0);
         ++message.number;
         peer.send(message);
     },
     Reach::peer},
    {"channel out of range", "channel is out of range",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 0);
         message.signal.channel = max_channels;
         peer.send(message);
     },
     Reach::peer},
    {"flag out of range", "flag is out of range",
     [](HostilePeer &peer) {
         UcxMessage message = put_of(peer, 0, 0);
         message.signal.flag = flags_per_channel;
         peer.send(message);
     },
     Reach::peer},
    {"batch beyond the end", "does not fit",
     [](HostilePeer &peer) {
         peer.send(batch_of(peer, {{0, 4}, {memory_bytes - 3, 4}}), 40);
     }},
    {"batch with an offset that wraps around", "does not fit",
     [](HostilePeer &peer) {
         peer.send(batch_of(peer, {{~0ull, 4}}), 20);
     }},
    {"batch with a part that is longer than it", "ends within a part",
     [](HostilePeer &peer) {
         UcxMessage message = batch_of(peer, {{0, 4}, {0, 5}});
         --message.bytes;
         peer.send(message, 40);
     }},
    {"batch that ends within a head", "ends within the head",
     [](HostilePeer &peer) {
         UcxMessage message = batch_of(peer, {{0, 4}, {0, 0}});
         --message.bytes;
         peer.send(message, 35);
     }},
    {"batch for an unknown memory", "not offered",
     [](HostilePeer &peer) {
         UcxMessage message = batch_of(peer, {{0, 4}});
         message.memory = 999;
         peer.send(message, 20);
     }},
    {"batch by rendezvous", "it is a batch",
     [](HostilePeer &peer) {
         UcxMessage message = batch_of(peer, {{0, 4}});
         message.bytes = 1 << 20;
         peer.send(message, 1 << 20, UCP_AM_SEND_FLAG_RNDV);
     }},
    {"acknowledgement for puts that were not made", "more eager bytes than were sent",
     [](HostilePeer &peer) {
         UcxMessage message = peer.next(MessageKind::acknowledgement);
         message.value = 1;
         peer.send(message);
     }},
    {"request to send of a flag out of range", "flag is out of range",
     [](HostilePeer &peer) {
         UcxMessage message = peer.next(MessageKind::request_to_send);
         message.signal.flag = flags_per_channel;
         peer.send(message);
     },
     Reach::peer},
    {"unknown kind", "kind is unknown",
     [](HostilePeer &peer) { peer.send(peer.next(MessageKind{1000})); }, Reach::peer},
};

INSTANTIATE_TEST_SUITE_P(All, UcxInvalidMessages, testing::ValuesIn(invalid_messages));

TEST(UcxHostile, HighestChannelIsAccepted) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, patience_seconds);
    HostilePeer peer(hub);
    peer.exchange_addresses();
    peer.say_hello();
    while (!victim.wired && !victim.done) peer.progress();
    UcxMessage message = peer.next(MessageKind::put);
    message.signal = {max_channels - 1, 0};
    message.value = ~0ull;
    peer.send(message);
    peer.send(peer.next(MessageKind::goodbye));
    for (int i = 0; i < 1000; ++i) peer.progress();
    victim.stop = true;
    while (!victim.done) peer.progress();
    EXPECT_FALSE(victim.failure.broken()) << victim.failure.why();
}

TEST(UcxHostile, MessagesForACommunicatorThatIsNotOpenAreDropped) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, patience_seconds);
    HostilePeer peer(hub);
    peer.exchange_addresses();
    peer.say_hello();
    while (!victim.wired && !victim.done) peer.progress();
    for (const bool large : {false, true}) {
        UcxMessage message = put_of(peer, 0, large ? 1 << 20 : 4);
        message.context = context + 2;
        peer.send(message, message.bytes, large ? UCP_AM_SEND_FLAG_RNDV : 0);
        message = peer.next(MessageKind::goodbye);
        message.context = context + 2;
        peer.send(message);
    }
    // Later messages are still accepted.
    peer.send(put_of(peer, 8, 4), 4);
    while (victim.observed == 0 && !victim.done) peer.progress();
    victim.stop = true;
    while (!victim.done) peer.progress();
    EXPECT_FALSE(victim.failure.broken()) << victim.failure.why();
    EXPECT_EQ(victim.observed, 1u);
    EXPECT_EQ(victim.arena[0], std::byte{0});
    EXPECT_EQ(victim.arena[8], std::byte{0xee});
}

TEST(UcxHostile, TimeoutNamesAPeerThatNeverAnswers) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, 0.3);
    HostilePeer peer(hub);
    peer.exchange_addresses();
    while (!victim.done) std::this_thread::yield();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_TIMEOUT);
    EXPECT_NE(victim.why.find("has not connected over UCX with rank 1 in time"), std::string::npos)
        << victim.why;
}

TEST(UcxHostile, PeerThatGivesUpIsNamedAtOnce) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, patience_seconds);
    HostilePeer peer(hub);
    peer.exchange_addresses();
    peer.send(peer.next(MessageKind::goodbye));
    while (!victim.done) peer.progress();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_PEER_FAILED);
    EXPECT_NE(victim.why.find("rank 1 gave up"), std::string::npos) << victim.why;
}

TEST(UcxHostile, AnotherVersionOfUcxIsAMismatch) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, patience_seconds);
    HostilePeer peer(hub);
    peer.own().ucx_minor += 1;
    peer.exchange_addresses();
    while (!victim.done) peer.progress();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_MISMATCH);
    EXPECT_NE(victim.why.find("and rank 1 has UCX"), std::string::npos) << victim.why;
}

TEST(UcxHostile, DamagedAddressIsRejectedBeforeUcx) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, patience_seconds);
    LocalControl control(hub, 1);
    control.all_gather("ucx addresses", "rubbish", Deadline::after(patience_seconds));
    victim.thread.join();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_SYSTEM);
    EXPECT_NE(victim.why.find("the UCX address of rank 1 arrived damaged"), std::string::npos)
        << victim.why;
}

}  // namespace
}  // namespace vescomm::internal

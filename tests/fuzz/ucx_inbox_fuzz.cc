// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages that arrive over UCX for two communicators (transport/ucx_receiver.h, ucx_inbox.h). A
// fake UCX delivers messages in any order, and completes or fails rendezvous when the script
// requires it.
//
// The input is a script of messages that are valid unless the script changes a field.
//
// Invariants: nothing outside the offered memory is written; a signal never decreases; a failed or
// closed communicator raises nothing, and only UCX's pending receives still write its memory; a
// message for one communicator does not change the other, unless its header fails both; each of
// UCX's descriptors is received or released exactly once.
#include "transport/ucx_receiver.h"

#include <cstring>
#include <deque>
#include <map>

#include "fuzz/fuzz.h"
#include "transport/ucx_context.h"
#include "transport/ucx_endpoint.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

constexpr int ranks = 3;
constexpr std::uint32_t first_context = 40;
constexpr std::size_t memory_bytes = 64, wall_bytes = 64;
constexpr std::byte wall{0x55};
constexpr MemoryId offered_memory = 1;

// A rendezvous that UCX has announced: its descriptor and its state.
struct Rendezvous {
    std::vector<std::byte> bytes;
    enum { announced, kept, under_way, gone } state = announced;
    std::byte *to = nullptr;
    std::size_t count = 0;
    ucp_am_recv_data_nbx_callback_t arrived = nullptr;
    void *user_data = nullptr;
};

struct FakeUcx {
    ucp_am_recv_callback_t handler = nullptr;
    void *handler_argument = nullptr;
    std::deque<Rendezvous> rendezvous;
    std::deque<Rendezvous *> under_way;
    bool at_once = false;  // the next rendezvous ends before the call returns
    bool failing = false;  // the next rendezvous fails
};
FakeUcx *fake = nullptr;

void finish(Rendezvous &rendezvous, ucs_status_t status) {
    rendezvous.state = Rendezvous::gone;
    if (status == UCS_OK) std::memcpy(rendezvous.to, rendezvous.bytes.data(), rendezvous.count);
    rendezvous.arrived(&rendezvous, status, rendezvous.count, rendezvous.user_data);
}

UcxLibrary fake_ucx() {
    UcxLibrary ucx{};
    ucx.get_version = [](unsigned *major, unsigned *minor, unsigned *release) {
        *major = 1, *minor = 13, *release = 1;
    };
    ucx.config_read = [](const char *, const char *, ucp_config_t **config) {
        *config = reinterpret_cast<ucp_config_t *>(fake);
        return UCS_OK;
    };
    ucx.config_modify = [](ucp_config_t *, const char *, const char *) { return UCS_OK; };
    ucx.config_release = [](ucp_config_t *) {};
    ucx.init_version = [](unsigned, unsigned, const ucp_params_t *, const ucp_config_t *,
                          ucp_context_h *context) {
        *context = reinterpret_cast<ucp_context_h>(fake);
        return UCS_OK;
    };
    ucx.cleanup = [](ucp_context_h) {};
    ucx.worker_create = [](ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *worker) {
        *worker = reinterpret_cast<ucp_worker_h>(fake);
        return UCS_OK;
    };
    ucx.worker_destroy = [](ucp_worker_h) {};
    ucx.worker_get_efd = [](ucp_worker_h, int *descriptor) {
        *descriptor = -1;
        return UCS_OK;
    };
    ucx.worker_set_am_recv_handler = [](ucp_worker_h, const ucp_am_handler_param_t *handler) {
        fake->handler = handler->cb;
        fake->handler_argument = handler->arg;
        return UCS_OK;
    };
    ucx.am_recv_data_nbx = [](ucp_worker_h, void *descriptor, void *to, std::size_t count,
                              const ucp_request_param_t *parameters) -> ucs_status_ptr_t {
        auto &rendezvous = *static_cast<Rendezvous *>(descriptor);
        require(rendezvous.state == Rendezvous::announced || rendezvous.state == Rendezvous::kept,
                "a descriptor is received once");
        require(count == rendezvous.bytes.size(), "a rendezvous is received completely");
        rendezvous.to = static_cast<std::byte *>(to);
        rendezvous.count = count;
        rendezvous.arrived = parameters->cb.recv_am;
        rendezvous.user_data = parameters->user_data;
        if (!fake->at_once) {
            rendezvous.state = Rendezvous::under_way;
            fake->under_way.push_back(&rendezvous);
            return &rendezvous;
        }
        rendezvous.state = Rendezvous::gone;
        if (fake->failing) return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
        std::memcpy(to, rendezvous.bytes.data(), count);
        return nullptr;
    };
    ucx.am_data_release = [](ucp_worker_h, void *descriptor) {
        auto &rendezvous = *static_cast<Rendezvous *>(descriptor);
        require(rendezvous.state == Rendezvous::kept, "only kept descriptors are released");
        rendezvous.state = Rendezvous::gone;
    };
    ucx.request_free = [](void *) {};
    ucx.mem_map = [](ucp_context_h, const ucp_mem_map_params_t *, ucp_mem_h *handle) {
        *handle = reinterpret_cast<ucp_mem_h>(fake);
        return UCS_OK;
    };
    ucx.mem_unmap = [](ucp_context_h, ucp_mem_h) { return UCS_OK; };
    ucx.status_string = [](ucs_status_t) { return "fake"; };
    return ucx;
}

// One communicator of three processes, and the memory that it offers, between walls.
struct Side {
    Side(UcxShared &shared, std::uint32_t id) : context(shared, id, 0, {-1, 1, 2}, failure, {}) {
        context.memories.offer(offered_memory, arena.data() + wall_bytes, memory_bytes);
        context.memories.offer(2, nullptr, 0);
        shared.add(context);
    }

    std::vector<std::uint64_t> read_signals() const {
        std::vector<std::uint64_t> signals;
        for (int peer = 1; peer < ranks; ++peer)
            for (std::uint32_t channel = 0; channel < 2; ++channel)
                for (std::uint32_t flag = 0; flag < flags_per_channel; ++flag)
                    signals.push_back(context.inbox.signalled(peer, {channel, flag}));
        return signals;
    }

    void check_walls() const {
        for (std::size_t i = 0; i < wall_bytes; ++i)
            require(arena[i] == wall && arena[wall_bytes + memory_bytes + i] == wall,
                    "nothing outside the offered memory is written");
    }

    bool ended() const { return closed || failure.broken(); }

    Failure failure;
    std::vector<std::byte> arena =
        std::vector<std::byte>(wall_bytes + memory_bytes + wall_bytes, wall);
    UcxContext context;
    bool closed = false;
    bool finished = false;  // UCX has ended a rendezvous
};

class Script {
public:
    explicit Script(std::string_view bytes) : input_(bytes) { receiver_.open(); }

    ~Script() {
        for (Side *side : sides_) {
            shared_.remove(side->context);
            side->context.inbox.close();
        }
        for (const Rendezvous &rendezvous : fake_.rendezvous)
            require(rendezvous.state != Rendezvous::kept, "every kept descriptor is released");
        for (Side *side : sides_) {
            shared_.forget(side->context);
            side->context.memories.forget_all();
        }
        fake = nullptr;
    }

    void run() {
        while (!input_.empty()) {
            struct Before {
                bool ended;
                std::vector<std::byte> arena;
                std::vector<std::uint64_t> signals;
            };
            std::vector<Before> before;
            for (const Side *side : sides_)
                before.push_back({side->ended(), side->arena, side->read_signals()});
            const Side *touched = nullptr;  // nullptr: both may change
            switch (input_.below(8)) {
                case 0:
                    finish_one();
                    break;
                case 1:
                    touched = grant_credit();
                    break;
                case 7:
                    touched = close_one();
                    break;
                default:
                    touched = deliver();
                    break;
            }
            for (std::size_t i = 0; i < std::size(sides_); ++i) {
                const Side &side = *sides_[i];
                side.check_walls();
                const auto now = side.read_signals();
                for (std::size_t k = 0; k < now.size(); ++k)
                    require(now[k] >= before[i].signals[k], "a signal never decreases");
                const bool other = touched != nullptr && touched != &side;
                if (!before[i].ended && !other) continue;
                require(now == before[i].signals, "an ended or other communicator raises nothing");
                require(side.arena == before[i].arena || (side.finished && touched == nullptr),
                        "an ended or other communicator writes nothing");
            }
        }
    }

private:
    // Returns the communicator to which the message is addressed.
    const Side *deliver() {
        UcxMessage message;
        const std::uint8_t how = input_.byte();
        const std::uint8_t changes = input_.byte();
        message.from = 1 + how % 2;
        message.kind = static_cast<MessageKind>(how / 2 % 8);
        if (message.kind == MessageKind{0}) message.kind = MessageKind::acknowledgement;
        const bool rendezvous = (how & 0x80) != 0;
        std::string payload;
        if (message.kind == MessageKind::batch) {
            std::vector<std::byte> batch;
            for (std::size_t i = 0, count = input_.below(3); i < count; ++i) {
                const std::string_view part = input_.take(input_.below(16));
                append_part(batch, input_.byte(), reinterpret_cast<const std::byte *>(part.data()),
                            part.size());
            }
            payload.assign(reinterpret_cast<const char *>(batch.data()), batch.size());
        } else if (message.kind == MessageKind::put || message.kind == MessageKind::piece) {
            payload = input_.take(input_.below(80));
        }
        Side &side = *sides_[(how & 0x10) != 0 ? 1 : 0];
        message.context = side.context.id;
        message.token = receiver_.token();
        message.number = next_[message.from];
        message.memory = offered_memory;
        message.bytes = payload.size();
        message.offset = input_.byte();
        message.signal = {static_cast<std::uint32_t>(input_.below(2)),
                          static_cast<std::uint32_t>(input_.below(4))};
        message.value = input_.byte();
        if ((changes & 1) != 0) message.credit = input_.byte();
        if ((changes & 2) != 0) message.signature = input_.byte();
        if ((message.signature & 0x80) != 0) message.tag = input_.number<std::uint32_t>();
        if ((changes & 4) != 0) message.memory = input_.byte();
        if ((changes & 8) != 0) message.signal.channel = input_.number<std::uint32_t>();
        if ((changes & 16) != 0) message.offset = input_.number<std::uint64_t>();
        if ((changes & 32) != 0) message.number = input_.byte();
        if ((changes & 64) != 0) message.from = input_.byte();
        if ((changes & 128) != 0) message.token ^= input_.byte();
        fake_.at_once = (how & 0x40) != 0;
        fake_.failing = (how & 0x20) != 0;
        // A descriptor of a rendezvous, or bytes that are invalid after the handler returns.
        const auto *first = reinterpret_cast<const std::byte *>(payload.data());
        std::vector<std::byte> bytes(first, first + payload.size());
        Rendezvous *announced = nullptr;
        if (rendezvous) {
            announced = &fake_.rendezvous.emplace_back();
            announced->bytes = bytes;
        }
        ucp_am_recv_param_t parameters{};
        parameters.recv_attr = rendezvous ? UCP_AM_RECV_ATTR_FLAG_RNDV : 0;
        const ucs_status_t status = fake_.handler(
            fake_.handler_argument, &message, sizeof message,
            rendezvous ? static_cast<void *>(announced) : bytes.data(), bytes.size(), &parameters);
        require(status == UCS_OK || rendezvous, "only descriptors are kept");
        if (announced != nullptr && announced->state == Rendezvous::announced)
            announced->state = status == UCS_INPROGRESS ? Rendezvous::kept : Rendezvous::gone;
        const UcxEndpoint *sender = shared_.endpoint(static_cast<int>(message.from));
        if (sender != nullptr && !sender->failed() && message.token == receiver_.token())
            ++next_[message.from];
        return &side;
    }

    void finish_one() {
        if (fake_.under_way.empty()) return;
        const std::size_t which = input_.below(fake_.under_way.size());
        Rendezvous *rendezvous = fake_.under_way[which];
        fake_.under_way.erase(fake_.under_way.begin() + static_cast<std::ptrdiff_t>(which));
        // UCX may complete its pending receives before it reports the failure.
        for (Side *side : sides_)
            if (rendezvous->to >= side->arena.data() &&
                rendezvous->to < side->arena.data() + side->arena.size())
                side->finished = true;
        finish(*rendezvous, input_.below(8) == 7 ? UCS_ERR_IO_ERROR : UCS_OK);
    }

    const Side *grant_credit() {
        const std::size_t choice = input_.below(4);
        Side &side = *sides_[choice / 2];
        const int peer = 1 + static_cast<int>(choice % 2);
        side.context.inbox.grant_credit(peer, {static_cast<std::uint32_t>(input_.below(2)), 0},
                                        input_.byte());
        return &side;
    }

    const Side *close_one() {
        Side &side = *sides_[input_.below(2)];
        shared_.remove(side.context);
        side.context.inbox.close();
        side.closed = true;
        return &side;
    }

    fuzz::Input input_;
    FakeUcx fake_;
    FakeUcx *const installed_ = fake = &fake_;
    const UcxLibrary ucx_ = fake_ucx();
    UcxWorker worker_{ucx_, ranks, {}};
    UcxShared shared_{ucx_, worker_, 0, {false, true, true}};
    UcxReceiver receiver_{shared_};
    Side first_{shared_, first_context};
    Side second_{shared_, first_context + 1};
    Side *const sides_[2] = {&first_, &second_};
    std::map<std::uint32_t, std::uint64_t> next_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    Script(fuzz::view(data, size)).run();
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    // deliver: 2, how (sender, kind * 2, 0x40 at once, 0x80 rendezvous), changes, then the payload
    // with its length, offset, channel, flag, value.
    const auto put = [](char how, const std::string &payload, char offset, char value) {
        return std::string({'\2', how, '\0', static_cast<char>(payload.size())}) + payload +
               std::string({offset, '\0', '\0', value});
    };
    const char eager = 8, rendezvous = static_cast<char>(0x88), hello = 2;
    const std::string say_hello{'\2', hello, '\0', '\0', '\0', '\0', '\0'};
    return {
        {"hello", say_hello},
        {"put", say_hello + put(eager, "bytes", 3, 1)},
        {"two-puts", put(eager, "bytes", 3, 1) + put(eager, "more", 8, 2)},
        {"put-too-far", put(eager, "bytes", 62, 1)},
        {"rendezvous", put(rendezvous, "bytes", 3, 1) + std::string("\0\0\0", 3)},
        {"rendezvous-then-put",
         put(rendezvous, "bytes", 3, 1) + put(eager, "more", 20, 2) + std::string("\0\0\0", 3)},
        {"rendezvous-collide", put(rendezvous, "bytes", 3, 1) + put(eager, "more", 4, 2) +
                                   put(rendezvous, "last", 5, 3) + std::string("\0\0\0\0\0\0", 6)},
        {"rendezvous-without-bytes", put(rendezvous, "", 0, 1)},
        {"rendezvous-eager-to-no-memory", std::string("\2\x88\5\3abc\0\0\0\1\1\x09\1\0\0\1", 17)},
        {"eager", std::string("\2\x08\1\3abc\0\0\0\1\1\1\0\0\1", 17)},
        {"acknowledgement", std::string("\2\0\0\0\0\0\0", 7)},
        {"acknowledgement-of-nothing", std::string("\2\0\0\0\0\0\1", 7)},
        {"request-to-send", std::string("\2\x0e\0\0\0\0\1", 7)},
        {"batch", std::string("\2\x0c\0\2\3abc\1\2de\x10\0\0\0\1", 17)},
    };
}

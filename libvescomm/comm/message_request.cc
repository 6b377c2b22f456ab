// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests for point-to-point messages.
#include <utility>

#include "base/types.h"
#include "comm/flight.h"
#include "comm/request.h"
#include "execute/match/signature.h"
#include "schedule/send_receive.h"

namespace vescomm::internal {

namespace {

// The only algorithm for messages. It is not in the table of algorithms.
constexpr AlgorithmEntry through_eager_buffers = {
    Collective::send,  "eager_buffers",
    "send_receive.cc", send_receive,
    can_send_receive,  "the message passes through an eager buffer, chunk by chunk"};

class MessagePath final : public RequestPath {
public:
    MessagePath(std::shared_ptr<EagerBuffers> eager_buffers, const RequestOptions &options,
                std::int64_t elements)
        : eager_buffers_(std::move(eager_buffers)),
          type_(options.type),
          peer_(options.root),
          receives_(options.collective == Collective::receive),
          elements_(elements) {}

    Run next(const Operation &) override { return receives_ ? Run{} : eager_buffers_->next(peer_); }

    Schedule schedule() const override {
        const Communicator &comm = *eager_buffers_->comm();
        // A receive from any source is bound to this rank first (execute/message_receiver.h).
        const int peer = peer_ == VESCOMM_ANY_SOURCE ? comm.rank() : peer_;
        const int from = receives_ ? peer : comm.rank();
        const int to = receives_ ? comm.rank() : peer;
        const Message message{{from, Region::source, 0}, {to, Region::output, 0}, elements_};
        Schedule schedule;
        schedule.lanes.push_back(
            (receives_ ? receive : send)(comm.nodes(), eager_buffers_->chunk(type_), message));
        return schedule;
    }

    std::string object() const override {
        return " of " + std::to_string(elements_) + " " + name_of_type(type_) +
               (receives_ ? " from " : " to ") +
               (peer_ == VESCOMM_ANY_SOURCE ? "any rank" : "rank " + std::to_string(peer_));
    }

private:
    const std::shared_ptr<EagerBuffers> eager_buffers_;
    const vescomm_type_t type_;
    const int peer_;
    const bool receives_;
    const std::int64_t elements_;
};

}  // namespace

std::unique_ptr<Request> Request::create(const std::shared_ptr<EagerBuffers> &eager_buffers,
                                         Arrays arrays, const Options &options) {
    Communicator &comm = *eager_buffers->comm();
    comm.check();
    check(comm, options, options.type);
    if (!options.algorithm.empty() && options.algorithm != through_eager_buffers.name)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "there is no algorithm \"" + options.algorithm + "\"; leave it NULL");
    const bool receives = options.collective == Collective::receive;
    const std::vector<Piece> &pieces = receives ? arrays.output : arrays.source;
    const std::int64_t elements = pieces.empty() ? 0 : pieces[0].elements;

    Bindings bindings = bindings_of(comm, options);
    bindings.flight_word =
        flight_word(options.collective, options.type,
                    static_cast<std::uint64_t>(elements) * size_of(options.type));
    if (receives) eager_buffers->bind_receive(bindings, options.type, options.root);
    else eager_buffers->bind_send(bindings, options.type, options.root);
    bindings.match.signature = Signature::of_message(options.type, elements).bits();
    bindings.source.type = bindings.output.type = options.type;
    bindings.source.pieces = arrays.source;
    bindings.output.pieces = arrays.output;
    auto path = std::make_unique<MessagePath>(eager_buffers, options, elements);
    return std::unique_ptr<Request>(new Request(eager_buffers->comm(), options, std::move(arrays),
                                                std::move(path), through_eager_buffers,
                                                "no other is for messages", bindings));
}

}  // namespace vescomm::internal

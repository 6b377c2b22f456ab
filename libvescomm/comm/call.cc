// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call.h"

#include <algorithm>

#include "base/error.h"
#include "base/types.h"
#include "comm/call_groups.h"
#include "execute/match/signature.h"

namespace vescomm::internal {

namespace {

// True: every rank has its own count; false: all ranks have the same count.
bool by_rank(Collective collective) {
    switch (collective) {
        case Collective::all_gather_v:
        case Collective::reduce_scatter_v:
        case Collective::gather_v:
        case Collective::scatter_v:
            return true;
        default:
            return false;
    }
}

// The pieces of all calls, block by block, and within a block in the order of the calls. Merges
// adjacent pieces.
void join(std::span<const Call> calls, std::vector<Piece> Call::*array,
          std::vector<Piece> &joined) {
    const std::size_t size = size_of(calls[0].options.type);
    joined.clear();
    for (std::size_t block = 0; block < (calls[0].*array).size(); ++block) {
        for (const Call &call : calls) {
            const Piece &piece = (call.*array)[block];
            if (piece.elements == 0) continue;
            const auto end = [&](const Piece &last) {
                return last.data + static_cast<std::size_t>(last.elements) * size;
            };
            if (!joined.empty() && end(joined.back()) == piece.data)
                joined.back().elements += piece.elements;
            else joined.push_back(piece);
        }
    }
}

std::vector<std::int64_t> sums(std::span<const Call> calls,
                               std::vector<std::int64_t> Call::*counts) {
    std::vector<std::int64_t> sums = calls[0].*counts;
    for (const Call &call : calls.subspan(1)) {
        std::int64_t total = 0;
        for (std::size_t i = 0; i < sums.size(); ++i) total += sums[i] += (call.*counts)[i];
        if (total > max_elements)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        std::string(name_of(calls[0].options.collective)) +
                            ": the calls of the group have " + std::to_string(total) +
                            " elements together, more than " + std::to_string(max_elements));
    }
    return sums;
}

// Every rank knows these counts: its own of an all_to_all_v is known to a peer at a time.
CallBoundaries boundaries_of(std::span<const Call> calls, int rank, int ranks) {
    CallBoundaries boundaries;
    if (calls.size() == 1) return boundaries;
    for (const Call &call : calls) boundaries.counts = add_call(boundaries.counts, call.counts);
    if (calls[0].options.collective != Collective::all_to_all_v) return boundaries;
    boundaries.pairs.resize(static_cast<std::size_t>(ranks));
    for (int peer = 0; peer < ranks; ++peer)
        for (const Call &call : calls) {
            const auto at = static_cast<std::size_t>(peer);
            boundaries.pairs[at] =
                add_call(boundaries.pairs[at], rank, peer, call.sends[at], call.receives[at]);
        }
    return boundaries;
}

// One shard for each rank.
void cut(std::span<const std::int64_t> counts, std::vector<std::int64_t> &cuts) {
    cuts.assign(1, 0);
    for (const std::int64_t count : counts) cuts.push_back(cuts.back() + count);
}

}  // namespace

bool fuse(const Call &a, const Call &b) {
    const Request::Options &x = a.options, &y = b.options;
    return x.collective == y.collective && !is_message(x.collective) && x.op == y.op &&
           x.factor == y.factor && x.root == y.root && x.type == y.type &&
           x.algorithm == y.algorithm;
}

void Call::clear() {
    options = {};
    counts.clear();
    source.clear();
    output.clear();
    sends.clear();
    receives.clear();
    tag = 0;
}

Calls::Calls(std::shared_ptr<StagingBuffer> staging, std::shared_ptr<EagerBuffers> eager_buffers)
    : staging_(std::move(staging)),
      eager_buffers_(std::move(eager_buffers)),
      ranks_(staging_->comm()->ranks()),
      groups_(std::make_unique<CallGroups>(*this)) {
    cached_.reserve(max_cached);
}

Calls::~Calls() = default;

std::shared_ptr<Calls> Calls::create(const std::shared_ptr<Communicator> &comm) {
    std::shared_ptr<StagingBuffer> staging = StagingBuffer::create(comm);
    std::shared_ptr<EagerBuffers> eager_buffers = EagerBuffers::create(comm);
    return std::shared_ptr<Calls>(new Calls(std::move(staging), std::move(eager_buffers)));
}

Call &Calls::blank() {
    blank_.clear();
    return blank_;
}

bool Calls::is_made_again(const CallKey &key) noexcept {
    if (std::ranges::find(made_, key.hash()) != made_.end()) return true;
    made_[oldest_made_] = key.hash();
    oldest_made_ = (oldest_made_ + 1) % made_.size();
    return false;
}

std::unique_ptr<Request> Calls::request(const Call &call, const CallKey &key) {
    auto request = this->request({&call, 1}, is_made_again(key));
    request->set_key(key);
    return request;
}

std::unique_ptr<Request> Calls::request(std::span<const Call> calls, bool made_again) {
    const Request::Options &options = calls[0].options;
    Request::Arrays &arrays = arrays_;
    arrays.cuts.clear();
    arrays.exchange = {};
    arrays.tag = calls[0].tag;
    // A single call needs no sums, and allocates nothing.
    const std::vector<std::int64_t> together =
        calls.size() > 1 ? sums(calls, &Call::counts) : std::vector<std::int64_t>{};
    const auto &counts = calls.size() > 1 ? together : calls[0].counts;
    if (options.collective == Collective::all_to_all_v)
        arrays.exchange = Exchange::known_to(staging_->comm()->rank(), sums(calls, &Call::sends),
                                             sums(calls, &Call::receives));
    else if (by_rank(options.collective)) cut(counts, arrays.cuts);
    else if (!is_message(options.collective)) cut_evenly(counts[0], ranks_, arrays.cuts);
    join(calls, &Call::source, arrays.source);
    join(calls, &Call::output, arrays.output);
    arrays.boundaries = boundaries_of(calls, staging_->comm()->rank(), ranks_);

    if (const std::size_t found = find_suiting(options, made_again); found != no_request) {
        std::unique_ptr<Request> request = take_out(found);
        request->move_arrays(arrays);
        return request;
    }
    return is_message(options.collective) ? Request::create(eager_buffers_, arrays, options)
                                          : Request::create(staging_, arrays, options);
}

std::size_t Calls::find_suiting(const Request::Options &options, bool made_again) const noexcept {
    std::size_t found = no_request, free = max_cached - cached_.size();
    for (std::size_t at = 0; at < cached_.size(); ++at) {
        const Cached &cached = cached_[at];
        if (!cached.request) {
            ++free;
            continue;
        }
        if (found != no_request && cached_[found].used > cached.used) continue;
        if (cached.request->suits(options, arrays_)) found = at;
    }
    // Arrays that are used again and again get a request of their own while the cache is not full.
    if (found != no_request && (made_again || cached_[found].repeated) && free > 0)
        return no_request;
    return found;
}

Calls::Cached *Calls::search(const CallArguments &arguments) noexcept {
    const std::size_t at = sites_.find(hash_of(arguments, ranks_), [&](std::size_t index) {
        return cached_[index].request->repeats(arguments);
    });
    return at == no_request ? nullptr : &cached_[at];
}

std::unique_ptr<Request> Calls::take_out(std::size_t at) noexcept {
    Cached &cached = cached_[at];
    if (const CallKey *key = cached.request->key())
        sites_.remove(key->hash(), static_cast<CallSites::Index>(at));
    return std::move(cached.request);
}

std::unique_ptr<Request> Calls::take(const CallArguments &arguments) noexcept {
    Cached *const found = locate(arguments);
    return found == nullptr ? nullptr : take_out(static_cast<std::size_t>(found - cached_.data()));
}

std::unique_ptr<Request> Calls::take(const Request &request) noexcept {
    const auto found = std::ranges::find_if(
        cached_, [&](const Cached &cached) { return cached.request.get() == &request; });
    return take_out(static_cast<std::size_t>(found - cached_.begin()));
}

void Calls::keep(std::unique_ptr<Request> request) noexcept {
    if (request->running()) return;  // it never completes, because its communicator broke
    std::size_t at = 0;
    while (at < cached_.size() && cached_[at].request) ++at;
    if (at == max_cached) {
        const auto oldest = std::ranges::min_element(cached_, {}, &Cached::used);
        at = static_cast<std::size_t>(oldest - cached_.begin());
        take_out(at);
    }
    if (at == cached_.size()) cached_.emplace_back();
    Cached &cached = cached_[at];
    cached.used = ++uses_;
    cached.repeated = false;
    if (const CallKey *key = request->key())
        sites_.add(key->hash(), static_cast<CallSites::Index>(at));
    cached.request = std::move(request);
}

}  // namespace vescomm::internal

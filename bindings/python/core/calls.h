// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A function for each call on arrays: checks the arguments that the library cannot check, and
// returns the call, which runs without the GIL. Lists of counts and offsets are borrowed until it
// has been made.
#pragma once

#include <optional>
#include <string>

#include "comm.h"
#include "convert.h"
#include "integer.h"
#include "request.h"

namespace vescomm::python::calls {

using Options = const vescomm_call_options_t *;
using Out = vescomm_request_t **;

// The library takes no number of counts: it reads one for each rank.
inline const std::int64_t *each(const Comm &comm, const Integers &counts, const char *name) {
    const int ranks = comm.handle().ranks();
    if (counts.values.size() != static_cast<std::size_t>(ranks))
        refuse(std::string(name) + " has " + std::to_string(counts.values.size()) +
               " numbers; give one for each of the " + std::to_string(ranks) + " ranks");
    return counts.values.data();
}

inline const std::int64_t *each(const Comm &comm, const std::optional<Integers> &offsets,
                                const char *name) {
    return offsets ? each(comm, *offsets, name) : nullptr;
}

inline auto all_gather(const Comm &, Integer source, Integer output, Integer count, Integer type) {
    return [=, type = type.small("type")](vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_all_gather(comm, source.pointer(), output.pointer(), count, type, options,
                                  nullptr, request);
    };
}

inline auto all_gather_v(const Comm &on, Integer source, Integer output, const Integers &counts,
                         const std::optional<Integers> &offsets, Integer type) {
    return [=, type = type.small("type"), counts = each(on, counts, "counts"),
            offsets = each(on, offsets, "offsets")](vescomm_comm_t *comm, Options options,
                                                    Out request) {
        return vescomm_all_gather_v(comm, source.pointer(), output.pointer(), counts, offsets, type,
                                    options, nullptr, request);
    };
}

inline auto reduce_scatter(const Comm &, Integer source, Integer output, Integer count,
                           Integer type, Integer op) {
    return [=, type = type.small("type"), op = op.small("op")](vescomm_comm_t *comm,
                                                               Options options, Out request) {
        return vescomm_reduce_scatter(comm, source.pointer(), output.pointer(), count, type, op,
                                      options, nullptr, request);
    };
}

inline auto reduce_scatter_v(const Comm &on, Integer source, Integer output, const Integers &counts,
                             Integer type, Integer op) {
    return [=, type = type.small("type"), op = op.small("op"), counts = each(on, counts, "counts")](
               vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_reduce_scatter_v(comm, source.pointer(), output.pointer(), counts, type, op,
                                        options, nullptr, request);
    };
}

inline auto all_reduce(const Comm &, Integer source, Integer output, Integer count, Integer type,
                       Integer op) {
    return [=, type = type.small("type"), op = op.small("op")](vescomm_comm_t *comm,
                                                               Options options, Out request) {
        return vescomm_all_reduce(comm, source.pointer(), output.pointer(), count, type, op,
                                  options, nullptr, request);
    };
}

inline auto reduce(const Comm &, Integer source, Integer output, Integer count, Integer type,
                   Integer op, Integer root) {
    return [=, type = type.small("type"), op = op.small("op"), root = root.small("root")](
               vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_reduce(comm, source.pointer(), output.pointer(), count, type, op, root,
                              options, nullptr, request);
    };
}

inline auto broadcast(const Comm &, Integer data, Integer count, Integer type, Integer root) {
    return [=, type = type.small("type"), root = root.small("root")](vescomm_comm_t *comm,
                                                                     Options options, Out request) {
        return vescomm_broadcast(comm, data.pointer(), count, type, root, options, nullptr,
                                 request);
    };
}

inline auto gather_v(const Comm &on, Integer source, Integer output, const Integers &counts,
                     const std::optional<Integers> &offsets, Integer type, Integer root) {
    return [=, type = type.small("type"), root = root.small("root"),
            counts = each(on, counts, "counts"), offsets = each(on, offsets, "offsets")](
               vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_gather_v(comm, source.pointer(), output.pointer(), counts, offsets, type,
                                root, options, nullptr, request);
    };
}

inline auto scatter_v(const Comm &on, Integer source, Integer output, const Integers &counts,
                      const std::optional<Integers> &offsets, Integer type, Integer root) {
    return [=, type = type.small("type"), root = root.small("root"),
            counts = each(on, counts, "counts"), offsets = each(on, offsets, "offsets")](
               vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_scatter_v(comm, source.pointer(), output.pointer(), counts, offsets, type,
                                 root, options, nullptr, request);
    };
}

inline auto all_to_all(const Comm &, Integer source, Integer output, Integer count, Integer type) {
    return [=, type = type.small("type")](vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_all_to_all(comm, source.pointer(), output.pointer(), count, type, options,
                                  nullptr, request);
    };
}

inline auto all_to_all_v(const Comm &on, Integer source, const Integers &source_counts,
                         const std::optional<Integers> &source_offsets, Integer output,
                         const Integers &output_counts,
                         const std::optional<Integers> &output_offsets, Integer type) {
    return [=, type = type.small("type"), source_counts = each(on, source_counts, "source_counts"),
            source_offsets = each(on, source_offsets, "source_offsets"),
            output_counts = each(on, output_counts, "output_counts"),
            output_offsets = each(on, output_offsets, "output_offsets")](
               vescomm_comm_t *comm, Options options, Out request) {
        return vescomm_all_to_all_v(comm, source.pointer(), source_counts, source_offsets,
                                    output.pointer(), output_counts, output_offsets, type, options,
                                    nullptr, request);
    };
}

inline vescomm_call_options_t with_tag(Options options, std::int32_t tag) {
    vescomm_call_options_t tagged = options != nullptr ? *options : vescomm_call_options_init();
    tagged.tag = tag;
    return tagged;
}

inline auto send(const Comm &, Integer source, Integer count, Integer type, Integer peer,
                 Integer tag) {
    return [=, type = type.small("type"), peer = peer.small("peer"), tag = tag.small("tag")](
               vescomm_comm_t *comm, Options options, Out request) {
        const vescomm_call_options_t tagged = with_tag(options, tag);
        return vescomm_send(comm, source.pointer(), count, type, peer, &tagged, nullptr, request);
    };
}

inline auto receive(const Comm &, Integer output, Integer count, Integer type, Integer peer,
                    Integer tag) {
    return [=, type = type.small("type"), peer = peer.small("peer"), tag = tag.small("tag")](
               vescomm_comm_t *comm, Options options, Out request) {
        const vescomm_call_options_t tagged = with_tag(options, tag);
        return vescomm_receive(comm, output.pointer(), count, type, peer, &tagged, nullptr,
                               request);
    };
}

inline vescomm_call_options_t options_of(double factor,
                                         const std::optional<std::string> &algorithm) {
    vescomm_call_options_t options = vescomm_call_options_init();
    options.factor = factor;
    options.algorithm = c_string(algorithm, "algorithm");
    return options;
}

// Starts a call. Returns a request that holds `arrays`, and `owner` until it is complete.
template <typename Call>
Request start(Comm &comm, const Call &call, Options options, Arguments arrays,
              nanobind::object owner = {}) {
    if (comm.in_group) [[unlikely]]
        refuse(
            "a call within a group has no request of its own: leave out wait=False, or call "
            "NAME_at() instead of start_NAME_at(). start_group_end() returns a request for the "
            "whole group");
    vescomm_request_t *request = nullptr;
    std::shared_ptr<CommHandle> handle =
        comm.run([&](vescomm_comm_t *on) { return call(on, options, &request); });
    return Request(std::move(handle), request, std::move(arrays), std::move(owner));
}

}  // namespace vescomm::python::calls

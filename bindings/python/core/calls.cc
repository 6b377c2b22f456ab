// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls on arrays of any package. Counts and types come from the arrays.
#include "calls.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "argument.h"
#include "docs_calls.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

using calls::Options;
using Algorithm = std::optional<std::string>;

// Details of a call that most callers leave out.
struct Details {
    double factor = 0;
    const Algorithm &algorithm;
    bool wait = true;
};

Integer type_of(const Argument &array) {
    return {array.type};
}

void require_same_type(const Argument &source, const Argument &output) {
    if (source.type != output.type)
        refuse(std::string("source has elements of type ") + name_of(source.type) +
               ", and output of " + name_of(output.type) + "; both must have the same");
}

void require_elements(const Argument &array, const char *name, std::int64_t elements,
                      const std::string &why) {
    if (array.elements != elements)
        refuse(std::string(name) + " has " + std::to_string(array.elements) + " elements, and " +
               why + " makes it " + std::to_string(elements));
}

std::int64_t sum(const Integers &counts) {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts.values)
        if (__builtin_add_overflow(sum, count, &sum)) refuse("the sum of the counts is too large");
    return sum;
}

// The blocks of `array` are in it. Without offsets they fill it.
void require_blocks(const Argument &array, const char *name, const Integers &counts,
                    const std::optional<Integers> &offsets) {
    if (!offsets) return require_elements(array, name, sum(counts), "the sum of the counts");
    for (std::size_t k = 0; k < counts.values.size() && k < offsets->values.size(); ++k) {
        const std::int64_t begin = offsets->values[k], count = counts.values[k];
        if (begin < 0 || count < 0 || begin > array.elements || count > array.elements - begin)
            refuse(std::string(name) + " has " + std::to_string(array.elements) +
                   " elements, and the block of rank " + std::to_string(k) + " is " +
                   std::to_string(count) + " elements at offset " + std::to_string(begin));
    }
}

std::int64_t mine(const Comm &comm, const Integers &counts) {
    return calls::each(comm, counts, "counts")[comm.handle().rank()];
}

// Makes a call: returns None when it is complete or collected by a group, or a request.
template <typename Call>
nb::object make(Comm &comm, const Call &call, const Details &details, Arguments arrays) {
    const vescomm_call_options_t given = calls::options_of(details.factor, details.algorithm);
    const Options options = details.factor == 0 && !details.algorithm ? nullptr : &given;
    if (!details.wait) return nb::cast(calls::start(comm, call, options, std::move(arrays)));
    comm.run([&](vescomm_comm_t *on) { return call(on, options, nullptr); });
    if (comm.in_group)
        for (Argument &array : arrays) comm.group_arrays.push_back(std::move(array));
    return nb::none();
}

template <typename... Arrays>
Arguments arguments(Arrays &&...arrays) {
    Arguments all;
    all.reserve(sizeof...(arrays));
    (all.push_back(std::forward<Arrays>(arrays)), ...);
    return all;
}

nb::object all_gather(Comm &comm, nb::handle source, nb::handle output, const TypeArgument &type,
                      const Algorithm &algorithm, bool wait) {
    Argument from = read_source(source, "source", type), to = read_output(output, "output", type);
    require_same_type(from, to);
    require_elements(to, "output", from.elements * comm.handle().ranks(),
                     "one source of each rank");
    const auto call =
        calls::all_gather(comm, from.address(), to.address(), {from.elements}, type_of(to));
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object all_gather_v(Comm &comm, nb::handle source, nb::handle output, const Integers &counts,
                        const std::optional<Integers> &offsets, const TypeArgument &type,
                        const Algorithm &algorithm, bool wait) {
    Argument from = read_source(source, "source", type), to = read_output(output, "output", type);
    require_same_type(from, to);
    require_elements(from, "source", mine(comm, counts), "the count of this rank");
    require_blocks(to, "output", counts, offsets);
    const auto call =
        calls::all_gather_v(comm, from.address(), to.address(), counts, offsets, type_of(to));
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object reduce_scatter(Comm &comm, nb::handle source, nb::handle output, OpArgument op,
                          double factor, const TypeArgument &type, const Algorithm &algorithm,
                          bool wait) {
    Argument from = read_source(source, "source", type), to = read_output(output, "output", type);
    require_same_type(from, to);
    require_elements(from, "source", to.elements * comm.handle().ranks(),
                     "one output of each rank");
    const auto call =
        calls::reduce_scatter(comm, from.address(), to.address(), {to.elements}, type_of(to), op);
    return make(comm, call, {factor, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object reduce_scatter_v(Comm &comm, nb::handle source, nb::handle output,
                            const Integers &counts, OpArgument op, double factor,
                            const TypeArgument &type, const Algorithm &algorithm, bool wait) {
    Argument from = read_source(source, "source", type), to = read_output(output, "output", type);
    require_same_type(from, to);
    require_elements(to, "output", mine(comm, counts), "the count of this rank");
    require_blocks(from, "source", counts, {});
    const auto call =
        calls::reduce_scatter_v(comm, from.address(), to.address(), counts, type_of(to), op);
    return make(comm, call, {factor, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object all_reduce(Comm &comm, nb::handle source, const std::optional<nb::handle> &output,
                      OpArgument op, double factor, const TypeArgument &type,
                      const Algorithm &algorithm, bool wait) {
    Argument to = read_output(output ? *output : source, output ? "output" : "source", type);
    if (!output) {
        const auto call =
            calls::all_reduce(comm, to.address(), to.address(), {to.elements}, type_of(to), op);
        return make(comm, call, {factor, algorithm, wait}, arguments(std::move(to)));
    }
    Argument from = read_source(source, "source", type);
    require_same_type(from, to);
    require_elements(to, "output", from.elements, "the source");
    const auto call =
        calls::all_reduce(comm, from.address(), to.address(), {to.elements}, type_of(to), op);
    return make(comm, call, {factor, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object reduce(Comm &comm, nb::handle source, const std::optional<nb::handle> &output,
                  RootArgument root, OpArgument op, double factor, const TypeArgument &type,
                  const Algorithm &algorithm, bool wait) {
    if (comm.handle().rank() != root) {
        Argument from = read_source(source, "source", type);
        const auto call =
            calls::reduce(comm, from.address(), {}, {from.elements}, type_of(from), op, root);
        return make(comm, call, {factor, algorithm, wait}, arguments(std::move(from)));
    }
    Argument to = read_output(output ? *output : source, output ? "output" : "source", type);
    Argument from = output ? read_source(source, "source", type) : Argument();
    if (output) {
        require_same_type(from, to);
        require_elements(to, "output", from.elements, "the source");
    }
    const auto call = calls::reduce(comm, output ? from.address() : to.address(), to.address(),
                                    {to.elements}, type_of(to), op, root);
    return make(comm, call, {factor, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object broadcast(Comm &comm, nb::handle array, RootArgument root, const TypeArgument &type,
                     const Algorithm &algorithm, bool wait) {
    Argument data = comm.handle().rank() == root ? read_source(array, "array", type)
                                                 : read_output(array, "array", type);
    const auto call = calls::broadcast(comm, data.address(), {data.elements}, type_of(data), root);
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(data)));
}

nb::object gather_v(Comm &comm, nb::handle source, const std::optional<nb::handle> &output,
                    const Integers &counts, RootArgument root,
                    const std::optional<Integers> &offsets, const TypeArgument &type,
                    const Algorithm &algorithm, bool wait) {
    Argument from = read_source(source, "source", type);
    require_elements(from, "source", mine(comm, counts), "the count of this rank");
    Argument to;
    if (comm.handle().rank() == root) {
        if (!output) refuse("output is None on rank " + std::to_string(root) + ", the root");
        to = read_output(*output, "output", type);
        require_same_type(from, to);
        require_blocks(to, "output", counts, offsets);
    }
    const auto call =
        calls::gather_v(comm, from.address(), to.address(), counts, offsets, type_of(from), root);
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object scatter_v(Comm &comm, const std::optional<nb::handle> &source, nb::handle output,
                     const Integers &counts, RootArgument root,
                     const std::optional<Integers> &offsets, const TypeArgument &type,
                     const Algorithm &algorithm, bool wait) {
    Argument to = read_output(output, "output", type);
    require_elements(to, "output", mine(comm, counts), "the count of this rank");
    Argument from;
    if (comm.handle().rank() == root) {
        if (!source) refuse("source is None on rank " + std::to_string(root) + ", the root");
        from = read_source(*source, "source", type);
        require_same_type(from, to);
        require_blocks(from, "source", counts, offsets);
    }
    const auto call =
        calls::scatter_v(comm, from.address(), to.address(), counts, offsets, type_of(to), root);
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object all_to_all(Comm &comm, nb::handle source, nb::handle output, const TypeArgument &type,
                      const Algorithm &algorithm, bool wait) {
    Argument from = read_source(source, "source", type), to = read_output(output, "output", type);
    require_same_type(from, to);
    require_elements(to, "output", from.elements, "the source");
    const int ranks = comm.handle().ranks();
    if (from.elements % ranks != 0)
        refuse("source has " + std::to_string(from.elements) +
               " elements; it must have the same number for each of the " + std::to_string(ranks) +
               " ranks. all_to_all_v() sends blocks of different sizes");
    const auto call =
        calls::all_to_all(comm, from.address(), to.address(), {from.elements / ranks}, type_of(to));
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object all_to_all_v(Comm &comm, nb::handle source, const Integers &source_counts,
                        nb::handle output, const Integers &output_counts,
                        const std::optional<Integers> &source_offsets,
                        const std::optional<Integers> &output_offsets, const TypeArgument &type,
                        const Algorithm &algorithm, bool wait) {
    Argument from = read_source(source, "source", type), to = read_output(output, "output", type);
    require_same_type(from, to);
    require_blocks(from, "source", source_counts, source_offsets);
    require_blocks(to, "output", output_counts, output_offsets);
    const auto call = calls::all_to_all_v(comm, from.address(), source_counts, source_offsets,
                                          to.address(), output_counts, output_offsets, type_of(to));
    return make(comm, call, {0, algorithm, wait}, arguments(std::move(from), std::move(to)));
}

nb::object send(Comm &comm, nb::handle array, Integer peer, Integer tag, const TypeArgument &type,
                bool wait) {
    Argument data = read_source(array, "array", type);
    const auto call = calls::send(comm, data.address(), {data.elements}, type_of(data), peer, tag);
    return make(comm, call, {0, {}, wait}, arguments(std::move(data)));
}

// A receive from any source that waits returns the message, which names the sender.
nb::object receive(Comm &comm, nb::handle array, Integer peer, Integer tag,
                   const TypeArgument &type, bool wait) {
    Argument data = read_output(array, "array", type);
    const auto call =
        calls::receive(comm, data.address(), {data.elements}, type_of(data), peer, tag);
    if (wait && !comm.in_group && peer == VESCOMM_ANY_SOURCE) {
        // The handler of a signal that ends the wait may free the communicator, too.
        const std::shared_ptr<CommHandle> handle = comm.share();
        Request request = calls::start(comm, call, nullptr, arguments(std::move(data)));
        try {
            request.wait({});
        } catch (const nb::python_error &) {
            // The request would take a message that a later receive is to get.
            vescomm_comm_abort(handle->get(), "a receive from any rank was interrupted");
            throw;
        }
        return request.message({0});
    }
    return make(comm, call, {0, {}, wait}, arguments(std::move(data)));
}

}  // namespace

void define_calls(nb::class_<Comm> &comm) {
    using nb::arg;
    const auto source = arg("source"), output = arg("output"), array = arg("array"),
               counts = arg("counts"), peer = arg("peer");
    const auto tag = arg("tag") = 0;
    const auto in_place = arg("output").none() = nb::none();
    const auto op = arg("op").sig("Op.SUM") = VESCOMM_SUM, root = arg("root") = 0,
               factor = arg("factor") = 0.0, wait = arg("wait") = true;
    const auto offsets = arg("offsets").none() = nb::none(), type = arg("type").none() = nb::none(),
               algorithm = arg("algorithm").none() = nb::none();
    const nb::kw_only options;
    comm.def("all_gather", all_gather, docs::all_gather, source, output, options, type, algorithm,
             wait);
    comm.def("all_gather_v", all_gather_v, docs::all_gather_v, source, output, counts, options,
             offsets, type, algorithm, wait);
    comm.def("reduce_scatter", reduce_scatter, docs::reduce_scatter, source, output, op, options,
             factor, type, algorithm, wait);
    comm.def("reduce_scatter_v", reduce_scatter_v, docs::reduce_scatter_v, source, output, counts,
             op, options, factor, type, algorithm, wait);
    comm.def("all_reduce", all_reduce, docs::all_reduce, source, in_place, op, options, factor,
             type, algorithm, wait);
    comm.def("reduce", reduce, docs::reduce, source, in_place, root, op, options, factor, type,
             algorithm, wait);
    comm.def("broadcast", broadcast, docs::broadcast, array, root, options, type, algorithm, wait);
    comm.def("gather_v", gather_v, docs::gather_v, source, arg("output").none(), counts, root,
             options, offsets, type, algorithm, wait);
    comm.def("scatter_v", scatter_v, docs::scatter_v, arg("source").none(), output, counts, root,
             options, offsets, type, algorithm, wait);
    comm.def("all_to_all", all_to_all, docs::all_to_all, source, output, options, type, algorithm,
             wait);
    comm.def("all_to_all_v", all_to_all_v, docs::all_to_all_v, source, arg("source_counts"), output,
             arg("output_counts"), options, arg("source_offsets").none() = nb::none(),
             arg("output_offsets").none() = nb::none(), type, algorithm, wait);
    comm.def("send", send, docs::send, array, peer, tag, options, type, wait);
    comm.def("receive", receive, docs::receive, array, peer, tag, options, type, wait);
}

}  // namespace vescomm::python

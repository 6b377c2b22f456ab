// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Functions that create communicators.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>
#include <string>

#include "comm.h"
#include "convert.h"
#include "gil.h"
#include "integer.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

using Text = std::optional<std::string>;

vescomm_comm_options_t options_of(double timeout, const Text &node, bool reproducible,
                                  const Text &tag) {
    vescomm_comm_options_t options = vescomm_comm_options_init();
    options.timeout_seconds = timeout;
    options.node = c_string(node, "node");
    options.reproducible = reproducible;
    options.tag = c_string(tag, "tag");
    return options;
}

CreatedComm own(vescomm_comm_t *comm) {
    return {std::make_shared<CommHandle>(comm)};
}

CreatedComm from_environment(double timeout, const Text &node, bool reproducible, const Text &tag) {
    const vescomm_comm_options_t options = options_of(timeout, node, reproducible, tag);
    vescomm_comm_t *comm = nullptr;
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status = vescomm_comm_create_from_environment(&options, &comm);
    }
    check(status);
    return own(comm);
}

CreatedComm create(Integer rank, Integer ranks, const Text &address, const Text &secret,
                   double timeout, const Text &node, bool reproducible, const Text &tag) {
    const vescomm_comm_options_t options = options_of(timeout, node, reproducible, tag);
    const std::int32_t small_rank = rank.small("rank"), small_ranks = ranks.small("ranks");
    const char *const its_address = c_string(address, "address");
    const char *const its_secret = c_string(secret, "secret");
    vescomm_comm_t *comm = nullptr;
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status =
            vescomm_comm_create(small_rank, small_ranks, its_address, its_secret, &options, &comm);
    }
    check(status);
    return own(comm);
}

// An all-gather in Python, and the exception that it has raised.
struct AllGather {
    nb::object function;
    int ranks;
    std::optional<nb::python_error> raised;

    // Fills `all` with the result, a sequence of bytes objects or one of all bytes.
    void call(const void *mine, std::size_t bytes, char *all) {
        const nb::object result = function(nb::bytes(static_cast<const char *>(mine), bytes));
        if (PyBytes_Check(result.ptr())) {
            copy(nb::borrow<nb::bytes>(result), bytes * static_cast<std::size_t>(ranks), all);
            return;
        }
        if (!PySequence_Check(result.ptr()) || PyUnicode_Check(result.ptr()))
            refuse_type("all_gather() returned a value of type " + type_name_of(result) +
                        "; it must return bytes, or a sequence of one bytes object for each rank");
        const auto parts = nb::borrow<nb::sequence>(result);
        if (nb::len(parts) != static_cast<std::size_t>(ranks))
            throw nb::value_error(("all_gather() returned " + std::to_string(nb::len(parts)) +
                                   " items; it must return one for each of the " +
                                   std::to_string(ranks) + " ranks")
                                      .c_str());
        for (int rank = 0; rank < ranks; ++rank)
            copy(nb::bytes(nb::object(parts[rank])), bytes,
                 all + static_cast<std::size_t>(rank) * bytes);
    }

    static void copy(const nb::bytes &part, std::size_t bytes, char *to) {
        if (part.size() != bytes)
            throw nb::value_error(("all_gather() returned " + std::to_string(part.size()) +
                                   " bytes where " + std::to_string(bytes) + " were expected")
                                      .c_str());
        std::memcpy(to, part.c_str(), bytes);
    }
};

int all_gather(void *context, const void *mine, std::size_t bytes, void *all) {
    const GilTaken taken;
    auto &gather = *static_cast<AllGather *>(context);
    try {
        gather.call(mine, bytes, static_cast<char *>(all));
        return 0;
    } catch (nb::python_error &error) {
        gather.raised.emplace(std::move(error));
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        gather.raised.emplace();
    } catch (...) {
        stop_thread();  // the interpreter ends, and the frames of the library must stay
    }
    return 1;
}

CreatedComm from_all_gather(Integer rank, Integer ranks, const nb::object &function, double timeout,
                            const Text &node, bool reproducible, const Text &tag) {
    const vescomm_comm_options_t options = options_of(timeout, node, reproducible, tag);
    AllGather gather{function, ranks.small("ranks"), {}};
    const std::int32_t small_rank = rank.small("rank");
    vescomm_comm_t *comm = nullptr;
    vescomm_status_t status = VESCOMM_OK;
    {
        const GilReleased released;
        status = vescomm_comm_create_from_all_gather(small_rank, gather.ranks, all_gather, &gather,
                                                     &options, &comm);
    }
    if (gather.raised) throw std::move(*gather.raised);
    check(status);
    return own(comm);
}

std::optional<CreatedComm> split(Comm &parent, Integer color, Integer key, double timeout,
                                 const Text &node, bool reproducible) {
    const vescomm_comm_options_t options = options_of(timeout, node, reproducible, {});
    const std::int32_t small_color = color.small("color"), small_key = key.small("key");
    vescomm_comm_t *comm = nullptr;
    parent.run([&](vescomm_comm_t *on) {
        return vescomm_comm_split(on, small_color, small_key, &options, &comm);
    });
    if (comm == nullptr) return {};
    return own(comm);
}

CreatedComm dup(Comm &parent, double timeout, const Text &node, bool reproducible) {
    const vescomm_comm_options_t options = options_of(timeout, node, reproducible, {});
    vescomm_comm_t *comm = nullptr;
    parent.run([&](vescomm_comm_t *on) { return vescomm_comm_dup(on, &options, &comm); });
    return own(comm);
}

CreatedComm shrink(Comm &parent, const Integers &failed) {
    std::vector<std::int32_t> ranks;
    for (const std::int64_t rank : failed.values)
        ranks.push_back(Integer{rank}.small("a rank of failed"));
    const std::shared_ptr<CommHandle> handle = parent.share();
    vescomm_comm_t *comm = nullptr;
    try {
        parent.run([&](vescomm_comm_t *on) {
            return vescomm_comm_shrink(on, ranks.data(), ranks.size(), &comm);
        });
    } catch (const nb::python_error &error) {
        // A signal handler's exception. The library breaks only communicators that it has shrunk.
        if (!is_of_library(error)) vescomm_comm_abort(handle->get(), "shrink() was interrupted");
        throw;
    }
    return own(comm);
}

}  // namespace

void define_creation(nb::module_ &module, nb::class_<Comm> &type) {
    const auto timeout = nb::arg("timeout") = 0.0;
    const auto node = nb::arg("node").none() = nb::none();
    const auto reproducible = nb::arg("reproducible") = false;
    const auto tag = nb::arg("tag").none() = nb::none();
    module.def("create_from_environment", from_environment, timeout, node, reproducible, tag);
    module.def("create", create, nb::arg("rank"), nb::arg("ranks"), nb::arg("address").none(),
               nb::arg("secret").none(), timeout, node, reproducible, tag);
    module.def("create_from_all_gather", from_all_gather, nb::arg("rank"), nb::arg("ranks"),
               nb::arg("all_gather"), timeout, node, reproducible, tag);
    type.def("_split", split, nb::arg("color"), nb::arg("key") = 0, timeout, node, reproducible);
    type.def("_dup", dup, timeout, node, reproducible);
    type.def("_shrink", shrink, nb::arg("failed"));
}

}  // namespace vescomm::python

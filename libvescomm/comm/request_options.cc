// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/request_options.h"

#include <fmt/format.h>

#include <cmath>

#include "base/types.h"
#include "execute/kernels.h"

namespace vescomm::internal {

void refuse(vescomm_status_t status, const RequestOptions &options, const std::string &why) {
    throw Error(status, std::string(name_of(options.collective)) + ": " + why);
}

namespace {

// The rule that forbids some operators for this type, for messages.
const char *operators_of(vescomm_type_t type) {
    if (type == VESCOMM_BOOL)
        return "bool has sum, prod, min, max, and the bitwise and logical operators";
    if (is_complex(type)) return "complex numbers have sum, average, prod and premultiplied sum";
    return "bitwise and logical operators combine integers and bool";
}

}  // namespace

void check(const Communicator &comm, const RequestOptions &options, vescomm_type_t combined) {
    const bool message = is_message(options.collective);
    const bool receives = options.collective == Collective::receive;
    const bool any_source = receives && options.root == VESCOMM_ANY_SOURCE;
    if ((options.root < 0 || options.root >= comm.ranks()) && !any_source)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               (message ? "peer is " : "root is ") + std::to_string(options.root) +
                   ", and there are ranks 0 to " + std::to_string(comm.ranks() - 1) +
                   (receives ? "; VESCOMM_ANY_SOURCE receives from all of them" : ""));
    if (options.op < VESCOMM_SUM || options.op > last_op)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "there is no op " + std::to_string(options.op) +
                   "; use one of VESCOMM_SUM (0) to VESCOMM_LOGICAL_XOR (" +
                   std::to_string(last_op) + ")");
    if (options.op != 0 && !reduces(options.collective))
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no op; leave it zero");
    if (reduces(options.collective) && !can_combine(options.op, combined))
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "there is no " + name_of_op(options.op) + " of " + name_of_type(combined) + "; " +
                   operators_of(combined));
    if (options.root != 0 && !message && !has_root(options.collective))
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options, "takes no root; leave it zero");
    if (options.op == VESCOMM_PREMULTIPLIED_SUM && options.factor == 0)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "factor is 0; give VESCOMM_PREMULTIPLIED_SUM what to multiply by");
    constexpr double limit = 9.2e18;  // below 2^63
    if (options.op == VESCOMM_PREMULTIPLIED_SUM && is_integer(combined) &&
        !(std::abs(options.factor) < limit && std::trunc(options.factor) == options.factor))
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               fmt::format("factor is {}; for {} it must be a whole number of less than 9.2e18",
                           options.factor, name_of_type(combined)));
    if (options.op != VESCOMM_PREMULTIPLIED_SUM && options.factor != 0)
        refuse(VESCOMM_ERROR_INVALID_ARGUMENT, options,
               "takes no factor without VESCOMM_PREMULTIPLIED_SUM; leave it zero");
}

}  // namespace vescomm::internal

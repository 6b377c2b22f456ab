// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

// Every file that includes asio includes this header first: the macros must agree.
#ifndef ASIO_STANDALONE
#define ASIO_STANDALONE
#endif
// One thread runs the loop, and other threads hand over work under the loop's mutex, so asio's own
// fences add nothing. ThreadSanitizer does not support fences.
#ifndef ASIO_DISABLE_FENCED_BLOCK
#define ASIO_DISABLE_FENCED_BLOCK
#endif

#include <asio/io_context.hpp>

#include "bootstrap/network.h"

namespace vescomm::internal {

// A stream over a connected, non-blocking socket.
std::unique_ptr<Stream> make_os_stream(asio::io_context &context, Descriptor socket);

}  // namespace vescomm::internal

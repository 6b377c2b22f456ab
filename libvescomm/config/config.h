// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>

namespace vescomm {

// Looks up a variable of the environment; nullptr when it is not set.
using Environment = std::function<const char *(const char *name)>;
Environment process_environment();

// One row gives the member, the parser, the help and the documentation. Types: double, string.
//   type,   member,          default, unit, values, what it does
#define VESCOMM_VARIABLES(X)                                                                    \
    X(number, timeout_seconds, 300, "s", "> 0", "Give up on a silent peer after this long.")    \
    X(number, silence_seconds, 10, "s", "> 0",                                                  \
      "Take a rank for dead when its machine has not been heard of for this long.")             \
    X(text, node, "", "", "any name",                                                           \
      "Name of this rank's node; ranks with one name share memory. Empty: ask the system.")     \
    X(text, progress, "auto", "", "auto, thread, inline",                                       \
      "Who moves requests along: a thread of their own, or only calls of the library. auto: a " \
      "thread when there are other nodes.")                                                     \
    X(text, log, "warn", "", "LEVEL[,AREA:LEVEL...]",                                           \
      "What is logged to standard error: error, warn, info or debug, for all or for one area.")

struct Config {
    using number = double;
    using text = std::string;
#define VESCOMM_MEMBER(type, member, fallback, unit, values, what) type member = fallback;
    VESCOMM_VARIABLES(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
};

// Reads VESCOMM_TIMEOUT_SECONDS and so on. Throws Error(INVALID_ARGUMENT) that names the variable
// and its value when one is malformed.
Config read_config(const Environment &environment);

// The same table for people and for the documentation.
struct VariableHelp {
    std::string name, fallback, unit, values, what;
};
std::span<const VariableHelp> variables();

}  // namespace vescomm

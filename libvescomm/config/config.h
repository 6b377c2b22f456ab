// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace vescomm {

// Looks up a variable of the environment; nullptr when it is not set. An empty one counts as not
// set, too.
using Environment = std::function<const char *(const char *name)>;
Environment process_environment();

// THE table of settings: a row gives the member, the parser, the help and the documentation.
// Kinds: seconds (a number above 0), choice (one of the values), text. Variables that are no
// settings have their rows in config.cc.
//
//   kind,    member,          default, unit, values, what it does
#define VESCOMM_SETTINGS(X)                                                                     \
    X(seconds, timeout_seconds, 300, "s", "> 0", "Give up on a silent peer after this long.")   \
    X(seconds, silence_seconds, 10, "s", "> 0",                                                 \
      "Take a rank for dead when its machine has not been heard of for this long.")             \
    X(text, node, "", "", "any name",                                                           \
      "Name of this rank's node; ranks with one name share memory. Empty: ask the system.")     \
    X(choice, progress, "auto", "", "auto, thread, inline",                                     \
      "Who moves requests along: a thread of their own, or only calls of the library. auto: a " \
      "thread when there are other nodes.")                                                     \
    X(choice, transport, "auto", "", "auto, tcp, ucx",                                          \
      "How bytes travel between nodes: tcp, over connections of vescomm's own, or ucx. auto: "  \
      "ucx when every rank has RDMA, else tcp. The same on every rank.")                        \
    X(choice, encryption, "no", "", "no, yes",                                                  \
      "Encrypt what travels between nodes (AES-256-GCM), over tcp. The same on every rank.")    \
    X(choice, insecure, "0", "", "0, 1",                                                        \
      "1: accept a secret that others may guess on an address that others can reach. For "      \
      "machines and networks that nobody else uses.")                                           \
    X(text, algorithm, "", "", "COLLECTIVE=ALGORITHM[,...]",                                    \
      "Algorithms to take instead of those that are chosen. The same on every rank.")           \
    X(choice, reproducible, "no", "", "no, yes",                                                \
      "Combine contributions in the order of ranks, so that sums have the same bits on any "    \
      "nodes. "                                                                                 \
      "The same on every rank.")                                                                \
    X(text, machine, "", "", "a file name, or defaults",                                        \
      "What vescomm-info --measure has found out, from which rank 0 tells all ranks how fast "  \
      "what is. Empty: the file for this machine below XDG_CACHE_HOME, if there is one. "       \
      "defaults: none.")                                                                        \
    X(text, flight_recorder, "", "", "a file name with %r",                                     \
      "Where each rank writes its last operations when its communicator breaks. %r is the "     \
      "rank, %c the communicator of the process, %p the process. Empty: nowhere.")              \
    X(text, log, "warn", "", "LEVEL[,AREA:LEVEL...]",                                           \
      "What is logged to standard error: error, warn, info or debug, for all or for one area.")

struct Config {
    using seconds = double;
    using choice = std::string;
    using text = std::string;
#define VESCOMM_MEMBER(kind, member, fallback, unit, values, what) kind member = fallback;
    VESCOMM_SETTINGS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
};

// Reads the settings: VESCOMM_TIMEOUT_SECONDS and so on. Throws Error(INVALID_ARGUMENT) that says
// the variable, its value and what is allowed when one is malformed.
Config read_config(const Environment &environment);

// Every variable whose name begins with VESCOMM_, for people, for the documentation, and for
// unknown_variables().
struct Variable {
    enum class Group {
        setting,
        place,  // which rank this process is, and where the others are
        prefix,  // how variables begin that vescomm itself does not read
    };
    Group group = Group::setting;
    std::string name, fallback, unit, values, what;
};
std::span<const Variable> variables();

// The names of all variables of this process.
std::vector<std::string> process_variable_names();

// A sentence for each name that looks like one of vescomm's and is none, with the name that was
// probably meant. Nobody reads such a variable, so a misspelt one would have no effect.
std::vector<std::string> unknown_variables(std::span<const std::string> names);

}  // namespace vescomm

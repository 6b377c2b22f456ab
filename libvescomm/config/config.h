// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace vescomm::internal {

// Looks up an environment variable; returns nullptr if it is not set. An empty variable counts as
// not set.
using Environment = std::function<const char *(const char *name)>;
Environment process_environment();

// THE table of settings. A row gives the member, the parser, the help and the documentation.
// Kinds: seconds (a number above 0), choice (one of the values), size (auto, or bytes), text.
// Variables that are not settings have their rows in config.cc.
//
//   kind,    member,          default, unit, values, what it does
#define VESCOMM_SETTINGS(X)                                                                     \
    X(seconds, timeout_seconds, 300, "s", "> 0",                                                \
      "Limit of every wait. A wait fails when a peer is alive but has not done its part by "    \
      "then.")                                                                                  \
    X(seconds, silence_seconds, 10, "s", "> 0",                                                 \
      "A rank counts as dead when the control plane has received nothing from its process for " \
      "this long, although its connection has not ended.")                                      \
    X(text, node, "", "", "any name",                                                           \
      "Name of this rank's node; ranks with one name share memory. Empty: ask the system.")     \
    X(choice, progress, "auto", "", "auto, thread, inline",                                     \
      "How requests make progress: in a progress thread, or only in calls of the library. "     \
      "auto: a thread when there are other nodes.")                                             \
    X(choice, transport, "auto", "", "auto, tcp, ucx",                                          \
      "Transport between nodes: tcp or ucx. auto: ucx if every rank has RDMA and "              \
      "VESCOMM_ENCRYPTION is no, else tcp. The same on every rank.")                            \
    X(choice, encryption, "no", "", "no, yes",                                                  \
      "Encrypt the data between nodes (AES-256-GCM). Only over tcp. The same on every rank.")   \
    X(choice, insecure, "0", "", "0, 1",                                                        \
      "1: accept a secret that others may guess on an address that others can reach. For "      \
      "machines and networks that nobody else uses.")                                           \
    X(text, algorithm, "", "", "COLLECTIVE=ALGORITHM[,...]",                                    \
      "Algorithms to use instead of the chosen ones. The same on every rank.")                  \
    X(choice, reproducible, "no", "", "no, yes",                                                \
      "Combine contributions in the order of ranks: sums are bit-identical for any placement "  \
      "of ranks on nodes. The same on every rank.")                                             \
    X(text, machine, "", "", "a file name, or defaults",                                        \
      "Machine file written by vescomm-info --measure. Rank 0 reads it and sends its numbers "  \
      "to all ranks. Empty: the file for this machine below XDG_CACHE_HOME, if there is one. "  \
      "defaults: none.")                                                                        \
    X(text, gpu_kernels, "", "", "a file name",                                                 \
      "File with kernels for device memory (gpu_kernels.h), of the same version of vescomm. "   \
      "Empty: those in the library, if it was built where nvcc was found.")                     \
    X(size, malloc_bytes, "auto", "", "auto, or a number of bytes",                             \
      "Address space of each rank for vescomm_malloc(), which the ranks of its node map. The "  \
      "smallest value of all ranks applies. auto: the memory of the machine. 0, or where "      \
      "ulimit -f limits file sizes: private memory from vescomm_malloc().")                     \
    X(text, flight_recorder, "", "", "a file name with %r",                                     \
      "File to which each rank writes its last operations when its communicator breaks. %r is " \
      "the rank, %c the number of the communicator in its process, %p the process id, %% a %. " \
      "Empty: "                                                                                 \
      "none.")                                                                                  \
    X(text, log, "warn", "", "LEVEL[,AREA:LEVEL...]",                                           \
      "Level of the log on standard error: error, warn, info or debug, for all or for one area.")

struct Config {
    using seconds = double;
    using choice = std::string;
    using text = std::string;
    using size = std::string;
#define VESCOMM_MEMBER(kind, member, fallback, unit, values, what) kind member = fallback;
    VESCOMM_SETTINGS(VESCOMM_MEMBER)
#undef VESCOMM_MEMBER
};

// Reads the settings: VESCOMM_TIMEOUT_SECONDS and so on. Throws Error(INVALID_ARGUMENT) if one is
// malformed; the sentence names the variable, its value and the allowed values.
Config read_config(const Environment &environment);

// A variable whose name begins with VESCOMM_. Used by vescomm-info, by the documentation, and by
// unknown_variables().
struct Variable {
    enum class Group {
        setting,
        place,  // the rank of this process, and the address of the others
        prefix,  // the beginning of names of variables that the library itself does not read
    };
    Group group = Group::setting;
    std::string name, fallback, unit, values, what;
};
std::span<const Variable> variables();

// The names of all environment variables of this process that are not empty.
std::vector<std::string> process_variable_names();

// Returns a sentence for each name that begins like a variable of vescomm but is not one. The
// sentence suggests the variable that was probably meant. A misspelt variable has no effect, so
// users need this warning.
std::vector<std::string> unknown_variables(std::span<const std::string> names);

}  // namespace vescomm::internal

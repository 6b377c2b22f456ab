// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/signals.h"
#include "base/system.h"

namespace vescomm::internal {

std::string file_name(std::string_view pattern, const Writer &writer, const std::string &what) {
    std::string name;
    bool has_rank = false;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%') {
            name += pattern[i];
            continue;
        }
        const char which = ++i < pattern.size() ? pattern[i] : '\0';
        has_rank |= which == 'r';
        if (which == 'r') name += std::to_string(writer.rank);
        else if (which == 'c') name += std::to_string(writer.communicator);
        else if (which == 'p') name += std::to_string(getpid());
        else if (which == '%') name += '%';
        else
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        what + std::string(pattern) +
                            ": after a % comes r (rank), c (communicator of the process), p "
                            "(process) or another %");
    }
    if (!has_rank && writer.ranks > 1)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    what + std::string(pattern) +
                        ": ranks would overwrite one another's files; put %r into the name, which "
                        "becomes the rank");
    return name;
}

namespace {

// Eight unpredictable bytes as hexadecimal text.
std::string random_text() {
    std::array<unsigned char, 8> bytes{};
    // getrandom() returns up to 256 bytes completely or not at all.
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        throw system_error("cannot get random bytes from the system");
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

bool write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(file, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

}  // namespace

void write_file(const std::string &name, std::string_view text, const std::string &what) {
    const std::string failed = "cannot write " + what + " to \"" + name + "\"";
    struct stat present {};
    if (stat(name.c_str(), &present) == 0 && !S_ISREG(present.st_mode) && !S_ISDIR(present.st_mode))
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    failed +
                        ": that is a device, a pipe or a socket, which a file would replace; "
                        "give the name of a file");
    // In the same folder: rename() works only within one file system.
    const std::string part = name + "." + random_text() + ".part";
    const int file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) throw system_error(failed);
    const bool written = write_all(file, text);
    const bool closed = close(file) == 0;
    if (written && closed && std::rename(part.c_str(), name.c_str()) == 0) return;
    const Error error = system_error(failed);
    unlink(part.c_str());
    throw error;
}

namespace {

// State of one background write. Shared by the writing thread and the waiting caller.
struct Writing {
    std::string name;
    std::string text;
    std::string what;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
};

void write_in_background(Writing &writing) noexcept {
    std::exception_ptr error;
    try {
        write_file(writing.name, writing.text, writing.what);
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard lock(writing.mutex);
    writing.error = error;
    writing.done = true;
    writing.changed.notify_all();
}

// Starts the thread with all signals blocked: the program's own threads handle its signals.
void start_detached(const std::shared_ptr<Writing> &writing) {
    const SignalsBlocked blocked;
    try {
        std::thread([writing] { write_in_background(*writing); }).detach();
    } catch (const std::system_error &error) {
        throw Error(VESCOMM_ERROR_SYSTEM, "cannot write " + writing->what + " to \"" +
                                              writing->name +
                                              "\": no thread can be started: " + error.what());
    }
}

}  // namespace

void write_file_by(const std::string &name, std::string text, const std::string &what,
                   Deadline deadline) {
    const auto writing = std::make_shared<Writing>();
    writing->name = name;
    writing->text = std::move(text);
    writing->what = what;
    start_detached(writing);
    std::unique_lock lock(writing->mutex);
    if (!writing->changed.wait_until(lock, deadline.moment(), [&] { return writing->done; }))
        throw Error(VESCOMM_ERROR_TIMEOUT,
                    "writing " + what + " to " + name +
                        " takes too long; see whether its file system answers, or write elsewhere");
    if (writing->error) std::rethrow_exception(writing->error);
}

}  // namespace vescomm::internal

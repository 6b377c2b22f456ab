// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/user_key.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"

namespace vescomm::internal {

namespace {

constexpr std::size_t key_bytes = 32;

// Returns the key if the file is a regular one of this user and no other user can read or write it.
std::optional<std::string> read_key(const std::string &name) {
    const Descriptor file(open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!file.open() || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != geteuid() || (status.st_mode & 077) != 0)
        return std::nullopt;
    std::string key(key_bytes, '\0');
    if (read(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
        return std::nullopt;
    return key;
}

// Writes the file completely under a temporary name, then links it; another process may be faster.
void make_key(const std::string &name) {
    unsigned char random[key_bytes + 8];
    if (getrandom(random, sizeof random, 0) != sizeof random) return;
    std::string part = name + ".";
    for (std::size_t i = key_bytes; i < sizeof random; ++i) part += std::to_string(random[i]);
    {
        const Descriptor file(
            open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
        if (!file.open()) return;
        const bool written = write(file.get(), random, key_bytes) == ssize_t{key_bytes};
        if (written) [[maybe_unused]]
            const int linked = link(part.c_str(), name.c_str());
    }
    std::remove(part.c_str());
}

}  // namespace

std::optional<std::string> user_key(const std::string &folder) {
    if (folder.empty()) return std::nullopt;
    const std::string own = folder + "/vescomm";
    std::error_code error;
    std::filesystem::create_directories(own, error);
    const std::string name = own + "/key";
    if (auto key = read_key(name)) return key;
    make_key(name);
    return read_key(name);
}

std::string user_cache_folder() {
    if (const char *folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder == '/')
        return folder;
    const char *home = std::getenv("HOME");
    return home != nullptr && *home == '/' ? std::string(home) + "/.cache" : std::string();
}

}  // namespace vescomm::internal

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace vescomm::internal {
namespace {

// The shared object that every UCX since 1.0 installs; its functions keep their signatures.
constexpr const char *library_file = "libucp.so.0";

// Adds variables that the user has not set, until the end of the scope. Other threads may read the
// environment meanwhile. setenv() and unsetenv() do not allow that, because they move and free the
// array. This class installs a longer array, and then the old one again.
class TemporaryEnvironment {
public:
    // `assignments`: "<name>=<value>" each, of static storage.
    explicit TemporaryEnvironment(std::initializer_list<const char *> assignments) : old_(environ) {
        std::vector<const char *> added;
        for (const char *assignment : assignments) {
            const std::string_view text = assignment;
            const std::string name(text.substr(0, text.find('=')));
            if (std::getenv(name.c_str()) == nullptr) added.push_back(assignment);
        }
        std::size_t count = 0;
        while (old_ != nullptr && old_[count] != nullptr) ++count;
        // Never freed: a reader may still use it after the end of the scope.
        own_ = new char *[count + added.size() + 1];
        char **end = std::copy_n(old_, count, own_);
        for (const char *assignment : added) *end++ = const_cast<char *>(assignment);
        *end = nullptr;
        environ = own_;
    }

    // If the program has set a variable meanwhile, its new array stays, including the added
    // variables.
    ~TemporaryEnvironment() {
        if (environ == own_) environ = old_;
    }

private:
    char **const old_;
    static char **own_;
};

char **TemporaryEnvironment::own_ = nullptr;

template <typename Function>
void find(void *library, const char *name, Function *&function) {
    function = reinterpret_cast<Function *>(dlsym(library, name));
    if (function == nullptr)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    std::string(library_file) + " lacks " + name +
                        "(): vescomm needs UCX 1.13 or later between nodes; install it, or set "
                        "LD_LIBRARY_PATH to it");
}

UcxLibrary load() {
    // Constructors read these during dlopen(), see the header. They have no effect if the process
    // has already loaded UCX; then the settings of its first user apply.
    const TemporaryEnvironment environment{"UCX_MEM_MMAP_HOOK_MODE=none", "UCX_MEM_MALLOC_HOOKS=n",
                                           "UCX_HANDLE_ERRORS=none",
                                           "UCX_ERROR_SIGNALS=", "UCX_DEBUG_SIGNO=0"};

    // RTLD_LOCAL: libucs also defines signal() and sigaction(), which must not replace the
    // program's.
    void *library = dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    std::string("UCX, which moves host memory between nodes, cannot be loaded: ") +
                        dlerror() + "; install UCX 1.13 or later, or set LD_LIBRARY_PATH to it");

    UcxLibrary ucx{};
    find(library, "ucp_get_version", ucx.get_version);
    find(library, "ucp_config_read", ucx.config_read);
    find(library, "ucp_config_modify", ucx.config_modify);
    find(library, "ucp_config_release", ucx.config_release);
    find(library, "ucp_init_version", ucx.init_version);
    find(library, "ucp_cleanup", ucx.cleanup);
    find(library, "ucp_worker_create", ucx.worker_create);
    find(library, "ucp_worker_destroy", ucx.worker_destroy);
    find(library, "ucp_worker_query", ucx.worker_query);
    find(library, "ucp_worker_release_address", ucx.worker_release_address);
    find(library, "ucp_worker_get_efd", ucx.worker_get_efd);
    find(library, "ucp_worker_arm", ucx.worker_arm);
    find(library, "ucp_worker_progress", ucx.worker_progress);
    find(library, "ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler);
    find(library, "ucp_ep_create", ucx.ep_create);
    find(library, "ucp_ep_flush_nbx", ucx.ep_flush_nbx);
    find(library, "ucp_ep_close_nbx", ucx.ep_close_nbx);
    find(library, "ucp_am_send_nbx", ucx.am_send_nbx);
    find(library, "ucp_am_recv_data_nbx", ucx.am_recv_data_nbx);
    find(library, "ucp_am_data_release", ucx.am_data_release);
    find(library, "ucp_request_free", ucx.request_free);
    find(library, "ucp_mem_map", ucx.mem_map);
    find(library, "ucp_mem_unmap", ucx.mem_unmap);
    find(library, "ucs_status_string", ucx.status_string);
    return ucx;
}

}  // namespace

void UcxLibrary::check(ucs_status_t status, const std::string &what) const {
    if (status == UCS_OK) return;
    throw Error(status == UCS_ERR_NO_MEMORY ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_SYSTEM,
                what + ": " + status_string(status));
}

const UcxLibrary &load_ucx() {
    // Never unloaded, because UCX's threads and modules do not survive that. A failed load is tried
    // again.
    static const UcxLibrary ucx = load();
    return ucx;
}

}  // namespace vescomm::internal

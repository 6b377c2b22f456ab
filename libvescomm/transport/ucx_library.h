// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace vescomm::internal {

// The functions of UCX that vescomm calls, loaded at run time.
//
// UCX is loaded, not linked, because its constructors act on the whole process: they patch munmap
// and related functions (which crashes ThreadSanitizer) and install handlers for SIGSEGV, SIGBUS,
// SIGILL, SIGFPE and SIGHUP. Both can be disabled only through the environment before libucs is
// mapped, which a linked program cannot do. Loading also lets one build of vescomm serve machines
// with and without UCX, and use the UCX that the process already has.
struct UcxLibrary {
    decltype(&::ucp_get_version) get_version;
    decltype(&::ucp_config_read) config_read;
    decltype(&::ucp_config_modify) config_modify;
    decltype(&::ucp_config_release) config_release;
    decltype(&::ucp_init_version) init_version;
    decltype(&::ucp_cleanup) cleanup;
    decltype(&::ucp_worker_create) worker_create;
    decltype(&::ucp_worker_destroy) worker_destroy;
    decltype(&::ucp_worker_query) worker_query;
    decltype(&::ucp_worker_release_address) worker_release_address;
    decltype(&::ucp_worker_get_efd) worker_get_efd;
    decltype(&::ucp_worker_arm) worker_arm;
    decltype(&::ucp_worker_progress) worker_progress;
    decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
    decltype(&::ucp_ep_create) ep_create;
    decltype(&::ucp_ep_flush_nbx) ep_flush_nbx;
    decltype(&::ucp_ep_close_nbx) ep_close_nbx;
    decltype(&::ucp_am_send_nbx) am_send_nbx;
    decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx;
    decltype(&::ucp_am_data_release) am_data_release;
    decltype(&::ucp_request_free) request_free;
    decltype(&::ucp_mem_map) mem_map;
    decltype(&::ucp_mem_unmap) mem_unmap;
    decltype(&::ucs_status_string) status_string;

    // Throws Error unless `status` is UCS_OK: "<what>: <UCX's reason>".
    void check(ucs_status_t status, const std::string &what) const;
};

// Loads UCX at the first call. Throws UNSUPPORTED with the loader's reason if it cannot be loaded.
// Threads: safe. The first call temporarily adds variables to the environment; meanwhile other
// threads may read the environment but not set variables.
const UcxLibrary &load_ucx();

}  // namespace vescomm::internal

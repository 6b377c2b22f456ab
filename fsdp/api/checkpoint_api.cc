// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The exported functions of checkpoints.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "fsdp/api/guard.h"
#include "fsdp/api/handles.h"
#include "fsdp/checkpoint/export.h"

namespace api = vescomm::fsdp;

vescomm_status_t vescomm_fsdp_save(vescomm_fsdp_t *engine, const char *folder,
                                   const vescomm_fsdp_extra_t *extra, vescomm_job_t **job) {
    return api::guarded("vescomm_fsdp_save", [&] {
        api::require(engine, "engine");
        api::require(folder, "folder");
        api::require(job, "job");
        vescomm_fsdp_extra_t ours = vescomm_fsdp_extra_init();
        if (extra != nullptr) ours = api::read_struct(extra, "extra", ours);
        if (ours.bytes > 0) api::require(ours.data, "extra->data");
        const std::string_view bytes(static_cast<const char *>(ours.bytes > 0 ? ours.data : ""),
                                     ours.bytes);
        auto made = std::make_unique<vescomm_job>();
        made->save = engine->engine().save(folder, bytes, ours.keep);
        *job = made.release();
    });
}

vescomm_status_t vescomm_job_test(vescomm_job_t *job) {
    bool ended = false;
    const vescomm_status_t status = api::guarded("vescomm_job_test", [&] {
        api::require(job, "job");
        ended = job->save->test();
        if (ended) job->save->wait(0);
    });
    return status == VESCOMM_OK && !ended ? VESCOMM_IN_PROGRESS : status;
}

vescomm_status_t vescomm_job_wait(vescomm_job_t *job, double timeout_seconds) {
    return api::guarded("vescomm_job_wait", [&] {
        api::require(job, "job");
        if (std::isnan(timeout_seconds) || timeout_seconds < 0)
            api::refuse("timeout_seconds is {}; it must be at least 0", timeout_seconds);
        job->save->wait(timeout_seconds);
    });
}

vescomm_status_t vescomm_job_free(vescomm_job_t *job) {
    return api::free_handle("vescomm_job_free", "job", job);
}

vescomm_status_t vescomm_fsdp_load(vescomm_fsdp_t *engine, const char *folder) {
    return api::guarded("vescomm_fsdp_load", [&] {
        api::require(engine, "engine");
        api::require(folder, "folder");
        engine->engine().load(folder);
    });
}

vescomm_status_t vescomm_fsdp_load_partial(vescomm_fsdp_t *engine, const char *folder,
                                           vescomm_fsdp_partial_load_t *load) {
    return api::guarded("vescomm_fsdp_load_partial", [&] {
        api::require(engine, "engine");
        api::require(folder, "folder");
        vescomm_fsdp_partial_load_t ours =
            api::read_struct(load, "load", vescomm_fsdp_partial_load_init());
        if (ours.reserved != 0) api::refuse("reserved of load is {}; leave it zero", ours.reserved);
        if (ours.name_count > 0) api::require(ours.names, "load->names");
        api::PartialLoad what{{}, ours.strict != 0, ours.states != 0};
        for (size_t i = 0; i < ours.name_count; ++i) {
            if (ours.names[i] == nullptr || *ours.names[i] == 0)
                api::refuse("load->names[{}] is NULL or empty; pass no names to select all", i);
            what.names.emplace_back(ours.names[i]);
        }
        const api::LoadSelection done = engine->engine().load_partial(folder, what);
        ours.loaded = static_cast<int64_t>(done.loaded.size());
        ours.missing = static_cast<int64_t>(done.missing.size());
        ours.unexpected = static_cast<int64_t>(done.unexpected.size());
        api::write_struct(load, ours, "load");
    });
}

vescomm_status_t vescomm_fsdp_get_load_report(const vescomm_fsdp_t *engine, char *text,
                                              size_t capacity, size_t *size) {
    return api::guarded("vescomm_fsdp_get_load_report", [&] {
        api::require(engine, "engine");
        api::require(size, "size");
        if (capacity > 0) api::require(text, "text");
        const std::string &report = engine->observed().load_report();
        if (report.size() < capacity) std::copy_n(report.c_str(), report.size() + 1, text);
        *size = report.size() + 1;
    });
}

vescomm_status_t vescomm_fsdp_get_extra(const vescomm_fsdp_t *engine, int32_t rank, void *data,
                                        size_t capacity, size_t *bytes) {
    return api::guarded("vescomm_fsdp_get_extra", [&] {
        api::require(engine, "engine");
        api::require(bytes, "bytes");
        if (capacity > 0) api::require(data, "data");
        const std::string &extra = engine->observed().extra(rank);
        std::copy_n(extra.data(), std::min(capacity, extra.size()), static_cast<char *>(data));
        *bytes = extra.size();
    });
}

vescomm_status_t vescomm_fsdp_export(const char *folder, const char *output,
                                     int64_t max_file_bytes) {
    return api::guarded("vescomm_fsdp_export", [&] {
        api::require(folder, "folder");
        api::require(output, "output");
        api::checkpoint::ExportOptions options;
        if (max_file_bytes != 0) options.max_file_bytes = max_file_bytes;
        api::checkpoint::Checkpoint checkpoint(folder);
        api::checkpoint::export_safetensors(checkpoint, output, options);
    });
}

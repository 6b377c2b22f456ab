// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/watch.h"

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

constexpr std::int64_t words = sizeof(Announcement) / sizeof(std::uint64_t);

}  // namespace

Watch::Watch(Comms &comms, std::span<const std::string> unit_names)
    : comms_(comms), unit_names_(unit_names) {
    for (Entry &entry : entries_) entry.all.resize(comms.world().ranks());
}

Watch::~Watch() {
    for (Entry &entry : entries_) {
        if (entry.request == nullptr) continue;
        vescomm_request_wait(entry.request);
        vescomm_request_free(entry.request);
    }
}

std::uint64_t Watch::post(const Announcement &announcement) {
    if (entries_.front().all.size() == 1) return 0;
    if (posted_ >= depth) verify(posted_ - depth + 1);
    Entry &entry = entries_[posted_ % depth];
    entry.mine = announcement;
    if (entry.request != nullptr) {
        check(vescomm_request_start(entry.request, nullptr));
    } else {
        check(vescomm_all_gather(comms_.world().get(), &entry.mine, entry.all.data(), words,
                                 VESCOMM_U64, nullptr, nullptr, &entry.request));
    }
    return ++posted_;
}

void Watch::compare_oldest() {
    const Entry &entry = entries_[verified_ % depth];
    const std::string difference = compare(entry.all, unit_names_);
    if (!difference.empty()) throw Failure(VESCOMM_ERROR_MISMATCH, difference);
    ++verified_;
}

void Watch::verify(std::uint64_t number) {
    while (verified_ < number) {
        comms_.wait(comms_.world(), entries_[verified_ % depth].request);
        compare_oldest();
    }
}

void Watch::look() {
    while (verified_ < posted_) {
        const vescomm_status_t status = vescomm_request_test(entries_[verified_ % depth].request);
        if (status == VESCOMM_IN_PROGRESS) return;
        check(status);
        compare_oldest();
    }
}

}  // namespace vescomm::fsdp

// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_groups.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/error.h"

namespace vescomm::internal {

void CallGroups::begin() noexcept {
    open_ = true;
    repeats_ = 0;
}

template <typename Suits>
bool CallGroups::repeat_another(const Suits &suits) noexcept {
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), [&](const auto &group) {
        if (group->keys.size() < repeats_ || !suits(*group)) return false;
        return !repeated_ || std::equal(group->keys.begin(), group->keys.begin() + repeats_,
                                        repeated_->keys.begin());
    });
    if (found == kept_.rend()) return false;
    std::swap(repeated_, *found);
    if (!*found) kept_.erase(std::next(found).base());
    return true;
}

bool CallGroups::repeats(const CallArguments &arguments) noexcept {
    if (made_) return false;
    const auto goes_on = [&](const CallGroup &group) {
        return repeats_ < group.keys.size() && group.keys[repeats_].equals(arguments);
    };
    if (!(repeated_ && goes_on(*repeated_)) && !repeat_another(goes_on)) return false;
    ++repeats_;
    return true;
}

void CallGroups::leave_repeated() {
    auto made = std::make_unique<CallGroup>();
    if (repeated_) {
        made->keys.assign(repeated_->keys.begin(), repeated_->keys.begin() + repeats_);
        made->calls.assign(repeated_->calls.begin(), repeated_->calls.begin() + repeats_);
        keep(std::move(repeated_));
    }
    made_ = std::move(made);
}

void CallGroups::add(const Call &call, const CallArguments &arguments) {
    if (!made_) leave_repeated();
    made_->calls.push_back(call);
    try {
        made_->keys.emplace_back(arguments, calls_.ranks());
    } catch (...) {
        made_->calls.pop_back();
        throw;
    }
}

void CallGroups::make_parts(CallGroup &group) {
    std::vector<std::vector<Call>> fused;
    // Indices of `fused`. Messages, of which there may be many, do not fuse.
    std::vector<std::size_t> collectives;
    for (const Call &call : group.calls) {
        const bool message = is_message(call.options.collective);
        const auto same = std::ranges::find_if(
            collectives, [&](std::size_t at) { return !message && fuse(fused[at][0], call); });
        if (same != collectives.end()) {
            fused[*same].push_back(call);
            continue;
        }
        if (!message) collectives.push_back(fused.size());
        fused.push_back({call});
    }
    std::vector<std::unique_ptr<Request>> parts;
    for (const auto &together : fused) parts.push_back(calls_.request(together));
    group.parts = std::move(parts);
}

std::unique_ptr<CallGroup> CallGroups::end() {
    const auto ends = [this](const CallGroup &group) { return repeats_ == group.keys.size(); };
    const bool same = repeated_ && (ends(*repeated_) || repeat_another(ends));
    if (!same) {
        const auto close = [this] {
            made_.reset();
            open_ = false;
        };
        try {
            if (!made_) leave_repeated();
            make_parts(*made_);
        } catch (const std::bad_alloc &) {
            // A broken communicator will not start the group, so there is no second attempt.
            if (calls_.staging()->comm()->failure().broken()) close();
            throw;
        } catch (const Error &) {
            close();
            throw;
        }
    }
    open_ = false;
    return std::move(same ? repeated_ : made_);
}

void CallGroups::keep(std::unique_ptr<CallGroup> group) noexcept {
    const auto running = [](const auto &part) { return part->running(); };
    if (group->keys.empty() || std::ranges::any_of(group->parts, running)) return;
    if (kept_.size() == max_kept) {
        for (auto &part : kept_[0]->parts) calls_.keep(std::move(part));
        kept_.erase(kept_.begin());
    }
    kept_.push_back(std::move(group));
}

}  // namespace vescomm::internal

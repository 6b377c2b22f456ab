// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Creations of communicators of all processes of a session.
#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "base/error.h"
#include "bootstrap/session.h"

namespace vescomm::internal {

namespace {

// Time for which a creation that was refused because of an overlap waits for the other creation.
constexpr auto max_overlap_time = std::chrono::seconds(3);
// Identifies such a failure, also on ranks to which it is reported.
constexpr std::string_view overlap_words =
    "create communicators of the same processes at the same time";

// Records that a thread creates a communicator of this rank. Returns its kind, or nothing if no
// other thread has done so. For the life of the process: a session ends with its communicators.
std::string note_creator(int rank, pid_t thread) {
    struct Creators {
        pid_t first = 0;
        bool several = false;
    };
    static std::mutex mutex;
    // Usually one. Never destroyed: other threads may create communicators while the process exits.
    static auto &by_rank = *new std::map<int, Creators>;
    const std::lock_guard lock(mutex);
    Creators &creators = by_rank[rank];
    if (creators.first == 0) creators.first = thread;
    creators.several |= creators.first != thread;
    if (!creators.several) return {};
    return thread == getpid() ? "its main thread" : "another thread than its main one";
}

}  // namespace

Session::Creation::Creation(std::string tag) : thread_(gettid()), tag_(std::move(tag)) {}

bool Session::Creation::begin(const std::shared_ptr<Session> &session, bool intact) {
    std::vector<std::shared_ptr<GroupState>> overlapping;
    {
        const std::lock_guard lock(session->mutex_);
        if (!intact && !session->creations_.contains(tag_)) return false;
        if (tag_.empty()) creator_ = note_creator(session->rank(), thread_);
        const std::uint64_t number = session->created_[tag_]++;
        id_ = derive_group(whole_session, fmt::format("all {} {}", number, tag_));
        const auto [first, last] = session->creations_.equal_range(tag_);
        for (auto each = first; each != last; ++each) {
            each->second->overlaps_ = overlaps_ = true;
            if (each->second->group_) overlapping.push_back(each->second->group_);
        }
        session->creations_.emplace(tag_, this);
        session_ = session;
    }
    for (const auto &group : overlapping) {
        try {
            check();
        } catch (const Error &error) {
            group->failure.set(error.status, error.what());
        }
    }
    return true;
}

void Session::Creation::require_same_creators(const std::vector<std::string> &creators) {
    int first = -1;
    for (int rank = 0; rank < static_cast<int>(creators.size()); ++rank) {
        const std::string &creator = creators[static_cast<std::size_t>(rank)];
        if (creator.empty()) continue;
        if (first < 0) first = rank;
        const std::string &other = creators[static_cast<std::size_t>(first)];
        if (creator != other)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        fmt::format("rank {} creates a communicator in {}, and rank {} in {}: "
                                    "threads {}; give each a tag of its own "
                                    "(vescomm_comm_options_t::tag), or create them in one thread",
                                    first, other, rank, creator, overlap_words));
    }
}

Session::Creation::~Creation() {
    if (!session_) return;
    const std::lock_guard lock(session_->mutex_);
    std::erase_if(session_->creations_, [this](const auto &each) { return each.second == this; });
}

void Session::Creation::check() const {
    const std::lock_guard lock(session_->mutex_);
    if (!overlaps_) return;
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                fmt::format("two threads of rank {} {}{}; give each a tag of its own "
                            "(vescomm_comm_options_t::tag), or create them one after the other",
                            session_->rank(), overlap_words,
                            tag_.empty() ? std::string() : " with the tag \"" + tag_ + "\""));
}

bool Session::Creation::overlapped(const Error &error) {
    return error.status == VESCOMM_ERROR_INVALID_ARGUMENT &&
           std::string_view(error.what()).find(overlap_words) != std::string_view::npos;
}

void Session::Creation::wait_for_the_other() const {
    std::unique_lock lock(session_->mutex_);
    std::uint64_t &refused = session_->refused_[tag_];
    ++refused;
    session_->changed_.notify_all();
    session_->changed_.wait_for(lock, max_overlap_time, [&] { return refused % 2 == 0; });
}

}  // namespace vescomm::internal

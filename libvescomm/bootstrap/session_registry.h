// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.h"

namespace vescomm::internal {

// The sessions of this process by key. One thread makes the session of a key; the others that need
// it wait until it is made. Does not keep sessions alive.
//
// Threads: safe. A session may be destroyed in any call, but never under the lock, because its
// destructor waits for other processes.
template <typename Session>
class SessionRegistry {
public:
    // Returns the session of the key if `use(session)` returns true. Returns null if the caller
    // must make the session, and then call made(). Returns nothing after the deadline.
    template <typename Use>
    std::optional<std::shared_ptr<Session>> find_or_begin(const std::string &key, Deadline deadline,
                                                          const Use &use) {
        std::unique_lock lock(mutex_);
        for (;;) {
            if (!entries_[key].making) {
                const std::weak_ptr<Session> tried = entries_[key].session;
                lock.unlock();
                std::shared_ptr<Session> session = tried.lock();
                if (session && use(session)) return session;
                session.reset();
                lock.lock();
                Entry &entry = entries_[key];
                if (!entry.making && same(entry.session, tried)) {
                    entry.making = true;
                    return nullptr;
                }
                // Another thread has begun or made a session in the meantime.
                continue;
            }
            if (changed_.wait_until(lock, deadline.moment()) == std::cv_status::timeout)
                return std::nullopt;
        }
    }

    // Ends what find_or_begin() began. Null: there is no session.
    void made(const std::string &key, const std::shared_ptr<Session> &session) {
        const std::lock_guard lock(mutex_);
        std::erase_if(entries_, [](const auto &each) {
            return !each.second.making && each.second.session.expired();
        });
        if (session) entries_[key] = {session, false};
        else entries_.erase(key);
        changed_.notify_all();
    }

private:
    struct Entry {
        std::weak_ptr<Session> session;
        bool making = false;
    };

    static bool same(const std::weak_ptr<Session> &a, const std::weak_ptr<Session> &b) {
        return !a.owner_before(b) && !b.owner_before(a);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Entry> entries_;
};

}  // namespace vescomm::internal

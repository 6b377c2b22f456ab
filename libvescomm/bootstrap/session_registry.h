// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/interrupt.h"

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
    // must make the session, and then call made(). Returns nothing after the deadline, or if the
    // program ends the wait (base/interrupt.h). The deadline moves while this process does not run.
    // A caller that waits for another thread to make the session gets it by `adopt(session)`, which
    // made() calls under the lock: the thread that made it does nothing with it before.
    template <typename Use, typename Adopt = void (*)(const std::shared_ptr<Session> &)>
    std::optional<std::shared_ptr<Session>> find_or_begin(
        const std::string &key, Deadline deadline, const Use &use,
        const Adopt &adopt = [](const std::shared_ptr<Session> &) {}) {
        std::unique_lock lock(mutex_);
        for (;;) {
            if (entries_[key].making) {
                Waiter waiter{.adopt = adopt};
                entries_[key].waiters.push_back(&waiter);
                LoopDeadline limit(deadline, Clock::now());
                while (!changed_.wait_until(lock, next_interrupt(limit.limit().moment()),
                                            [&] { return waiter.done; })) {
                    lock.unlock();
                    limit.look(Clock::now());
                    const bool end = limit.expired() || interrupted();
                    lock.lock();
                    if (!end || waiter.done) continue;
                    std::erase(entries_[key].waiters, &waiter);
                    return std::nullopt;
                }
                if (waiter.session) return std::move(waiter.session);
                continue;
            }
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
        }
    }

    // Ends what find_or_begin() began. Null: there is no session.
    void made(const std::string &key, const std::shared_ptr<Session> &session) {
        const std::lock_guard lock(mutex_);
        for (Waiter *waiter : std::exchange(entries_[key].waiters, {})) {
            waiter->done = true;
            if (!session) continue;
            try {
                waiter->adopt(session);
                waiter->session = session;
            } catch (const std::bad_alloc &) {
                // The waiter finds the session itself.
            }
        }
        std::erase_if(entries_, [](const auto &each) {
            return !each.second.making && each.second.session.expired();
        });
        if (session) entries_[key] = {.session = session};
        else entries_.erase(key);
        changed_.notify_all();
    }

    // The number of threads that wait for the session of the key.
    std::size_t waiting(const std::string &key) {
        const std::lock_guard lock(mutex_);
        const auto entry = entries_.find(key);
        return entry == entries_.end() ? 0 : entry->second.waiters.size();
    }

private:
    struct Waiter {
        std::function<void(const std::shared_ptr<Session> &)> adopt;
        // Set by made().
        std::shared_ptr<Session> session = nullptr;
        bool done = false;
    };
    struct Entry {
        std::weak_ptr<Session> session = {};
        bool making = false;
        std::vector<Waiter *> waiters = {};
    };

    static bool same(const std::weak_ptr<Session> &a, const std::weak_ptr<Session> &b) {
        return !a.owner_before(b) && !b.owner_before(a);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Entry> entries_;
};

}  // namespace vescomm::internal

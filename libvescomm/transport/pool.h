// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>

namespace vescomm {

// Things of one kind that are taken and given back all the time, at addresses that stay. Memory is
// asked of the system only when more are out than ever before, and kept until the end.
//
// Thing: has a member `Thing *next`, which links it while it is not taken.
template <typename Thing>
class Pool {
public:
    // With whatever its last user left in it. nullptr: there is no memory.
    Thing *take() noexcept {
        if (free_ == nullptr) {
            try {
                return &all_.emplace_back();
            } catch (...) {
                return nullptr;
            }
        }
        Thing *thing = free_;
        free_ = thing->next;
        thing->next = nullptr;
        return thing;
    }

    void give_back(Thing *thing) noexcept {
        thing->next = free_;
        free_ = thing;
    }

    // Visits what was ever taken, whether it is at the moment or not.
    template <typename Visit>
    void for_each(Visit visit) {
        for (Thing &thing : all_) visit(thing);
    }

private:
    std::deque<Thing> all_;
    Thing *free_ = nullptr;
};

}  // namespace vescomm

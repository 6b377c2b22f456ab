// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>

namespace vescomm::internal {

// Objects of one kind that are taken and given back often, at stable addresses. Memory is allocated
// only when more objects are in use than ever before, and is kept until the end.
//
// Thing: has a member `Thing *next`, which links it while it is not taken.
template <typename Thing>
class FreeList {
public:
    // Returns an object in the state in which its last user left it, or nullptr if memory ran out.
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

    // Visits every object that was ever taken, in use or not.
    template <typename Visit>
    void for_each(Visit visit) {
        for (Thing &thing : all_) visit(thing);
    }

private:
    std::deque<Thing> all_;
    Thing *free_ = nullptr;
};

}  // namespace vescomm::internal

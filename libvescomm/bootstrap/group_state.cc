// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/group_state.h"

#include <algorithm>
#include <utility>

namespace vescomm::internal {

namespace {

constexpr std::size_t max_notes = 1024;

}  // namespace

bool WaitingNotes::put(int from, std::string bytes) {
    const std::lock_guard lock(mutex_);
    if (notes_.size() == max_notes) return false;
    notes_.emplace_back(from, std::move(bytes));
    any_ = true;
    return true;
}

std::vector<std::pair<int, std::string>> WaitingNotes::take() {
    const std::lock_guard lock(mutex_);
    any_ = false;
    return std::exchange(notes_, {});
}

void GroupState::changed(std::unique_lock<std::mutex> lock) {
    ++reports_;
    changed_.notify_all();
    lock.unlock();
    const std::lock_guard call_lock(call_mutex_);
    if (call_) call_();
}

void GroupState::report_opened(std::uint32_t number) {
    std::unique_lock lock(mutex_);
    number_ = number;
    changed(std::move(lock));
}

void GroupState::report_answer(std::vector<std::string> contributions) {
    std::unique_lock lock(mutex_);
    answer_ = std::move(contributions);
    changed(std::move(lock));
}

void GroupState::report_left(int which) {
    std::unique_lock lock(mutex_);
    left_[static_cast<std::size_t>(which)] = true;
    changed(std::move(lock));
}

void GroupState::report_all_left() {
    std::unique_lock lock(mutex_);
    all_left_ = true;
    changed(std::move(lock));
}

void GroupState::report_note(int which, std::string bytes) {
    if (notes_.put(which, std::move(bytes))) wake();
}

void GroupState::wake() {
    changed(std::unique_lock(mutex_));
}

bool GroupState::opened() const {
    const std::lock_guard lock(mutex_);
    return number_.has_value();
}

std::uint32_t GroupState::number() const {
    const std::lock_guard lock(mutex_);
    return number_.value_or(0);
}

bool GroupState::all_left() const {
    const std::lock_guard lock(mutex_);
    return all_left_;
}

bool GroupState::has_left(int which) const {
    const std::lock_guard lock(mutex_);
    return left_[static_cast<std::size_t>(which)];
}

bool GroupState::any_has_left() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(left_, true) != left_.end();
}

std::optional<std::vector<std::string>> GroupState::take_answer() {
    const std::lock_guard lock(mutex_);
    auto answer = std::move(answer_);
    answer_.reset();
    return answer;
}

std::uint64_t GroupState::reports() const {
    const std::lock_guard lock(mutex_);
    return reports_;
}

void GroupState::wait(std::uint64_t seen, Clock::time_point until) const {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return reports_ != seen; });
}

void GroupState::on_event(std::function<void()> call) {
    const std::lock_guard lock(call_mutex_);
    call_ = std::move(call);
}

}  // namespace vescomm::internal

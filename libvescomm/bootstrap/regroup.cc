// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/regroup.h"

#include <fmt/format.h>

#include <algorithm>

namespace vescomm::internal {

namespace {

// Interval at which the leader checks whether members that have not come still exist.
constexpr auto ask_period = std::chrono::milliseconds(50);
// A member whose operating system does not answer for so long is gone.
constexpr auto max_connect_time = std::chrono::seconds(5);
// So is one whose process does not prove for so long that it knows the secret. It may be suspended.
// If its connection has ended, the port is probably another process's by now. The time is that of
// a silence after which a process with a connection is gone.
constexpr auto max_answer_time_connected = std::chrono::seconds(60);
constexpr auto max_answer_time_lost = std::chrono::seconds(10);
// Time after which a member comes again to a leader that has refused it.
constexpr auto retry_pause = std::chrono::milliseconds(5);

// Limit of the members in a note.
constexpr std::size_t max_noted = 16;

std::string absence_text(const std::vector<int> &members, bool gave_up, double waited_seconds) {
    if (gave_up)
        return fmt::format(
            "{} gave up the shrinking of the communicator before all had come; call "
            "it on all ranks at about the same time",
            list_ranks(members));
    const bool one = members.size() == 1;
    return fmt::format(
        "{} did not take part in the shrinking of the communicator within {:.1f} s; see what {} "
        "instead, or name {} as failed",
        list_ranks(members), waited_seconds, one ? "it does" : "they do", one ? "it" : "them");
}

}  // namespace

Regroup::Regroup(Network &network, SessionCore &core, const GroupId &group, int rank,
                 const std::vector<SurvivorListener> &listeners, const std::set<int> &gone,
                 const std::set<int> &excluded, Events events)
    : network_(network), core_(core), group_(group), rank_(rank), events_(std::move(events)) {
    for (const SurvivorListener &listener : listeners) {
        const int member = static_cast<int>(members_.size());
        const bool is_excluded = excluded.contains(member);
        members_.push_back({.address = listener.address,
                            .secret = secret_of_listener(core.options().secret, listener.number),
                            .gone = is_excluded || gone.contains(member),
                            .excluded = is_excluded});
    }
}

Regroup::~Regroup() {
    *alive_ = false;
    core_.on_survivor({});
}

int Regroup::leader() const {
    const auto first = std::ranges::find(members_, false, &Member::gone);
    return static_cast<int>(first - members_.begin());
}

bool Regroup::is_missing(int member) const {
    return member != rank_ && !members_[static_cast<std::size_t>(member)].gone && !has_come(member);
}

Clock::duration Regroup::max_answer_time(int member) const {
    return events_.lost(member) ? max_answer_time_lost : max_answer_time_connected;
}

void Regroup::schedule(std::function<void()> call, Clock::duration in) {
    timer_ = network_.at(network_.now() + in, std::move(call));
}

void Regroup::begin() {
    if (over_) return;
    if (leader() == rank_) return lead();
    follow();
}

// True for a list of survivors that this process can be one of. A leader that takes a live member
// for dead, and then dies itself, leaves members with different lists.
bool Regroup::possible(const std::vector<int> &survivors) const {
    const bool ascending =
        std::ranges::adjacent_find(survivors, std::ranges::greater_equal()) == survivors.end();
    return ascending && std::ranges::binary_search(survivors, rank_) &&
           std::ranges::none_of(survivors, [this](int member) {
               return member < 0 || member >= static_cast<int>(members_.size()) ||
                      members_[static_cast<std::size_t>(member)].excluded;
           });
}

void Regroup::fail(const Error &error) {
    if (std::exchange(over_, true)) return;
    events_.failed(error);
}

// ---- a member that does not lead ----

void Regroup::follow() {
    const int member = leader();
    Member &its = members_[static_cast<std::size_t>(member)];
    const Claim claim{.purpose = Claim::Purpose::regroup,
                      .group = group_,
                      .rank = static_cast<std::uint32_t>(rank_),
                      .ranks = static_cast<std::uint32_t>(members_.size()),
                      .port = 0,
                      .build = core_.options().build};
    // search_ is replaced from within its own callback, so the old search is destroyed later.
    network_.post([ended = std::shared_ptr<HubSearch>(std::move(search_))] {});
    search_ = std::make_unique<HubSearch>(
        network_, std::vector{its.address}, its.secret, claim,
        HubSearch::Limits{.once = true, .answer = max_answer_time(member)},
        HubSearch::Events{
            [this, member](HubSearch::Found found) {
                Result result;
                WireReader reader(found.welcome);
                while (reader.good() && !reader.rest().empty())
                    result.survivors.push_back(static_cast<int>(reader.number<std::uint32_t>()));
                if (!reader.good() || !possible(result.survivors))
                    return fail(Error(VESCOMM_ERROR_MISMATCH,
                                      fmt::format("rank {} counts other survivors than rank {} "
                                                  "knows; create the communicator again",
                                                  member, rank_)));
                if (std::exchange(over_, true)) return;
                result.leader.emplace(std::move(found));
                events_.done(std::move(result));
            },
            [this, &its](const Error &error) {
                if (error.status != VESCOMM_ERROR_PEER_FAILED) return fail(error);
                // The leader lives. A member died that it had counted as a survivor,
                // and it will count again.
                if (search_->refused()) return schedule([this] { begin(); }, retry_pause);
                // The member is gone, or ended while this process waited: the next
                // member leads.
                its.gone = true;
                begin();
            },
            [this](const Stream &stream) { return events_.listen(stream); }});
    look_again();
}

// The search abandons a member that does not answer.
void Regroup::look_again() {
    if (over_) return;
    const auto searching = search_.get();
    const Clock::time_point next = search_->tick();
    // The search may have ended meanwhile, and this process may lead now.
    if (search_.get() == searching && leader() != rank_)
        schedule([this] { look_again(); }, next - network_.now());
}

// ---- the leader ----

bool Regroup::has_come(int member) const {
    return members_[static_cast<std::size_t>(member)].here;
}

void Regroup::look_who_is_here() {
    for (Member &each : members_) each.here = false;
    for (const SessionCore::Survivor &each : core_.survivors())
        if (each.claim.group == group_ && each.claim.rank < members_.size())
            members_[each.claim.rank].here = members_[each.claim.rank].came = true;
}

void Regroup::lead() {
    if (over_) return;
    core_.on_survivor([this] {
        look_who_is_here();
        decide();
    });
    // Time in which this process itself did not run does not count.
    if (network_.now() - led_at_ > max_connect_time / 2)
        for (Member &each : members_) each.asked.reset();
    led_at_ = network_.now();
    look_who_is_here();
    for (int member = 0; member < static_cast<int>(members_.size()); ++member) {
        Member &its = members_[static_cast<std::size_t>(member)];
        if (is_missing(member)) {
            ask(member);
        } else if (has_come(member)) {
            its.asked.reset();  // if it goes and comes back, it has the whole time again
            its.listens = false;
        }
    }
    schedule([this] { lead(); }, ask_period);
    decide();
    if (!over_) notify();
}

Regroup::Awaited Regroup::awaited() const {
    std::vector<int> absent, gave_up;
    for (int member = 0; member < static_cast<int>(members_.size()); ++member)
        if (is_missing(member))
            (members_[static_cast<std::size_t>(member)].came ? gave_up : absent).push_back(member);
    const bool none = absent.empty();
    return {.members = std::move(none ? gave_up : absent), .gave_up = none};
}

// Notifies the members that have come of some for which the leader waits: their deadlines may pass
// first.
void Regroup::notify() {
    const Awaited all = awaited();
    std::string note;
    note.push_back(all.gave_up ? '\1' : '\0');
    for (std::size_t i = 0; i < std::min(all.members.size(), max_noted); ++i)
        put_number(note, static_cast<std::uint32_t>(all.members[i]));
    for (SessionCore::Survivor &each : core_.survivors()) {
        if (each.claim.group != group_ || each.note == note) continue;
        each.note = note;
        each.link->send(FrameType::note, note);
    }
}

void Regroup::ask(int number) {
    Member &member = members_[static_cast<std::size_t>(number)];
    if (!member.asked) member.asked = network_.now();
    member.listens = member.listens || (member.probe && member.probe->connected());
    const Clock::duration limit = member.listens ? max_answer_time(number) : max_connect_time;
    if (network_.now() - *member.asked >= limit) {
        member.probe.reset();
        member.gone = true;
        return;
    }
    if (member.probe) return;
    const auto answered = [this, &member](MemberProbe::Answer answer) {
        member.listens = member.probe->connected() && answer == MemberProbe::Answer::none;
        member.probe.reset();
        if (answer == MemberProbe::Answer::alive) member.asked = network_.now();
        if (answer != MemberProbe::Answer::gone) return;
        member.gone = true;
        decide();
    };
    member.probe = std::make_unique<MemberProbe>(network_, member.address, member.secret, answered);
}

void Regroup::decide() {
    if (over_) return;
    Result result;
    for (int member = 0; member < static_cast<int>(members_.size()); ++member) {
        if (members_[static_cast<std::size_t>(member)].excluded) continue;
        if (is_missing(member)) return;
        if (member == rank_ || has_come(member)) result.survivors.push_back(member);
    }
    over_ = true;
    for (const int survivor : result.survivors)
        put_number(result.welcome, static_cast<std::uint32_t>(survivor));
    auto &waiting = core_.survivors();
    for (auto each = waiting.begin(); each != waiting.end();) {
        if (each->claim.group != group_) {
            ++each;
            continue;
        }
        const int member = static_cast<int>(each->claim.rank);
        const auto place = std::ranges::lower_bound(result.survivors, member);
        if (place == result.survivors.end() || *place != member) {
            each->link->send(FrameType::failure,
                             failure_payload(whole_session, VESCOMM_ERROR_MISMATCH,
                                             fmt::format("rank {} was named as failed when the "
                                                         "communicator was shrunk, and takes no "
                                                         "part in the new one",
                                                         member)));
            each->link->finish();
            ++each;
            continue;
        }
        each->claim.rank = static_cast<std::uint32_t>(place - result.survivors.begin());
        each->claim.ranks = static_cast<std::uint32_t>(result.survivors.size());
        result.followers.push_back(std::move(*each));
        each = waiting.erase(each);
    }
    // Posted, because decide() runs within callbacks of the objects that done() takes over.
    network_.post([this, alive = alive_, shared = std::make_shared<Result>(std::move(result))] {
        if (*alive) events_.done(std::move(*shared));
    });
}

// The note of the leader, decoded. No members: it has sent none, or nonsense.
Regroup::Awaited Regroup::noted() const {
    const std::string note = search_ ? search_->note() : std::string();
    if (note.empty() || note.size() > 1 + max_noted * sizeof(std::uint32_t)) return {};
    Awaited all{.members = {}, .gave_up = note[0] != '\0'};
    WireReader reader(std::string_view(note).substr(1));
    while (reader.good() && !reader.rest().empty()) {
        const auto member = static_cast<std::int64_t>(reader.number<std::uint32_t>());
        const bool ascends = all.members.empty() || member > all.members.back();
        if (!reader.good() || !ascends || member >= static_cast<std::int64_t>(members_.size()) ||
            member == rank_)
            return {};
        all.members.push_back(static_cast<int>(member));
    }
    return all;
}

std::string Regroup::expire(double waited_seconds) {
    over_ = true;
    if (leader() != rank_) {
        const Awaited all = noted();
        if (all.members.empty()) return absence_text({leader()}, false, waited_seconds);
        return absence_text(all.members, all.gave_up, waited_seconds);
    }
    const Awaited all = awaited();
    const std::string why = absence_text(all.members, all.gave_up, waited_seconds);
    for (SessionCore::Survivor &each : core_.survivors()) {
        if (each.claim.group != group_) continue;
        each.link->send(FrameType::failure,
                        failure_payload(whole_session, VESCOMM_ERROR_TIMEOUT, why));
        each.link->finish();
    }
    return why;
}

}  // namespace vescomm::internal

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
#   tests/ci.sh    in addition to ./test.sh: a part of the default suite with ASan and UBSan, a part
#                  with TSan, and the fuzz targets, each in a separate folder
#
# VESCOMM_CI_MINUTES (default 24) is the time limit, for a fresh clone on two cores. Steps that do not
# fit are skipped with a message. `SANITIZE=... ./test.sh` runs whole suites with sanitizers,
# `tests/fuzz.sh` fuzzes for longer.
set -euo pipefail
cd "$(dirname "$0")/.."
. ./tests/setup.sh

minutes=${VESCOMM_CI_MINUTES:-24}
begun=$SECONDS
status=0 all_passed=0 all_failed=0 all_skipped=0

# Tests of parsers, protocols and data movement. A name without a test is a failure.
with_address=(
    frame launch control_simulation regroup_simulation session session_death session_hostile
    tcp puts shared_memory ucx
    groups peer_info leaving machine_exchange recycling registered_arrays
    arrays_wrong repeated_calls exchange_fuzz messages_wrong mixed
    flight_recorder flight_report layout
)
# Tests of objects that several threads of one process share.
with_thread=(
    biased_lock failure_value session session_death session_hostile
    tcp puts shared_memory ucx
    groups shared_connections interleavings leaving recorder advertise registered_arrays
    exchange_fuzz threads waits
    flight_recorder log metrics observe_file trace
)
# GCC takes longer to build: only tests of code that reads untrusted bytes.
with_gcc=(frame launch session_hostile tcp)
# Tests of libraries that may be missing.
optional=(ucx)

seconds_left() { echo $((minutes * 60 - (SECONDS - begun))); }

# step SECONDS_IT_MAY_TAKE NAME COMMAND...
step() {
    local needed=$1 name=$2 start=$SECONDS
    shift 2
    if [ "$(seconds_left)" -lt "$needed" ]; then
        say "$name: skipped, $(seconds_left) s are left of $minutes minutes, and it may take $needed s"
        return 0
    fi
    say "$name"
    if ! "$@"; then
        echo "failed: $name" >&2
        status=1
    fi
    say "$name took $((SECONDS - start)) s"
}

add_counts() {
    all_passed=$((all_passed + passed))
    all_failed=$((all_failed + failed))
    all_skipped=$((all_skipped + skipped))
}

# tests_in FOLDER NAME...: builds and runs these tests.
tests_in() {
    local folder=$1 result=0 name target targets there=() built=()
    shift
    targets=$(ninja -C "$folder" -t targets all | sed -n 's|^\(tests/.*\): .*|\1|p')
    for name in "$@"; do
        target=$(grep -E "^tests/([^.]*/)?test_$name\$" <<<"$targets") || target=
        if [ -n "$target" ]; then
            there+=("$name")
            built+=("$target")
        elif [[ " ${optional[*]} " != *" $name "* ]]; then
            echo "there is no test $name: correct the lists in tests/ci.sh" >&2
            all_failed=$((all_failed + 1))
            result=1
        fi
    done
    build "$folder" "${built[@]}" || {
        all_failed=$((all_failed + ${#there[@]}))
        return 1
    }
    run_tests "$folder" "${there[@]}" || result=1
    add_counts
    return "$result"
}

# With clang, the fuzzing build has ASan and UBSan, and takes a third of GCC's time.
address_tests() {
    if ./tests/fuzz.sh --build; then
        tests_in build-fuzz "${with_address[@]}"
        return
    fi
    configure build-address-undefined -Dtests=enabled -Db_sanitize=address,undefined \
        -Db_lundef=false -Ddebug=true -Doptimization=1 -Db_ndebug=false
    tests_in build-address-undefined "${with_gcc[@]}"
}

fuzz_targets() {
    [ -f build-fuzz/build.ninja ] || return 0  # no libFuzzer: ./test.sh runs corpora and mutations
    local count seconds
    count=$(./tests/fuzz.sh --list | wc -l)
    seconds=$((($(seconds_left) - 30) * $(nproc) / count))
    [ "$seconds" -le 60 ] || seconds=60
    [ "$seconds" -ge 3 ] || seconds=3
    if ./tests/fuzz.sh "$seconds"; then passed=$count failed=0 skipped=0
    else passed=$((count - 1)) failed=1 skipped=0; fi
    add_counts
    [ "$failed" -eq 0 ]
}

thread_tests() {
    # Little optimisation and few debug symbols: half the time to compile.
    configure build-thread -Dtests=enabled -Db_sanitize=thread -Db_lundef=false \
        -Ddebug=true -Doptimization=1 -Db_ndebug=false -Dcpp_args=-g1 -Dc_args=-g1
    tests_in build-thread "${with_thread[@]}"
}

step 300 "with ASan and UBSan" address_tests
step 300 "with TSan" thread_tests
step 90 "fuzz targets" fuzz_targets
say "$((SECONDS - begun)) s in all"
echo "$all_passed passed, $all_failed failed, $all_skipped skipped"
exit "$status"

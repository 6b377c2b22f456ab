#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
#   tests/coverage.sh [PERCENT]    line coverage of the control plane and of all parsers by the tests
#                                  and the corpora of the fuzz targets: for each file, with the lines
#                                  that are not covered, and in total
#
# Builds in build-coverage/ and runs the tests that are named below. The exit status is 1 if the total
# is below PERCENT (default 95).
set -euo pipefail
cd "$(dirname "$0")/.."
. ./tests/setup.sh

folder=build-coverage
percent=${1:-95}

# Code that reads untrusted bytes.
measured=(
    'libvescomm/bootstrap/.*'
    'libvescomm/comm/(peer_info|invitation|machine_exchange|missing_ranks)\.(cc|h)'
    'libvescomm/config/.*'
    'libvescomm/layout/layout_bytes\.cc'
    'libvescomm/observe/log\.cc'
    'libvescomm/schedule/forced\.cc'
    'libvescomm/tools/flight_report\.cc'
    'libvescomm/topology/(cores|machine_file)\.cc'
    'libvescomm/transport/(memory_offer|put_batch|received_signals|checksummed)\.(cc|h)'
    'libvescomm/transport/(tcp_(handshake|inbox|receiver|wire)|ucx_(inbox|wire))\.(cc|h)'
    'planner/formats/.*'
    'fsdp/checkpoint/(catalogue|data_file|index|json_reader|manifest)\.cc'
    'planner/input/.*'
)
# Tests that cover this code, in addition to the suites bootstrap and fuzz.
tests=(
    config peer_info missing_ranks log machine_file machine_exchange layout cores flight_report schedule_forced
    planner_input planner_input_fuzz ucx tcp puts checkpoint
)
# Tests of programs, and the programs.
program_tests=(vescomm_info vescomm_plan)
programs=(libvescomm/tools/vescomm-info libvescomm/tools/vescomm-run planner/tools/vescomm-plan)

install_packages
install_packages gcovr
# Threads count too, and their counts must not be lost.
configure "$folder" -Dtests=enabled -Db_coverage=true --buildtype=debug -Db_ndebug=false \
    -Dcpp_args=-fprofile-update=atomic -Dc_args=-fprofile-update=atomic \
    -Dexamples=disabled -Dz3=disabled
mapfile -t bootstrap < <(meson test -C "$folder" --list --suite bootstrap 2>/dev/null |
    sed -n 's/.* \/ //p')
chosen=()
chosen_programs=()
for name in "${tests[@]}" "${bootstrap[@]}"; do
    # Some tests exist only if their libraries are installed.
    for program in tests/{,bootstrap/,fsdp/}"test_$name"; do
        if ninja -C "$folder" -t query "$program" >/dev/null 2>&1; then
            chosen+=("$name")
            chosen_programs+=("$program")
        fi
    done
done
# vescomm_info loads the test double of CUDA and NCCL.
mapfile -t double < <(ninja -C "$folder" -t targets all | sed -n 's|^\(tests/gpu/double/lib[^:]*\.so[.0-9]*\): .*|\1|p')
build "$folder" fuzz_targets "${double[@]}" "${programs[@]}" "${chosen_programs[@]}"

# Without optimisation the simulations take ten times longer: a part of their seeds.
export VESCOMM_TEST_SEEDS=500

# Remove the counts of earlier runs.
find "$folder" -name '*.gcda' -delete
meson test -C "$folder" --no-rebuild --print-errorlogs "${chosen[@]}" "${program_tests[@]}"
meson test -C "$folder" --no-rebuild --print-errorlogs --suite fuzz

gcovr --root . --gcov-ignore-parse-errors --object-directory "$folder" --exclude-throw-branches \
    "${measured[@]/#/--filter=}" --txt "$folder/coverage.txt" --fail-under-line "$percent" \
    "$folder" 2>"$folder/gcovr.log" && status=0 || status=$?
cat "$folder/coverage.txt"
if [ "$status" -ne 0 ]; then
    tail -n 3 "$folder/gcovr.log" >&2
    echo "line coverage is below $percent %" >&2
    exit 1
fi

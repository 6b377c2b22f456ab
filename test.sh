#!/usr/bin/env bash
# Installs what is missing, builds, and runs all default tests. Arguments go to `meson test`
# (./test.sh --suite schedule; ./test.sh --list). SANITIZE=address,undefined or SANITIZE=thread builds
# and tests with those sanitizers, in a folder of their own.
set -euo pipefail
cd "$(dirname "$0")"
. ./tests/setup.sh

install_packages
build=build
options=()
if [ -n "${SANITIZE:-}" ]; then
    build="build-${SANITIZE//,/-}"
    options=(-Db_sanitize="$SANITIZE" -Db_lundef=false --buildtype=debugoptimized)
fi
configure "$build" -Dwerror=true -Dtests=enabled "${options[@]}"
build_all "$build"

report="$build/meson-logs/summary.txt"
status=0
# Suite slow is for nights, suite gpu for machines that have one: name them to run them.
if [ $# -eq 0 ]; then set -- --no-suite slow --no-suite gpu; fi
meson test -C "$build" --no-rebuild --print-errorlogs "$@" 2>&1 | tee "$report" || status=$?
number() { awk -v key="$1" '$1 == key":" || ($1" "$2) == key":" {n = $NF} END {print n + 0}' "$report"; }
passed=$(($(number Ok) + $(number "Expected Fail")))
failed=$(($(number Fail) + $(number "Unexpected Pass") + $(number Timeout)))
case " $* " in *" --list "*) exit "$status" ;; esac
if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then
    echo "no test was run: see $report" >&2
    exit 1
fi
echo "$passed passed, $failed failed, $(number Skipped) skipped"
exit "$status"

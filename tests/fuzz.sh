#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
#   tests/fuzz.sh [SECONDS [TARGET...]]   runs fuzz targets (default: all of them) with libFuzzer,
#                                         ASan and UBSan, for SECONDS each (default 60)
#   tests/fuzz.sh --list                  names the targets
#   tests/fuzz.sh --build                 only builds; status 1 without libFuzzer
#   tests/fuzz.sh --seeds                 writes the seeds of all targets into the corpora
#   tests/fuzz.sh --merge [TARGET...]     adds inputs of earlier runs to the corpora, if they reach
#                                         code that no other input of the corpus reaches
#
# Builds in build-fuzz/ with clang 14, whose packages it installs on Debian 12. If that is not
# possible, the targets run without libFuzzer, on their corpora and mutations of them, as in the
# default suite. Inputs that fail are in build-fuzz/failures/, and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. ./tests/setup.sh

folder=build-fuzz
corpora=tests/fuzz/corpus
failures=$folder/failures
# Limits of the corpora in the repository: the length of an input, and the number of inputs of a target
# in addition to its seeds.
max_corpus_bytes=512
max_corpus_inputs=40

# The rows of the table in meson.build.
targets() { sed -n "s/^ *\['\([a-z_]*\)', \[.*/\1/p" tests/fuzz/meson.build; }

has_libfuzzer() {
    command -v clang++-14 >/dev/null || return 1
    local probe
    probe=$(mktemp -d)
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char *, unsigned long) { return 0; }' \
        >"$probe/probe.cc"
    local status=0
    clang++-14 -fsanitize=fuzzer,address "$probe/probe.cc" -o "$probe/probe" 2>/dev/null || status=1
    rm -rf "$probe"
    return "$status"
}

get_libfuzzer() {
    has_libfuzzer && return
    (install_packages clang-14 libclang-rt-14-dev) || true
    has_libfuzzer
}

# Without precompiled headers: a file that uses what it does not include is found here.
build_with_libfuzzer() {
    CC=clang-14 CXX=clang++-14 configure "$folder" -Dtests=enabled -Dlibfuzzer=true \
        -Db_sanitize=address,undefined -Db_lundef=false -Ddebug=true \
        -Db_ndebug=false -Db_pch=false -Dexamples=disabled -Dz3=disabled \
        "-Dcpp_args=['-fsanitize=fuzzer-no-link', '-fno-sanitize-recover=undefined']"
    build "$folder" fuzz_targets
}

build_without_libfuzzer() {
    configure build -Dtests=enabled
    build build fuzz_targets
}

# run_target NAME SECONDS: prints one line, or everything when an input fails.
run_target() {
    local name=$1 seconds=$2 log=$folder/fuzz-$1.log status=0
    mkdir -p "$folder/corpus/$name" "$failures"
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 VESCOMM_MACHINE=defaults \
        "$folder/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=60 \
        -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1 -use_value_profile=1 \
        -artifact_prefix="$failures/$name-" "$folder/corpus/$name" "$corpora/$name" \
        >"$log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        printf '%-16s %s inputs\n' "$name" \
            "$(awk '/stat::number_of_executed_units/ {print $2}' "$log")"
        return 0
    fi
    tail -n 60 "$log" >&2
    local input
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "fuzz target $name failed with the input $input" >&2
    echo "reproduce with: $folder/tests/fuzz/fuzz_$name $input" >&2
    echo "or, without clang: ninja -C build fuzz_targets && build/tests/fuzz/fuzz_$name $input" >&2
    echo "once it is fixed, add the input to $corpora/$name/" >&2
    return 1
}

fuzz() {
    local seconds=$1
    shift
    if ! get_libfuzzer; then
        echo "clang 14 with libFuzzer cannot be installed here: the targets run on their corpora" \
            "and on mutations of them instead" >&2
        build_without_libfuzzer
        exec meson test -C build --no-rebuild --print-errorlogs --suite fuzz
    fi
    build_with_libfuzzer
    say "fuzzing $# targets for $seconds s each, $(nproc) at a time"
    export -f run_target
    export folder failures corpora
    local status=0
    printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c 'run_target "$1" "$2" || exit 1' \
        _ '{}' "$seconds" || status=1
    [ "$status" -eq 0 ] && echo "no input failed"
    return "$status"
}

write_seeds() {
    build_without_libfuzzer
    local name
    for name in $(targets); do "build/tests/fuzz/fuzz_$name" --write-seeds "$corpora/$name"; done
}

merge() {
    build_with_libfuzzer
    local name chosen input free
    for name in "$@"; do
        chosen=$folder/merged/$name
        rm -rf "$chosen"
        mkdir -p "$chosen" "$folder/corpus/$name"
        # The inputs of the corpus come first, so that an input is added only if it reaches more.
        cp "$corpora/$name"/* "$chosen/"
        "$folder/tests/fuzz/fuzz_$name" -set_cover_merge=1 -use_counters=0 \
            -max_len="$max_corpus_bytes" "$chosen" "$folder/corpus/$name" \
            >"$folder/merge-$name.log" 2>&1
        free=$((max_corpus_inputs - $(find "$corpora/$name" -type f | wc -l)))
        # The smallest first: a large input often covers only the code of several small ones.
        find "$chosen" -type f -printf '%s %f\n' | sort -n | while read -r _ input; do
            [ ! -e "$corpora/$name/$input" ] || continue
            [ "$((free--))" -gt 0 ] || break
            cp "$chosen/$input" "$corpora/$name/"
        done
        echo "$name: $(find "$corpora/$name" -type f | wc -l) inputs"
    done
}

mapfile -t all < <(targets)
case "${1:-60}" in
    --list) targets ;;
    --build)
        get_libfuzzer || exit 1
        build_with_libfuzzer
        ;;
    --seeds) write_seeds ;;
    --merge)
        shift
        [ $# -gt 0 ] || set -- "${all[@]}"
        merge "$@"
        ;;
    *[!0-9]*)
        sed -n '5,11s/^# *//p' "$0" >&2
        exit 2
        ;;
    *)
        seconds=${1:-60}
        if [ $# -gt 0 ]; then shift; fi
        [ $# -gt 0 ] || set -- "${all[@]}"
        fuzz "$seconds" "$@"
        ;;
esac

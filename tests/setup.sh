# shellcheck shell=bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# Functions of the scripts: install the packages of Debian 12 that vescomm needs, build it, and run its
# tests. Installing and building are skipped when they are up to date.

packages=(
    meson ninja-build pkg-config g++ libc6-dev
    libucx-dev libhwloc-dev libssl-dev libasio-dev libfmt-dev libxxhash-dev
    nlohmann-json3-dev libcli11-dev libdnnl-dev
    libgtest-dev librapidcheck-dev libz3-dev
    python3 python3-matplotlib iproute2
)
# Packages of tests that are skipped without them.
optional_packages=(doxygen cmake dpkg-dev help2man python3-dev python3-venv)
# Any Rust from 1.63 on will do.
command -v cargo >/dev/null || optional_packages+=(cargo)
# Packages of PyPI for the Python package and its tests.
python_packages=('nanobind>=3.1,<4' numpy ml_dtypes)
# torch, with the libraries that it brings, is 5 GB, so it is installed on request.
if [ -n "${VESCOMM_TEST_TORCH:-}" ]; then python_packages+=(torch expecttest hypothesis); fi

say() { printf '==> %s\n' "$*"; }

# install_packages PACKAGE...: installs these packages; without arguments, those of every build.
install_packages() {
    local missing=() package
    [ $# -gt 0 ] || set -- "${packages[@]}"
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "This is not Debian or Ubuntu: install these yourself, then run me again:" >&2
        echo "  ${missing[*]}" >&2
        exit 1
    fi
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Packages are missing, and you are neither root nor have sudo. As root, run:" >&2
            echo "  apt-get install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    local quiet=(env DEBIAN_FRONTEND=noninteractive)
    # The list of packages may be missing or old: update it, then install.
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" "${quiet[@]}" apt-get -qq install -y --no-install-recommends "${missing[@]}" \
        >/dev/null
}

# install_optional_packages: installs those of tests that are skipped without them. A failure is reported,
# and is not an error.
install_optional_packages() {
    (install_packages "${optional_packages[@]}") ||
        say "without ${optional_packages[*]}, the tests that need it are skipped"
}

# prepare_python FOLDER: makes a virtual environment in FOLDER with what the Python package and its tests
# need, once. Returns 1 if that is not possible; the tests of the package are skipped then.
prepare_python() {
    local folder=$1 system=/usr/bin/python3
    [ -x "$system" ] || system=python3
    if [ -f "$folder/ready" ] && [ "$(cat "$folder/ready")" = "${python_packages[*]}" ]; then return 0; fi
    say "installing ${python_packages[*]} into $folder"
    if "$system" -m venv "$folder" >"$folder.log" 2>&1 &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            "${python_packages[@]}" >>"$folder.log" 2>&1; then
        printf '%s' "${python_packages[*]}" >"$folder/ready"
        return 0
    fi
    say "without them the tests of the Python package are skipped; $folder.log has the reason"
    return 1
}

# configure FOLDER OPTION...
configure() {
    local build=$1
    shift
    # Debian's Meson needs Debian's Python; another may come first on PATH.
    if [ -f "$build/build.ninja" ]; then
        meson configure "$build" "$@" >/dev/null
    else
        say "configuring $build"
        meson setup "$build" "$@" >"/tmp/vescomm-configure.$$" 2>&1 || {
            cat "/tmp/vescomm-configure.$$" >&2
            rm -f "/tmp/vescomm-configure.$$"
            exit 1
        }
        sed -n '/Features/,$p' "/tmp/vescomm-configure.$$"
        rm -f "/tmp/vescomm-configure.$$"
    fi
}

# build FOLDER TARGET...: builds these targets; without targets, all.
build() {
    say "building $1 (a few minutes the first time)"
    # ccache takes precompiled headers only with this.
    export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
    if [ -t 1 ]; then
        ninja -C "$@"
        return
    fi
    # Without a terminal: print one line, or the errors.
    local log="$1/build.log"
    if ! ninja -C "$@" >"$log" 2>&1; then
        grep -v -E '^\[[0-9]+/[0-9]+\] ' "$log" >&2 || true
        echo "the build failed; all of its output is in $log" >&2
        return 1
    fi
    tail -n 1 "$log"
}

# run_tests FOLDER ARGUMENT...: runs `meson test`, and sets passed, failed and skipped. A run without any
# test is a failure.
run_tests() {
    local folder=$1 status=0
    local report="$folder/meson-logs/summary.txt"
    shift
    meson test -C "$folder" --no-rebuild --print-errorlogs "$@" 2>&1 | tee "$report" || status=$?
    number() {
        awk -v key="$1" '$1 == key":" || ($1" "$2) == key":" {n = $NF} END {print n + 0}' "$report"
    }
    passed=$(($(number Ok) + $(number "Expected Fail")))
    failed=$(($(number Fail) + $(number "Unexpected Pass") + $(number Timeout)))
    # The script that sources this file reads it.
    # shellcheck disable=SC2034
    skipped=$(number Skipped)
    case " $* " in *" --list "*) return "$status" ;; esac
    if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then
        echo "no test was run: see $report" >&2
        return 1
    fi
    return "$status"
}

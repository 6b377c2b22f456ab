#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs missing packages, builds, and runs all default tests. Arguments go to `meson test`
# (./test.sh --suite schedule; ./test.sh --list). SANITIZE=address,undefined or SANITIZE=thread builds
# and tests with those sanitizers, in a separate folder and with assertions, one of which checks each
# schedule that is run. VESCOMM_TEST_TORCH=1 installs torch (5 GB) for the tests that need it, in
# build-python; once installed it is used without the variable.
set -euo pipefail
cd "$(dirname "$0")"
. ./tests/setup.sh

install_packages
install_optional_packages
folder=build
options=()
if [ -n "${SANITIZE:-}" ]; then
    folder="build-${SANITIZE//,/-}"
    # Little optimisation and few debug symbols: half the time to compile.
    options=(-Db_sanitize="$SANITIZE" -Db_lundef=false -Ddebug=true
        -Doptimization=1 -Dcpp_args=-g1 -Dc_args=-g1 -Db_ndebug=false)
fi
# Python does not load libraries with sanitizers.
if [ -z "${SANITIZE:-}" ]; then
    mkdir -p build-python
    if prepare_python "$PWD/build-python/environment"; then
        options+=(-Dpython_program="$PWD/build-python/environment/bin/python")
    fi
fi
# In continuous integration nobody reads warnings: they are errors.
if [ "${CI:-}" = true ]; then options+=(-Dwerror=true); fi
configure "$folder" -Dtests=enabled "${options[@]}"
case " $* " in
    *" --list "*) ;;
    *) build "$folder" ;;
esac

# Suite slow is for nightly runs, suite gpu for machines with a GPU: name them to run them.
if [ $# -eq 0 ]; then set -- --no-suite slow --no-suite gpu; fi
# Many tests wait for deadlines: more of them than there are cores run at the same time.
status=0
run_tests "$folder" --num-processes $((($(nproc) * 3 + 1) / 2)) "$@" || status=$?
case " $* " in *" --list "*) exit "$status" ;; esac
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs missing packages, builds, and trains a small GPT on real text on four ranks. Its parameters
# are whole only while a layer computes. Arguments go to train_gpt; RANKS is the number of ranks
# (default 4).
set -euo pipefail
cd "$(dirname "$0")"
. ./tests/setup.sh

install_packages
configure build
build build libvescomm/tools/vescomm-run fsdp/examples/train_gpt/train_gpt

ranks=${RANKS:-4}
say "training on $ranks ranks"
build/libvescomm/tools/vescomm-run -n "$ranks" --no-prefix \
    build/fsdp/examples/train_gpt/train_gpt \
    --json demo-run.json --picture demo-loss.png --trace demo-run.trace.json "$@"
say "wrote demo-run.json, demo-loss.png and demo-run.trace.json (open it at ui.perfetto.dev)"

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
#
#   tests/lint.sh           checks the format and the SPDX lines of all source files, and the language
#                           of the folders that tests/lint_words.py names
#   tests/lint.sh --fix     formats all source files
#   tests/lint.sh --words   counts retired words and wrong beginnings of comments in every folder
#   tests/lint.sh --tidy    clang-tidy on the libraries and programs, with the compile commands of build/
#                           (takes minutes)
set -euo pipefail
cd "$(dirname "$0")/.."
formatter="$(command -v clang-format-14 || true)"
if [ -z "$formatter" ]; then
    echo "clang-format-14 is missing: apt-get install clang-format-14" >&2
    exit 77  # skipped, to Meson
fi
if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "this is not a clone: there is no list of files to check" >&2
    exit 77
fi
sources() { git ls-files '*.cc' '*.h' '*.hpp' '*.c' '*.cpp' '*.inl'; }

case "${1:-}" in
    --fix) sources | grep -v '^docs/' | xargs "$formatter" -i ;;
    --words) python3 tests/lint_words.py --count ;;
    --tidy)
        # Baselines are excluded: they are built only if their libraries are installed.
        sources | grep -E '^(libvescomm|planner|fsdp|perf)/.*\.cc$' | grep -v '^perf/baselines/' |
            xargs -P "$(nproc)" -n 1 clang-tidy-14 -p build --quiet --warnings-as-errors='*' 2>/dev/null
        ;;
    '')
        status=0
        # Examples are excluded: pages quote them without the SPDX lines.
        for file in $(git ls-files '*.cc' '*.h' '*.hpp' '*.c' '*.py' '*.sh' '*meson.build' \
            '*.rs' '*.toml' | grep -v -E '^(docs|bindings/rust/vescomm)/examples/'); do
            if ! head -n 4 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
                echo "$file: the SPDX lines are missing" >&2
                status=1
            fi
        done
        sources | grep -v '^docs/' | xargs "$formatter" --dry-run -Werror || status=1
        python3 tests/lint_words.py || status=1
        exit "$status"
        ;;
    *)
        sed -n '5,10s/^# *//p' "$0" >&2
        exit 2
        ;;
esac

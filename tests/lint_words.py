#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the language of names, comments and pages: docs/glossary.md has the words to use.

lint_words.py            reports retired words and wrong beginnings of comments in CHECKED
lint_words.py --count    counts both in every folder, also in folders that are not checked
lint_words.py PATH...    reports both in these files and folders
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folders and files that are checked. Add a folder when --count reports no hits in it.
CHECKED = [
    "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "demo.sh", "test.sh",
    "libvescomm", "planner", "fsdp", "bindings", "perf", "tests", "meson.build", "meson_options.txt",
]

# The glossary defines words; the changelog is history; corpora are data; this file has the list.
EXEMPT = ("docs/glossary.md", "CHANGELOG.md", "tests/fuzz/corpus/", "tests/lint_words.py")
# Single lines: a table that vescomm-info prints (its words are those of libvescomm/config), the context
# window of a model, the window of a moving average, the stages of ResNet, an attribute of torch, and
# the windows of NCCL, which are its registered memory. By file, or by the beginning of paths.
EXEMPT_LINES = {
    "libvescomm/gpu/": re.compile(r".*[Ww]indow"),
    "libvescomm/include/vescomm/gpu.h": re.compile(r".*[Ww]indow"),
    "docs/gpu.md": re.compile(r".*window"),
    "perf/implementations/device": re.compile(r".*[Ww]indow"),
    "tests/gpu/": re.compile(r".*[Ww]indow"),
    "docs/design/0027": re.compile(r".*window"),
    "docs/design/0034": re.compile(r".*window"),
    "docs/design/0045": re.compile(r".*window"),
    "docs/configuration.md": re.compile(r"\| `VESCOMM_"),
    "fsdp/examples/train_gpt/sample.cc": re.compile(r".*window"),
    "fsdp/examples/train_gpt/plot_loss.py": re.compile(r".*window"),
    "bindings/python/vescomm/torch/group.py": re.compile(r".*supports_window"),
    "tests/planner/other_models.h": re.compile(r".*stage"),
}

# Regular expressions of retired words, and the words to use. An expression matches whole words, in
# any case, also as parts of snake_case and CamelCase names.
RETIRED = {
    r"told(?! apart)|tells?(?! apart)": "advertise, notify, report",
    r"hears?|heard": "observed, received",
    r"windows?|lots?": "chunk",
    r"stages?": "staging buffer",
    r"mailbox(es)?": "point-to-point eager buffers",
    r"(takes?|taking|took) turns": "share; slot sequence number",
    r"lets? go": "release",
    r"(come|comes|came|coming)[ _]early": "eager",
    r"condemn(s|ed)?": "abort, mark failed",
    r"if_wanted": "conditional",
    r"relay(s|ed|ing)?": "forward, forwarding rank",
    r"third[ _]ranks?|other_end": "forwarding rank, final peer",
    r"lane_rank": "rail_peer",
    r"wires": "inter-node transports",
    r"seats?": "local rank",
    r"introductions?|introduce[sd]?": "peer info",
    r"make_together": "collective create",
    r"doors?|doorkeepers?": "listener",
    r"guests?": "pending connection",
    r"strangers?": "unauthenticated peer",
    r"descriptor[ _]stars?": "descriptor exchange",
    r"wish(es)?": "override",
    r"provers?": "schedule checker",
    r"(?<!at_)(most|least)_(?!common_)[a-z0-9_]+": "max_, min_",
    r"so many": "the number",
    r"deal(s|t)? out": "cyclic placement, distribute",
    r"pretend(s|ed|ing)?": "emulated",
    r"rooms?": "capacity, space; folder",
    r"whoever|himself": "the rank, it",
    r"who (is|are|comes?|takes?|waits?|sends?|connected)": "which ranks, which process",
    r"seal_up|break_seal|open_sealed": "add a checksum, verify a checksum",
    r"homes": "places",
    r"as many elements|(the )?same form": "the number, the size; the equal properties themselves",
    r"wants|want (at|to)": "requires, needs",
}

# A comment names its subject first.
WRONG_BEGINNING = re.compile(r"(Of|What|Who|Where|Whether)\b")

TEXT = {".md", ".txt", ".sh", ".py", ".build", ".c", ".cc", ".cpp", ".h", ".hpp", ".inl", ".def", ".json",
        ".rs", ".toml"}
CODE = {".c", ".cc", ".cpp", ".h", ".hpp", ".inl", ".rs"}


def expression():
    """Matches whole words; `_` and a change from lower to upper case also separate words. The group of
    a match is the number of its pattern."""
    words = "|".join(f"(?P<w{i}>{pattern})" for i, pattern in enumerate(RETIRED))
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z0-9])(?=[A-Z]))(?i:{words})(?![a-z])")


RETIRED_WORDS = expression()


def is_under(path, folders):
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def comment_of(line):
    """The text of a comment line or of a comment behind code, or None."""
    match = re.search(r"(?:^|\s)//[/!]?<?(.*)$", line) or re.search(r"/\*\*?<?(.*)$", line)
    return None if match is None else match.group(1).strip()


def wrong_beginnings(lines):
    """Numbers of the lines in which a comment, or a paragraph of one, begins wrongly."""
    found, before = [], None
    for number, line in enumerate(lines, 1):
        comment = comment_of(line)
        if comment is not None and not before and WRONG_BEGINNING.match(comment):
            found.append(number)
        before = comment
    return found


def hits(path):
    """(line, what is wrong) for each hit in a file."""
    lines = (ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines()
    exempt = next((rows for start, rows in EXEMPT_LINES.items() if path.startswith(start)), None)
    for number, line in enumerate(lines, 1):
        if exempt is not None and exempt.match(line):
            continue
        for match in RETIRED_WORDS.finditer(line):
            better = next(words for i, words in enumerate(RETIRED.values())
                          if match.group(f"w{i}") is not None)
            yield number, f'"{match.group(0)}" is retired; use: {better}'
    if Path(path).suffix in CODE:
        for number in wrong_beginnings(lines):
            yield number, "a comment begins with Of, What, Who, Where or Whether"


def folder_of(path):
    parts = Path(path).parts
    return "/".join(parts[:min(len(parts) - 1, 2)]) or "."


def main():
    arguments = sys.argv[1:]
    paths = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [path for path in paths if Path(path).suffix in TEXT and (ROOT / path).is_file()
             and not path.startswith(EXEMPT)]
    if arguments == ["--count"]:
        counts = Counter()
        for path in paths:
            counts[folder_of(path)] += sum(1 for _ in hits(path))
        for folder, count in sorted(counts.items()):
            if count > 0:
                print(f"{count:6} {folder}")
        return 0
    found = 0
    for path in paths:
        if not is_under(path, arguments or CHECKED):
            continue
        for number, text in hits(path):
            print(f"{path}:{number}: {text}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

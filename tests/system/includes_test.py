#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The one-way rule: what each room of the source may include, and a few habits that every file
keeps. includes_test.py SOURCE_ROOT"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()

# What a room may include besides itself. `public` is vescomm.h and vescomm.hpp.
LIBRARY = {
    "base": {"public"},
    "config": {"public", "base"},
    "observe": {"public", "base"},
    "topology": {"public", "base"},
    "layout": {"public", "base"},
    "bootstrap": {"public", "base", "config"},
    "schedule": {"public", "base", "topology"},
    "simulate": {"public", "base", "topology", "schedule"},
    "transport": {"public", "base", "topology", "bootstrap"},
    "execute": {"public", "base", "topology", "schedule", "transport"},
    "comm": {"public", "base", "config", "observe", "topology", "layout", "bootstrap", "schedule",
             "simulate", "transport", "execute"},
    "api": {"public", "base", "config", "observe", "topology", "layout", "bootstrap", "schedule",
            "simulate", "transport", "execute", "comm"},
    # The tools are programs of their own: the public API, and the tables that they print.
    "tools": {"public", "base", "schedule", "simulate", "topology", "config", "transport"},
    "include": {"public"},
}
OTHERS = {
    "planner": {"public", "planner public"},
    "fsdp": {"public", "planner public", "fsdp public"},
    "train_gpt": {"public", "planner public", "fsdp public"},
}
# Single files that a room may include although their room is closed to it.
FILES = {
    # vescomm-run reads addresses as the library does; vescomm-info prints which kernels run here.
    # It measures as a communicator moves.
    "tools": {"libvescomm/bootstrap/tcp_address.h", "libvescomm/execute/kernels.h",
              "libvescomm/comm/connect.h", "libvescomm/comm/machine_exchange.h",
              "libvescomm/comm/memory.h", "libvescomm/observe/file.h"},
    "fsdp": {"libvescomm/execute/isa.h", "libvescomm/execute/kernels.h"},
    "train_gpt": {"libvescomm/execute/isa.h"},
}

# Made by the build.
GENERATED = {"build_hash.h"}

# Where `#include "x"` is looked for, besides the folder of the file itself.
INCLUDE_ROOTS = ["libvescomm", "libvescomm/include", "planner/include", "planner", "fsdp/include",
                 "fsdp", "fsdp/examples/train_gpt", "tests", "."]

# Third-party headers stay in source files. The exceptions, by path.
THIRD_PARTY = re.compile(r"(ucp|ucs|uct|fmt|nlohmann|asio|openssl|CLI|gtest|gmock|rapidcheck)/"
                         r"|oneapi/|asio\.hpp|hwloc\.h|xxhash\.h|rapidcheck\.h|dnnl")
MAY_HAVE_THIRD_PARTY = {
    r"libvescomm/transport/ucx_\w+\.h": r"ucp/|ucs/",
    r"libvescomm/bootstrap/os_\w+\.h": r"asio",
    r"fsdp/examples/train_gpt/matmul\.h": r"dnnl",
    r"planner/api\.h": r"fmt/",
    r"planner/input/strict_json\.h": r"nlohmann/",
    r"tests/.*": r"gtest|rapidcheck",
    r"perf/.*": r"benchmark",
}

SOURCE = {".c", ".cc", ".cpp", ".h", ".hpp", ".inl", ".py", ".build", ".sh"}
# The two smallest programs are shown whole in the documentation.
WITHOUT_SPDX = {"docs/examples/gather_reduce.c", "docs/examples/gather_reduce.cpp"}
MOST_LINES = 600
# One file by the size of what it describes: the whole C API, "read it from top to bottom".
LONG = {"libvescomm/include/vescomm/vescomm.h", "libvescomm/include/vescomm/vescomm.hpp"}

problems = []


def complain(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def room_of(path):
    """The room of a file, or None where no rule holds (tests, perf, docs)."""
    parts = Path(path).parts
    if path.startswith("libvescomm/include/"):
        return "public"
    if parts[0] == "libvescomm" and len(parts) > 2:
        return parts[1]
    if path.startswith("fsdp/examples/train_gpt/"):
        return "train_gpt"
    if parts[0] in ("planner", "fsdp"):
        return parts[0] + (" public" if len(parts) > 1 and parts[1] == "include" else "")
    return None


def resolve(path, name):
    for folder in [ROOT / Path(path).parent] + [ROOT / root for root in INCLUDE_ROOTS]:
        found = (folder / name).resolve()
        if found.is_file():
            try:
                return str(found.relative_to(ROOT))
            except ValueError:
                return None
    return None


def allowed(path, room, target):
    target_room = room_of(target)
    if room == "public":
        return target_room == "public"
    if target in FILES.get(room, ()):
        return True
    if room in LIBRARY:
        return target_room == room or target_room in LIBRARY[room]
    base = room.removesuffix(" public")
    if room.endswith(" public"):  # installed headers see installed headers
        return target_room in OTHERS[base] or target_room == room
    return target_room in OTHERS[base] or target_room == base or target_room == base + " public"


def check_includes(path, lines):
    room = room_of(path)
    if room is not None and room.removesuffix(" public") not in LIBRARY and room not in (
            "public", *OTHERS, *(o + " public" for o in OTHERS)):
        complain(path, 1, f"there is no room {room}; give it a line in {Path(__file__).name}")
        return
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match is None:
            continue
        quote, name = match.groups()
        if quote == "<" and not name.startswith("vescomm/"):
            if Path(path).suffix in (".h", ".hpp") and THIRD_PARTY.match(name) and not any(
                    re.fullmatch(where, path) and re.match(what, name)
                    for where, what in MAY_HAVE_THIRD_PARTY.items()):
                complain(path, number, f"a header includes <{name}> of somebody else; include it "
                                       "in source files only")
            continue
        if name in GENERATED:
            continue
        target = resolve(path, name)
        if target is None:
            complain(path, number, f'"{name}" is not found')
        elif room is not None and not allowed(path, room, target):
            complain(path, number, f"{room} may not include {target}")


def check_habits(path, text, lines):
    if not re.search(r"SPDX-License-Identifier: Apache-2\.0", "\n".join(lines[:4])) and \
            path not in WITHOUT_SPDX:
        complain(path, 1, "the two-line SPDX header is missing")
    if len(lines) > MOST_LINES and path not in LONG:
        complain(path, len(lines), f"{len(lines)} lines; {MOST_LINES} are the most")
    for number, line in enumerate(lines, 1):
        # The word is put together here so that this line is not found.
        if re.search(r"\b(TO" r"DO|FIX" r"ME)\b", line):
            complain(path, number, "an open end; finish it, or make it an issue")
        if "\t" in line:
            complain(path, number, "a tab")
    if text and not text.endswith("\n"):
        complain(path, len(lines), "no newline at the end")


def main():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = listed.stdout.splitlines()
    else:  # a release without its history
        paths = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()
                 and not str(p.relative_to(ROOT)).startswith((".", "build"))]
    checked = 0
    for path in sorted(set(paths)):
        if Path(path).suffix not in SOURCE or not (ROOT / path).is_file():
            continue
        text = (ROOT / path).read_text(encoding="utf-8")
        lines = text.splitlines()
        if Path(path).suffix not in (".py", ".build", ".sh"):
            check_includes(path, lines)
        check_habits(path, text, lines)
        checked += 1
    print("\n".join(problems))
    print(f"{checked} files, {len(problems)} problems")
    return 1 if problems or checked < 100 else 0


if __name__ == "__main__":
    sys.exit(main())

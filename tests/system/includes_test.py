#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the one-way rule (the folders that each folder of the source may include), and a few rules
for every source file. includes_test.py SOURCE_ROOT"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()

# The folders that a folder may include, besides itself. `public` is vescomm.h and vescomm.hpp.
LIBRARY = {
    "base": {"public"},
    "precompiled": set(),
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
    "gpu": {"public", "base", "config", "observe", "layout", "execute", "comm"},
    "api": {"public", "base", "config", "observe", "topology", "layout", "bootstrap", "schedule",
            "simulate", "transport", "execute", "comm", "gpu"},
    # The tools use the public API and the tables that they print.
    "tools": {"public", "base", "schedule", "simulate", "topology", "config", "transport"},
    "include": {"public"},
}
OTHERS = {
    "formats": {"public"},
    "planner": {"public", "planner public", "formats"},
    "fsdp": {"public", "planner public", "fsdp public", "formats"},
    "train_gpt": {"public", "planner public", "fsdp public"},
}
# Single files that a folder may include although it may not include their folders.
FILES = {
    # vescomm-run parses addresses. vescomm-info prints the kernels, and measures with the
    # transports of a communicator.
    "tools": {"libvescomm/bootstrap/tcp_address.h", "libvescomm/execute/kernels.h",
              "libvescomm/comm/connect.h", "libvescomm/comm/machine_exchange.h",
              "libvescomm/comm/memory.h", "libvescomm/gpu/gpu_libraries.h",
              "libvescomm/observe/file.h"},
    "fsdp": {"libvescomm/api/handle.h", "libvescomm/api/last_error.h", "libvescomm/base/signals.h",
             "libvescomm/execute/isa.h", "libvescomm/execute/kernels.h",
             "libvescomm/execute/adamw_constants.h", "libvescomm/execute/loops/adamw_element.h",
             "libvescomm/execute/loops/clip.h", "libvescomm/execute/loops/codes.h",
             "libvescomm/execute/loops/elements.h", "libvescomm/execute/loops/exact_digits.h",
             "libvescomm/execute/loops/moment_codes.h",
             "libvescomm/execute/loops/random_bits.h",
             "libvescomm/execute/loops/sgd_element.h", "libvescomm/execute/loops/sgd_step.h",
             "libvescomm/execute/sgd_constants.h",
             "libvescomm/execute/loops/stochastic_rounding.h",
             "libvescomm/gpu/cuda_functions.h", "libvescomm/gpu/gpu_libraries.h",
             "libvescomm/gpu/relaxed_capture.h"},
    "train_gpt": {"libvescomm/execute/isa.h"},
}

# Files that the build generates.
GENERATED = {"build_hash.h"}

# Folders in which `#include "x"` is searched, after the folder of the file itself.
INCLUDE_ROOTS = ["libvescomm", "libvescomm/include", "planner/include", "planner", "fsdp/include",
                 "fsdp", "fsdp/examples/train_gpt", "tests", "."]

# Only source files may include third-party headers. The exceptions follow, by path.
THIRD_PARTY = re.compile(r"(ucp|ucs|uct|fmt|nlohmann|asio|openssl|CLI|gtest|gmock|rapidcheck)/"
                         r"|oneapi/|asio\.hpp|hwloc\.h|xxhash\.h|rapidcheck\.h|dnnl")
MAY_HAVE_THIRD_PARTY = {
    r"libvescomm/precompiled/.*": r"fmt/",
    r"libvescomm/transport/ucx_\w+\.h": r"ucp/|ucs/",
    r"libvescomm/bootstrap/os_\w+\.h": r"asio",
    r"fsdp/examples/train_gpt/matmul\.h": r"dnnl",
    r"planner/api\.h": r"fmt/",
    r"fsdp/error\.h": r"fmt/",
    r"planner/formats/strict_json\.h": r"nlohmann/",
    r"fsdp/checkpoint/json_reader\.h": r"nlohmann/",
    r"tests/.*": r"gtest|rapidcheck",
    r"perf/.*": r"benchmark",
}

SOURCE = {".c", ".cc", ".cpp", ".h", ".hpp", ".inl", ".py", ".build", ".sh"}
# The documentation shows these two programs whole.
WITHOUT_SPDX = {"docs/examples/gather_reduce.c", "docs/examples/gather_reduce.cpp"}
MAX_LINES = 400
MAX_LINES_OF_TESTS = 600
# Long files: the whole public API.
LONG = {"libvescomm/include/vescomm/vescomm.h", "libvescomm/include/vescomm/vescomm.hpp",
        "fsdp/include/vescomm/fsdp.h", "libvescomm/include/vescomm/gpu.h",
        "libvescomm/include/vescomm/gpu.hpp"}

problems = []


def complain(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def folder_of(path):
    """Returns the folder of a file, or None for folders without rules (tests, perf, docs)."""
    parts = Path(path).parts
    if path.startswith("libvescomm/include/"):
        return "public"
    if parts[0] == "libvescomm" and len(parts) > 2:
        return parts[1]
    if path.startswith("fsdp/examples/train_gpt/"):
        return "train_gpt"
    if path.startswith("planner/formats/"):
        return "formats"
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


def allowed(path, folder, target):
    target_folder = folder_of(target)
    if folder == "public":
        return target_folder == "public"
    if target in FILES.get(folder, ()):
        return True
    if folder in LIBRARY:
        return target_folder == folder or target_folder in LIBRARY[folder]
    base = folder.removesuffix(" public")
    if folder.endswith(" public"):  # installed headers see installed headers
        return target_folder in OTHERS[base] or target_folder == folder
    return (target_folder in OTHERS[base] or target_folder == base or
            target_folder == base + " public")


def check_includes(path, lines):
    folder = folder_of(path)
    if folder is not None and folder.removesuffix(" public") not in LIBRARY and folder not in (
            "public", *OTHERS, *(o + " public" for o in OTHERS)):
        complain(path, 1, f"no rule for folder {folder}; add one in {Path(__file__).name}")
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
                complain(path, number, f"a header includes third-party <{name}>; include it in "
                                       "source files only")
            continue
        if name in GENERATED:
            continue
        target = resolve(path, name)
        if target is None:
            complain(path, number, f'"{name}" is not found')
        elif folder is not None and not allowed(path, folder, target):
            complain(path, number, f"{folder} may not include {target}")


def check_habits(path, text, lines):
    if not re.search(r"SPDX-License-Identifier: Apache-2\.0", "\n".join(lines[:4])) and \
            path not in WITHOUT_SPDX:
        complain(path, 1, "the two-line SPDX header is missing")
    max_lines = MAX_LINES_OF_TESTS if path.startswith("tests/") else MAX_LINES
    if len(lines) > max_lines and path not in LONG:
        complain(path, len(lines), f"{len(lines)} lines; the maximum is {max_lines}")
    for number, line in enumerate(lines, 1):
        # The words are split so that this line does not match.
        if re.search(r"\b(TO" r"DO|FIX" r"ME)\b", line):
            complain(path, number, "an open task; finish it, or make it an issue")
        if "\t" in line:
            complain(path, number, "a tab")
    if text and not text.endswith("\n"):
        complain(path, len(lines), "no newline at the end")


def check_algorithms():
    """Each row of the table of algorithms states its file, and each file has a row."""
    folder = ROOT / "libvescomm" / "schedule"
    table = folder / "algorithms.cc"
    text = table.read_text()
    rows = re.findall(r'\{Collective::(\w+), "(\w+)", "([^"]+)"', text)
    if len(rows) != text.count("{Collective::") or len(rows) < 20:
        complain(table, 1, f"{len(rows)} of {text.count('{Collective::')} rows state their file")
    for collective, name, file in rows:
        if file not in (f"{collective}/{name}.cc", f"common/{name}.cc"):
            complain(table, 1, f"{name} of {collective} is in {file}; the path is the name")
        if not (folder / file).is_file():
            complain(table, 1, f"{name} of {collective}: there is no schedule/{file}")
            continue
        stated = "".join(path.read_text() for path in (folder / file).parent.glob(f"{name}.*"))
        if not re.search(r"^// Cost: ", stated, re.MULTILINE):
            complain(folder / file, 1, "an algorithm states its cost: // Cost: ...")
    for path in folder.glob("*/*.cc"):
        if str(path.relative_to(folder)) not in {file for _, _, file in rows}:
            complain(path, 1, "no row of the table of algorithms names this file")


def check_type_names(paths):
    """Two types of one name in one namespace break the program: the linker keeps one destructor."""
    where = {}
    for path in paths:
        if not re.match(r"libvescomm/(?!include/).*\.(h|cc)$", path):
            continue
        open_namespaces = []
        for line in (ROOT / path).read_text().splitlines():
            if begin := re.match(r"namespace ?(\S*) \{", line):
                open_namespaces.append(begin.group(1))
            elif line.startswith("}  // namespace"):
                open_namespaces.pop()
            found = re.match(r"(?:struct|class|enum|enum class) (?:alignas\(\S+\) )?(\w+)"
                             r"(?: final)?(?: : .*)? \{", line)
            if found and "" not in open_namespaces:
                where.setdefault("::".join([*open_namespaces, found.group(1)]), set()).add(path)
    for name, files in sorted(where.items()):
        if len(files) > 1:
            complain(min(files), 1, f"{name} is also defined in {', '.join(sorted(files)[1:])}")
    if len(where) < 100:
        complain("libvescomm", 1, f"only {len(where)} types were found")


def main():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = listed.stdout.splitlines()
    else:  # a release without git history
        paths = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()
                 and not str(p.relative_to(ROOT)).startswith((".", "build"))]
    check_algorithms()
    check_type_names(sorted(set(paths)))
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

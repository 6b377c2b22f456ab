#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Installs vescomm into an empty folder and uses it as other projects do.
install_test.py SOURCE_ROOT BUILD_ROOT [--slow] [CASE...]
--slow: cases that build vescomm again, instead of the others."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import consumers
import packages
import ranks
from installation import STRICT, install, run
from ranks import Job, expect, run_cases

SOURCE, BUILD = (Path(arg).resolve() for arg in sys.argv[1:3])
EXAMPLES = [("gather_reduce.c", "cc", "c99"), ("gather_reduce.cpp", "c++", "c++20")]


def example(installation, name, compiler, standard):
    program = installation.root.parent / name.replace(".", "_")
    return installation.build(SOURCE / "docs" / "examples" / name, program, compiler, standard)


def examples_run(installation):
    """Compares the printed lines with values that Python computes."""
    for name, compiler, standard in EXAMPLES:
        program = example(installation, name, compiler, standard)
        for count in (1, 3, 5):
            gathered = [str(owner) for owner in range(count) for _ in range(owner + 1)]
            with Job([program], count, environment=installation.library_path) as job:
                job.expect_success()
                for number in range(count):
                    # The gathered values, and the sum of the own value over all ranks.
                    expected = f"{' '.join(gathered)} | rank {number}: {number * count}"
                    expect(job.ranks[number].lines == [expected],
                           f"{name} at {count} ranks printed {job.ranks[number].lines}, "
                           f"expected {expected}")


def collectives_on_arrays(installation):
    program = example(installation, "arrays.cpp", "c++", "c++20")
    for count in (1, 3, 5):
        with Job([program], count, environment=installation.library_path) as job:
            job.expect_success()
            for number in range(count):
                expected = (f"largest {count}, last token {count - 1}, gradient {count}, "
                            f"left {(number - 1) % count}")
                expect(job.ranks[number].lines == [expected],
                       f"arrays.cpp at {count} ranks printed {job.ranks[number].lines}, "
                       f"expected {expected}")


def headers_compile_alone(installation):
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    expect(compilers, "there is no compiler")
    includes = installation.pkg_config("--cflags", "vescomm")
    headers = sorted(installation.header.parent.glob("*.h*"))
    expect(len(headers) >= 2, f"only {headers} are installed")
    compiled = 0
    for header in headers:
        text = header.read_text()
        ways = [("c++", "c++20")]
        if header.suffix == ".h":
            ways += [("c", "c99"), ("c", "c11"), ("c", "c17"), ("c++", "c++11"), ("c++", "c++17")]
            expect("#include <stdint.h>" in text or "vescomm/vescomm.h" in text,
                   f"{header.name} includes nothing")
        for compiler in compilers:
            for language, standard in ways:
                # Twice, to test include guards. On standard input, so it is not the main file.
                run(compiler, "-x", language, f"-std={standard}", *STRICT, *includes,
                    "-fsyntax-only", "-",
                    input=f"#include <vescomm/{header.name}>\n" * 2)
                compiled += 1
                if language == "c++":
                    run(compiler, "-x", language, f"-std={standard}", "-Wshadow", "-Werror", *includes,
                        "-fsyntax-only", "-", input=f"#include <vescomm/{header.name}>\n")
                    compiled += 1
    # The error for a program in C++17 says what to do.
    for compiler, header in itertools.product(compilers, ("vescomm", "planner", "fsdp", "gpu")):
        done = subprocess.run([compiler, "-x", "c++", "-std=c++17", *includes, "-fsyntax-only", "-"],
                              input=f"#include <vescomm/{header}.hpp>\n", capture_output=True,
                              text=True, check=False)
        used = "planner" if header == "planner" else "vescomm"
        expect(done.returncode != 0 and "needs C++20" in done.stderr
               and f"use {used}.h in C++17" in done.stderr, done.stderr)
    return f"{compiled} times, {', '.join(compilers)}"


def library_shows_only_its_api(installation):
    dynamic = run("readelf", "-dW", installation.library)
    soname = re.search(r"SONAME.*\[(.*)\]", dynamic).group(1)
    expect(soname == "libvescomm.so.0", f"SONAME is {soname}")
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    expect(not any("ucp" in n or "ucs" in n or "uct" in n for n in needed),
           f"UCX must be loaded at run time, and {needed} are needed")
    for name in ("libvescomm.so", "libvescomm.so.0"):
        link = installation.library.parent / name
        expect(link.is_symlink() and link.resolve() == installation.library,
               f"{name} does not lead to {installation.library.name}")

    # In no public header: for libvescomm-fsdp, and for the Rust crates.
    return shows_only_functions_of(installation, installation.library,
                                   ("vescomm.h", "gpu.h", "gpu_kernels.h"),
                                   private={"vescomm_set_last_error", "vescomm_comm_refuse"})


def shows_only_functions_of(installation, library, headers, cplusplus=r"(?!)", private=frozenset()):
    """`cplusplus`: a regular expression of further symbols, demangled."""
    shown = run("nm", "-DC", "--defined-only", "--with-symbol-versions", library)
    functions = set()
    for line in shown.splitlines():
        _, kind, symbol = line.split(maxsplit=2)
        name, _, version = symbol.partition("@@")
        if name == "VESCOMM_0" and kind == "A":
            continue
        expect(version == "VESCOMM_0", f"{symbol} of {library.name} lacks the version node VESCOMM_0")
        if re.match(cplusplus, name):
            continue
        expect(name.startswith("vescomm_"), f"{symbol} of {library.name} is not of the API")
        functions.add(name)
    text = "".join(installation.header.with_name(h).read_text() for h in headers)
    declared = set(re.findall(r"^VESCOMM_API [^;]*?\b(vescomm_\w+)\(", text,
                              re.MULTILINE | re.DOTALL))
    functions -= private
    expect(functions == declared,
           f"declared and missing: {sorted(declared - functions)}; visible and not declared: "
           f"{sorted(functions - declared)}")
    return f"{len(functions)} functions"


def other_libraries_show_only_their_api(installation):
    found = []
    for name, headers, cplusplus in (
            ("planner", ["planner.h"], r"(typeinfo (name )?for |vtable for )?vescomm::planner::"),
            ("fsdp", ["fsdp.h", "loss_scale.h", "optimizer.h"], r"(?!)")):
        library = installation.library.with_name(f"libvescomm-{name}.so.0").resolve()
        found.append(shows_only_functions_of(installation, library, headers, cplusplus))
    return ", ".join(found)


def names_follow_the_rules(installation):
    """vescomm_X_t is initialised by vescomm_X_init(), and what is read of an object is get_."""
    text = "".join(h.read_text() for h in installation.header.parent.glob("*.h"))
    growing = re.findall(r"typedef struct (vescomm_\w+?)(?:_t)? \{\s+uint32_t struct_size;", text)
    expect(len(growing) >= 9, f"only {growing} have a struct_size")
    for name in growing:
        expect(f"static inline {name}_t {name}_init(void)" in text, f"{name} has no {name}_init()")
    inline = set(re.findall(r"^static inline \w+ (vescomm_\w+)\(", text, re.MULTILINE))
    others = inline - {f"{name}_init" for name in growing}
    expect(others == {"vescomm_type_get_bytes"}, f"inline functions of other names: {others}")
    # A function that only reads an object takes it as const, and fills what it is given.
    reads = re.findall(r"\b(vescomm_(?:comm|layout|memory|buffer|plan)_(\w+))\("
                       r"const vescomm_\w+_t \*(?!options|tensors)", text)
    expect(len(reads) >= 12, f"only {reads} read an object")
    for function, verb in reads:
        expect(verb.split("_")[0] in ("get", "find", "serialise", "write", "create"),
               f"{function} reads an object and is not called get_")
    since = set(re.findall(r"Since: ([\d.]+\d)", text))
    expect(since == {"0.1"}, f"Since: {since}, and no version but 0.1 exists")
    return f"{len(growing)} structs, {len(reads)} functions"


def plan_draws_by_the_script_beside_it(installation):
    """The installation has been moved: its files are not in the folders of the build's options."""
    (program,) = installation.root.rglob("bin/vescomm-plan")
    (script,) = installation.root.rglob("draw_plan.py")
    picture = installation.root.parent / "plan.png"
    command = [program, "--model", "llama-3-8b", "--ranks", 2, "--picture", picture]
    original = script.read_bytes()
    try:
        script.write_text("import sys\nopen(sys.argv[2], 'w').write('drawn')\n", encoding="ascii")
        run(*command, env=installation.environment)
        expect(picture.read_text(encoding="ascii") == "drawn", "another script has drawn")
        script.unlink()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                              env=installation.environment)
        expect(done.returncode != 0 and f"draw_plan.py is neither at {script} nor" in done.stderr,
               f"{done.returncode}: {done.stderr}")
    finally:
        script.write_bytes(original)


def versions_agree(installation):
    text = installation.header.read_text()
    numbers = [re.search(rf"#define VESCOMM_VERSION_{part} (\d+)", text).group(1)
               for part in ("MAJOR", "MINOR", "PATCH")]
    version = ".".join(numbers)
    said = run("pkg-config", "--modversion", "vescomm", env=installation.environment).strip()
    expect(said == version, f"pkg-config says {said}, the header {version}")
    expect(installation.library.name.endswith("." + version),
           f"{installation.library.name} is not version {version}")
    return version


def programs_name_themselves(installation):
    """In their version, and in the error for a wrong option."""
    found = []
    for program in sorted((installation.prefix / "bin").iterdir()):
        name = program.name
        more = {"env": {**os.environ, **installation.library_path}, "capture_output": True,
                "text": True, "check": False}
        shown = subprocess.run([program, "--version"], **more).stdout
        expect(re.fullmatch(rf"{name} \d+\.\d+\.\d+\n", shown), f"{name} --version: {shown!r}")
        done = subprocess.run([program, "--nonsense"], **more)
        # vescomm_perf has the exit codes of nccl-tests.
        expect(done.returncode == (6 if name == "vescomm_perf" else 2) and done.stdout == ""
               and re.fullmatch(rf"{name}: .*--nonsense.*; see {name} --help\n", done.stderr),
               f"{name} --nonsense ended with {done.returncode}: {done.stderr}")
        found.append(name)
    expect(len(found) >= 3, f"only {found} are installed")
    return ", ".join(found)


def main():
    slow = "--slow" in sys.argv
    with tempfile.TemporaryDirectory(prefix="vescomm-install-") as name:
        folder = Path(name)
        try:
            installation = install(BUILD, folder / "root")
        except ranks.Failed as failure:
            print(f"FAIL  installing: {failure}")
            return 1
        cases = [] if slow else [
            (case.__name__.replace("_", " "), lambda c=case: c(installation))
            for case in (headers_compile_alone, library_shows_only_its_api,
                         other_libraries_show_only_their_api, names_follow_the_rules,
                         plan_draws_by_the_script_beside_it, versions_agree, programs_name_themselves,
                         examples_run, collectives_on_arrays)]
        cases += [] if slow else consumers.cases(installation, folder)
        cases += packages.cases(installation, BUILD, folder, slow)
        return run_cases(cases, [word for word in sys.argv[3:] if word != "--slow"])


if __name__ == "__main__":
    sys.exit(main())

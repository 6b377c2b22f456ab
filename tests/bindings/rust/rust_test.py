#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Rust crates against the library just built, and checks their style.
rust_test.py SOURCE_ROOT BUILD_ROOT SANITIZERS [CASE...]

Exits with 77 (skipped) if there is no cargo of Rust 1.63 or later, or if the library has sanitizers."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, BUILD = (Path(arg).resolve() for arg in sys.argv[1:3])
sys.path.insert(0, str(SOURCE / "tests" / "system"))
from ranks import expect, run_cases  # noqa: E402

CRATES = SOURCE / "bindings" / "rust"
OLDEST = (1, 63)
PACKAGES_TOGETHER = (1, 90)
SKIPPED = 77


def run(*command, libraries=(), **more):
    """`libraries`: more folders for the loader."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(BUILD / "rust"))
    for variable, folders in (("PKG_CONFIG_PATH", ["meson-uninstalled"]),
                              ("LD_LIBRARY_PATH", ["libvescomm", "planner", *libraries])):
        others = [environment[variable]] if environment.get(variable) else []
        environment[variable] = ":".join([str(BUILD / folder) for folder in folders] + others)
    environment.update(more.pop("environment", {}))
    return subprocess.run(command, cwd=CRATES, env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def cargo(*arguments, **more):
    done = run("cargo", *arguments, **more)
    expect(done.returncode == 0, f"cargo {' '.join(arguments)} ended with {done.returncode}\n"
                                 f"{done.stdout}")
    return done.stdout


def reason_to_skip():
    if sys.argv[3] != "none":
        return f"the library has sanitizers ({sys.argv[3]}), and the crates would need them too"
    if shutil.which("cargo") is None:
        return "there is no cargo; install Rust 1.63 or later (Debian: cargo)"
    version = run("rustc", "--version").stdout
    number = re.match(r"rustc (\d+)\.(\d+)", version)
    if number is None or tuple(map(int, number.groups())) < OLDEST:
        return f"Rust 1.63 or later is needed, and this is {version.strip()}"
    return None


def passed_tests(output):
    return sum(map(int, re.findall(r"^test result: ok\. (\d+) passed", output, re.MULTILINE)))


def tests_pass():
    output = cargo("test", "--offline", "--locked", "--workspace")
    passed = passed_tests(output)
    # A run in which the tests were not found is no success.
    expect(passed > 80, f"only {passed} tests passed\n{output}")
    return f"{passed} tests"


def device_memory_on_the_test_double():
    """The other runs skip these tests. One at a time: the ranks of all of them share the devices."""
    folder = BUILD / "tests" / "gpu" / "double"
    output = cargo("test", "--offline", "--locked", "-p", "vescomm", "--test", "suite", "gpu", "--",
                   "--test-threads=1", "--nocapture", libraries=["tests/gpu/double"], environment={
                       "GPU_DOUBLE_FOLDER": str(folder), "GPU_DOUBLE_STRICT": "1",
                       "VESCOMM_GPU_KERNELS": str(SOURCE / "tests/gpu/double/kernels.txt")})
    passed = passed_tests(output)
    expect(passed >= 17 and "skipped" not in output, f"only {passed} tests passed\n{output}")
    return f"{passed} tests"


def clippy_has_no_warnings():
    if run("cargo", "clippy", "--version").returncode != 0:
        return "skipped, clippy is not installed"
    cargo("clippy", "--offline", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings")
    return None


def sources_are_formatted():
    if run("cargo", "fmt", "--version").returncode != 0:
        return "skipped, rustfmt is not installed"
    cargo("fmt", "--check")
    return None


def documentation_has_no_dead_links():
    cargo("doc", "--offline", "--locked", "--no-deps", environment={"RUSTDOCFLAGS": "-D warnings"})


def missing_pkg_config_is_explained():
    """The build script says what is missing and what to do."""
    target = {"CARGO_TARGET_DIR": str(BUILD / "rust-failing")}
    for variables, words in (
            ({"PKG_CONFIG": "no-such-program"}, ["no-such-program", "set PKG_CONFIG"]),
            ({"PKG_CONFIG_PATH": "", "PKG_CONFIG_LIBDIR": "/nonexistent"},
             ["vescomm-planner", "PKG_CONFIG_PATH"])):
        done = run("cargo", "check", "--offline", "--locked", "-p", "vescomm-sys",
                   environment={**target, **variables})
        expect(done.returncode != 0, f"built with {variables}\n{done.stdout}")
        for word in words:
            expect(word in done.stdout, f'no "{word}" with {variables}\n{done.stdout}')


def crates_have_licence_and_page():
    """A crate is published without the files outside its folder."""
    licence = (SOURCE / "LICENSE").read_bytes()
    for crate in ("vescomm-sys", "vescomm"):
        files = cargo("package", "--list", "--offline", "--allow-dirty", "-p", crate).splitlines()
        for file in ("LICENSE", "README.md"):
            expect(file in files, f"{crate} lacks {file}: {files}")
        expect((CRATES / crate / "LICENSE").read_bytes() == licence,
               f"the licence of {crate} differs from that of the project; copy that")


def crates_are_packaged():
    """Together, because one needs the other, which is in no registry; and without a network. Each is
    built from its package.
    """
    version = run("cargo", "--version").stdout
    if tuple(map(int, re.match(r"cargo (\d+)\.(\d+)", version).groups())) < PACKAGES_TOGETHER:
        return f"skipped, {version.strip()} packages no crates together"
    # cargo keeps an unpacked copy of a packaged crate there, and takes it for the same version later.
    with tempfile.TemporaryDirectory() as home:
        output = cargo("package", "--offline", "--locked", "--workspace", "--allow-dirty",
                       environment={"CARGO_HOME": home})
    known = ("manifest has no documentation, homepage or repository",  # the project has no page yet
             "ignoring test `abi` as `tests/abi.rs` is not included in the published package")
    warnings = re.findall(r"^warning: (.*)", output, re.MULTILINE)
    expect(set(warnings) <= set(known), output)
    return None


def changed_installation_is_read_again():
    """The build script runs again after a change of a .pc file, and only then."""
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(shutil.copy(file, folder)) for file in
                  (BUILD / "meson-uninstalled").glob("vescomm-*.pc")]
        variables = {"CARGO_TARGET_DIR": folder + "/target", "PKG_CONFIG_PATH": folder}

        def is_fresh():
            return re.search(r"Fresh vescomm-sys", cargo(
                "check", "--offline", "--locked", "-v", "-p", "vescomm-sys", environment=variables))

        expect(not is_fresh(), "the crate is not new")
        expect(is_fresh(), "the crate is built again although nothing has changed")
        for file in copies:
            if "fsdp" in file.name:
                continue
            file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
            expect(not is_fresh(), f"the crate is not built again after a change of {file.name}")


def page_quotes_the_examples():
    """Every block of Rust of docs/rust.md is a part of the file that the page names before it."""
    page = (SOURCE / "docs" / "rust.md").read_text(encoding="utf-8")
    quotes = re.findall(r"\]\(\.\./(bindings/\S+\.rs)\):\n\n```rust\n(.*?)```", page, re.DOTALL)
    expect(len(quotes) == page.count("```rust"), "a block of Rust in docs/rust.md names no file")
    for path, quote in quotes:
        expect(quote in (SOURCE / path).read_text(encoding="utf-8"),
               f"docs/rust.md differs from {path}; copy the lines into the page")
    return f"{len(quotes)} parts"


def main():
    reason = reason_to_skip()
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    cases = (page_quotes_the_examples, tests_pass, device_memory_on_the_test_double, clippy_has_no_warnings, sources_are_formatted,
             documentation_has_no_dead_links, missing_pkg_config_is_explained,
             crates_have_licence_and_page, crates_are_packaged, changed_installation_is_read_again)
    return run_cases([(case.__name__.replace("_", " "), case) for case in cases], sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Cases of install_test.py: projects that use an installation of vescomm through CMake, Meson or
pkg-config. tests/consumers has the projects; their programs are those of the pages."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from installation import run
from ranks import HANG_SECONDS, Job, Skipped, expect

SOURCE = Path(__file__).resolve().parents[2]
EXAMPLES = SOURCE / "docs/examples"
PROGRAMS = ("trainer_c", "trainer_cpp", "fit")


def blocks_of(page, language):
    """The blocks of a language on a page."""
    text = (SOURCE / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    expect(found, f"docs/{page} has no block of {language}")
    return found


def block_of(page, language):
    return blocks_of(page, language)[0]


def project(kind, folder):
    """A copy of a project of tests/consumers with the sources of its programs."""
    shutil.copytree(SOURCE / "tests/consumers" / kind, folder)
    for source in EXAMPLES.glob("trainer*"):
        shutil.copy(source, folder)
    (folder / "fit.cpp").write_text(block_of("fsdp.md", "cpp"), encoding="utf-8")
    return folder


def need(*tools):
    for tool in tools:
        if shutil.which(tool) is None:
            raise Skipped(f"{tool} is missing")


def launch(installation, count, *command, environment=None):
    """Runs a program with the installed vescomm-run. Returns (exit code, output of all ranks)."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("VESCOMM_")}
    done = subprocess.run([installation.prefix / "bin/vescomm-run", "-n", str(count), "--no-prefix",
                           *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=HANG_SECONDS,
                          env={**plain, "VESCOMM_TIMEOUT_SECONDS": str(HANG_SECONDS / 2),
                               **(environment or {})})
    return done.returncode, done.stdout


def losses_in(text):
    """The losses that rank 0 has printed, which must fall."""
    found = [float(value) for value in re.findall(r"\bstep \d+:? loss (\S+)$", text, re.MULTILINE)]
    expect(len(found) == 5 and 0 < found[-1] < found[0] / 10, f"no falling losses in\n{text}")
    return found


def losses(installation, count, program, environment=None):
    code, text = launch(installation, count, program, environment=environment)
    expect(code == 0, f"{program} at {count} ranks ended with {code}\n{text}")
    return losses_in(text)


def expect_equal(some, other, text):
    expect(len(some) == len(other)
           and all(abs(a - b) <= 2e-3 * abs(a) + 2e-5 for a, b in zip(some, other)),
           f"{text}: {some} and {other}")


def expect_trained(installation, folder, environment=None):
    found = {name: losses(installation, 3, folder / name, environment) for name in PROGRAMS}
    expect_equal(found["trainer_c"], found["trainer_cpp"], "losses of the trainers in C and C++")


def with_make(installation, folder):
    need("make", "pkg-config")
    moved = " ".join(installation.pkg_config("--define-variable=prefix=/moved", "--cflags", "--libs",
                                             "vescomm-fsdp"))
    expect(f"-I{installation.root}/moved/include" in moved and str(installation.prefix) not in moved,
           f"the flags of a moved installation are {moved}")
    project("makefile", folder)
    run("make", "-C", folder, env=installation.environment)
    expect_trained(installation, folder, installation.library_path)


def with_meson(installation, folder):
    need("pkg-config")
    project("meson", folder)
    run("meson", "setup", folder / "build", folder, "-Dwerror=true", env=installation.environment)
    run("ninja", "-C", folder / "build", env=installation.environment)
    expect_trained(installation, folder / "build", installation.library_path)


def with_cmake(installation, folder):
    """The installation has been moved. Programs in the build folder find the libraries."""
    need("cmake")
    moved = folder.parent / "moved to another place"
    if not moved.exists():
        shutil.copytree(installation.prefix, moved, symlinks=True)
    project("cmake", folder)
    environment = {k: v for k, v in installation.environment.items() if "PKG_CONFIG" not in k}
    run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={moved}", env=environment)
    cache = (folder / "build/CMakeCache.txt").read_text(encoding="utf-8")
    expect(f"vescomm_DIR:PATH={moved}/" in cache, "another installation was found")
    run("cmake", "--build", folder / "build", env=environment)
    expect_trained(installation, folder / "build")


REQUESTS = """cmake_minimum_required(VERSION 3.19)
project(requests C)
function(expect expected)
  unset(vescomm_DIR CACHE)
  set(vescomm_FOUND)
  find_package(vescomm ${ARGN} CONFIG QUIET)
  if(vescomm_FOUND)
    set(vescomm_FOUND 1)
  else()
    set(vescomm_FOUND 0)
  endif()
  if(NOT vescomm_FOUND EQUAL expected)
    message(SEND_ERROR "find_package(vescomm ${ARGN}): ${vescomm_FOUND}, expected ${expected}")
  endif()
  if(vescomm_FOUND AND (NOT vescomm_planner_FOUND OR vescomm_mpi_FOUND))
    message(SEND_ERROR "find_package(vescomm ${ARGN}) has set wrong variables of components")
  endif()
endfunction()
"""


def requests_of_cmake(installation, folder):
    """Versions, ranges of versions and components that find_package() accepts."""
    need("cmake")
    folder.mkdir()
    major, minor, patch = map(int, installation.library.name.rsplit(".so.")[1].split("."))
    version = f"{major}.{minor}.{patch}"
    accepted = ["", f"{major}.{minor}", f"{version} EXACT", f"{major}.0", f"{major}.0...{version}",
                f"{version}...<{major + 1}", "COMPONENTS planner fsdp", "OPTIONAL_COMPONENTS vescomm",
                "COMPONENTS planner OPTIONAL_COMPONENTS mpi"]
    refused = [f"{major}.{minor}.{patch + 1}", f"{major}.{minor + 1}", f"{major + 1}.0",
               f"{major}.{minor}.{patch + 1} EXACT", f"{major}.0...<{version}",
               f"{major}.{minor + 1}...{major + 1}.0", f"{major + 1}...{major + 2}",
               "COMPONENTS planner mpi"]
    lines = [f"expect(1 {request})" for request in accepted]
    lines += [f"expect(0 {request})" for request in refused]
    # A project of another word size.
    lines += ["set(CMAKE_SIZEOF_VOID_P 4)", "expect(0)"]
    (folder / "CMakeLists.txt").write_text(REQUESTS + "\n".join(lines) + "\n", encoding="utf-8")
    run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={installation.prefix}")
    return f"{len(accepted)} accepted, {len(refused) + 1} refused"


def subproject(folder):
    """A project that has vescomm as a subproject, by the wrap file of the page."""
    project("meson", folder)
    (folder / "subprojects").mkdir()
    (folder / "subprojects/vescomm.wrap").write_text(block_of("packages.md", "ini"), encoding="utf-8")
    return folder


def as_subproject(_, folder):
    """Only the libraries are built, and only their dependencies are looked for."""
    subproject(folder)
    (folder / "subprojects/vescomm").symlink_to(SOURCE)
    run("meson", "setup", folder / "build", folder, "--wrap-mode=forcefallback")

    def introspect(what):
        return json.loads(run("meson", "introspect", folder / "build", f"--{what}"))

    targets = introspect("targets")
    programs = {target["name"] for target in targets if target["type"] == "executable"}
    expect(programs == set(PROGRAMS), f"programs {programs}")
    libraries = {target["name"] for target in targets if target["type"] == "shared library"}
    expect(libraries == {"vescomm", "vescomm-planner", "vescomm-fsdp"}, f"libraries {libraries}")
    expect(introspect("tests") == [], "tests are defined")
    found = {dependency["name"] for dependency in introspect("dependencies")}
    allowed = {"threads", "ucx", "openssl", "libxxhash", "fmt", "nlohmann_json",
               "vescomm-planner", "vescomm-fsdp"}
    expect(found <= allowed, f"dependencies {found - allowed}")
    return f"{len(targets)} targets"


def trainer(installation, folder, name, compiler="cc", standard="c99"):
    return installation.build(EXAMPLES / name, folder / name.replace(".", "_"), compiler, standard,
                              "vescomm-planner")


def trainers_at_any_number_of_ranks(installation, folder):
    """The losses do not depend on the number of ranks. With 20 ranks some shards are empty."""
    folder.mkdir()
    one = {}
    for name, *compiler in (("trainer.c", "cc", "c99"), ("trainer.cpp", "c++", "c++20")):
        program = trainer(installation, folder, name, *compiler)
        for count in (1, 2, 3, 5, 20) if name == "trainer.c" else (1, 3):
            found = losses(installation, count, program, installation.library_path)
            expect_equal(one.setdefault(name, found), found, f"{name} at 1 and {count} ranks")
        # The ranks make different numbers of steps, so some wait for a rank that has ended.
        with Job(["sh", "-c", f'exec "{program}" $((VESCOMM_RANK * 50))'], 3,
                 environment=installation.library_path) as job:
            codes = job.finish()
            expect(codes[1] == codes[2] == 1, f"exit codes {codes}\n{job.transcript()}")
            for number in (1, 2):
                expect(any("rank" in line for line in job.ranks[number].lines), job.transcript())


def embedded(installation, folder):
    folder.mkdir()
    program = installation.build(EXAMPLES / "embed.cpp", folder / "embed", "c++", "c++20")

    def workers(*arguments):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True,
                              check=False, timeout=HANG_SECONDS,
                              env={**os.environ, **installation.library_path, "VESCOMM_LOG": "info"})
        return done.returncode, sorted(done.stdout.splitlines()), done.stderr.splitlines()

    for count in (1, 2, 3, 5):
        code, lines, log = workers(count)
        used = "not used" if count == 1 else "used"
        expected = [f"worker {rank}: sum {count * (count + 1) // 2}, registered arrays {used}"
                    for rank in range(count)]
        expect(code == 0 and lines == expected, f"{count} workers: {code}, {lines}\n{log}")
        expect(log and all(re.match(r"worker \d: log: ", line) for line in log), f"log {log}")
    for failing in (0, 1, 2):
        code, lines, log = workers(3, failing)
        expect(code == 1 and lines == [], f"exit code {code}, {lines}")
        for rank in range(3):
            reason = "out of training data"
            if rank != failing:
                reason = f"rank {failing} aborted the communicator: {reason}"
            expect(f"worker {rank}: {reason}" in log, f"worker {rank} does not say why:\n{log}")
    expect(workers(0)[0] == 2, "0 workers are accepted")


QUOTED = (
    ("packages.md", "cmake", "tests/consumers/cmake/CMakeLists.txt"),
    ("packages.md", "meson", "tests/consumers/meson/meson.build"),
    ("packages.md", "makefile", "tests/consumers/makefile/Makefile"),
    ("guide-c.md", "c", "docs/examples/trainer.c"),
    ("guide-cpp.md", "cpp", "docs/examples/trainer.cpp"),
    ("guide-embedding.md", "cpp", "docs/examples/embed.cpp"),
    ("launching-mpi.md", "c", "docs/examples/with_mpi.c"),
    ("launching-ray.md", "python", "docs/examples/ray_job.py"),
)


def pages_quote_the_programs(_, __):
    """The blocks of the pages are lines of the files that the tests build."""
    count = 0
    for page, language, file in QUOTED:
        text = (SOURCE / file).read_text(encoding="utf-8")
        for block in blocks_of(page, language):
            count += 1
            expect(block in text, f"docs/{page} has lines that {file} does not have:\n{block}")
    return f"{count} blocks"


def cases(installation, folder):
    """(name, function) of each case."""
    for case in (with_make, with_meson, with_cmake, requests_of_cmake, as_subproject,
                 trainers_at_any_number_of_ranks, embedded, pages_quote_the_programs):
        name = case.__name__
        yield f"consumer {name.replace('_', ' ')}", lambda c=case, n=name: c(installation, folder / n)


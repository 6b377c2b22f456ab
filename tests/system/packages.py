# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Cases of install_test.py: the Debian packages, the wheel, and the tarball of a release."""

import json
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import consumers
from consumers import SOURCE, need
from installation import Installation, install, option, run
from ranks import Skipped, expect

BUILD_PACKAGES = SOURCE / "bindings/debian/build.sh"
# Files of an installation that are in no package.
UNPACKAGED = re.compile(r"bin/train_gpt|share/vescomm/plot_loss\.py|"
                        r"libexec/vescomm/vescomm_perf_(mpi|mpich|gloo|ucc)|"
                        r".*/python3[^/]*/[a-z]*-packages/vescomm/.*")


def files_of(folder):
    """The files below a folder, relative to it."""
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*")
            if path.is_symlink() or not path.is_dir()}


def fields_of(package):
    text = run("dpkg-deb", "--field", package)
    return {key: value for key, _, value in (line.partition(": ") for line in text.splitlines())}


def check_packages(folder, root):
    """Checks the packages of a folder, and extracts them into `root`."""
    packages = {fields_of(path)["Package"]: path for path in folder.glob("*.deb")}
    expect(set(packages) == {"libvescomm0", "libvescomm-dev", "vescomm-tools"}, f"{packages}")
    depends = {name: fields_of(path).get("Depends", "") for name, path in packages.items()}
    version = fields_of(packages["libvescomm0"])["Version"]
    for name, wanted in (("libvescomm0", ["libc6 (>=", "libssl3", "libstdc++6 (>="]),
                         ("libvescomm-dev", [f"libvescomm0 (= {version})"]),
                         ("vescomm-tools", ["libc6 (>=", "libhwloc15", "libvescomm0 (>=", "python3"])):
        for one in wanted:
            expect(one in depends[name], f"{name} does not depend on {one}: {depends[name]}")
        expect(not re.search("libucx|libopenmpi|libdnnl|libgtest", depends[name]), depends[name])
    names = set()
    for path in packages.values():
        alone = root.parent / path.stem
        run("dpkg-deb", "-x", path, alone)
        expect(not names & files_of(alone), f"{names & files_of(alone)} are in two packages")
        names |= files_of(alone)
        run("dpkg-deb", "-x", path, root)
        control = root.parent / f"{path.stem}.control"
        run("dpkg-deb", "-e", path, control)
        run("md5sum", "--quiet", "--check", control / "md5sums", cwd=root)
    expect("activate-noawait ldconfig" in (root.parent / f"{packages['libvescomm0'].stem}.control"
                                           / "triggers").read_text(encoding="ascii"), "no trigger")
    return f"{version}, {len(names)} files"


def debian_packages(installation, build, folder):
    """Packages of the build folder as it is."""
    need("dpkg-deb", "dpkg-shlibdeps", "help2man")
    if installation.sanitize:
        raise Skipped("packages have no sanitizers")
    run(BUILD_PACKAGES, "--from", build, folder / "packages",
        env={**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip"})
    note = check_packages(folder / "packages", folder / "root")
    packaged = Installation(folder / "root")
    installed = {name for name in files_of(installation.prefix) if not UNPACKAGED.fullmatch(name)}
    expect(installed <= files_of(packaged.prefix),
           f"in no package: {sorted(installed - files_of(packaged.prefix))}")
    program = consumers.trainer(packaged, folder, "trainer.c")
    consumers.losses(packaged, 3, program, packaged.library_path)
    return note


def packages_explain_their_usage(_, __, folder):
    shown = run(BUILD_PACKAGES, "--help")
    expect("--from BUILD FOLDER" in shown, f"--help shows: {shown}")
    for arguments, words in ((["--nonsense"], "--from BUILD FOLDER"),
                             (["--from", folder, folder], f"{folder} is no build folder of Meson")):
        done = subprocess.run([BUILD_PACKAGES, *arguments], capture_output=True, text=True,
                              check=False)
        expect(done.returncode == 2 and done.stdout == "" and words in done.stderr,
               f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}")


def python_of(build, *modules):
    """The Python for which the package is built, if it has these modules."""
    python = option(build, "python_program") or "/usr/bin/python3"
    for module in modules:
        done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
        if done.returncode != 0:
            raise Skipped(f"{python} has no {module}")
    return python


# Files of the wheel, in the folder of the package, beside the modules of Python.
IN_WHEEL = {"bin/vescomm-info", "bin/vescomm-plan", "bin/vescomm-run", "bin/vescomm_perf",
            "lib/libvescomm.so.0", "lib/libvescomm-planner.so.0", "share/vescomm/draw_plan.py",
            "share/vescomm/vescomm-perf-1.schema.json", "share/vescomm/vescomm-plan-1.schema.json"}


def wheel_has_programs_and_their_data(_, build, folder):
    """With the options of pyproject.toml, without building it."""
    python = python_of(build, "nanobind")
    project = (SOURCE / "pyproject.toml").read_text(encoding="utf-8")
    (tags,) = re.findall(r'"--tags=([^"]*)"', project)
    run("meson", "setup", folder, SOURCE, f"-Dpython_program={python}",
        *re.findall(r'"(-D[^"]*)"', project))
    plan = json.loads(run("meson", "introspect", folder, "--install-plan"))
    files = {file["destination"] for group in plan.values() for file in group.values()
             if file["tag"] in tags.split(",")}
    package = "{py_platlib}/vescomm/"
    expect(all(file.startswith(package) for file in files), f"not in the package: {files}")
    found = {re.sub(r"(\.so\.0)[.\d]*$", r"\1", file[len(package):]) for file in files}
    expect(IN_WHEEL <= found, f"missing {sorted(IN_WHEEL - found)} in {sorted(found)}")
    return f"{len(files)} files"


# Run by three ranks that have nothing but the wheel.
SUM_OF_RANKS = """
import array
import importlib.metadata
import vescomm
comm = vescomm.Communicator.from_environment()
numbers = array.array("d", [1.0 + comm.rank])
comm.all_reduce(numbers)
assert numbers[0] == 6.0, numbers
(backend,) = importlib.metadata.entry_points(group="torch.distributed.backends", name="vescomm")
assert backend.value == "vescomm.torch:register", backend
print("sum")
"""


def wheel_works_alone(python, wheel, folder):
    """In a fresh virtual environment, without compilers and without other packages."""
    run(python, "-m", "venv", folder)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    environment = {"PATH": str(programs), "VESCOMM_MACHINE": "defaults"}
    printed = run(programs / "vescomm-run", "-n", "3", "python", "-c", SUM_OF_RANKS,
                  env=environment, cwd=folder)
    expect(printed.count("sum") == 3, printed)
    for program in ("vescomm-info", "vescomm-plan", "vescomm_perf"):
        run(programs / program, "--help", env=environment, cwd=folder)


def wheel_is_built(_, build, folder):
    """By pip. Its program draws by the script of the wheel."""
    python = python_of(build, "pip", "mesonpy", "nanobind")
    run(python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder,
        SOURCE)
    (wheel,) = folder.glob("vescomm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    found = files_of(folder / "vescomm")
    expect(IN_WHEEL <= found, f"missing {sorted(IN_WHEEL - found)} in {sorted(found)}")
    program = folder / "vescomm/bin/vescomm-plan"
    program.chmod(0o755)  # zipfile sets no modes
    script = folder / "vescomm/share/vescomm/draw_plan.py"
    script.write_text("import sys\nopen(sys.argv[2], 'w').write('drawn')\n", encoding="ascii")
    run(program, "--model", "llama-3-8b", "--ranks", "2", "--picture", folder / "plan.png")
    expect((folder / "plan.png").read_text(encoding="ascii") == "drawn", "another script has drawn")
    wheel_works_alone(python, wheel, folder / "environment")
    return f"{wheel.name}, {len(found)} files"


def release(build, folder):
    """The tarball of a release, extracted."""
    # A release may lie in the build folder of a clone, so asking git does not suffice.
    if not (SOURCE / ".git").exists():
        raise Skipped("this is not a clone")
    if run("git", "-C", SOURCE, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise Skipped("`meson dist` does not support shallow clones")
    folder.mkdir()
    run("meson", "dist", "-C", build, "--no-tests", "--allow-dirty", "--formats", "gztar")
    (tarball,) = (build / "meson-dist").glob("*.tar.gz")
    with tarfile.open(tarball) as archive:
        archive.extractall(folder)
    (extracted,) = folder.iterdir()
    return extracted


def tarball_of_a_release(_, build, folder):
    """It has all files of the commit, and can be configured."""
    extracted = release(build, folder)
    listed = run("git", "-C", SOURCE, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    wanted = {name for name in listed if not re.search(r"(^|/)\.git", name)}
    found = {name for name in files_of(extracted) if not re.search(r"(^|/)\.git", name)}
    expect(found == wanted, f"missing {wanted - found}, too many {found - wanted}")
    run("meson", "setup", folder / "build", extracted, "-Dtests=disabled")
    return f"{len(found)} files"


def release_is_built(_, build, folder):
    extracted = release(build, folder)
    run("meson", "setup", folder / "build", extracted, "-Dtests=disabled", "-Dexamples=disabled")
    run("ninja", "-C", folder / "build")
    (folder / "programs").mkdir()
    installed = install(folder / "build", folder / "root")
    program = consumers.trainer(installed, folder / "programs", "trainer.c")
    consumers.losses(installed, 3, program, installed.library_path)


def packages_are_built(_, __, folder):
    """By the command of the page, and checked by lintian."""
    need("dpkg-deb", "dpkg-shlibdeps", "help2man")
    folder.mkdir()
    environment = {**os.environ, "DEBEMAIL": "packages@vescomm.invalid"}
    run(BUILD_PACKAGES, folder / "packages", env=environment)
    note = check_packages(folder / "packages", folder / "root")
    need("lintian")
    report = run("lintian", "--allow-root", "--fail-on", "error,warning",
                 *(folder / "packages").glob("*.deb"))
    return f"{note}\n{report}"


def subproject_is_built(installation, _, folder):
    """The wrap clones this repository."""
    consumers.subproject(folder)
    wrap = folder / "subprojects/vescomm.wrap"
    head = run("git", "-C", SOURCE, "rev-parse", "HEAD").strip()
    text = re.sub(r"^url *=.*", f"url = {SOURCE.as_uri()}", wrap.read_text(encoding="utf-8"),
                  flags=re.MULTILINE)
    wrap.write_text(re.sub(r"^revision *=.*", f"revision = {head}", text, flags=re.MULTILINE),
                    encoding="utf-8")
    run("meson", "setup", folder / "build", folder, "--wrap-mode=forcefallback")
    run("ninja", "-C", folder / "build")
    consumers.expect_trained(installation, folder / "build")


def cases(installation, build, folder, slow):
    """(name, function) of each case."""
    quick_cases = (packages_explain_their_usage, debian_packages, wheel_has_programs_and_their_data, tarball_of_a_release)
    slow_cases = (packages_are_built, wheel_is_built, release_is_built, subproject_is_built)
    for case in slow_cases if slow else quick_cases:
        name = case.__name__
        yield name.replace("_", " "), lambda c=case, n=name: c(installation, build, folder / n)

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""An installation of vescomm in a folder, which is used only through its own files."""

import json
import os
import shlex
import subprocess
from pathlib import Path

from ranks import expect

STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic-errors"]


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **more)
    expect(done.returncode == 0, f"{shlex.join(map(str, command))} ended with {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}")
    return done.stdout


def option(build, name):
    """The value of an option of a build folder."""
    options = json.loads(run("meson", "introspect", build, "--buildoptions"))
    return next(o["value"] for o in options if o["name"] == name)


def install(build, folder):
    """Installs a build folder with DESTDIR, as packages are built."""
    run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder)
    return Installation(folder, option(build, "b_sanitize"))


class Installation:
    """The files below `root`, which stand for those below /."""

    def __init__(self, root, sanitize="none"):
        self.root = Path(root)
        (self.header,) = self.root.rglob("vescomm.h")
        self.prefix = self.header.parents[2]
        (self.library,) = [p for p in self.root.rglob("libvescomm.so.*") if not p.is_symlink()]
        (config,) = self.root.rglob("vescomm.pc")
        # A library built with sanitizers needs programs built with them.
        self.sanitize = [] if sanitize == "none" else [f"-fsanitize={sanitize}"]
        flags = {name: " ".join(self.sanitize) for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS")}
        # PKG_CONFIG_LIBDIR excludes the folders of the machine.
        self.environment = dict(os.environ, **flags, PKG_CONFIG_LIBDIR=str(config.parent),
                                PKG_CONFIG_SYSROOT_DIR=str(self.root))
        self.environment.pop("PKG_CONFIG_PATH", None)
        # For programs that are linked with pkg-config, which have no RUNPATH.
        self.library_path = {"LD_LIBRARY_PATH": str(self.library.parent)}

    def pkg_config(self, *arguments):
        return shlex.split(run("pkg-config", *arguments, env=self.environment))

    def build(self, source, program, compiler, standard, package="vescomm"):
        """Compiles one source file without any warning."""
        run(compiler, f"-std={standard}", *STRICT, *self.sanitize, source, "-o", program,
            *self.pkg_config("--cflags", "--libs", package), "-lm", "-pthread")
        return program

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the site: the reference of the C and C++ interfaces, from the comments of the public headers,
and the pages of this repository. Needs Doxygen.

    docs/site.py            into build-site; open build-site/index.html
    docs/site.py FOLDER     into FOLDER, which is created, or replaced if it is a site

Exit codes: 0 built; 1 Doxygen reported errors in the pages or headers (the site is built nevertheless); 2
wrong usage; 77 Doxygen is missing.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent / "site"))
import filter as pages  # noqa: E402

ROOT = pages.ROOT
FILTER = Path("docs/site/filter.py")
# A folder with this file is a site, and may be replaced.
MARKER = "doxygen.css"


def version():
    text = (ROOT / "meson.build").read_text(encoding="utf-8")
    return re.search(r"^  version: '([^']*)'", text, re.MULTILINE).group(1)


def design_page():
    """The page that lists the decisions of docs/design."""
    lines = [f"# Design decisions {{#{pages.label_of(pages.DESIGN)}}}", ""]
    lines += [f"- @subpage {pages.label_of(page)}" for page in pages.listed((f"{pages.DESIGN}/*.md",))]
    return "\n".join(lines) + "\n"


def copied_paths():
    """Files and folders outside the site to which its pages link."""
    found = set()
    for page in pages.listed(pages.PAGES):
        lines = (ROOT / page).read_text(encoding="utf-8").split("\n")
        for _, target in pages.links(lines):
            if pages.new_link(page, target).startswith("(files/"):
                found.add(pages.resolve(page, target)[0])
    return sorted(found)


def write_copy(folder, path):
    """Writes a page with the text of a file, or with the names of the files of a folder; copies a picture.
    Returns false if there is no such file."""
    source, copy = ROOT / path, folder / pages.copy_of(path)
    if path.startswith("..") or not source.exists():
        print(f"site.py: a page links to {path}, which does not exist", file=sys.stderr)
        return False
    copy.parent.mkdir(parents=True, exist_ok=True)
    if path.endswith(pages.PICTURES):
        shutil.copyfile(source, copy)
        return True
    if source.is_dir():
        names = sorted(file.name for file in source.iterdir() if file.is_file())
        body = "\n".join(f'<p><a href="{source.name}/{name}.html">{name}</a></p>' for name in names)
        for name in names:
            write_copy(folder, f"{path}/{name}")
    else:
        body = f"<pre>{html.escape(source.read_text(encoding='utf-8'), quote=False)}</pre>"
    copy.write_text(f"<!doctype html><html lang=en><meta charset=utf-8><title>{path}</title>\n"
                    f"<h1>{path}</h1>\n{body}\n</html>\n", encoding="utf-8")
    return True


def quoted(path):
    return '"' + str(path) + '"'


def run_doxygen(doxygen, work):
    """Returns the exit code. The site is in work/site."""
    decisions = work / "design.md"
    decisions.write_text(design_page(), encoding="utf-8")
    inputs = pages.listed(pages.PAGES) + pages.listed(pages.HEADERS)
    program = f'\\"{sys.executable}\\" \\"{ROOT / FILTER}\\"'
    options = {
        "PROJECT_NUMBER": version(),
        "OUTPUT_DIRECTORY": quoted(work),
        "HTML_OUTPUT": "site",
        "INPUT": " ".join(map(quoted, [*inputs, "docs/site/namespaces.dox", decisions])),
        "STRIP_FROM_PATH": f"{quoted(ROOT)} {quoted(work)}",
        "STRIP_FROM_INC_PATH": " ".join(quoted(ROOT / Path(one).parents[1])
                                        for one in pages.HEADERS),
        "INPUT_FILTER": f'"{program}"',
    }
    text = "@INCLUDE = docs/site/Doxyfile\n"
    text += "".join(f"{key} = {value}\n" for key, value in options.items())
    done = subprocess.run([doxygen, "-"], input=text, cwd=ROOT, stderr=subprocess.PIPE,
                          encoding="utf-8", check=False)
    sys.stderr.write(done.stderr.replace(f"{ROOT}/", ""))
    return done.returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", metavar="FOLDER", type=Path, default=ROOT / "build-site")
    folder = parser.parse_args().folder.resolve()
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        print("site.py: doxygen is missing; install it, on Debian as doxygen", file=sys.stderr)
        return 77
    if folder.exists() and not (folder / MARKER).is_file() and (
            not folder.is_dir() or any(folder.iterdir())):
        print(f"site.py: {folder} exists and is not a site; name another folder", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="vescomm-site-") as name:
        work = Path(name).resolve()
        complete = run_doxygen(doxygen, work) == 0
        for path in copied_paths():
            complete = write_copy(work / "site", path) and complete
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(work / "site", folder)
    print(f"{folder}/index.html")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())

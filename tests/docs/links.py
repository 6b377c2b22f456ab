# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Finds dead links in a folder of HTML pages, and in Markdown pages of the repository."""

import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/site"))
import filter as pages  # noqa: E402

# Links in the data of the scripts of Doxygen: the tree of pages, menus and the search.
IN_SCRIPT = re.compile(r"""["']([^"'\s<>+]+\.html(?:#[^"'\s]*)?)["']""")
REFERENCE = re.compile(r" {0,3}\[[^\]]+\]: +(\S+)")


class Page(HTMLParser):
    """The anchors of a page, its links, and the links that the browser loads with it."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = {"", "top"}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.update(attributes[key] for key in ("id", "name") if attributes.get(key))
        for key in ("href", "src", "data"):
            target = attributes.get(key)
            if target is not None and not (key == "data" and tag != "object"):
                self.links.append((self.getpos()[0], target))
                if tag not in ("a", "area"):
                    self.loaded.append(target)


def read_site(folder):
    """{path: page} of all pages of a folder."""
    return {path: Page(path) for path in sorted(folder.rglob("*.html"))}


def links_of_scripts(folder):
    for path in sorted(folder.rglob("*.js")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in IN_SCRIPT.finditer(line):
                yield path, number, match.group(1)


def dead_links(folder, site):
    """(links that were checked, a sentence for each dead one). `site` is read_site(folder)."""
    links = [(path, line, target) for path, page in site.items() for line, target in page.links]
    links += links_of_scripts(folder)
    checked, dead = 0, []
    for path, line, target in links:
        if pages.is_elsewhere(target):
            continue
        checked += 1
        name, _, anchor = target.partition("#")
        file = Path(os.path.normpath(path.parent / unquote(name.partition("?")[0]))) if name else path
        where = f"{path.relative_to(folder)}:{line}: {target}"
        if not file.is_file():
            dead.append(f"{where}: there is no such file")
        elif file in site and unquote(anchor) not in site[file].anchors:
            dead.append(f"{where}: the page has no such anchor")
    return checked, dead


def dead_links_of_markdown(page, text, paths, anchors_of):
    """(links that were checked, a sentence for each dead one). `paths` has the files of the repository;
    anchors_of(path) returns the anchors of a Markdown page."""
    lines = text.split("\n")
    code = pages.code_lines(lines)
    links = list(pages.links(lines))
    links += [(number, match.group(1)) for number, line in enumerate(lines)
              if number not in code and (match := REFERENCE.match(line))]
    checked, dead = 0, []
    for line, target in links:
        if pages.is_elsewhere(target):
            continue
        checked += 1
        path, anchor = pages.resolve(page, unquote(target))
        where = f"{page}:{line + 1}: {target}"
        if path not in paths and not any(one.startswith(path + "/") for one in paths):
            dead.append(f"{where}: the repository has no {path}")
        elif anchor and (not path.endswith(".md") or anchor not in anchors_of(path)):
            dead.append(f"{where}: {path} has no heading #{anchor}")
    return checked, dead

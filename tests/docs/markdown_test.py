#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the relative links of all Markdown pages of the repository, and their anchors."""

import os
import re
import subprocess
import unittest

from links import dead_links_of_markdown, pages

ROOT = pages.ROOT


def repository():
    """The paths of all files that are not ignored."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}
    # A release without git history.
    paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
    return {path.as_posix() for path in paths if not path.parts[0].startswith("build")}


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def anchors_of(page):
    return set(pages.headings(read(page).split("\n")).values())


class Markdown(unittest.TestCase):
    def test_every_link_of_the_repository_leads_to_a_file_and_a_heading(self):
        paths = repository()
        checked, dead = 0, []
        for page in sorted(path for path in paths if path.endswith(".md")):
            count, found = dead_links_of_markdown(page, read(page), paths, anchors_of)
            checked += count
            dead += found
        self.assertEqual(dead, [], "\n" + "\n".join(dead))
        self.assertGreater(checked, 100)

    def test_dead_links_are_found(self):
        text = ("# Title\n[file](gone.md) [anchor](there.md#gone)\n[ok](there.md#a-b_c)\n"
                "`[code](gone.md)` [text\nof two lines](../gone)\n\n    [code](gone.md)\n\n"
                "[elsewhere](https://example.org/gone)\n[self](#gone) [self](#title)\n\n[ref]: gone.c\n")
        checked, dead = dead_links_of_markdown(
            "docs/page.md", text, {"docs/page.md", "docs/there.md"},
            lambda path: {"title"} if path == "docs/page.md" else {"a-b_c"})
        self.assertEqual(checked, 7)
        self.assertEqual(dead, [
            "docs/page.md:2: gone.md: the repository has no docs/gone.md",
            "docs/page.md:2: there.md#gone: docs/there.md has no heading #gone",
            "docs/page.md:5: ../gone: the repository has no gone",
            "docs/page.md:10: #gone: docs/page.md has no heading #gone",
            "docs/page.md:12: gone.c: the repository has no docs/gone.c",
        ])

    def test_every_program_of_the_repository_in_a_command_can_be_run(self):
        programs = set()
        for page in sorted(path for path in repository() if path.endswith(".md")):
            programs |= set(re.findall(r"^    \$? ?(?:\./)?((?:docs|perf|tests)/[\w/]+\.(?:py|sh))\b",
                                       read(page), re.MULTILINE))
        self.assertGreater(len(programs), 5)
        refused = [path for path in sorted(programs) if not os.access(ROOT / path, os.X_OK)]
        self.assertEqual(refused, [])

    def test_headings_have_the_anchors_of_github(self):
        lines = ["# A `code_span`, and [a link](x.md)!", "```", "# code", "```", "## Twice", "## Twice"]
        self.assertEqual(pages.headings(lines),
                         {0: "a-code_span-and-a-link", 4: "twice", 5: "twice-1"})


if __name__ == "__main__":
    unittest.main()

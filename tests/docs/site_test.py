#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the site with docs/site.py in a temporary folder, and checks its links and its contents.
Skipped (77) if Doxygen is missing."""

import html
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from links import dead_links, pages, read_site

ROOT = pages.ROOT
SKIPPED = 77


def build(folder):
    return subprocess.run([sys.executable, ROOT / "docs/site.py", folder], capture_output=True,
                          encoding="utf-8", check=False)


def functions_of(text):
    """The exported functions that a C header declares."""
    return re.findall(r"^VESCOMM_API [^;(]*?(\w+)\(", text, re.MULTILINE)


def squeeze(text):
    """The text without spaces, and with the hyphens from which Doxygen makes dashes."""
    return re.sub(r"\s+", "", text).replace("–", "--").replace("—", "---")


def text_of(page):
    """The text of a page of the site without spaces, from its title on."""
    text = page[page.index('<div class="header">'):]
    return squeeze(html.unescape(re.sub("<[^>]*>", " ", text)))


def missing_text(page, shown):
    """Words and code of a Markdown page that are not in this text."""
    lines = (ROOT / page).read_text(encoding="utf-8").split("\n")
    wanted = [lines[number] for number in pages.code_lines(lines) if not pages.FENCE.match(lines[number])]
    for _, run in pages.prose(lines):
        for words, span in pages.split_spans("\n".join(run)):
            wanted += [span.group(2)] if span else []
            words = re.sub(r"(?m)^(#+|[-*]|\d+\.|>) |^[-|:]+$|\]\([^)]*\)", " ", words)
            wanted += [word.strip("_") for word in re.split(r"[\s|*\[\]]+", words)]
    return [words for words in wanted if squeeze(words) not in shown]


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="vescomm-site-test-")
        cls.folder = Path(cls.temporary.name).resolve() / "site"
        cls.built = build(cls.folder)
        cls.site = read_site(cls.folder) if cls.folder.is_dir() else {}

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def read(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def test_is_built_without_warnings(self):
        self.assertEqual((self.built.returncode, self.built.stderr), (0, ""))
        self.assertEqual(self.built.stdout, f"{self.folder}/index.html\n")

    def test_every_link_leads_to_a_file_and_an_anchor(self):
        checked, dead = dead_links(self.folder, self.site)
        self.assertEqual(dead, [], "\n" + "\n".join(dead))
        self.assertGreater(checked, 1000)

    def test_pages_load_nothing_from_other_hosts(self):
        loaded = {target for page in self.site.values() for target in page.loaded}
        self.assertEqual([target for target in loaded if re.match(r"(\w+:)?//", target)], [])

    def test_paths_of_this_machine_are_not_in_it(self):
        paths = re.compile(rf"(?<![\w.-])({re.escape(str(ROOT))}|{re.escape(tempfile.gettempdir())}/vescomm-)"
                           .encode())
        found = [str(file) for file in self.folder.rglob("*") if file.is_file()
                 and paths.search(file.read_bytes())]
        self.assertEqual(found, [])

    def test_pages_have_all_words_and_code_of_their_sources(self):
        for page in pages.listed(pages.PAGES):
            name = "index" if page == "README.md" else pages.label_of(page)
            with self.subTest(page):
                self.assertEqual(missing_text(page, text_of(self.read(f"{name}.html"))), [])

    def test_group_arrays_has_the_collectives_on_arrays_and_no_others(self):
        header = (ROOT / "libvescomm/include/vescomm/vescomm.h").read_text(encoding="utf-8")
        group = header[header.index("@defgroup arrays"):]
        functions = functions_of(group[:group.index("@} */")])
        self.assertIn("vescomm_all_gather_v", functions)
        self.assertIn("vescomm_group_end", functions)
        shown = re.findall(r"</span>(\w+)\(\)</h2>", self.read("group__arrays.html"))
        self.assertEqual([name for name in shown if not name.endswith("_init")], functions)

    def test_every_function_of_the_c_headers_has_a_description(self):
        groups = "".join(path.read_text(encoding="utf-8") for path in self.folder.glob("group__*.html"))
        for header in pages.listed(pages.HEADERS):
            functions = functions_of((ROOT / header).read_text(encoding="utf-8"))
            if not header.endswith(".h"):
                continue
            self.assertGreater(len(functions), 0, header)
            for name in functions:
                with self.subTest(name):
                    item = re.search(rf'</span>{name}\(\)</h2>.*?<div class="memdoc">(.*?)</div>', groups,
                                     re.DOTALL)
                    self.assertIsNotNone(item)
                    self.assertNotEqual(text_of('<div class="header">' + item.group(1)), "")

    def test_classes_have_the_names_that_callers_use(self):
        self.assertIn("A collective, a message, or a group of calls", self.read("classvescomm_1_1Request.html"))
        self.assertIn("all_to_all_v", self.read("namespacevescomm.html"))
        self.assertEqual([path.name for path in self.site if "1_1v0" in path.name], [])

    def test_headers_have_pages_and_listings(self):
        for header in pages.listed(pages.HEADERS):
            name = header.rpartition("/")[2]
            with self.subTest(name):
                listing = name.replace("_", "__").replace(".", "_8") + "_source.html"
                self.assertIn("SPDX-License-Identifier", self.read(listing))
                self.assertIn(f"<title>vescomm: {name}</title>", self.read(f"{pages.label_of(name)}.html"))

    def test_folders_that_are_no_site_are_not_replaced(self):
        with tempfile.TemporaryDirectory() as name:
            kept = Path(name) / "kept"
            kept.write_text("x", encoding="utf-8")
            done = build(name)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is not a site", done.stderr)
            self.assertTrue(kept.is_file())


class LinkChecker(unittest.TestCase):
    def test_finds_dead_links(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "a.html").write_text(
                '<h1 id=one>1</h1>\n<a href="b.html#two">1</a><a href="b.html#three">2</a>\n'
                '<a href="#one">3</a><a href="c.html">4</a><img src="d.png"><a href="#four">5</a>'
                '<a href="https://example.org/x.html">6</a>', encoding="utf-8")
            (folder / "b.html").write_text('<a name="two"></a>', encoding="utf-8")
            (folder / "tree.js").write_text('[ "b.html#two", "b.html#five" ]', encoding="utf-8")
            checked, dead = dead_links(folder, read_site(folder))
            self.assertEqual(checked, 8)
            self.assertEqual(dead, [
                "a.html:2: b.html#three: the page has no such anchor",
                "a.html:3: c.html: there is no such file",
                "a.html:3: d.png: there is no such file",
                "a.html:3: #four: the page has no such anchor",
                "tree.js:1: b.html#five: the page has no such anchor",
            ])


if __name__ == "__main__":
    if shutil.which("doxygen") is None:
        print("doxygen is missing: the site cannot be built", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()

#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Opens pages of the site, and a page of perf/report, in a headless Chromium: the console has no errors,
and the plots are drawn. VESCOMM_TEST_PERF is the path of vescomm_perf, VESCOMM_TEST_PERF_REPORT the path
of perf/report. Skipped (77) if there is no Chromium."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from browser import TIMEOUT_SECONDS, Browser, find

ROOT = Path(__file__).resolve().parents[2]
PERF = os.environ["VESCOMM_TEST_PERF"]
REPORT = os.environ["VESCOMM_TEST_PERF_REPORT"]
SKIPPED = 77
PYTHON = "/usr/bin/python3"
# The first two colours of perf/report.
COLOURS = ("#0072b2", "#e69f00")
# For each plot: its size on the page, and for each of its axes and each colour the length of the line. The
# plot is then painted at four times its size, so that lines are wider than a pixel, and `painted` has the
# number of pixels of each colour.
PLOTS = """
Promise.all([...document.querySelectorAll("svg")].map(async svg => {
    const box = svg.getBoundingClientRect();
    const colours = %s;
    const axes = [...svg.querySelectorAll('g[id^="axes_"]')].map(one => colours.map(colour =>
        Math.max(0, ...[...one.querySelectorAll('g[id^="line2d_"] > path')]
            .filter(path => path.getAttribute("style").includes("stroke: " + colour))
            .map(path => path.getTotalLength()))));
    const picture = new Image();
    picture.src = "data:image/svg+xml;charset=utf-8," +
        encodeURIComponent(new XMLSerializer().serializeToString(svg));
    await picture.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 4 * Math.ceil(box.width);
    canvas.height = 4 * Math.ceil(box.height);
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    const bytes = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const painted = colours.map(colour => {
        const wanted = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
        let count = 0;
        for (let i = 0; i < bytes.length; i += 4)
            if (bytes[i + 3] > 200 && wanted.every((value, c) => Math.abs(bytes[i + c] - value) < 24))
                ++count;
        return count;
    });
    return {width: box.width, height: box.height, axes: axes, painted: painted};
}))""" % json.dumps(COLOURS)


def has_matplotlib():
    return subprocess.run([PYTHON, "-c", "import matplotlib"], capture_output=True).returncode == 0


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(find())
        cls.addClassCleanup(cls.browser.close)
        temporary = tempfile.TemporaryDirectory(prefix="vescomm-browser-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name).resolve()

    def open(self, path):
        self.browser.open(path.as_uri())

    def write(self, name, text):
        path = self.folder / name
        path.write_text("<!doctype html><meta charset=utf-8>" + text, encoding="utf-8")
        return path

    @unittest.skipIf(shutil.which("doxygen") is None, "doxygen is missing: the site cannot be built")
    def test_pages_of_the_site_have_no_errors(self):
        site = self.folder / "site"
        subprocess.run([sys.executable, ROOT / "docs/site.py", site], check=True, stdout=subprocess.DEVNULL)
        for name, title, shown in (
                ("index.html", "vescomm", "table.markdownTable"),
                ("docs-architecture.html", "Architecture", "pre.fragment"),
                ("docs-design.html", "Design decisions", ".contents li a"),
                ("group__arrays.html", "Collectives on arrays", ".memitem .params"),
                ("classvescomm_1_1Request.html", "vescomm::Request", ".memberdecls .memItemRight"),
                ("vescomm_8h_source.html", "vescomm.h", "div.fragment div.line")):
            with self.subTest(name):
                self.open(site / name)
                # The scripts have drawn the tree and the menu.
                self.browser.wait_for("document.querySelector('#nav-tree-contents li') && "
                                      "document.querySelector('#main-menu li')")
                self.assertIn(title, self.browser.run("document.title"))
                self.assertGreater(self.browser.run(
                    f"document.querySelector({json.dumps(shown)}).getBoundingClientRect().height"), 0)
                self.assertEqual(self.browser.errors(), [])

                if name == "index.html":
                    self.search("vescomm_comm_shrink")

    def search(self, word):
        """The search of the site finds a name."""
        self.browser.run("const field = document.querySelector('#MSearchField'); "
                         "searchBox.OnSearchFieldFocus(true); "
                         f"field.value = {json.dumps(word)}; searchBox.Search()")
        results = self.browser.frame(f"?{word}")
        self.assertIn(word, self.browser.run("document.body.innerText", contextId=results))
        self.assertEqual(self.browser.errors(), [])

    @unittest.skipUnless(has_matplotlib(), f"{PYTHON} has no matplotlib")
    def test_report_draws_its_plots(self):
        run, page = self.folder / "run.json", self.folder / "report.html"
        subprocess.run(
            [PERF, "--ranks", "2", "-b", "64", "-e", "32K", "-f", "8", "--impl", "vescomm,limit",
             "--collective", "all_gather_v,all_reduce,barrier", "-n", "3", "-w", "1", "--rounds", "3",
             "-J", run], check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS,
            env={key: value for key, value in os.environ.items() if not key.startswith("VESCOMM_")})
        subprocess.run([PYTHON, REPORT, run, "-o", page], check=True, timeout=TIMEOUT_SECONDS)
        self.open(page)
        plots = self.browser.run(PLOTS)
        self.assertEqual(self.browser.errors(), [])
        # A barrier has no size, and so no plot.
        self.assertEqual(len(plots), 2)
        self.assertEqual(self.browser.run("document.querySelectorAll('h2').length"), 3)
        self.assertEqual(self.browser.run("document.querySelectorAll('table').length"), 3)
        for plot in plots:
            self.assertGreater(plot["width"], 500)
            self.assertGreater(plot["height"], 100)
            # Time, bandwidth and ratio, each with a line of both implementations.
            self.assertEqual(len(plot["axes"]), 3)
            for lines in plot["axes"]:
                self.assertTrue(all(length > 50 for length in lines), plot)
            self.assertTrue(all(pixels > 500 for pixels in plot["painted"]), plot)

    def test_errors_of_the_console_are_found(self):
        self.open(self.write("wrong.html", "<script>console.error('first')</script><img src=gone.png>"
                             "<script>undefined.second</script><script src=gone.js></script>"))
        errors = "\n".join(self.browser.errors())
        for expected in ("first", "gone.png", "second", "gone.js"):
            self.assertIn(expected, errors)
        self.open(self.write("right.html", "<script>console.log('nothing')</script>"))
        self.assertEqual(self.browser.errors(), [])

    def test_plots_that_are_not_drawn_are_found(self):
        self.open(self.write("plots.html", """<svg width=100 height=100 xmlns="http://www.w3.org/2000/svg">
            </svg><svg width=100 height=100 xmlns="http://www.w3.org/2000/svg"><g id=axes_1><g id=line2d_1>
            <path d="M 10 50 L 90 50" style="stroke: #0072b2; stroke-width: 9"/></g></g></svg>"""))
        empty, drawn = self.browser.run(PLOTS)
        self.assertEqual((empty["axes"], empty["painted"]), ([], [0, 0]))
        self.assertEqual(drawn["axes"], [[80, 0]])
        self.assertGreater(drawn["painted"][0], 500)
        self.assertEqual(drawn["painted"][1], 0)


if __name__ == "__main__":
    if find() is None:
        print("chromium is missing: no page can be opened", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main()

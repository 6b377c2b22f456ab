#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Prints a header or a Markdown page of this repository in the form that Doxygen reads.

filter.py FILE

Lines keep their numbers, so that the warnings of Doxygen have the right ones.

Pages. Doxygen 1.9.4 has no anchors of headings as GitHub has, and no links to files outside the site.
Pages and headings get labels, and links refer to labels or to the copies in the folder `files`.

Headers. `//` comments of C++ become documentation. Every section of a C header becomes a group. The
comment with which a header begins becomes a page.
"""

import functools
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/design/*.md",
         "perf/README.md", "tests/fuzz/README.md")
HEADERS = ("libvescomm/include/vescomm/*", "planner/include/vescomm/*", "fsdp/include/vescomm/*")
# The folder of decisions, for which docs/site.py writes a page.
DESIGN = "docs/design"
PICTURES = (".png", ".svg", ".jpg")
FENCE = re.compile(r" {0,3}(```|~~~)")
HEADING = re.compile(r"(#{1,6}) +(.*?) *#* *$")
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
SECTION = re.compile(r"/\* -{9,} (.*?) -+ \*/$")
LINK = re.compile(r"(?<=\])\(([^()\s]+)\)")


@functools.lru_cache(maxsize=None)
def listed(patterns):
    """The files that match the patterns, as paths from the root, in the order of the patterns."""
    return [path.relative_to(ROOT).as_posix() for pattern in patterns
            for path in sorted(ROOT.glob(pattern))]


def label_of(page):
    """The name of a page of the site, without `.html`."""
    if page == "README.md":
        return "mainpage"
    return re.sub(r"[^a-z0-9]+", "-", page.lower().removesuffix(".md"))


def code_lines(lines):
    """The numbers of the lines in fenced and in indented blocks of code."""
    code, fence, blank = set(), None, True
    for number, line in enumerate(lines):
        match = FENCE.match(line)
        if fence is not None or match:
            code.add(number)
            if fence is None:
                fence = match.group(1)
            elif match and match.group(1) == fence:
                fence = None
        elif line.startswith("    ") and (blank or number - 1 in code):
            code.add(number)
        elif not line.strip() and number - 1 in code:
            code.add(number)
        blank = not line.strip()
    return code


def headings(lines):
    """{line number: anchor of the heading there}, as GitHub names anchors."""
    code, found, times = code_lines(lines), {}, {}
    for number, line in enumerate(lines):
        match = HEADING.match(line) if number not in code else None
        if match is None:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(2))
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = times.get(name, 0)
        times[name] = count + 1
        found[number] = f"{name}-{count}" if count else name
    return found


def section_label(page, anchor):
    return label_of(page) + "--" + re.sub(r"[^a-z0-9_-]", "", anchor)


def prose(lines):
    """(first line, lines) for each run of lines that are not code."""
    code, start = code_lines(lines), None
    for number in range(len(lines) + 1):
        if number < len(lines) and number not in code:
            start = number if start is None else start
        elif start is not None:
            yield start, lines[start:number]
            start = None


def split_spans(text):
    """Alternates prose and code spans."""
    end = 0
    for match in CODE_SPAN.finditer(text):
        yield text[end:match.start()], match
        end = match.end()
    yield text[end:], None


def links(lines):
    """(line number, target) for each link of a page, except those in code."""
    for start, run in prose(lines):
        line = start
        for text, span in split_spans("\n".join(run)):
            for match in LINK.finditer(text):
                yield line + text.count("\n", 0, match.start()), match.group(1)
            line += text.count("\n") + (span.group(0).count("\n") if span else 0)


def resolve(page, target):
    """(path from the root, anchor) of a relative link."""
    path, _, anchor = target.partition("#")
    if not path:
        return page, anchor
    return os.path.normpath(os.path.join(os.path.dirname(page), path)), anchor


def is_elsewhere(target):
    return re.match(r"[a-z][a-z+.-]*:", target) is not None


def new_link(page, target):
    if is_elsewhere(target):
        return f"({target})"
    path, anchor = resolve(page, target)
    if path == DESIGN:
        return f"(@ref {label_of(DESIGN)})"
    if path in listed(PAGES):
        return f"(@ref {section_label(path, anchor) if anchor else label_of(path)})"
    if path in listed(HEADERS):
        return f"(@ref {os.path.basename(path)})"
    return f"({copy_of(path)})"


def copy_of(path):
    """The path in the site of a file that is not in it: a page with its text, or the picture itself."""
    return f"files/{path}" + ("" if path.endswith(PICTURES) else ".html")


def escape(text):
    """Text without a meaning to Doxygen, which expands commands, hyphens and references."""
    text = re.sub(r"(?<![\w#&(/])#(?=\w)", r"\\#", text)
    text = re.sub(r"(?<=[\w\s(])@(?=\w)", r"\\@", text)
    text = re.sub(r"%(?=\w)", r"\\%", text)
    return re.sub(r"(?<![-|:\s])--(?![-|:\s])|(?<=\s)--(?=\w)", r"\\--", text)


def filter_page(page, text):
    lines = text.split("\n")
    anchors = headings(lines)
    for start, run in prose(lines):
        result = []
        for words, span in split_spans("\n".join(run)):
            parts, end = [], 0
            for match in LINK.finditer(words):
                parts += [escape(words[end:match.start()]), new_link(page, match.group(1))]
                end = match.end()
            result += [*parts, escape(words[end:])]
            if span is not None:
                # In a span between single backticks Doxygen takes a quote for the end.
                ticks = "``" if "'" in span.group(2) else span.group(1)
                result.append(ticks + re.sub(r"%(?=\w)", "%%", span.group(2)) + ticks)
        lines[start:start + len(run)] = "".join(result).split("\n")
    first = min(anchors, default=None)
    for number, anchor in anchors.items():
        label = label_of(page) if number == first else section_label(page, anchor)
        lines[number] += f" {{#{label}}}"
    return "\n".join(lines)


def filter_c(text, name):
    """Sections become groups; a header without sections becomes one. The first comment becomes a page."""
    lines, in_section = text.split("\n"), False
    lines[0] = re.sub(r"^/\* SPDX-.*", f"/** @page {label_of(name)} {name}", lines[0])
    lines[1] = re.sub(r"^ \* SPDX-.*", " *", lines[1])
    if not any(SECTION.match(line) for line in lines):
        # Two lines follow: `#endif` and an empty one.
        lines[lines.index('extern "C" {') + 2] = f"/* {'-' * 9} {Path(name).stem} - */"
    for number, line in enumerate(lines):
        section = SECTION.match(line)
        value = re.match(r"static inline (vescomm_\w+_t) vescomm_\w+_init\(void\)", line)
        if section:
            title = section.group(1).replace(", ", " and ")
            closed = "/** @} */ " if in_section else ""
            # The section on arrays begins with a group of its own.
            in_section = not any("@defgroup" in after for after in lines[number + 1:number + 4])
            opened = f"/** @topic{{{title.replace(' ', '_')},{title[0].upper()}{title[1:]}}} */"
            lines[number] = closed + (opened if in_section else "")
        elif in_section and line == "#ifdef __cplusplus":
            lines[number - 1] = "/** @} */"
            in_section = False
        elif value:
            lines[number] = f"/** Returns a {value.group(1)} with defaults. */ {line}"
        elif line.startswith(" * "):
            lines[number] = re.sub(r"^ \* Collective:", " * @call Collective:", line).replace("%", r"\%")
    return "\n".join(lines)


def filter_cpp(text, name):
    """Comments on declarations of a namespace or of a class become documentation; those in functions
    do not. The first comment becomes a page. The namespace that gives symbols their version disappears,
    because callers do not see it."""
    lines, in_class = text.split("\n"), False
    lines[0] = re.sub(r"^// SPDX-.*", f"/// @page {label_of(name)} {name}", lines[0])
    lines[1] = re.sub(r"^// SPDX-.*", "///", lines[1])
    for number, line in enumerate(lines):
        if re.match(r"[A-Za-z]", line) and not re.match(r"(public|protected|private):", line):
            in_class = re.match(r"(class|struct|enum)\b.*{$", line) is not None
        if line.startswith("//") or in_class and line.startswith("    //"):
            line = re.sub(r"^( *)//(?=[ \n]|$)", r"\1///", line)
        elif in_class and re.match(r"    \w", line):
            line = re.sub(r"([;,])  // ", r"\1  ///< ", line)
        lines[number] = line
    for number, line in enumerate(lines):
        version = re.match(r"inline namespace (\w+) {$", line)
        if version:
            end = lines.index(f"}}  // namespace {version.group(1)}")
            before = number
            while lines[before - 1].startswith("///"):
                before -= 1
            lines[before:number + 1] = [""] * (number + 1 - before)
            lines[end] = ""
    return "\n".join(lines)


def main():
    path = Path(sys.argv[1]).resolve()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        # The page of decisions is generated, and has labels already.
        if path.is_relative_to(ROOT):
            text = filter_page(path.relative_to(ROOT).as_posix(), text)
    elif path.suffix == ".hpp":
        text = filter_cpp(text, path.name)
    elif path.suffix == ".h":
        text = filter_c(text, path.name)
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()

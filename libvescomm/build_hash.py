#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a header with a hash of all sources of libvescomm, unless it is up to date.

Usage: build_hash.py SOURCE_FOLDER HEADER
"""
import hashlib
import pathlib
import sys

folder, header = map(pathlib.Path, sys.argv[1:])
digest = hashlib.sha256()
for file in sorted(folder.rglob("*")):
    if file.suffix in (".cc", ".h", ".hpp"):
        digest.update(str(file.relative_to(folder)).encode() + b"\0")
        digest.update(file.read_bytes())
text = f'#define VESCOMM_BUILD_HASH "{digest.hexdigest()[:16]}"\n'
if not header.exists() or header.read_text() != text:
    header.write_text(text)

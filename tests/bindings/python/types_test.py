#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The annotations of the package, and of programs as documented, are correct for mypy --strict."""

import os
import subprocess
import sys
import tempfile
import unittest

import vescomm

try:
    import mypy
except ImportError:
    mypy = None

PROGRAM = '''
import array
import vescomm

comm = vescomm.Communicator.from_environment()
tokens = array.array("i", [1])
request = comm.all_reduce(tokens, op=vescomm.MAX, wait=False)
request.wait()
message = comm.receive(tokens, peer=vescomm.ANY_SOURCE, tag=7)
assert message is not None
print(message.source, message.count + 1)
comm.start_all_reduce_at(1, 2, 3, 4, 0, object())
comm.start_all_reduce_at(1, 2, 3, 4, 0, 0.0, None, object())
plan = vescomm.plan([("w1", (64, 32), 16), ("bias", (64,))], ranks=comm.ranks)
assert plan.layout is not None
print(plan.layout.pieces(0))
'''


@unittest.skipIf(mypy is None, "mypy is not installed")
class Types(unittest.TestCase):
    def test_a_program(self):
        package = os.path.dirname(os.path.dirname(vescomm.__file__))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PROGRAM)
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder, path],
                env={**os.environ, "MYPYPATH": package},
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()

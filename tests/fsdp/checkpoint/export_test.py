#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Opens checkpoints and exports with the packages safetensors and torch.

EXPORT_EXAMPLE=build/tests/export_example export_test.py"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLE = os.environ["EXPORT_EXAMPLE"]


def have(package):
    return importlib.util.find_spec(package) is not None


def expected(folder):
    """(dtype, shape, bytes) by name."""
    tensors = {}
    for description in (folder / "expected").glob("*.txt"):
        name, dtype, shape = description.read_text(encoding="utf-8").split("\n")[:3]
        tensors[name] = (dtype, [int(extent) for extent in shape.split()],
                         description.with_suffix(".bytes").read_bytes())
    return tensors


def bytes_of(tensor):
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


class ExportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        subprocess.run([EXAMPLE, str(cls.folder)], check=True)
        cls.expected = expected(cls.folder)
        assert len(cls.expected) == 12

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_safetensors_reads_every_tensor_of_the_export(self):
        from safetensors import deserialize
        index = json.loads((self.folder / "export/model.safetensors.index.json").read_text())
        found = {}
        for file in sorted(set(index["weight_map"].values())):
            for name, tensor in deserialize((self.folder / "export" / file).read_bytes()):
                self.assertEqual(index["weight_map"][name], file)
                found[name] = (tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
        self.assertEqual(found, self.expected)
        self.assertGreater(len(set(index["weight_map"].values())), 2)

    def test_safetensors_reads_the_pieces_of_every_rank(self):
        from safetensors import deserialize
        saves = sorted((self.folder / "checkpoint").glob("save-*"))
        self.assertEqual(len(saves), 1)
        found = {name: bytearray(len(tensor[2])) for name, tensor in self.expected.items()}
        for rank in range(3):
            entries = dict(deserialize((saves[0] / f"rank-{rank:05}.safetensors").read_bytes()))
            index = json.loads((saves[0] / f"rank-{rank:05}.json").read_text(encoding="utf-8"))
            for tensor in index["tensors"]:
                dtype, shape, _ = self.expected[tensor["name"]]
                self.assertEqual((tensor["dtype"], tensor["shape"]), (dtype, shape))
                for piece in tensor["pieces"]:
                    first, count = piece["first"], piece["count"]
                    if count == 0:
                        continue
                    entry = entries.pop(f"{tensor['role']}/{tensor['name']}[{first}:{first + count}]")
                    self.assertEqual((entry["dtype"], entry["shape"]), (dtype, [count]))
                    size = len(entry["data"]) // count
                    found[tensor["name"]][first * size:(first + count) * size] = entry["data"]
            self.assertTrue(all(name.startswith("extra:") for name in entries), list(entries))
        self.assertEqual({name: bytes(data) for name, data in found.items()},
                         {name: tensor[2] for name, tensor in self.expected.items()})

    @unittest.skipUnless(have("torch"), "torch is not installed")
    def test_torch_opens_the_export_without_copies(self):
        from safetensors import safe_open
        seen = set()
        for file in (self.folder / "export").glob("*.safetensors"):
            with safe_open(file, framework="pt") as opened:
                self.assertEqual(opened.metadata(), {"format": "pt"})
                for name in opened.keys():
                    _, shape, data = self.expected[name]
                    tensor = opened.get_tensor(name)
                    self.assertEqual(list(tensor.shape), shape)
                    self.assertEqual(bytes_of(tensor), data)
                    seen.add(name)
        self.assertEqual(seen, set(self.expected))

    @unittest.skipUnless(have("torch"), "torch is not installed")
    def test_distributed_checkpoint_of_torch_loads_the_export(self):
        import torch
        import torch.distributed.checkpoint as dcp
        try:
            from torch.distributed.checkpoint import HuggingFaceStorageReader
        except ImportError:
            self.skipTest("this torch has no HuggingFaceStorageReader")
        types = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
                 "BF16": torch.bfloat16, "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool}
        state = {name: torch.zeros(shape, dtype=types[dtype])
                 for name, (dtype, shape, _) in self.expected.items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(self.folder / "export")),
                 no_dist=True)
        for name, tensor in state.items():
            self.assertEqual(bytes_of(tensor), self.expected[name][2], name)


if __name__ == "__main__":
    if not have("safetensors"):
        print("not tested: the Python package safetensors is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)

# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""The kernels of vescomm.gpu on the test double of CUDA: values, pieces, and refused arguments."""

import ctypes
import math
import unittest

import vescomm
from gpu_test import CUDA, TO_DEVICE, TO_HOST, Exported, run_ranks
from vescomm import gpu

C_TYPES = {
    vescomm.F32: ctypes.c_float,
    vescomm.I32: ctypes.c_int32,
    vescomm.I64: ctypes.c_int64,
    vescomm.I8: ctypes.c_int8,
    vescomm.U8: ctypes.c_uint8,
    vescomm.BF16: ctypes.c_uint16,  # the bits
}


def write(array, values):
    data = (C_TYPES[array.type] * array.size)(*values)
    size = ctypes.c_size_t(ctypes.sizeof(data))
    assert CUDA.cudaMemcpy(ctypes.c_void_p(array.address), data, size, TO_DEVICE) == 0


def read(array):
    data = (C_TYPES[array.type] * array.size)()
    size = ctypes.c_size_t(ctypes.sizeof(data))
    assert CUDA.cudaMemcpy(data, ctypes.c_void_p(array.address), size, TO_HOST) == 0
    return list(data)


def read_clip(array):
    """Norm, factor, and whether the step is skipped."""
    data = bytes(read(array))
    norm = ctypes.c_double.from_buffer_copy(data, 0).value
    return norm, ctypes.c_float.from_buffer_copy(data, 8).value, data[12]


class Kernels(unittest.TestCase):
    def run_on_device(self, body):
        """Calls body(make) on one rank; make(values, type) returns an array with these values."""

        def with_comm(comm):
            with gpu.Communicator(comm) as device:
                buffers = []

                def make(values, type=vescomm.F32):
                    layout = vescomm.Layout([], len(values), [0, len(values)])
                    buffers.append(gpu.Buffer(device, layout, type))
                    array = buffers[-1].data()
                    write(array, values)
                    return array

                body(make)
                device.wait()

        run_ranks(1, with_comm)

    def test_elements(self):
        def body(make):
            gpu.check_kernels()
            target, source = make([1.0, 2.0, 3.0, 4.0]), make([10.0, 20.0, 30.0, 40.0])
            gpu.add(target, source)
            self.assertEqual(read(target), [11.0, 22.0, 33.0, 44.0])
            gpu.scale(target, 2)
            self.assertEqual(read(target), [22.0, 44.0, 66.0, 88.0])
            gpu.copy(target, Exported(source), [gpu.Piece(0, 2, 2), (3, 0, 1)])
            self.assertEqual(read(target), [30.0, 40.0, 66.0, 10.0])
            gpu.zero(target, [(1, 0, 2)])
            self.assertEqual(read(target), [30.0, 0.0, 0.0, 10.0])
            overflow = make([0], vescomm.I32)
            gpu.unscale(target, 0.5, overflow)
            self.assertEqual((read(target)[0], read(overflow)), (15.0, [0]))
            write(target, [math.inf, 0, 0, 0])
            gpu.unscale(target, 0.5, overflow)
            self.assertEqual(read(overflow), [1])

        self.run_on_device(body)

    def test_norm_and_adamw(self):
        def body(make):
            gradients = make([3.0, 4.0])
            words = make([7] * gpu.SUM_WORDS, vescomm.I64)
            clip = make([0] * gpu.CLIP_BYTES, vescomm.U8)
            gpu.zero(words)
            gpu.add_squares(words, gradients)
            gpu.clip_factor(words, 1.0, 1.0, clip)
            norm, factor, skip = read_clip(clip)
            self.assertEqual((norm, skip), (5.0, 0))
            self.assertAlmostEqual(factor, 0.2, places=5)
            masters, m, v = make([1.0, 1.0]), make([0.0, 0.0]), make([0.0, 0.0])
            gpu.adamw(masters, gradients, m, v, step=1, learning_rate=0.5, weight_decay=0, clip=clip)
            # The first step of AdamW moves by the learning rate.
            for value in read(masters):
                self.assertAlmostEqual(value, 0.5, places=5)
            self.assertAlmostEqual(read(m)[0], 0.1 * 3 * factor, places=6)
            write(clip, [0] * 12 + [1, 0, 0, 0])
            before = read(masters)
            gpu.adamw(masters, gradients, m, v, step=2, clip=clip)
            self.assertEqual(read(masters), before)
            gpu.adamw(masters, gradients, m, v, [(1, 0, 1)], step=2)
            self.assertEqual(read(masters)[0], before[0])
            self.assertNotEqual(read(masters)[1], before[1])

        self.run_on_device(body)

    def test_adamw_rounds_bf16(self):
        def body(make):
            # A step of 2^-10 from 1, of which a bf16 is 2^-8 away below.
            def steps_below(random):
                masters = make([0x3F80] * 4096, vescomm.BF16)
                gradients, m, v = make([1.0] * 4096), make([0.0] * 4096), make([0.0] * 4096)
                gpu.adamw(masters, gradients, m, v, step=1, learning_rate=2**-10, weight_decay=0,
                          random=random)
                values = read(masters)
                self.assertEqual(values.count(0x3F80) + values.count(0x3F7F), 4096)
                return [value == 0x3F7F for value in values]

            self.assertEqual(sum(steps_below(None)), 0)
            first = steps_below((7, 0))
            self.assertAlmostEqual(sum(first), 1024, delta=170)
            self.assertEqual(steps_below((7 - 2**64, 0)), first)
            self.assertNotEqual(steps_below((8, 0)), first)
            self.assertEqual(steps_below((7, 100))[:-100], first[100:])
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, "the parameters are f32"):
                gpu.adamw(*[make([1.0])] * 4, step=1, random=(1, 0))

        self.run_on_device(body)

    def test_sgd(self):
        def body(make):
            masters, mean = make([1.0, 1.0, 1.0]), make([0.0, 2.0, 0.0])
            gradients = make([4.0, -8.0])
            gpu.sgd(masters, gradients, None, [(1, 0, 2)], step=1, learning_rate=0.25)
            self.assertEqual(read(masters), [1.0, 0.0, 3.0])
            gpu.sgd(masters, gradients, mean, [(1, 0, 2)], step=2, learning_rate=0.25, momentum=0.5,
                    dampening=0.75, gradient_scale=2)
            self.assertEqual(read(mean), [0.0, 3.0, -4.0])
            self.assertEqual(read(masters), [1.0, -0.75, 4.0])
            gpu.sgd(masters, masters, step=1, learning_rate=0, weight_decay=1, decoupled=True)
            self.assertEqual(read(masters), [1.0, -0.75, 4.0])
            write(mean, [0.0, 0.0, 0.0])
            gpu.sgd(masters, make([1.0] * 3), mean, step=1, learning_rate=1, momentum=0.5,
                    nesterov=True)
            self.assertEqual(read(masters), [-0.5, -2.25, 2.5])
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, "nesterov needs a momentum"):
                gpu.sgd(masters, gradients, step=1, pieces=[(0, 0, 1)], nesterov=True)
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, "momentum has 0"):
                gpu.sgd(masters, masters, step=1, momentum=0.5)

        self.run_on_device(body)

    def test_adam8bit(self):
        def body(make):
            count = gpu.MOMENT_BLOCK + 2
            masters, gradients = make([1.0] * count), make([2.0] * count)
            m, v = make([0] * count, vescomm.U8), make([0] * count, vescomm.U8)
            m_scales, v_scales = make([0.0] * 2), make([0.0] * 2)
            gpu.adam8bit(masters, gradients, m, v, m_scales, v_scales, step=1, learning_rate=0.5,
                         weight_decay=0)
            for value in read(masters):
                self.assertAlmostEqual(value, 0.5, places=5)
            self.assertEqual((set(read(m)), set(read(v))), ({255}, {255}))
            for found, scale in ((m_scales, 0.2), (v_scales, 0.004)):
                for value in read(found):
                    self.assertAlmostEqual(value, scale, places=6)
            clip = make([0] * 12 + [1, 0, 0, 0], vescomm.U8)
            before = read(masters)
            gpu.adam8bit(masters, gradients, m, v, m_scales, v_scales, step=2, clip=clip)
            self.assertEqual(read(masters), before)
            halves = make([0x3F80] * 4, vescomm.BF16)
            gpu.adam8bit(halves, make([1.0] * 4), make([0] * 4, vescomm.U8),
                         make([0] * 4, vescomm.U8), make([0.0]), make([0.0]), step=1,
                         learning_rate=0.25, weight_decay=0, random=(1, 0))
            self.assertEqual(read(halves), [0x3F40] * 4)
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, "m_scales has 1"):
                gpu.adam8bit(masters, gradients, m, v, make([0.0]), v_scales, step=1)

        self.run_on_device(body)

    def test_codes(self):
        def body(make):
            source = make([127.0, -254.0, 2.0, 1.0, 508.0])
            for type in (vescomm.I8, vescomm.U8):  # the type of the memory does not matter
                codes = make([0] * 5, type)
                scales, target = make([0.0] * 3), make([0.0] * 5)
                gpu.quantise(codes, scales, source, 2)
                self.assertEqual(read(scales)[::2], [2.0, 4.0])
                gpu.dequantise(target, codes, scales, 2)
                for value, expected in zip(read(target), read(source)):
                    self.assertAlmostEqual(value, expected, delta=2)
                gpu.quantise(codes, scales, source, 2, vescomm.F8E4M3)
                gpu.dequantise(target, codes, scales, 2, vescomm.F8E4M3)
                for value, expected in zip(read(target), read(source)):
                    self.assertAlmostEqual(value, expected, delta=abs(expected) / 16)

        self.run_on_device(body)

    def test_contributions_are_summed(self):
        def body(make):
            # Three elements of two sources, in blocks of two.
            codes, scales = make([1, 2, 3, 0, 10, 20, 30], vescomm.I8), make([1.0, 2.0, 0.5, 4.0])
            target = make([1.0] * 3)
            sources = dict(sources=2, code_stride=4, scale_stride=2)
            gpu.sum_quantised(target, codes, scales, 2, factor=2.0, add=True, **sources)
            self.assertEqual(read(target), [13.0, 25.0, 253.0])
            gpu.sum_quantised(target, codes, scales, 2, **sources)
            self.assertEqual(read(target), [6.0, 12.0, 126.0])
            with self.assertRaisesRegex(vescomm.InvalidArgumentError, "codes has 2 elements"):
                gpu.sum_quantised(target, codes, scales, 2, sources=2, code_stride=5, scale_stride=2)

        self.run_on_device(body)

    def test_wrong_arguments_raise(self):
        def body(make):
            four, two = make([1.0] * 4), make([1.0] * 2)
            words, clip = make([0] * gpu.SUM_WORDS, vescomm.I64), make([0] * 8, vescomm.U8)
            refused = vescomm.InvalidArgumentError
            with self.assertRaisesRegex(refused, "4 elements from 0 on, and source has 2"):
                gpu.copy(four, two)
            with self.assertRaisesRegex(refused, "2 elements from 3 on, and target has 4"):
                gpu.zero(four, [(3, 0, 2)])
            with self.assertRaisesRegex(refused, "result has 8 bytes, and the kernel needs 16"):
                gpu.clip_factor(words, 1.0, 1.0, clip)
            with self.assertRaisesRegex(refused, "words"):
                gpu.add_squares(four, two)
            with self.assertRaisesRegex(refused, "scales"):
                gpu.quantise(make([0] * 4, vescomm.I8), make([0.0]), four, 2)
            with self.assertRaisesRegex(refused, "step"):
                gpu.adamw(four, four, make([0.0] * 4), make([0.0] * 4), step=0)
            with self.assertRaisesRegex(refused, "does not export DLPack"):
                gpu.zero([1.0])
            for bad in (3, [1], "x"):
                with self.assertRaises(TypeError):
                    gpu.zero(four, bad)
            with self.assertRaises(TypeError):
                gpu.zero(None)

        self.run_on_device(body)


if __name__ == "__main__":
    unittest.main()

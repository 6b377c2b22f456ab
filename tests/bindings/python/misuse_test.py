#!/usr/bin/env python3
# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Misuse that must not corrupt memory: each case is a process of its own. The cases are in
misusing_ranks.py.
"""

import unittest

from job import Job, JobTest


class Misuse(JobTest):
    def run_alone(self, case):
        with Job(1, "misusing_ranks.py", case) as job:
            return self.expect_success(job)[0]

    def test_a_communicator_is_freed_while_another_thread_is_in_a_call(self):
        for call in ("allocates", "makes_progress"):
            with self.subTest(call):
                self.run_alone(f"freed_while_another_thread_{call}")

    def test_a_destructor_frees_what_the_call_uses(self):
        self.run_alone("freed_by_a_destructor")

    def test_a_destructor_frees_the_request_that_starts(self):
        self.run_alone("freed_while_it_starts")

    def test_an_element_shortens_its_list(self):
        self.run_alone("index_shortens_the_list")

    def test_a_sequence_is_longer_than_it_says(self):
        self.run_alone("sequence_is_longer_than_it_says")

    def test_strides_of_an_interface_are_too_many_or_too_few(self):
        self.run_alone("interface_with_wrong_strides")

    def test_arrays_of_more_dimensions_than_packages_share(self):
        self.run_alone("many_dimensions")

    def test_a_capsule_is_returned_twice(self):
        self.run_alone("capsule_is_returned_twice")

    def test_the_import_in_a_subinterpreter_is_refused(self):
        self.run_alone("subinterpreter")

    def test_the_end_of_the_process_is_interrupted(self):
        with Job(2, "misusing_ranks.py", "interrupted_at_the_end") as job:
            text = self.expect_success(job)[0]
        self.assertIn("KeyboardInterrupt", text)
        self.assertNotIn("SystemError", text)

    def test_an_error_while_the_interpreter_ends(self):
        self.assertIn("InvalidArgumentError: all_reduce: there is no op 99",
                      self.run_alone("destructors_at_the_end"))


if __name__ == "__main__":
    unittest.main()

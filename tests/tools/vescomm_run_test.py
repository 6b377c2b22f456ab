# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of the program vescomm-run. The variable VESCOMM_TEST_RUN holds its path."""

import collections
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RUN = os.environ["VESCOMM_TEST_RUN"]
# Seconds; much longer than any test takes on a working machine.
PATIENCE = 60


def start(*arguments, **more):
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(
        [RUN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )


def run(*arguments, stdin=b"", **more):
    """Exit code, output and errors, as bytes."""
    done = subprocess.run(
        [RUN, *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE, **more
    )
    return done.returncode, done.stdout, done.stderr


def shell(script, *, n=2, options=(), **more):
    return run("-n", n, *options, "sh", "-c", script, **more)


def python(script, *, n=2, options=(), **more):
    return run("-n", n, *options, sys.executable, "-c", script, **more)


class Usage(unittest.TestCase):
    def expect_usage_error(self, *arguments, says):
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, b""), err)
        self.assertIn(says, err.decode())
        self.assertEqual(err.count(b"\n"), 1, err)

    def test_mistakes_give_one_sentence_and_code_2(self):
        self.expect_usage_error(says="-n COUNT is missing")
        self.expect_usage_error("-n", 2, says="PROGRAM is missing")
        self.expect_usage_error("-n", "x", "true", says="--local-ranks: Value x")
        self.expect_usage_error("-n", 0, "true", says="range")
        self.expect_usage_error("-n", 2, "--typo", "true", says="--typo")
        self.expect_usage_error("-n", 2, "--bind", "moon", "true", says="moon")
        self.expect_usage_error("-n", 3, "--nodes", "1,1", "true", says="--nodes has 2 ranks")
        self.expect_usage_error("-n", 3, "--nodes", "3,0", "true", says="--nodes")
        self.expect_usage_error("-n", 2, "--node", "a", "--nodes", "1,1", "true", says="--nodes")
        self.expect_usage_error("-n", 2, "--ranks", 4, "true", says="--address")
        self.expect_usage_error("-n", 2, "--ranks", 1, "true", says="--ranks 1")
        self.expect_usage_error(
            "-n", 2, "--ranks", 4, "--address", "h", "true", says="--address h is not an address"
        )
        self.expect_usage_error(
            "-n", 2, "--ranks", 4, "--address", "h:1", "true", says="--secret-file"
        )
        self.expect_usage_error("-n", 2, "--secret-file", "/nowhere", "true", says="/nowhere")

    def test_help_names_units_and_examples(self):
        code, out, err = run("--help")
        self.assertEqual((code, err), (0, b""))
        for part in ("Examples:", "SECONDS", "HOST:PORT", "Exit code", "PROGRAM"):
            self.assertIn(part, out.decode())

    def test_arguments_after_the_program_are_passed_to_it(self):
        for before in ((), ("--",)):
            code, out, _ = run(
                "-n", 1, *before, "printf", "%s|", "-n", "7", "--help", "--", "--bind", "a b"
            )
            self.assertEqual((code, out), (0, b"[0] -n|7|--help|--|--bind|a b|\n"))

    def test_a_program_that_does_not_exist_is_named(self):
        for program in ("no-such-program", "./no-such-program"):
            code, _, err = run("-n", 3, program, "--option")
            self.assertEqual(code, 127)
            self.assertEqual(err.count(b"\n"), 1, err)
            self.assertIn(f"program {program} does not exist", err.decode())

    def test_a_program_that_cannot_be_run_is_named(self):
        code, _, err = run("-n", 2, "/etc/passwd")
        self.assertEqual(code, 126)
        self.assertIn("/etc/passwd cannot be run", err.decode())


class Variables(unittest.TestCase):
    def values(self, *names, n=3, options=(), **more):
        script = "echo " + "/".join("${%s-unset}" % name for name in names)
        code, out, err = shell(script, n=n, options=options, **more)
        self.assertEqual(code, 0, err)
        return sorted(line.split(" ", 1)[1] for line in out.decode().splitlines())

    def test_give_rank_and_number_of_ranks(self):
        self.assertEqual(
            self.values("VESCOMM_RANK", "VESCOMM_RANKS", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                        "LOCAL_WORLD_SIZE"),
            ["0/3/0/3/0/3", "1/3/1/3/1/3", "2/3/2/3/2/3"],
        )

    def test_give_address_and_secret(self):
        found = self.values("VESCOMM_ADDRESS", "MASTER_ADDR", "MASTER_PORT", "VESCOMM_SECRET")
        self.assertEqual(len(set(found)), 1)
        address, host, port, secret = found[0].split("/")
        self.assertEqual(address, f"{host}:{int(port) - 1}")
        self.assertRegex(secret, "^[0-9a-f]{64}$")
        again = self.values("VESCOMM_SECRET")
        self.assertNotEqual(again[0], secret)

    def test_replace_those_of_an_outer_launcher(self):
        outer = dict(os.environ, VESCOMM_LISTEN_DESCRIPTOR="99", VESCOMM_RANK="7", RANK="9")
        found = self.values("VESCOMM_RANK", "RANK", "VESCOMM_LISTEN_DESCRIPTOR", env=outer)
        self.assertEqual(found[1:], ["1/1/unset", "2/2/unset"])
        self.assertRegex(found[0], "^0/0/[0-9]+$")
        self.assertNotEqual(found[0], "0/0/99")

    def test_name_nodes(self):
        self.assertEqual(self.values("VESCOMM_NODE", options=["--node", "here"]), ["here"] * 3)
        emulated = self.values("VESCOMM_NODE", n=6, options=["--nodes", "3,1,2"])
        self.assertEqual(sorted(collections.Counter(emulated).values()), [1, 2, 3])

    def test_count_across_machines(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"the secret\n")
            file.flush()
            self.assertEqual(
                self.values(
                    "VESCOMM_RANK", "VESCOMM_RANKS", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                    "VESCOMM_ADDRESS", "MASTER_PORT", "VESCOMM_SECRET",
                    n=2,
                    options=["--ranks", 6, "--first-rank", 4, "--address", "head:4711",
                             "--secret-file", file.name],
                ),
                ["4/6/0/2/head:4711/4712/the secret", "5/6/1/2/head:4711/4712/the secret"],
            )

    def test_rank_zero_inherits_a_socket_that_listens_at_the_address(self):
        code, out, err = python(
            """if True:
            import os, socket
            rank = int(os.environ["RANK"])
            host, port = os.environ["VESCOMM_ADDRESS"].split(":")
            if rank == 0:
                listener = socket.socket(fileno=int(os.environ["VESCOMM_LISTEN_DESCRIPTOR"]))
                assert listener.getsockname() == (host, int(port))
                listener.setblocking(True)
                for _ in range(3):
                    listener.accept()[0].sendall(b"hello")
            else:
                print(socket.create_connection((host, int(port))).recv(5).decode())
            """,
            n=4,
        )
        self.assertEqual((code, err), (0, b""))
        self.assertEqual(sorted(out.splitlines()), [b"[1] hello", b"[2] hello", b"[3] hello"])

    def test_no_other_descriptor_is_inherited(self):
        code, out, err = shell("ls /proc/self/fd | wc -l", n=3)
        self.assertEqual((code, err), (0, b""))
        # The standard streams and the folder that ls reads; on rank 0 also the listening socket.
        self.assertEqual(sorted(out.splitlines()), [b"[0] 5", b"[1] 4", b"[2] 4"])


class Output(unittest.TestCase):
    def test_lines_of_ranks_do_not_mix(self):
        code, out, err = python(
            """if True:
            import os, sys
            rank = os.environ["RANK"]
            for i in range(2000):
                # Two writes per line, so that lines could mix.
                sys.stdout.write(rank * 50); sys.stdout.flush()
                sys.stdout.write(rank * 50 + "\\n"); sys.stdout.flush()
            """,
            n=4,
        )
        self.assertEqual((code, err), (0, b""))
        lines = collections.Counter(out.decode().splitlines())
        self.assertEqual(lines, {f"[{rank}] " + str(rank) * 100: 2000 for rank in range(4)})

    def test_long_lines_and_all_bytes_pass(self):
        code, out, err = python(
            """if True:
            import os, sys
            rank = int(os.environ["RANK"])
            line = bytes(b for b in range(256) if b != 10) * 8000 + bytes([65 + rank]) + b"\\n"
            for _ in range(3): sys.stdout.buffer.write(line)
            """,
            n=3,
        )
        self.assertEqual((code, err), (0, b""))
        body = bytes(b for b in range(256) if b != 10) * 8000
        expected = sorted([b"[%d] " % r + body + bytes([65 + r]) for r in range(3)] * 3)
        self.assertEqual(sorted(out.split(b"\n")[:-1]), expected)

    def test_streams_stay_apart(self):
        code, out, err = shell("echo out; echo err >&2", n=1)
        self.assertEqual((code, out, err), (0, b"[0] out\n", b"[0] err\n"))

    def test_a_last_line_without_newline_is_not_lost(self):
        code, out, err = shell("printf 'a\\nb'; printf c >&2", n=1)
        self.assertEqual((code, out, err), (0, b"[0] a\n[0] b\n", b"[0] c\n"))

    def test_without_prefix_bytes_are_unchanged(self):
        code, out, _ = shell("printf 'a\\nb'", n=1, options=["--no-prefix"])
        self.assertEqual((code, out), (0, b"a\nb"))

    def test_a_rank_that_a_signal_ended_decides_the_exit_code(self):
        """Also if the launcher observes a rank first that exited because of it."""
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            # Rank 1 dies when rank 0 has ended, and the launcher has said so.
            script = (
                'if [ $RANK = 0 ]; then exec 4>$FIFO; exit 3; fi\n'
                'cat $FIFO; while kill -0 $(cat $FIFO.pid) 2>/dev/null; do :; done; kill -9 $$'
            )
            first = 'if [ $RANK = 0 ]; then echo $$ > $FIFO.pid; fi\n'
            code, _, err = shell(first + script, env={**os.environ, "FIFO": fifo})
        self.assertEqual(code, 128 + signal.SIGKILL, err)
        self.assertRegex(err.decode(), r"rank 0 .* exited with code 3; ending the other 1")
        self.assertRegex(err.decode(), r"rank 1 .* was ended by signal 9")

    def test_output_before_a_crash_is_not_lost(self):
        code, out, _ = shell("seq 20000; kill -9 $$", n=1)
        self.assertEqual(code, 128 + 9)
        self.assertEqual(out.count(b"\n"), 20000)

    def test_a_closed_reader_ends_the_job(self):
        job = start("-n", 2, "yes")
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(PATIENCE), 128 + signal.SIGPIPE)
        job.stderr.close()

    def test_a_slow_reader_does_not_keep_ranks_from_ending(self):
        job = start("-n", 2, "yes")
        job.stdout.readline()
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM, err)

    def test_a_process_left_behind_does_not_keep_the_job(self):
        code, out, _ = shell("sleep 1000 & echo $!", n=1)
        self.assertEqual(code, 0)
        os.kill(int(out.split()[1]), signal.SIGKILL)


class Input(unittest.TestCase):
    def test_goes_to_rank_zero_only(self):
        code, out, _ = shell("cat", n=3, stdin=b"a line\n")
        self.assertEqual((code, out), (0, b"[0] a line\n"))


class Ends(unittest.TestCase):
    def test_success_of_all_is_zero(self):
        self.assertEqual(shell("true", n=5), (0, b"", b""))

    def test_the_first_failure_is_reported_and_ends_the_others(self):
        code, _, err = shell('[ $RANK = 2 ] && exit 7; exec sleep 1000', n=4)
        self.assertEqual(code, 7)
        self.assertRegex(err.decode(), r"^vescomm-run: rank 2 \(process \d+\) exited with code 7; ")
        self.assertEqual(err.count(b"\n"), 1, err)

    def test_other_ranks_have_time_to_report_a_failure(self):
        # Rank 0 observes the failure as real ranks do: rank 1 closes what it held open.
        code, out, _ = shell(
            'if [ $RANK = 1 ]; then exec 3>$FIFO; exit 7; fi\n'
            'cat <$FIFO; echo observed; exec sleep 1000',
            n=2,
            env=dict(os.environ, FIFO=self.fifo()),
        )
        self.assertEqual((code, out), (7, b"[0] observed\n"))

    def test_exit_code_for_a_signal_is_128_plus_its_number(self):
        code, _, err = shell('[ $RANK = 1 ] && kill -SEGV $$; exec sleep 1000', n=2)
        self.assertEqual(code, 128 + signal.SIGSEGV)
        self.assertIn("rank 1", err.decode())
        self.assertIn("signal 11", err.decode())

    def test_the_others_go_on_while_the_minimum_is_left(self):
        script = (
            'if [ $RANK = 0 ]; then sleep 1000 & echo $! > $FIFO; kill -9 $$; fi\n'
            'if [ $RANK = 1 ]; then read child < $FIFO; echo $child; exit 7; fi\n'
            'read line < $LAST; echo went on'
        )
        fifo, last = self.fifo(), self.fifo()
        job = start(
            "-n", 3, "--min-ranks", 1, "sh", "-c", script,
            env=dict(os.environ, FIFO=fifo, LAST=last),
        )
        child = int(job.stdout.readline().split()[1])
        failed = [job.stderr.readline().decode() for _ in range(2)]
        self.assertRegex("".join(sorted(failed)), "others go on: 1 of 3 have not failed")
        self.assertRegex("".join(failed), r"rank 0 \(process \d+\) was ended by signal 9")
        with open(last, "w", encoding="ascii") as file:
            file.write("\n")
        out, err = job.communicate()
        self.assertEqual((job.returncode, out, err), (0, b"[2] went on\n", b""))
        # The children of a failed rank end with it.
        self.assertFalse(os.path.exists(f"/proc/{child}"))

    def test_less_than_the_minimum_ends_the_others(self):
        code, _, err = shell(
            '[ $RANK = 0 ] && exit 5; [ $RANK = 1 ] && exit 5; exec sleep 1000',
            n=3,
            options=["--min-ranks", "2"],
        )
        self.assertEqual(code, 5)
        lines = err.decode().splitlines()
        self.assertIn("the others go on: 2 of 3 have not failed", lines[0])
        self.assertIn("ending the other 1", lines[1])

    def test_the_minimum_cannot_exceed_the_ranks(self):
        code, _, err = shell("true", n=2, options=["--min-ranks", "3"])
        self.assertEqual(code, 2)
        self.assertIn("--min-ranks 3 is more than the 2 ranks", err.decode())

    def test_a_successful_rank_does_not_end_the_others(self):
        code, out, _ = shell('[ $RANK = 0 ] && exit 0; echo late', n=2)
        self.assertEqual((code, out), (0, b"[1] late\n"))

    def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_time(self):
        code, _, err = shell(
            'if [ $RANK = 0 ]; then read line < $FIFO; exit 3; fi\n'
            'trap "" TERM; echo > $FIFO; while :; do sleep 1; done',
            n=2,
            options=["--grace", "0.2"],
            env=dict(os.environ, FIFO=self.fifo()),
        )
        self.assertEqual(code, 3)
        self.assertIn("killed: rank 1", err.decode())

    def test_children_of_ranks_end_with_them(self):
        script = 'sleep 1000 & echo $!; [ $RANK = 1 ] && { read line < $FIFO; exit 4; }; echo > $FIFO; wait'
        code, out, _ = shell(script, n=2, env=dict(os.environ, FIFO=self.fifo()))
        self.assertEqual(code, 4)
        for line in out.split(b"\n")[:-1]:
            self.assertFalse(os.path.exists(f"/proc/{int(line.split()[1])}"), line)

    def test_ranks_that_handle_sigterm_can_succeed(self):
        job = start("-n", 3, "sh", "-c", 'trap "exit 0" TERM; echo ready; while :; do sleep 0.01; done')
        for _ in range(3):
            job.stdout.readline()
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 0)

    def test_signals_reach_every_rank(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            name = number.name[3:]
            script = f'trap "echo got {name}; exit 9" {name}; echo ready; while :; do sleep 0.01; done'
            job = start("-n", 3, "--grace", 60, "sh", "-c", script)
            for _ in range(3):
                self.assertIn(b"ready", job.stdout.readline())
            job.send_signal(number)
            out, _ = job.communicate(timeout=PATIENCE)
            self.assertEqual(job.returncode, 9)
            self.assertIn(f"got {name}".encode(), out)

    def expect_killed_after_grace(self, number, script):
        """Each of the two ranks writes "ready" before the signal."""
        job = start("-n", 2, "--grace", "0.2", "sh", "-c", script)
        for _ in range(2):
            self.assertIn(b"ready", job.stdout.readline())
        job.send_signal(number)
        _, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 128 + number, err)
        self.assertIn(f"not ended 0.2 s after {number.name}, and killed: rank", err.decode())

    def test_ranks_that_ignore_a_signal_are_killed_after_the_grace_time(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                self.expect_killed_after_grace(
                    number, f'trap "" {number.name[3:]}; echo ready; while :; do sleep 0.01; done')

    def test_a_stopped_rank_is_killed_after_the_grace_time(self):
        self.expect_killed_after_grace(
            signal.SIGTERM,
            'trap "" TERM; echo ready; [ $RANK = 0 ] && exit 0; while :; do kill -STOP $$; done')

    def test_a_stopped_rank_handles_the_signal(self):
        job = start("-n", 2, "sh", "-c", 'trap "echo got; exit 7" TERM; echo $$; read line < $FIFO',
                    env=dict(os.environ, FIFO=self.fifo()))
        ranks = [int(job.stdout.readline().split()[1]) for _ in range(2)]
        for process in ranks:
            os.kill(process, signal.SIGSTOP)
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 7, err)
        self.assertEqual(sorted(out.splitlines()), [b"[0] got", b"[1] got"])

    def test_ranks_that_end_after_a_signal_decide_the_exit_code(self):
        script = ('trap "exit $((5 * RANK))" TERM; echo ready; while :; do sleep 0.01; done')
        for options, code in (((), 5), (("--min-ranks", 1), 0)):
            with self.subTest(options):
                job = start("-n", 2, *options, "sh", "-c", script)
                for _ in range(2):
                    job.stdout.readline()
                job.send_signal(signal.SIGTERM)
                _, err = job.communicate(timeout=PATIENCE)
                self.assertEqual(job.returncode, code, err)

    def test_the_second_interrupt_kills(self):
        job = start("-n", 2, "--grace", 86400, "sh", "-c",
                    'trap "echo no" INT; echo ready; while :; do sleep 0.01; done')
        for _ in range(2):
            job.stdout.readline()
        job.send_signal(signal.SIGINT)
        for _ in range(2):
            self.assertIn(b"no", job.stdout.readline())
        # A signal right after the first one belongs to it.
        while True:
            job.send_signal(signal.SIGINT)
            try:
                _, err = job.communicate(timeout=0.05)
                break
            except subprocess.TimeoutExpired:
                pass
        self.assertEqual(job.returncode, 128 + signal.SIGINT)
        self.assertIn("for the second time", err.decode())

    def test_signals_at_the_same_time_are_one_request(self):
        """timeout(1) signals the launcher, then its process group."""
        job = start("-n", 2, "--grace", 86400, "sh", "-c",
                    'trap "exit 9" TERM; trap "" INT; echo ready; while :; do sleep 0.01; done')
        for _ in range(2):
            job.stdout.readline()
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            job.send_signal(number)
        _, err = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 9, err)

    def test_ranks_die_with_the_launcher(self):
        job = start("-n", 3, "sh", "-c", "echo $$; exec sleep 1000")
        ranks = [int(job.stdout.readline().split()[1]) for _ in range(3)]
        job.kill()
        job.wait(PATIENCE)
        # The pipes end once the last rank that could write to them is gone.
        job.communicate(timeout=PATIENCE)
        for process in ranks:
            with self.subTest(process=process):
                # The system reaps orphans, so the process may be a zombie.
                self.assertTrue(self.ended(process))

    def test_no_zombie_is_left_while_others_run(self):
        job = start("-n", 2, "sh", "-c", 'echo $$; [ $RANK = 0 ] && exit 0; read line < $FIFO',
                    env=dict(os.environ, FIFO=self.fifo()))
        processes = dict(job.stdout.readline().split() for _ in range(2))
        self.assertTrue(self.reaped(int(processes[b"[0]"])))
        job.kill()
        job.communicate(timeout=PATIENCE)

    def ended(self, process):
        """Waits for a process to end; it may still be a zombie."""
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], PATIENCE)[0])
        finally:
            os.close(descriptor)

    def reaped(self, process):
        """Waits until a process has ended and has been reaped."""
        if not self.ended(process):
            return False
        deadline = time.monotonic() + PATIENCE
        while os.path.exists(f"/proc/{process}"):
            if time.monotonic() > deadline:
                return False
            os.sched_yield()
        return True

    def fifo(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "fifo")
        os.mkfifo(path)
        return path


class Cores(unittest.TestCase):
    def test_are_split_among_ranks_on_request(self):
        script = "import os; print(sorted(os.sched_getaffinity(0)))"
        everywhere = sorted(os.sched_getaffinity(0))
        code, out, err = python(script, n=2)
        self.assertEqual((code, err), (0, b""))
        self.assertEqual({line.split(b" ", 1)[1].decode() for line in out.splitlines()},
                         {str(everywhere)})
        code, out, err = python(script, n=2, options=["--bind", "core"])
        self.assertEqual((code, err), (0, b""))
        sets = [set(eval(line.split(b" ", 1)[1])) for line in out.splitlines()]
        for cores in sets:
            self.assertLessEqual(cores, set(everywhere))
        if len(everywhere) >= 4:  # with fewer, two hardware threads may be one core
            self.assertFalse(sets[0] & sets[1])


if __name__ == "__main__":
    unittest.main()

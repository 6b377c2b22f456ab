// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::raw::c_int;
use std::os::unix::io::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::{env, fs, thread};

extern "C" {
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}
const F_SETFD: c_int = 2;

/// Set in the processes that a test starts.
const IN_JOB: &str = "VESCOMM_TEST_IN_JOB";

/// One rank of a job. Its standard error goes to that of the test.
pub struct Rank {
    pub process: Child,
    output: BufReader<std::process::ChildStdout>,
}

/// Ranks that are processes. The ranks that still run are killed at the end.
pub struct Job {
    pub ranks: Vec<Rank>,
}

impl Job {
    /// Starts a program on several ranks of this machine.
    pub fn new<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S], ranks: usize) -> Job {
        Job::with_environment(program, arguments, ranks, &[])
    }

    fn with_environment<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: &[S],
        ranks: usize,
        environment: &[(&str, &str)],
    ) -> Job {
        // Rank 0 inherits the socket, so no other process can take the port in between.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let descriptor = listener.as_raw_fd();
        let start = |rank: usize| {
            let mut command = Command::new(&program);
            command
                .args(arguments)
                .envs(environment.iter().copied())
                .env(IN_JOB, "1")
                .env("VESCOMM_RANK", rank.to_string())
                .env("VESCOMM_RANKS", ranks.to_string())
                .env("VESCOMM_ADDRESS", &address)
                .env("VESCOMM_SECRET", "a secret of the test")
                .env("VESCOMM_TIMEOUT_SECONDS", "100")
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            if rank == 0 {
                command.env("VESCOMM_LISTEN_DESCRIPTOR", descriptor.to_string());
                // SAFETY: fcntl() may be called between fork() and exec(). It lets exec() keep the
                // descriptor.
                unsafe {
                    command.pre_exec(move || match fcntl(descriptor, F_SETFD, 0) {
                        -1 => Err(std::io::Error::last_os_error()),
                        _ => Ok(()),
                    });
                }
            }
            let mut process = command.spawn().unwrap();
            let output = BufReader::new(process.stdout.take().unwrap());
            Rank { process, output }
        };
        Job { ranks: (0..ranks).map(start).collect() }
    }

    /// Starts the calling test, of this name, in several processes.
    pub fn of_test(name: &str, ranks: usize) -> Job {
        Job::of_test_with(name, ranks, &[])
    }

    /// As of_test(), with more variables.
    pub fn of_test_with(name: &str, ranks: usize, environment: &[(&str, &str)]) -> Job {
        let program = env::current_exe().unwrap();
        let arguments = ["--exact", name, "--nocapture", "--test-threads=1", "--quiet"];
        Job::with_environment(program, &arguments, ranks, environment)
    }

    /// Reads the output of each rank up to the line that ends with `wanted`.
    pub fn wait_for_line(&mut self, wanted: &str) {
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            let mut line = String::new();
            while !line.trim_end().ends_with(wanted) {
                line.clear();
                let bytes = rank.output.read_line(&mut line).unwrap();
                assert!(bytes > 0, "rank {number} ended before it printed {wanted:?}");
            }
        }
    }

    /// Waits for the end of each rank. Returns the exit status and the rest of the output.
    pub fn finish(mut self) -> Vec<(ExitStatus, String)> {
        let ranks = std::mem::take(&mut self.ranks);
        let readers: Vec<_> = ranks
            .into_iter()
            .map(|mut rank| {
                thread::spawn(move || {
                    let mut text = String::new();
                    rank.output.read_to_string(&mut text).unwrap();
                    (rank.process.wait().unwrap(), text)
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    }

    /// Waits for the end of each rank, which must succeed. Returns the outputs.
    pub fn outputs(self) -> Vec<String> {
        let ends = self.finish();
        assert!(ends.iter().all(|(status, _)| status.success()), "{ends:?}");
        ends.into_iter().map(|(_, output)| output).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.process.kill();
            let _ = rank.process.wait();
        }
    }
}

/// True in a process that a test has started.
pub fn in_job() -> bool {
    env::var_os(IN_JOB).is_some()
}

/// The program of an example, which cargo builds with the tests.
pub fn example(name: &str) -> PathBuf {
    let tests = env::current_exe().unwrap();
    let program = tests.parent().unwrap().with_file_name("examples").join(name);
    assert!(program.exists(), "{program:?} is missing: run cargo test without a filter of targets");
    program
}

/// The program vescomm-run beside the library or on PATH.
pub fn vescomm_run() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.split_whitespace().find(|word| word.contains("/libvescomm.so")).unwrap();
    let above = Path::new(library).ancestors().skip(1).take(4);
    let beside = above.flat_map(|folder| [folder.join("tools"), folder.join("bin")]);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = beside.chain(env::split_paths(&path)).collect();
    folders.iter().map(|folder| folder.join("vescomm-run")).find(|program| program.is_file())
}

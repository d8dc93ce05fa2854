//! How targets come in, and how a recording of them begins.

use std::io;
use std::time::Duration;

use super::Sampler;
use super::pace::Pace;
use super::subject::{Entry, Subject};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Event, Options};
use crate::target::launch;
use crate::target::linux::{self, Process};
use crate::target::{refusal, sys};

/// How long a young process is given to become a Python.
const STARTUP_NS: u64 = 1_000_000_000;

/// The error that a process is not what can be recorded without native frames.
pub(super) fn not_python(pid: u32, name: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("process {pid} ({name}) is not a Python process"),
        "without native frames only CPython 3.8 to 3.14 can be profiled: leave out --no-native and --nonblocking",
    )
}

impl Sampler {
    pub(super) fn add(&mut self, pid: u32, native: bool) -> Result<(), Error> {
        linux::check_not_traced(pid)?;
        let mut subject = Subject::new(Process::open(pid)?, false);
        let age = || {
            let start = subject.process.start_time * (1_000_000_000 / 100);
            sys::boottime_ns().saturating_sub(start)
        };
        let patience = sys::monotonic_ns() + STARTUP_NS.saturating_sub(age());
        loop {
            match subject.open_runtime() {
                Ok(true) => break,
                // A runtime that is not there yet is looked for while sampling.
                Ok(false) if native => break,
                Err(error) if native => {
                    subject.note(error.message);
                    break;
                }
                Ok(false) if sys::monotonic_ns() < patience => std::thread::sleep(Duration::from_millis(5)),
                Ok(false) => return Err(not_python(pid, &subject.process.name)),
                Err(error) => return Err(error),
            }
        }
        self.subjects.push(subject);
        Ok(())
    }

    pub(super) fn launch(&mut self, arguments: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> io::Result<()> {
        let name = arguments.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default().to_string();
        match launch::launch(arguments, environment, self.restore) {
            Ok(held) => {
                let pid = held.pid;
                self.subjects.push(Subject::new(Process::launched(pid, name), true));
                (self.held, self.command_pid) = (Some(held), Some(pid));
                self.say(&Event::Added { pid })
            }
            Err(error) => self.say(&Event::Failed(Error::new(
                ErrorKind::Failed,
                format!("cannot start a process: {error}"),
                "check the limits on processes and memory (ulimit -a)",
            ))),
        }
    }

    pub(super) fn start(&mut self, options: Options) -> io::Result<()> {
        if !options.nonblocking
            && let Err(error) = refusal::check_filter()
        {
            return self.say(&Event::Failed(error));
        }
        if options.children {
            // Before CMD can have children.
            self.follow_from(&options.children_match);
        }
        if let Some(held) = self.held.take()
            && let Err(error) = held.release()
        {
            self.following = None;
            let event = Event::NotExecuted { errno: error.raw_os_error().unwrap_or(0), message: error.to_string() };
            return self.say(&event);
        }
        let (now, unix) = (sys::monotonic_ns(), sys::realtime_ns());
        if let Some(following) = &mut self.following {
            following.begin(now, unix);
        }
        self.clock = Clock::new(now, options.rate, now ^ u64::from(std::process::id()));
        self.pace = Pace::new(now, options.rate);
        self.end = if options.duration_ns == 0 { u64::MAX } else { now.saturating_add(options.duration_ns) };
        for subject in &mut self.subjects {
            let born = subject.launched;
            subject.start(now, &options, Entry { born, unix });
        }
        self.options = Some(options);
        Ok(())
    }
}

//! What supervisor and sampler say to each other: length-prefixed messages over one socket. Both ends are the same
//! build of this module, so the encoding needs no version.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::Error;
use crate::runtime::cpython::FrameLocals;
#[cfg(unix)]
use crate::runtime::go::buckets::Buckets;
#[cfg(unix)]
use crate::runtime::go::goroutines::Goroutines;
#[cfg(unix)]
use crate::runtime::go::profiling::Kind;
use crate::stats::Stats;
use crate::tables::Columns;

/// Most bytes of one message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// How to sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Ticks a second for each thread.
    pub rate: f64,
    /// 0 = no end.
    pub duration_ns: u64,
    /// 0 = no end.
    pub max_ticks: u64,
    /// Whether sleeping threads are sampled.
    pub idle: bool,
    /// Whether native frames are wanted.
    pub native: bool,
    /// Never stop a thread.
    pub nonblocking: bool,
    /// Longest work on one stopped thread.
    pub max_pause_ns: u64,
    /// Most bytes of one native stack copied.
    pub max_stack: u32,
    /// Follow the descendants of the targets.
    pub children: bool,
    /// Only those whose name this regular expression matches; empty = all.
    pub children_match: String,
    /// Keep each sample with its time.
    pub times: bool,
    /// Longest work on the variables of one stopped thread; 0 = they are not wanted.
    pub locals_pause_ns: u64,
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Open a running process.
    Add {
        /// Its pid.
        pid: u32,
        /// Whether one without a known runtime will do: native frames are wanted.
        native: bool,
    },
    /// Take over CMD, which was created suspended, and hold it.
    #[cfg(windows)]
    Hold {
        /// Its pid.
        pid: u32,
    },
    /// Fork CMD and hold it.
    #[cfg(unix)]
    Launch {
        /// Program and arguments.
        arguments: Vec<Vec<u8>>,
        /// `NAME=value` strings.
        environment: Vec<Vec<u8>>,
        /// Whether threads will be stopped: not with `--nonblocking`.
        stops: bool,
    },
    /// Sample all targets.
    Start(Options),
    /// Say how it goes.
    Progress,
    /// End the window and begin the next; sampling goes on.
    Cut,
    /// End sampling.
    Stop,
    /// Read the goroutines of a process, once.
    #[cfg(unix)]
    Goroutines {
        /// Its pid.
        pid: u32,
        /// Whether those of the runtime itself are wanted.
        system: bool,
    },
    /// Read a profile that the runtime of a Go program keeps, once.
    #[cfg(unix)]
    Buckets {
        /// Its pid.
        pid: u32,
        /// Which.
        kind: Kind,
        /// Whether frames of internal/runtime at the leaf are wanted.
        all: bool,
    },
}

/// What one window saw of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub process: String,
    /// Unix time of the first tick, nanoseconds.
    pub start_ns: u64,
    /// From the first tick to the end, nanoseconds.
    pub duration_ns: u64,
    /// Such as `CPython 3.12.1`, or nothing.
    pub runtime: String,
    /// Stacks and values.
    pub columns: Columns,
    /// How it went.
    pub stats: Stats,
    /// What people should be told.
    pub notes: Vec<String>,
    /// The variables of each stack that was read, where they were asked for.
    pub locals: Vec<StackLocals>,
}

/// The variables of one stack, and how reading them went: [`crate::runtime::cpython::ThreadLocals`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackLocals {
    /// Whose stack.
    pub tid: u32,
    /// Each Python frame's place in the stack, and its variables.
    pub frames: Vec<(u32, FrameLocals)>,
    /// Values, and parts of values, that could not be read.
    pub unreadable: u32,
    /// Values that changed faster than they could be read.
    pub changing: u32,
    /// Python frames of which nothing, or not all, was read.
    pub frames_left_out: u32,
    /// Whether the time was up before all was read.
    pub over_budget: bool,
}

/// From the sampler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A target is open, or CMD is forked.
    Added {
        /// Its pid.
        pid: u32,
    },
    /// A descendant of a target is recorded from now on: it can be looked at while it lives.
    Found {
        /// Its pid.
        pid: u32,
    },
    /// A target cannot be opened, or CMD cannot be executed.
    Failed(Error),
    /// CMD could not be executed: errno.
    NotExecuted {
        /// The error number.
        errno: i32,
        /// Its text.
        message: String,
    },
    /// A target ended.
    Exited {
        /// Its pid.
        pid: u32,
        /// The wait status of CMD, on Windows its exit code; -1 for others.
        status: i32,
    },
    /// How it goes.
    Progress {
        /// Stacks so far.
        samples: u64,
        /// 99 % of the pauses are not longer, nanoseconds.
        pause_p99_ns: u64,
    },
    /// A target's last window. That of a descendant comes as it ends.
    Batch(Box<Batch>),
    /// The window of a process that goes on.
    Part(Box<Batch>),
    /// All that belongs to the window that was ended is sent.
    Cut,
    /// Sampling has ended and all batches are sent.
    Finished,
    /// The goroutines of a process.
    #[cfg(unix)]
    Goroutines(Box<Goroutines>),
    /// A profile that the runtime of a Go program keeps.
    #[cfg(unix)]
    Buckets(Box<Buckets>),
}

/// Encodes a message with its length.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let size = bytes.len() - 4;
    if size > MAX_MESSAGE_BYTES {
        return Err(io::Error::other("message over its bound"));
    }
    bytes[..4].copy_from_slice(&(size as u32).to_le_bytes());
    Ok(bytes)
}

/// Writes one message.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    stream.write_all(&encode(message)?)
}

/// Takes the first whole message from `buffer`, if there is one.
pub fn decode<T: DeserializeOwned>(buffer: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(size) = buffer.first_chunk::<4>() else { return Ok(None) };
    let size = u32::from_le_bytes(*size) as usize;
    if size > MAX_MESSAGE_BYTES {
        return Err(io::Error::other("message over its bound"));
    }
    if buffer.len() < 4 + size {
        return Ok(None);
    }
    let message = postcard::from_bytes(&buffer[4..4 + size]).map_err(io::Error::other)?;
    buffer.drain(..4 + size);
    Ok(Some(message))
}

/// Reads what is there into `buffer`; false at the end of the stream.
pub fn fill(stream: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = vec![0; 1 << 16];
    let read = stream.read(&mut chunk)?;
    buffer.extend_from_slice(&chunk[..read]);
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_however_cut() {
        let commands = [
            Command::Add { pid: 7, native: true },
            #[cfg(unix)]
            Command::Launch { arguments: vec![b"a\xff".to_vec()], environment: vec![], stops: true },
            Command::Stop,
        ];
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command).unwrap()).collect();
        let (mut buffer, mut found) = (Vec::new(), Vec::new());
        for byte in bytes {
            buffer.push(byte);
            while let Some(command) = decode::<Command>(&mut buffer).unwrap() {
                found.push(command);
            }
        }
        assert_eq!(found, commands);
    }

    #[test]
    fn an_overlong_or_garbled_message_is_an_error() {
        assert!(decode::<Command>(&mut vec![0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(decode::<Command>(&mut vec![1, 0, 0, 0, 0xee]).is_err());
    }
}

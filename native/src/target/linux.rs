//! A Linux process: opened for reading, told apart from others of the same pid, with errors that say what to do.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use super::procfs::{self, Stat};
use super::refusal::{access_error, not_found};
use super::{Mapping, rooted, sys};
use crate::error::{Error, ErrorKind, ReadError};
use crate::memory::{MAX_REGIONS_PER_CALL, Memory, Region};

/// The kernel's PF_KTHREAD flag (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;
/// A tracer that stays this long is a debugger, not another sampler's passing stop.
pub const FOREIGN_TRACER: Duration = Duration::from_millis(100);

/// A process on this machine. Opening it is not attaching to it.
#[derive(Debug)]
pub struct Process {
    /// Its pid, as seen from here.
    pub pid: u32,
    /// Clock ticks since boot at its start; with the pid its identity.
    pub start_time: u64,
    /// Its name at opening.
    pub name: String,
    /// `/proc/PID/mem`, where process_vm_readv is not to be had.
    mem: Option<File>,
}

/// Which memory a process has: it changes with every exec, also of the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    start_stack: u64,
    arg_start: u64,
}

impl Image {
    /// It, as numbers.
    pub fn key(self) -> (u64, u64) {
        (self.start_stack, self.arg_start)
    }
}

impl Process {
    /// Opens `pid` and checks that it can be read and profiled.
    pub fn open(pid: u32) -> Result<Process, Error> {
        let stat = procfs::read_stat(pid).map_err(|_| not_found(pid))?;
        check_profilable(pid, &stat)?;
        let mut process = Process { pid, start_time: stat.start_time, name: stat.name, mem: None };
        let maps = process.mappings().map_err(|error| access_error(pid, &error))?;
        let Some(first) = maps.iter().find(|mapping| mapping.permissions.starts_with('r')) else {
            return Err(match procfs::read_stat(pid) {
                Ok(stat) => check_profilable(pid, &stat).err().unwrap_or_else(|| not_found(pid)),
                Err(_) => not_found(pid),
            });
        };
        let mut byte = [0];
        let region = Region { address: first.start, size: 1 };
        if let Err(error) = sys::process_vm_readv(pid, &[region], &mut byte) {
            match error.raw_os_error() {
                Some(libc::EPERM | libc::ENOSYS) => {
                    let mem = File::open(format!("/proc/{pid}/mem")).map_err(|_| access_error(pid, &error))?;
                    mem.read_exact_at(&mut byte, first.start).map_err(|_| access_error(pid, &error))?;
                    process.mem = Some(mem);
                }
                Some(libc::ESRCH) => return Err(not_found(pid)),
                _ => {}
            }
        }
        Ok(process)
    }

    /// A process that we forked ourselves and that has not run its program yet: nothing to check.
    pub fn launched(pid: u32, name: String) -> Process {
        let start_time = procfs::read_stat(pid).map_or(0, |stat| stat.start_time);
        Process { pid, start_time, name, mem: None }
    }

    /// The same process, opened once more.
    pub fn another(&self) -> Process {
        let mem = self.mem.as_ref().and_then(|mem| mem.try_clone().ok());
        Process { pid: self.pid, start_time: self.start_time, name: self.name.clone(), mem }
    }

    /// Whether the pid still means this process.
    pub fn alive(&self) -> bool {
        procfs::read_stat(self.pid)
            .is_ok_and(|stat| stat.start_time == self.start_time && !matches!(stat.state, b'Z' | b'X'))
    }

    /// Which memory it has now; None when it is gone.
    pub fn image(&self) -> Option<Image> {
        let stat = procfs::read_stat(self.pid).ok()?;
        Some(Image { start_stack: stat.start_stack, arg_start: stat.arg_start })
    }

    /// After an exec the kept `mem` descriptor still shows the old memory.
    pub fn reopen(&mut self) {
        if self.mem.is_some() {
            self.mem = File::open(format!("/proc/{}/mem", self.pid)).ok();
        }
        if let Ok(stat) = procfs::read_stat(self.pid) {
            self.name = stat.name;
        }
    }

    /// Its threads, in ascending order; none when it is gone.
    pub fn threads(&self) -> Vec<u32> {
        procfs::list_threads(self.pid)
    }

    /// What is mapped now.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        procfs::read_maps(self.pid)
    }

    /// What holds `address`, asked for alone: the kernel tells no part of its list for less.
    pub fn mapping_at(&self, _: u64) -> Option<Mapping> {
        None
    }

    /// Opens the very file behind `mapping`: by its path in the target's root while that is still the mapped inode, else
    /// through the kernel's own links, never a namesake.
    pub fn open_mapped_file(&self, mapping: &Mapping) -> io::Result<File> {
        if mapping.inode == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no file behind this mapping"));
        }
        let path = unescape(&mapping.path);
        if !path.ends_with(" (deleted)")
            && let Ok(file) = rooted::open(self.pid, &path, 0)
            && same_file(&file, mapping)
        {
            return Ok(file);
        }
        let link = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, mapping.start, mapping.end);
        if let Ok(file) = rooted::open_link(&link) {
            return Ok(file);
        }
        let exe = rooted::open_link(&format!("/proc/{}/exe", self.pid))?;
        if same_file(&exe, mapping) {
            return Ok(exe);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the mapped file was replaced on disk"))
    }
}

impl Memory for Process {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let size = u32::try_from(buffer.len()).map_err(|_| ReadError::Bound("read over 4 GiB"))?;
        let filled = self.read_regions(&[Region { address, size }], buffer)?;
        if filled == buffer.len() { Ok(()) } else { Err(ReadError::Unmapped) }
    }

    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        for chunk in regions.chunks(MAX_REGIONS_PER_CALL) {
            let size: usize = chunk.iter().map(|region| region.size as usize).sum();
            let part = &mut buffer[filled..filled + size];
            let read = match &self.mem {
                None => match sys::process_vm_readv(self.pid, chunk, part) {
                    Ok(read) => read,
                    // The first region is unreadable: nothing filled, not a failure of the whole.
                    Err(error) if error.raw_os_error() == Some(libc::EFAULT) => 0,
                    Err(error) => return Err(sys::read_error(&error)),
                },
                Some(mem) => read_each(mem, chunk, part),
            };
            filled += read;
            if read < size {
                break;
            }
        }
        Ok(filled)
    }
}

fn read_each(mem: &File, regions: &[Region], buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    for region in regions {
        let end = filled + region.size as usize;
        if mem.read_exact_at(&mut buffer[filled..end], region.address).is_err() {
            break;
        }
        filled = end;
    }
    filled
}

/// The kernel writes a newline in a path as `\012`.
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

/// What tells a regular file, as it is now, from all others: device, inode, size and when it was changed last.
pub fn file_identity(file: &File) -> Option<[u64; 4]> {
    let file = file.metadata().ok().filter(|file| file.is_file())?;
    let changed = file.mtime().wrapping_mul(1_000_000_000).wrapping_add(file.mtime_nsec());
    Some([file.dev(), file.ino(), file.size(), changed.cast_unsigned()])
}

fn same_file(file: &File, mapping: &Mapping) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    // The device is not compared: overlay and btrfs report another one in maps than in stat.
    metadata.ino() == mapping.inode
}

fn check_profilable(pid: u32, stat: &Stat) -> Result<(), Error> {
    let unsupported = |message: String, hint: &str| Err(Error::new(ErrorKind::Unsupported, message, hint));
    if let Some(tgid) = procfs::status_field(pid, "Tgid")
        && tgid != pid
    {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{pid} is a thread of process {tgid}, not a process"),
            format!("attach to the whole process: {tgid}"),
        ));
    }
    if stat.flags & PF_KTHREAD != 0 {
        return unsupported(
            format!("process {pid} ({}) is a kernel thread", stat.name),
            "only programs can be profiled",
        );
    }
    if matches!(stat.state, b'Z' | b'X') {
        return unsupported(
            format!("process {pid} ({}) has ended and waits for its parent to collect it (a zombie)", stat.name),
            "there is nothing left to profile; record the program while it runs",
        );
    }
    let mut header = [0; 5];
    if File::open(format!("/proc/{pid}/exe")).and_then(|mut exe| exe.read_exact(&mut header)).is_ok()
        && header == *b"\x7fELF\x01"
    {
        return unsupported(
            format!("process {pid} ({}) is a 32-bit program", stat.name),
            "only 64-bit (x86_64) programs are supported",
        );
    }
    Ok(())
}

/// An error if one and the same tracer, not this process, holds the process for [`FOREIGN_TRACER`].
pub fn check_not_traced(pid: u32) -> Result<(), Error> {
    let tracer =
        |pid| procfs::status_field(pid, "TracerPid").filter(|&tracer| tracer != 0 && tracer != std::process::id());
    let Some(first) = tracer(pid) else { return Ok(()) };
    let end = Instant::now() + FOREIGN_TRACER;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        if tracer(pid) != Some(first) {
            return Ok(());
        }
    }
    Err(traced_error(pid, first))
}

/// The error that names who traces a process.
pub fn traced_error(pid: u32, tracer: u32) -> Error {
    let name = procfs::read_stat(tracer).map_or_else(|_| "unknown".to_string(), |stat| stat.name);
    Error::new(
        ErrorKind::Traced,
        format!("process {pid} is being traced by process {tracer} ({name})"),
        format!("a process has one tracer at a time: detach or end {name} (pid {tracer}), then try again"),
    )
}

//! Text files of /proc, parsed: maps, stat, status, and the kept per-thread files syscall and schedstat.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::thread::{Look, Schedstat};
use super::{Mapping, sys};

/// Most bytes of one maps file that are read (about 500,000 mappings).
pub const MAX_MAPS_BYTES: u64 = 64 << 20;
/// Most threads of one process that are looked at.
pub const MAX_THREADS: usize = 100_000;
/// Most processes that are looked at.
pub const MAX_PROCESSES: usize = 1 << 20;

/// Parses the text of a maps file; a line that does not parse is left out.
pub fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(parse_mapping).collect()
}

fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        while rest.first() == Some(&b' ') {
            rest = &rest[1..];
        }
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail;
        std::str::from_utf8(word).ok().filter(|word| !word.is_empty())
    };
    let (start, end) = field()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let permissions = field()?.to_string();
    let offset = u64::from_str_radix(field()?, 16).ok()?;
    let device = field()?.to_string();
    let inode = field()?.parse().ok()?;
    let skip = rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
    let path = String::from_utf8_lossy(&rest[skip..]).into_owned();
    (end > start && permissions.len() >= 4).then_some(Mapping { start, end, permissions, offset, device, inode, path })
}

/// The mappings of a process.
pub fn read_maps(pid: u32) -> io::Result<Vec<Mapping>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/maps"))?.take(MAX_MAPS_BYTES).read_to_end(&mut text)?;
    Ok(parse_maps(&text))
}

/// Thread ids of a process, in ascending order; empty when it is gone.
pub fn list_threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut tids: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).take(MAX_THREADS).collect();
    tids.sort_unstable();
    tids
}

/// The task folder of a process, kept open: a cheap look says whether its number of threads has changed.
#[derive(Debug)]
pub struct TaskFolder(File);

impl TaskFolder {
    /// Opens the folder.
    pub fn open(pid: u32) -> io::Result<TaskFolder> {
        File::open(format!("/proc/{pid}/task")).map(TaskFolder)
    }

    /// The number of threads and two (proc_task_getattr, fs/proc/base.c); 0 when the process is gone.
    pub fn links(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        self.0.metadata().map_or(0, |metadata| metadata.nlink())
    }
}

/// The fields of `/proc/PID/stat` that are used (man 5 proc).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The name, as the kernel has it.
    pub name: String,
    /// R, S, D, T, t, Z, X or I.
    pub state: u8,
    /// PF_* flags.
    pub flags: u64,
    /// Clock ticks since boot at which the process started.
    pub start_time: u64,
    /// Address of the bottom of the stack: differs after each exec.
    pub start_stack: u64,
    /// Address of the command line: differs after each exec.
    pub arg_start: u64,
    /// The process that it is a child of.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// CPU time of the children that it has waited for, and of theirs, nanoseconds; in steps of clock ticks.
    pub waited_ns: u64,
}

/// A clock tick in the files of /proc, nanoseconds: USER_HZ is 100 wherever we run.
pub const TICK_NS: u64 = 10_000_000;

/// The children of a thread; None where the kernel has no such file (CONFIG_PROC_CHILDREN), or the thread is gone.
pub fn read_children(pid: u32, tid: u32) -> Option<Vec<u32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).take(MAX_PROCESSES).collect())
}

/// All processes that are shown in /proc, in ascending order.
pub fn list_processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).take(MAX_PROCESSES).collect();
    pids.sort_unstable();
    pids
}

/// The state letter of a thread.
pub fn state_letter(tid: u32) -> Option<u8> {
    read_stat(tid).ok().map(|stat| stat.state)
}

/// The process that traces a thread, 0 = none.
pub fn tracer(tid: u32) -> u32 {
    status_field(tid, "TracerPid").unwrap_or(0)
}

/// The name of a thread, "" where it is gone.
pub fn thread_name(pid: u32, tid: u32) -> String {
    fs::read(format!("/proc/{pid}/task/{tid}/comm"))
        .map(|name| String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
        .unwrap_or_default()
}

/// The `stat` of a process or a thread. That of the thread: for `/proc/PID/stat` the kernel adds up the figures of all
/// threads, of which none is used.
pub fn read_stat(pid: u32) -> io::Result<Stat> {
    read_stat_file(Path::new(&format!("/proc/{pid}/task/{pid}/stat")))
}

fn read_stat_file(path: &Path) -> io::Result<Stat> {
    // 52 numbers and a name of at most 64 bytes, which one read gives whole.
    let mut text = [0; 2048];
    let size = File::open(path)?.read(&mut text)?;
    parse_stat(&text[..size]).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "stat does not parse"))
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // fields[0] is field 3 of the man page.
    let number = |field: usize| fields.get(field - 3).and_then(|word| word.parse().ok()).unwrap_or(0);
    Some(Stat {
        name,
        state: *fields.first()?.as_bytes().first()?,
        flags: number(9),
        start_time: number(22),
        start_stack: number(28),
        arg_start: number(48),
        parent: number(4) as u32,
        group: number(5) as u32,
        session: number(6) as u32,
        waited_ns: (number(16) + number(17)) * TICK_NS,
    })
}

/// A number in `/proc/PID/status`, such as `TracerPid`; for `Uid` the first, real one.
pub fn status_field(pid: u32, name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The user id that we know the root of a process's user namespace by.
pub fn root_of(pid: u32) -> Option<u32> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?;
    map.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok());
        (words.next()? == 0).then_some(words.next()?)
    })
}

/// One of a thread's files; its descriptor is kept while there is room for it.
#[derive(Debug)]
struct KeptFile {
    path: PathBuf,
    file: Option<File>,
}

impl KeptFile {
    fn new(path: String, keep: bool) -> Self {
        let path = PathBuf::from(path);
        let file = if keep { File::open(&path).ok() } else { None };
        KeptFile { path, file }
    }

    fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let size = match &self.file {
            Some(file) => sys::pread(file.as_raw_fd(), buffer)?,
            None => sys::pread(File::open(&self.path)?.as_raw_fd(), buffer)?,
        };
        Ok(&buffer[..size])
    }
}

/// The kept files of one thread.
#[derive(Debug)]
pub struct ThreadFiles {
    syscall: KeptFile,
    schedstat: KeptFile,
}

impl ThreadFiles {
    /// The descriptors that one thread keeps.
    pub const DESCRIPTORS: usize = 2;

    /// Opens the files of a thread; `keep` says whether their descriptors are kept open.
    pub fn open(pid: u32, tid: u32, keep: bool) -> Self {
        ThreadFiles {
            syscall: KeptFile::new(format!("/proc/{pid}/task/{tid}/syscall"), keep),
            schedstat: KeptFile::new(format!("/proc/{pid}/task/{tid}/schedstat"), keep),
        }
    }

    /// Whether descriptors are held.
    pub fn kept(&self) -> bool {
        self.syscall.file.is_some()
    }

    /// What the thread is doing now.
    pub fn look(&self) -> Look {
        let mut buffer = [0; 256];
        match self.syscall.read(&mut buffer) {
            Ok(text) => parse_syscall(text),
            Err(_) => self.look_at_state(),
        }
    }

    /// Where there is no syscall file, or it may not be read: the state letter.
    fn look_at_state(&self) -> Look {
        match read_stat_file(&self.syscall.path.with_file_name("stat")).map_or(b'X', |stat| stat.state) {
            b'R' => Look::Running,
            b'Z' | b'X' => Look::Gone,
            _ => Look::Blocked { number: -1, sp: 0, pc: 0, arguments: [0; 6] },
        }
    }

    /// The scheduler's figures for the thread; None when it is gone.
    pub fn schedstat(&self) -> Option<Schedstat> {
        let mut buffer = [0; 96];
        let text = self.schedstat.read(&mut buffer).ok()?;
        let mut numbers = [0_u64; 3];
        let mut index = 0;
        for &byte in text {
            match byte {
                b'0'..=b'9' => numbers[index] = numbers[index].wrapping_mul(10).wrapping_add(u64::from(byte - b'0')),
                _ if index < 2 => index += 1,
                _ => break,
            }
        }
        (!text.is_empty()).then_some(Schedstat { run_ns: numbers[0], wait_ns: numbers[1], runs: numbers[2] })
    }
}

fn parse_syscall(text: &[u8]) -> Look {
    if text.starts_with(b"running") {
        return Look::Running;
    }
    let text = std::str::from_utf8(text).unwrap_or_default();
    let mut words = text.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse().ok()) else { return Look::Gone };
    let mut values = [0; 8];
    let mut count = 0;
    for (value, word) in values.iter_mut().zip(words) {
        *value = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
        count += 1;
    }
    let (sp, pc, arguments) = match values {
        [a, b, c, d, e, f, sp, pc] if count == values.len() => (sp, pc, [a, b, c, d, e, f]),
        [sp, pc, ..] => (sp, pc, [0; 6]),
    };
    // A thread without a kernel stack any more is dead but not yet reaped.
    if sp == 0 && pc == 0 { Look::Gone } else { Look::Blocked { number, sp, pc, arguments } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines() {
        let text = b"00400000-0040b000 r-xp 00000000 fc:01 787766                             /bin/cat with space\n\
            garbage\n\
            7ffd000-7ffe000 r-xp 00000000 00:00 0                          [vdso]\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 3);
        assert_eq!((maps[0].start, maps[0].end, maps[0].inode), (0x40_0000, 0x40_b000, 787_766));
        assert_eq!(maps[0].path, "/bin/cat with space");
        assert!(maps[0].executable());
        assert_eq!(maps[1].path, "[vdso]");
        assert_eq!(maps[2].path, "");
        assert!(!maps[2].executable());
    }

    #[test]
    fn stat_with_a_hostile_name() {
        let mut line = b"12 (a) R 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242".to_vec();
        line.extend_from_slice(b" 0 0 0 0 0 77");
        let stat = parse_stat(&line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) R 1", b'S'));
        assert_eq!(stat.flags, 6);
        assert_eq!((stat.start_time, stat.start_stack), (4242, 77));
        assert_eq!((stat.parent, stat.group, stat.session), (1, 2, 3));
        assert_eq!(stat.waited_ns, (13 + 14) * TICK_NS);
    }

    #[test]
    fn without_a_syscall_file_the_state_letter_counts() {
        let (pid, tid) = (std::process::id(), sys::thread_id());
        let mut files = ThreadFiles::open(pid, tid, true);
        assert_eq!(files.look_at_state(), Look::Running);
        files.syscall.file = None;
        files.syscall.path = PathBuf::from(format!("/proc/{pid}/task/{tid}/no such file"));
        assert_eq!(files.look(), Look::Running);
        files.syscall.path = PathBuf::from("/proc/0/task/0/syscall");
        assert_eq!(files.look(), Look::Gone);
    }

    #[test]
    fn syscall_lines() {
        assert_eq!(parse_syscall(b"running\n"), Look::Running);
        assert_eq!(
            parse_syscall(b"232 0x3 0x7f 0x1 0xffff 0x0 0x8 0x7ffe00 0x7f1234\n"),
            Look::Blocked { number: 232, sp: 0x7f_fe00, pc: 0x7f_1234, arguments: [3, 0x7f, 1, 0xffff, 0, 8] }
        );
        assert_eq!(parse_syscall(b"-1 0x0 0x0\n"), Look::Gone);
        assert_eq!(parse_syscall(b""), Look::Gone);
    }
}

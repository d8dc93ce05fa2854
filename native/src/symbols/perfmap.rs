//! `/tmp/perf-PID.map`: names that a JIT compiler tells for its code, one `START SIZE NAME` a line, in hex.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::target::{procfs, rooted};

/// Most bytes of one name.
pub const MAX_NAME: usize = 16 << 10;

/// Opens the map of process `pid`, as it lies in the process's own `/tmp` under its own idea of its pid. The file must be
/// a regular one that belongs to the process's user or to root, its own or ours.
pub fn open(pid: u32) -> io::Result<File> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
    };
    let own = field("NSpid").and_then(|pids| pids.last().copied()).unwrap_or(pid);
    let mut users = field("Uid").unwrap_or_default();
    users.extend([0, procfs::root_of(pid).unwrap_or(0)]);
    let file = rooted::open(pid, &format!("/tmp/perf-{own}.map"), libc::O_NOFOLLOW)?;
    if !users.contains(&file.metadata()?.uid()) {
        return Err(io::Error::other("not a file of the process's user"));
    }
    Ok(file)
}

/// The names of `addresses`. Later lines win over earlier ones; a line that does not parse is left out.
pub fn find(text: &[u8], addresses: &[u64]) -> Vec<Option<String>> {
    let mut names = vec![None; addresses.len()];
    let mut open: Vec<(u64, usize)> = addresses.iter().enumerate().map(|(index, &address)| (address, index)).collect();
    open.sort_unstable();
    for line in text.rsplit(|&byte| byte == b'\n') {
        if open.is_empty() {
            break;
        }
        let Some((start, end, name)) = parse(line) else { continue };
        let from = open.partition_point(|&(address, _)| address < start);
        let until = open.partition_point(|&(address, _)| address < end);
        // Each address is taken out once, whatever the lines overlap.
        if from < until {
            let name = String::from_utf8_lossy(name).into_owned();
            for (_, index) in open.drain(from..until) {
                names[index] = Some(name.clone());
            }
        }
    }
    names
}

fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = number(line)?;
    let (size, rest) = number(rest)?;
    let name = rest.trim_ascii();
    if name.is_empty() || name.len() > MAX_NAME || size == 0 {
        return None;
    }
    Some((start, start.checked_add(size)?, name))
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|&byte| byte == b' ' || byte == b'\t')?;
    let word = std::str::from_utf8(&text[..end]).ok()?;
    let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u64::from_str_radix(digits, 16).ok()?, &text[end..]))
}

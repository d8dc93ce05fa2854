//! `jit-PID.dump`: what a JIT compiler tells of its code for `perf inject --jit`: names, and lines where it knows them.
//!
//! The layout is that of tools/perf/Documentation/jitdump-specification.txt (Linux 6.1). The code itself is in it too,
//! and passed over.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use super::perfmap::MAX_NAME;

/// Most bytes of one dump that are looked at.
pub const MAX_DUMP_BYTES: u64 = 16 << 30;
/// Most functions of one dump; of more, the last.
pub const MAX_FUNCTIONS: usize = 1 << 20;
/// Most rows of lines of one function.
pub const MAX_ROWS: u64 = 1 << 16;
/// Most bytes of a function's rows.
const MAX_ROW_BYTES: u64 = 4 << 20;

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
/// EM_X86_64, and what CPython 3.13 puts there.
const MACHINES: [u32; 2] = [62, 0];
const HEADER: u64 = 40;
const RECORD: u64 = 16;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;
const CODE_CLOSE: u32 = 3;
/// In place of a file's name: the same as in the row before.
const SAME_FILE: &[u8] = b"\xff";

/// What is told of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The function's name.
    pub name: String,
    /// Path of its source file, "" = unknown.
    pub file: String,
    /// Line in it, 0 = unknown.
    pub line: u32,
}

/// A function, by where the dump tells of it.
#[derive(Clone, Copy)]
struct Function {
    /// Where it was first, which its rows are told of.
    address: u64,
    /// Where in the dump its name is, and the record's end.
    name: (u64, u64),
    /// The body of the record of its rows, if there is one.
    rows: Option<(u64, u64)>,
}

/// A dump, read from its beginning.
struct Dump<'f> {
    file: &'f File,
    reader: BufReader<&'f File>,
    size: u64,
    at: u64,
}

/// Where a function is from then on.
#[derive(Clone, Copy)]
struct Placed {
    start: u64,
    size: u64,
    function: Function,
}

/// What a dump tells of `addresses`. Later records win over earlier ones; what is written last may be there in part.
///
/// Errors: no dump of this machine's kind, or it cannot be read.
pub fn find(file: &File, addresses: &[u64]) -> io::Result<Vec<Option<Told>>> {
    let size = file.metadata()?.len().min(MAX_DUMP_BYTES);
    let mut dump = Dump { file, reader: BufReader::with_capacity(64 << 10, file), size, at: 0 };
    dump.open()?;
    let placed = dump.places()?;
    let mut open: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    open.sort_unstable();
    let mut winners: Vec<(Function, u64, usize)> = Vec::new();
    for Placed { start, size, function } in placed.into_iter().rev() {
        let from = open.partition_point(|&(address, _)| address < start);
        let until = open.partition_point(|&(address, _)| address < start.saturating_add(size));
        // Each address is taken out once, whatever the records overlap.
        if from < until {
            let at = |address: u64| function.address.wrapping_add(address - start);
            winners.extend(open.drain(from..until).map(|(address, index)| (function, at(address), index)));
        }
    }
    // Those of one function are told together: its rows are read once.
    winners.sort_unstable_by_key(|(function, ..)| function.name);
    let mut told = vec![None; addresses.len()];
    for of_one in winners.chunk_by(|(one, ..), (other, ..)| one.name == other.name) {
        let function = of_one[0].0;
        let Some(name) = dump.name(function) else { continue };
        let rows = function.rows.and_then(|rows| dump.rows(rows)).unwrap_or_default();
        for &(_, at, index) in of_one {
            let row = rows.partition_point(|row| row.0 <= at).checked_sub(1).map(|last| &rows[last]);
            let (file, line) = row.map_or((String::new(), 0), |(_, file, line)| (file.to_string(), *line));
            told[index] = Some(Told { name: name.clone(), file, line });
        }
    }
    Ok(told)
}

impl Dump<'_> {
    fn open(&mut self) -> io::Result<()> {
        let wrong = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_string());
        let mut header = [0; HEADER as usize];
        self.reader.seek(SeekFrom::Start(0))?;
        self.reader.read_exact(&mut header)?;
        let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if (field(0), field(4)) != (MAGIC, VERSION) || !MACHINES.contains(&field(12)) {
            return Err(wrong("no jitdump of version 1 of x86-64"));
        }
        let size = u64::from(field(8));
        if size < HEADER || size > self.size {
            return Err(wrong("a jitdump with a broken header"));
        }
        self.at = HEADER;
        self.skip_to(size)
    }

    /// Kind, body and end of the next record; None at the end of what is whole.
    fn record(&mut self) -> io::Result<Option<(u32, u64, u64)>> {
        let body = self.at + RECORD;
        if body > self.size {
            return Ok(None);
        }
        let mut head = [0; RECORD as usize];
        self.reader.read_exact(&mut head)?;
        self.at = body;
        let size = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
        let end = body - RECORD + size;
        let kind = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        Ok((size >= RECORD && end <= self.size).then_some((kind, body, end)))
    }

    /// Words from `from` on, which lies ahead; None where the record is too short.
    fn words<const N: usize>(&mut self, from: u64, end: u64) -> io::Result<Option<[u64; N]>> {
        if from + 8 * N as u64 > end {
            return Ok(None);
        }
        self.skip_to(from)?;
        let mut words = [0; N];
        for word in &mut words {
            let mut bytes = [0; 8];
            self.reader.read_exact(&mut bytes)?;
            *word = u64::from_le_bytes(bytes);
        }
        self.at = from + 8 * N as u64;
        Ok(Some(words))
    }

    fn skip_to(&mut self, place: u64) -> io::Result<()> {
        self.reader.seek_relative((place - self.at).cast_signed())?;
        self.at = place;
        Ok(())
    }

    /// Where functions are, in the order of time; of more than [`MAX_FUNCTIONS`] the last.
    fn places(&mut self) -> io::Result<VecDeque<Placed>> {
        let mut placed: VecDeque<Placed> = VecDeque::new();
        let mut functions: HashMap<u64, Function> = HashMap::new();
        let mut rows = None;
        while let Some((kind, body, end)) = self.record()? {
            let next = match kind {
                CODE_LOAD => {
                    let Some([_, address, size, index]) = self.words(body + 8, end)? else { break };
                    let of = rows.take().filter(|&(of, _)| of == address).map(|(_, rows)| rows);
                    let function = Function { address, name: (body + 40, end), rows: of };
                    if functions.len() < MAX_FUNCTIONS || functions.contains_key(&index) {
                        functions.insert(index, function);
                    }
                    Some(Placed { start: address, size, function })
                }
                CODE_MOVE => {
                    let Some([_, _, start, size, index]) = self.words(body + 8, end)? else { break };
                    functions.get(&index).map(|&function| Placed { start, size, function })
                }
                CODE_DEBUG_INFO => {
                    let Some([address]) = self.words(body, end)? else { break };
                    rows = Some((address, (body + 8, end)));
                    None
                }
                CODE_CLOSE => break,
                _ => None,
            };
            if let Some(next) = next {
                if placed.len() == MAX_FUNCTIONS {
                    placed.pop_front();
                }
                placed.push_back(next);
            }
            self.skip_to(end)?;
        }
        Ok(placed)
    }

    fn name(&self, function: Function) -> Option<String> {
        let (from, end) = function.name;
        let bytes = self.piece(from, end.checked_sub(from)?.min(MAX_NAME as u64 + 1))?;
        let name = bytes.split(|&byte| byte == 0).next().filter(|name| !name.is_empty() && name.len() < bytes.len())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Address, file and line of each row, by address.
    fn rows(&self, (from, end): (u64, u64)) -> Option<Vec<(u64, Rc<str>, u32)>> {
        let bytes = self.piece(from, (end - from).min(MAX_ROW_BYTES))?;
        let (count, mut rest) = bytes.split_first_chunk::<8>()?;
        let mut rows = Vec::new();
        let mut file: Rc<str> = Rc::from("");
        for _ in 0..u64::from_le_bytes(*count).min(MAX_ROWS) {
            let Some((address, after)) = rest.split_first_chunk::<8>() else { break };
            let Some((line, after)) = after.split_first_chunk::<4>() else { break };
            let Some(name) = after.get(4..).and_then(|name| name.split(|&byte| byte == 0).next()) else { break };
            let Some(next) = after.get(4 + name.len() + 1..) else { break };
            rest = next;
            if name != SAME_FILE {
                file = Rc::from(String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]));
            }
            rows.push((u64::from_le_bytes(*address), file.clone(), u32::from_le_bytes(*line)));
        }
        rows.sort_by_key(|row| row.0);
        Some(rows)
    }

    fn piece(&self, from: u64, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.file.read_exact_at(&mut bytes, from).ok()?;
        Some(bytes)
    }
}

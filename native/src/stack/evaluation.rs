//! Where the code of the evaluation loop is.

use std::fs::File;
use std::ops::Range;

use object::ReadRef;
use object::read::ReadCache;

use crate::elf_symbols;

/// Most ranges of code taken for the evaluation loop.
const MAX_RANGES: usize = 4096;
/// The evaluation loop.
pub const EVALUATION: &str = "_PyEval_EvalFrameDefault";
/// Its parts in builds with tail calls (3.14).
const TAIL_CALLED: &[u8] = b"_TAIL_CALL_";

/// What a native frame is to the evaluation loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The function itself, or what the compiler split off it: one frame for each evaluation.
    Whole,
    /// An instruction of a tail-call build: a frame of its own above that of the function that runs it.
    Tail,
}

/// Where the code of the evaluation loop is, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation(Vec<(Range<u64>, Part)>);

impl Evaluation {
    /// From ranges in any order.
    pub fn new(mut ranges: Vec<(Range<u64>, Part)>) -> Evaluation {
        ranges.retain(|(range, _)| range.start < range.end);
        ranges.sort_by_key(|(range, _)| range.start);
        ranges.truncate(MAX_RANGES);
        Evaluation(ranges)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same where the file is loaded `bias` higher.
    pub fn loaded(&self, bias: u64) -> Evaluation {
        let move_up =
            |(range, part): &(Range<u64>, Part)| (range.start.wrapping_add(bias)..range.end.wrapping_add(bias), *part);
        Evaluation::new(self.0.iter().map(move_up).collect())
    }

    /// Takes a whole function along that is not known yet. False if there is no more room.
    pub fn add(&mut self, range: Range<u64>) -> bool {
        if self.0.len() >= MAX_RANGES {
            return false;
        }
        self.0.push((range, Part::Whole));
        *self = Evaluation::new(std::mem::take(&mut self.0));
        true
    }

    /// What the code at `address` is.
    pub fn part(&self, address: u64) -> Option<Part> {
        let after = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, part) = self.0.get(after.checked_sub(1)?)?;
        (address < range.end).then_some(*part)
    }
}

/// [`evaluation_ranges`] of an open file.
pub fn evaluation_of_file(file: File) -> Evaluation {
    let cache = ReadCache::new(file);
    evaluation_ranges(&cache)
}

/// The evaluation loop's ranges in an ELF file, as file addresses: the function, what the compiler split off (`.cold`,
/// `.part.0`, LTO's `.lto_priv.0`), and in tail-call builds one function for each instruction. Empty if the file has no
/// symbols for it.
pub fn evaluation_ranges<'a, R: ReadRef<'a>>(file: R) -> Evaluation {
    let symbols = elf_symbols::beginning_with(file, &[EVALUATION.as_bytes(), TAIL_CALLED]);
    let ranges = symbols.into_iter().filter(|symbol| symbol.function);
    Evaluation::new(ranges.filter_map(|symbol| Some((symbol.range, part(symbol.name)?))).collect())
}

fn part(name: &[u8]) -> Option<Part> {
    match name.strip_prefix(EVALUATION.as_bytes()) {
        Some([] | [b'.', ..]) => Some(Part::Whole),
        _ => name.starts_with(TAIL_CALLED).then_some(Part::Tail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let whole: [&[u8]; 3] =
            [b"_PyEval_EvalFrameDefault", b"_PyEval_EvalFrameDefault.cold", b"_PyEval_EvalFrameDefault.lto_priv.0"];
        assert!(whole.iter().all(|name| part(name) == Some(Part::Whole)));
        assert_eq!(part(b"_TAIL_CALL_LOAD_FAST"), Some(Part::Tail));
        assert_eq!(part(b"_PyEval_EvalFrameDefaultX"), None);
        assert_eq!(part(b"_PyEval_Vector"), None);
    }
}

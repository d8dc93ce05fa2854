//! Finding Go in a process: the table of functions by its magic number, and the module data that points to it.
//!
//! Layout of module data: src/runtime/symtab.go, moduledata, of Go 1.18 to 1.26. Nothing is taken that does not agree with
//! the table in every word that both have.

use super::image::Image;
use super::pclntab::{HEADER_BYTES, Header, Layout, Pclntab};
use crate::error::ReadError;
use crate::memory::Memory;

/// Words of module data that are looked at.
const WORDS: usize = 41;
/// Functions whose inline trees are tried before any is believed.
const TRIED_FUNCTIONS: usize = 2000;

/// The word indices of moduledata (src/runtime/symtab.go).
mod word {
    pub const NAMES: usize = 1;
    pub const UNITS: usize = 4;
    pub const FILES: usize = 7;
    pub const VALUES: usize = 10;
    pub const TABLE: usize = 13;
    pub const TABLE_SIZE: usize = 14;
    pub const INDEX: usize = 16;
    pub const INDEX_SIZE: usize = 17;
    pub const MIN_PC: usize = 20;
    pub const TEXT: usize = 22;
    pub const END_OF_TEXT: usize = 23;
    pub const GOFUNC_118: usize = 38;
    pub const GOFUNC_120: usize = 40;
}

/// Why a process has no Go that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGo {
    /// There is no table of functions at all.
    NoTable,
    /// There is one, and this is wrong with it.
    Unknown(&'static str),
}

impl From<ReadError> for NotGo {
    fn from(error: ReadError) -> NotGo {
        NotGo::Unknown(error.reason())
    }
}

/// The functions of the module `image` shows.
pub fn functions(image: &Image<'_>) -> Result<Pclntab, NotGo> {
    let mut found = Err(NotGo::NoTable);
    for at in image.find(&Header::MAGIC, false) {
        let address = at.wrapping_sub(1);
        if !address.is_multiple_of(8) {
            continue;
        }
        let mut bytes = [0; HEADER_BYTES];
        if image.read(address, &mut bytes).is_err() {
            continue;
        }
        let Some(header) = Header::parse(address, &bytes) else { continue };
        match of_header(image, header) {
            Ok(table) => return Ok(table),
            Err(reason) => found = Err(reason),
        }
    }
    found
}

fn of_header(image: &Image<'_>, header: Header) -> Result<Pclntab, NotGo> {
    let mut tables = Vec::new();
    let mut reason = NotGo::Unknown("no module data points to its table of functions");
    for address in image.find(&header.address.to_le_bytes(), true) {
        if !address.is_multiple_of(8) {
            continue;
        }
        let Ok(bytes) = image.read_bytes(address, 8 * WORDS, 8 * WORDS) else { continue };
        let words: Vec<u64> = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
        let parts = [
            (word::NAMES, header.names),
            (word::UNITS, header.units),
            (word::FILES, header.files),
            (word::VALUES, header.values),
            (word::TABLE, header.table),
        ];
        let agrees = parts.iter().all(|&(index, offset)| words[index] == header.address.wrapping_add(offset))
            && words[word::INDEX] == words[word::TABLE]
            && words[word::INDEX_SIZE] == header.functions + 1;
        if !agrees {
            continue;
        }
        match of_data(image, header, &words) {
            Ok(table) => tables.push(table),
            Err(wrong) => reason = wrong,
        }
    }
    match tables.len() {
        0 => Err(reason),
        1 => Ok(tables.remove(0)),
        _ => Err(NotGo::Unknown("more than one module data points to its table of functions")),
    }
}

fn of_data(image: &Image<'_>, header: Header, words: &[u64]) -> Result<Pclntab, NotGo> {
    let size = header.table.saturating_add(words[word::TABLE_SIZE]);
    let (text, end) = (words[word::TEXT], words[word::END_OF_TEXT]);
    let gofunc = words[if header.layout == Layout::Go118 { word::GOFUNC_118 } else { word::GOFUNC_120 }];
    let table = Pclntab::read(image, header, size, text, gofunc)?;
    let (first, _) = table.function(0).ok_or(NotGo::Unknown("its first function cannot be read"))?;
    if first.entry != words[word::MIN_PC] || !image.executable(text) || !(text..end).contains(&first.entry) {
        return Err(NotGo::Unknown("its table of functions and its module data disagree about the code"));
    }
    check_inline_trees(image, &table)?;
    Ok(table)
}

/// Inline trees are found by an address that no second source tells: they must lead from names to names.
fn check_inline_trees(image: &Image<'_>, table: &Pclntab) -> Result<(), NotGo> {
    let step = (table.len() / TRIED_FUNCTIONS).max(1);
    for index in (0..table.len()).step_by(step) {
        let Some((function, _)) = table.function(index) else {
            return Err(NotGo::Unknown("a function of its table cannot be read"));
        };
        for call in table.calls(image, &function, function.entry) {
            if table.name(call.name).is_empty() {
                return Err(NotGo::Unknown("an inlined call has no name"));
            }
        }
    }
    Ok(())
}

//! PyUnicode objects: Include/cpython/unicodeobject.h, 3.8 to 3.14, GIL builds.

use super::offsets::Offsets;
use crate::error::ReadError;
use crate::memory::{MAX_STRING_BYTES, Memory};

const NOT_A_STRING: ReadError = ReadError::Corrupt("not a string");

/// Where the characters of a str object are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub address: u64,
    /// In characters.
    pub length: u64,
    /// Bytes of each: 1, 2 or 4.
    pub width: usize,
}

impl Place {
    /// Of the str object at `address`. `apart`: where one that is not compact, as those of subclasses are not, has the
    /// address of its characters; 0 = such a one is not expected.
    ///
    /// Errors: the read failed, or what is there is no ready str.
    pub fn find(memory: &dyn Memory, offsets: &Offsets, address: u64, apart: u32) -> Result<Place, ReadError> {
        let head = memory.read_bytes(address, offsets.string_ascii as usize, 1 << 10)?;
        let length = super::word(&head, offsets.string_length).ok_or(NOT_A_STRING)?;
        let state = super::half(&head, offsets.string_state).ok_or(NOT_A_STRING)?;
        let (width, compact, ascii) = ((state >> 2) & 7, (state >> 5) & 1 == 1, (state >> 6) & 1 == 1);
        if !matches!(width, 1 | 2 | 4) || (ascii && width != 1) || length > u64::from(u32::MAX) {
            return Err(NOT_A_STRING);
        }
        let at = |offset: u32| address.wrapping_add(u64::from(offset));
        let address = match (compact, ascii) {
            (true, true) => at(offsets.string_ascii),
            (true, false) => at(offsets.string_compact),
            (false, _) if apart != 0 => memory.read_u64(at(apart))?,
            (false, _) => return Err(NOT_A_STRING),
        };
        Ok(Place { address, length, width: width as usize })
    }

    /// The first characters, `count` at most, as code points: lone surrogates are among them.
    pub fn code_points(&self, memory: &dyn Memory, count: usize) -> Result<Vec<u32>, ReadError> {
        let count = count.min(MAX_STRING_BYTES / self.width).min(self.length as usize);
        let bytes = memory.read_bytes(self.address, count * self.width, MAX_STRING_BYTES)?;
        Ok(units(&bytes, self.width).collect())
    }
}

/// The text of the str object at `address`, at most [`MAX_STRING_BYTES`] of it (a longer one is cut, and ends in `…`).
///
/// Errors: the read failed, or what is there is no ready compact str.
pub fn read_string(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Result<String, ReadError> {
    let Place { address, length, width } = Place::find(memory, offsets, address, 0)?;
    let kept = (length as usize).min(MAX_STRING_BYTES / width);
    let bytes = memory.read_bytes(address, kept * width, MAX_STRING_BYTES)?;
    let mut text = decode(&bytes, width);
    if kept < length as usize {
        text.push('…');
    }
    Ok(text)
}

/// Characters of 1, 2 or 4 bytes each; what is no character (a lone surrogate) becomes U+FFFD.
fn decode(bytes: &[u8], width: usize) -> String {
    if width == 1 {
        return bytes.iter().map(|&byte| char::from(byte)).collect();
    }
    units(bytes, width).map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Little-endian numbers of `width` bytes each.
fn units(bytes: &[u8], width: usize) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(width).map(|unit| unit.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn every_width_decodes() {
        assert_eq!(decode(b"ab\xe9", 1), "abé");
        assert_eq!(decode(&[0x3b, 0x04, 0x00, 0xd8], 2), "л\u{fffd}");
        assert_eq!(decode(&[0x00, 0xf6, 0x01, 0x00, 0xff, 0xff, 0xff, 0xff], 4), "\u{1f600}\u{fffd}");
    }
}

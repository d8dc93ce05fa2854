//! PyUnicode objects: Include/cpython/unicodeobject.h, 3.8 to 3.14, GIL builds.

use super::offsets::Offsets;
use crate::error::ReadError;
use crate::memory::{MAX_STRING_BYTES, Memory};

/// The text of the str object at `address`, at most [`MAX_STRING_BYTES`] of it (a longer one is cut, and ends in `…`).
///
/// Errors: the read failed, or what is there is no ready compact str.
pub fn read_string(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Result<String, ReadError> {
    const NOT_A_STRING: ReadError = ReadError::Corrupt("not a string");
    let head = memory.read_bytes(address, offsets.string_ascii as usize, 1 << 10)?;
    let length = super::word(&head, offsets.string_length).ok_or(NOT_A_STRING)?;
    let state = super::half(&head, offsets.string_state).ok_or(NOT_A_STRING)?;
    let (width, compact, ascii) = ((state >> 2) & 7, (state >> 5) & 1 == 1, (state >> 6) & 1 == 1);
    if !compact || !matches!(width, 1 | 2 | 4) || (ascii && width != 1) || length > u64::from(u32::MAX) {
        return Err(NOT_A_STRING);
    }
    let width = width as usize;
    let kept = (length as usize).min(MAX_STRING_BYTES / width);
    let start = if ascii { offsets.string_ascii } else { offsets.string_compact };
    let bytes = memory.read_bytes(address.wrapping_add(u64::from(start)), kept * width, MAX_STRING_BYTES)?;
    let mut text = decode(&bytes, width);
    if kept < length as usize {
        text.push('…');
    }
    Ok(text)
}

/// Characters of 1, 2 or 4 bytes each; what is no character (a lone surrogate) becomes U+FFFD.
fn decode(bytes: &[u8], width: usize) -> String {
    let character = |unit: u32| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
    match width {
        1 => bytes.iter().map(|&byte| char::from(byte)).collect(),
        2 => bytes.chunks_exact(2).map(|unit| character(u32::from(u16::from_le_bytes([unit[0], unit[1]])))).collect(),
        _ => bytes
            .chunks_exact(4)
            .map(|unit| character(u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])))
            .collect(),
    }
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

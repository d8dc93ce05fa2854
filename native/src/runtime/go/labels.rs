//! Profiler labels of goroutines: since Go 1.24 a list (src/internal/runtime/pprof/label/labelset.go), before a map
//! (src/runtime/pprof/label.go over src/runtime/map.go).

use crate::error::ReadError;
use crate::memory::Memory;
use crate::tables::Label;

/// Most labels of one goroutine.
pub const MAX_LABELS: u64 = 256;
/// Most bytes of a key or value.
pub const MAX_LABEL_BYTES: u64 = 4096;
/// Most buckets of a map, overflow buckets included.
const MAX_BUCKETS: usize = 256;
/// Entries of one bucket (src/runtime/map.go, bucketCnt).
const ENTRIES: usize = 8;
/// Smaller ones mark empty entries (minTopHash).
const MIN_TOP_HASH: u8 = 5;

/// The labels at `address`, sorted by key, of a program built by Go 1.`minor`.
pub fn read(memory: &dyn Memory, address: u64, minor: u32) -> Result<Vec<Label>, ReadError> {
    let mut labels = if minor >= 24 { list(memory, address)? } else { map(memory, address)? };
    labels.sort();
    Ok(labels)
}

fn list(memory: &dyn Memory, address: u64) -> Result<Vec<Label>, ReadError> {
    let (pointer, count) = (memory.read_u64(address)?, memory.read_u64(address.wrapping_add(8))?);
    if count > MAX_LABELS {
        return Err(ReadError::Bound("too many labels"));
    }
    (0..count)
        .map(|index| {
            let at = pointer.wrapping_add(32 * index);
            Ok((string(memory, at)?, string(memory, at.wrapping_add(16))?))
        })
        .collect()
}

/// A map[string]string of the time before Go 1.24: eight hashes, eight keys, eight values, the next bucket.
fn map(memory: &dyn Memory, address: u64) -> Result<Vec<Label>, ReadError> {
    const KEYS: usize = ENTRIES;
    const VALUES: usize = KEYS + 16 * ENTRIES;
    const NEXT: usize = VALUES + 16 * ENTRIES;
    let head = memory.read_u64(address)?;
    if head == 0 {
        return Ok(Vec::new());
    }
    let count = memory.read_u64(head)?;
    if count > MAX_LABELS {
        return Err(ReadError::Bound("too many labels"));
    }
    let shift = memory.read_bytes(head.wrapping_add(9), 1, 1)?[0];
    let first = memory.read_u64(head.wrapping_add(16))?;
    let mut found = Vec::new();
    let mut buckets = 0;
    for index in 0..1_u64.checked_shl(u32::from(shift)).unwrap_or(u64::MAX) {
        let mut bucket = first.wrapping_add(index.wrapping_mul(NEXT as u64 + 8));
        while bucket != 0 {
            buckets += 1;
            if buckets > MAX_BUCKETS {
                return Err(ReadError::Bound("too many buckets of labels"));
            }
            let hashes = memory.read_bytes(bucket, ENTRIES, ENTRIES)?;
            for entry in (0..ENTRIES).filter(|&entry| hashes[entry] >= MIN_TOP_HASH) {
                let at = |part: usize| bucket.wrapping_add((part + 16 * entry) as u64);
                found.push((string(memory, at(KEYS))?, string(memory, at(VALUES))?));
            }
            bucket = memory.read_u64(bucket.wrapping_add(NEXT as u64))?;
        }
    }
    Ok(found)
}

/// A Go string: pointer and length.
pub fn string(memory: &dyn Memory, address: u64) -> Result<String, ReadError> {
    let (pointer, size) = (memory.read_u64(address)?, memory.read_u64(address.wrapping_add(8))?);
    if size > MAX_LABEL_BYTES {
        return Err(ReadError::Bound("a string over its bound"));
    }
    let bytes = memory.read_bytes(pointer, size as usize, MAX_LABEL_BYTES as usize)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

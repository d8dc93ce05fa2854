//! From an offset in a function's bytecode to its source line: three encodings in seven versions.
//!
//! Sources: Objects/lnotab_notes.txt (3.8, 3.9; 3.10 for co_linetable), Objects/locations.md (3.11 and 3.12),
//! InternalDocs/code_objects.md (3.13, 3.14). The tables come from the target: any bytes must do no harm.

/// The lines of one code object: each entry holds from its byte offset up to the next one's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<(u32, u32)>);

impl Lines {
    /// Decodes `table` as CPython 3.`minor` means it, for a function that starts at line `first`.
    pub fn decode(minor: u8, table: &[u8], first: u32) -> Lines {
        let mut lines = Lines::default();
        match minor {
            ..=9 => lines.lnotab(table, first),
            10 => lines.line_table(table, first),
            _ => lines.location_table(table, first),
        }
        lines.0.shrink_to_fit();
        lines
    }

    /// The line at byte offset `lasti`; None where the code belongs to no line.
    pub fn line(&self, lasti: u32) -> Option<u32> {
        let after = self.0.partition_point(|&(start, _)| start <= lasti);
        match self.0.get(after.checked_sub(1)?)? {
            (_, 0) => None,
            (_, line) => Some(*line),
        }
    }

    /// Appends a run unless it goes on with the last one's line. 0: no line.
    fn push(&mut self, start: u32, line: i64) {
        let line = u32::try_from(line).unwrap_or(0);
        match self.0.last_mut() {
            Some((_, last)) if *last == line => {}
            Some((at, last)) if *at == start => *last = line,
            _ => self.0.push((start, line)),
        }
    }

    /// 3.8, 3.9: pairs of (bytes, signed lines); the line changes after the bytes.
    fn lnotab(&mut self, table: &[u8], first: u32) {
        let (mut address, mut line) = (0u32, i64::from(first));
        self.push(0, line);
        for pair in table.chunks_exact(2) {
            address = address.saturating_add(u32::from(pair[0]));
            line += i64::from(pair[1].cast_signed());
            if pair[1] != 0 {
                self.push(address, line);
            }
        }
    }

    /// 3.10: pairs of (bytes, signed lines); the line changes before the bytes, -128 says that they have none.
    fn line_table(&mut self, table: &[u8], first: u32) {
        let (mut address, mut line) = (0u32, i64::from(first));
        for pair in table.chunks_exact(2) {
            let delta = pair[1].cast_signed();
            let shown = if delta == -128 {
                0
            } else {
                line += i64::from(delta);
                line
            };
            if pair[0] != 0 {
                self.push(address, shown);
            }
            address = address.saturating_add(u32::from(pair[0]));
        }
    }

    /// 3.11+: entries of a first byte (1, 4-bit code, 3-bit length in 2-byte units minus 1) and what the code asks for.
    fn location_table(&mut self, table: &[u8], first: u32) {
        let (mut address, mut line) = (0u32, i64::from(first));
        let mut at = 0;
        while let Some(&byte) = table.get(at) {
            at += 1;
            let code = (byte >> 3) & 15;
            let shown = match code {
                15 => 0,
                13 | 14 => {
                    line = line.saturating_add(signed_varint(table, at));
                    line
                }
                10..=12 => {
                    line += i64::from(code - 10);
                    line
                }
                _ => line,
            };
            self.push(address, shown);
            address = address.saturating_add((u32::from(byte & 7) + 1) * 2);
            // Only first bytes have the top bit set: that is how CPython finds the next entry, too.
            while table.get(at).is_some_and(|byte| byte & 0x80 == 0) {
                at += 1;
            }
        }
    }
}

/// 6 bits a byte, least significant first, 0x40: more follow; the lowest bit of the result is the sign.
fn signed_varint(table: &[u8], mut at: usize) -> i64 {
    let (mut value, mut shift) = (0u64, 0);
    while let Some(&byte) = table.get(at) {
        value |= u64::from(byte & 63) << shift;
        shift += 6;
        at += 1;
        if byte & 64 == 0 || shift > 30 {
            break;
        }
    }
    let magnitude = (value >> 1) as i64;
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_do_no_harm() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..20_000 {
            let table: Vec<u8> = (0..round % 97)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 56) as u8
                })
                .collect();
            for minor in [8, 10, 11] {
                let lines = Lines::decode(minor, &table, (state >> 32) as u32);
                assert!(lines.0.len() <= table.len() + 1);
                lines.line(state as u32);
                assert!(lines.0.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            }
        }
    }

    #[test]
    fn no_table_no_line() {
        assert_eq!(Lines::decode(12, &[], 7).line(0), None);
        assert_eq!(Lines::decode(8, &[], 7).line(40), Some(7));
    }
}

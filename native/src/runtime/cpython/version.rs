//! Version numbers of CPython, where the target keeps them.

use std::fmt;

use crate::memory::Memory;
use crate::target::Mapping;

/// Most bytes of read-only data searched for PY_VERSION.
const MAX_SEARCH_BYTES: u64 = 32 << 20;
/// Bytes searched at a time.
const STEP: usize = 1 << 20;
/// Longest PY_VERSION.
const MAX_TEXT: usize = 16;

/// As in PY_VERSION_HEX; `micro` is None where only the file name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub major: u8,
    pub minor: u8,
    pub micro: Option<u8>,
    /// 0xA alpha, 0xB beta, 0xC candidate, 0xF final; and its number.
    pub level: (u8, u8),
}

impl Version {
    /// PY_VERSION_HEX: patchlevel.h.
    pub fn from_hex(hex: u64) -> Version {
        let [serial, micro, minor, major, ..] = hex.to_le_bytes();
        Version { major, minor, micro: Some(micro), level: (serial >> 4, serial & 15) }
    }

    fn new(major: u8, minor: u8, micro: Option<u8>) -> Version {
        Version { major, minor, micro, level: (0xf, 0) }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if let Some(micro) = self.micro {
            write!(f, ".{micro}")?;
        }
        match self.level {
            (0xa, serial) => write!(f, "a{serial}"),
            (0xb, serial) => write!(f, "b{serial}"),
            (0xc, serial) => write!(f, "rc{serial}"),
            _ => Ok(()),
        }
    }
}

/// The version in a path such as `libpython3.8.so.1.0`, `bin/python3.9`, `x.cpython-310-x86_64-linux-gnu.so` or
/// `C:\python311.dll`.
pub(super) fn minor_in_path(path: &str) -> Option<Version> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let lower = name.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("python3").and_then(|rest| rest.strip_suffix(".dll")) {
        return Some(Version::new(3, digits.parse().ok()?, None));
    }
    if let Some((_, rest)) = name.split_once("cpython-3") {
        return Some(Version::new(3, leading_number(rest)?, None));
    }
    let (_, rest) = name.split_once("python")?;
    let (major, rest) = rest.split_once('.')?;
    Some(Version::new(major.parse().ok()?, leading_number(rest)?, None))
}

fn leading_number(text: &str) -> Option<u8> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The string PY_VERSION in the read-only `parts` of an image: of version `known`, else of any 3.8 to 3.12.
pub(super) fn version_string<'a>(
    memory: &dyn Memory,
    parts: impl Iterator<Item = &'a Mapping>,
    known: Option<Version>,
) -> Option<Version> {
    let mut buffer = vec![0; STEP + MAX_TEXT];
    let mut left = MAX_SEARCH_BYTES;
    for part in parts {
        let mut at = part.start;
        while at < part.end && left > 0 {
            let size = (STEP + MAX_TEXT).min((part.end - at) as usize);
            let piece = &mut buffer[..size];
            if memory.read(at, piece).is_err() {
                break;
            }
            if let Some(version) = version_in(piece, known) {
                return Some(version);
            }
            at += STEP as u64;
            left = left.saturating_sub(STEP as u64);
        }
    }
    None
}

/// The first NUL-enclosed `3.MINOR.MICRO` in `bytes`.
fn version_in(bytes: &[u8], known: Option<Version>) -> Option<Version> {
    for start in bytes.windows(3).enumerate().filter(|(_, window)| *window == b"\x003.").map(|(at, _)| at + 1) {
        let text = bytes[start..].split(|&byte| byte == 0).next()?;
        if text.len() > MAX_TEXT {
            continue;
        }
        let Ok(text) = std::str::from_utf8(text) else { continue };
        let mut numbers = text[2..].splitn(2, '.').map(leading_number);
        if let (Some(Some(minor)), Some(Some(micro))) = (numbers.next(), numbers.next())
            && known.map_or((8..=12).contains(&minor), |known| known.minor == minor)
        {
            return Some(Version::new(3, minor, Some(micro)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names_and_data() {
        let minor = |path| minor_in_path(path).map(|version| (version.major, version.minor));
        assert_eq!(minor("/usr/lib/libpython3.10.so.1.0"), Some((3, 10)));
        assert_eq!(minor("/usr/bin/python2.7"), Some((2, 7)));
        assert_eq!(minor("/usr/lib/python3/x.cpython-311-x86_64-linux-gnu.so"), Some((3, 11)));
        assert_eq!(minor("/usr/lib/python3.11/lib-dynload/x.so"), None);
        assert_eq!(minor("/usr/bin/python3"), None);
        assert_eq!(minor("C:\\x y\\Python311.DLL"), Some((3, 11)));
        assert_eq!(minor("C:\\python3.dll"), None);
        assert_eq!(version_in(b"..\x003.9\x003.8.18\x00", None).map(|v| v.to_string()), Some("3.8.18".into()));
        assert_eq!(Version::from_hex(0x030d_00c2).to_string(), "3.13.0rc2");
    }
}

//! What the Go toolchain writes into each program about itself (src/debug/buildinfo/buildinfo.go, Go 1.18 and later): its
//! own version and, as text, the modules and settings of the build.

use crate::memory::Memory;

/// What begins it; it is aligned to 16 bytes.
pub const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Bytes of the head; what is told follows.
const HEAD: usize = 32;
/// The strings follow the head, each after its length.
const FLAG_INLINE: u8 = 2;
/// Most bytes of the version.
const MAX_VERSION: usize = 256;
/// Most bytes of the text about modules.
const MAX_TEXT: usize = 1 << 20;
/// What stands before and after the text.
const SENTINEL: usize = 16;

/// How a program was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// Such as `go1.26.8`.
    pub version: String,
    /// Lines of a kind, a tab and a value: `path`, `mod`, `dep`, `build` (src/runtime/debug/mod.go).
    pub text: String,
}

impl BuildInfo {
    /// What is told in `bytes`, which begin with the magic.
    pub fn parse(bytes: &[u8]) -> Option<BuildInfo> {
        if !bytes.starts_with(MAGIC) || bytes.get(15)? & FLAG_INLINE == 0 {
            return None;
        }
        let (version, rest) = string(bytes.get(HEAD..)?, MAX_VERSION)?;
        let version = std::str::from_utf8(version).ok().filter(|version| !version.is_empty())?.to_string();
        let text = string(rest, MAX_TEXT).and_then(|(text, _)| text.get(SENTINEL..text.len().checked_sub(SENTINEL)?));
        Some(BuildInfo { version, text: String::from_utf8_lossy(text.unwrap_or_default()).into_owned() })
    }

    /// The first there is in a file.
    pub fn of_file(bytes: &[u8]) -> Option<BuildInfo> {
        let places = memchr::memmem::find_iter(bytes, MAGIC).take(64);
        places.filter_map(|at| BuildInfo::parse(&bytes[at..])).next()
    }

    /// What is told at an address.
    pub fn at(memory: &dyn Memory, address: u64) -> Option<BuildInfo> {
        // Bytes are read by and by: the end of the text may be that of the memory.
        [HEAD + MAX_TEXT, 4096, HEAD + MAX_VERSION, HEAD + 24]
            .into_iter()
            .find_map(|size| BuildInfo::parse(&memory.read_bytes(address, size, HEAD + MAX_TEXT).ok()?))
    }

    /// The minor version of Go 1, such as 26; None for what is not a release of Go 1.
    pub fn minor(&self) -> Option<u32> {
        let rest =
            self.version.strip_prefix("go1.").or_else(|| self.version.split_once("go1.").map(|(_, rest)| rest))?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }
}

/// A string after its length, and what follows it.
fn string(bytes: &[u8], most: usize) -> Option<(&[u8], &[u8])> {
    let (mut size, mut at) = (0_usize, 0);
    loop {
        let byte = *bytes.get(at)?;
        size |= usize::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        at += 1;
        if byte < 0x80 {
            break;
        }
        if at > 4 {
            return None;
        }
    }
    (size <= most).then_some(())?;
    Some((bytes.get(at..at.checked_add(size)?)?, &bytes[at + size..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let minor = |version: &str| BuildInfo { version: version.into(), text: String::new() }.minor();
        assert_eq!(minor("go1.26.8"), Some(26));
        assert_eq!(minor("go1.18"), Some(18));
        assert_eq!(minor("devel go1.27-abc X:y"), Some(27));
        assert_eq!(minor("go1.23rc1"), Some(23));
        assert_eq!((minor("go2.1"), minor("unknown")), (None, None));
    }

    #[test]
    fn what_is_cut_or_lies_is_nothing() {
        let mut bytes = [MAGIC, &[8, 2]].concat();
        bytes.resize(HEAD, 0);
        bytes.extend(b"\x08go1.26.8\x25");
        bytes.extend([b"0123456789abcdef".as_slice(), b"path\t", b"0123456789abcdef"].concat());
        let whole = BuildInfo::parse(&bytes).unwrap();
        assert_eq!((whole.version.as_str(), whole.text.as_str()), ("go1.26.8", "path\t"));
        assert_eq!(BuildInfo::of_file(&[b"\xff Go build".as_slice(), &bytes].concat()), Some(whole));
        for end in 0..HEAD + 9 {
            assert_eq!(BuildInfo::parse(&bytes[..end]), None);
        }
        bytes[HEAD..HEAD + 6].fill(0xff);
        assert_eq!(BuildInfo::parse(&bytes), None);
    }
}

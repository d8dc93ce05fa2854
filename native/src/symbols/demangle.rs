//! Names for people from the linker's names.

use std::fmt::{self, Write};

/// Most bytes of a raw name; a longer one is no name.
pub const MAX_RAW: usize = 64 << 10;
/// Most bytes of a demangled name: references within a mangled name can make it grow without end.
pub const MAX_DEMANGLED: usize = 64 << 10;

/// A string that refuses to grow over [`MAX_DEMANGLED`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The demangled form of a Rust (v0 or legacy) or C++ name; any other name as it is.
pub fn demangle(raw: &str) -> String {
    let mut text = Bounded(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(raw) {
        if write!(text, "{name:#}").is_ok() && !text.0.is_empty() {
            return text.0;
        }
        return raw.to_string();
    }
    if raw.starts_with("_Z")
        && let Ok(name) = cpp_demangle::Symbol::new(raw.as_bytes())
        && name.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::new()).is_ok()
        && !text.0.is_empty()
    {
        return text.0;
    }
    raw.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangle("_Z"), "_Z");
        assert_eq!(demangle("_ZN"), "_ZN");
    }

    #[test]
    fn a_name_that_grows_stays_raw() {
        // Each level doubles the one before.
        let mut raw = String::from("_Z1fI1aIiiE");
        for level in 0..24 {
            let digit = if level == 0 { String::new() } else { format!("{:X}", level - 1) };
            let _ = write!(raw, "1aIS{digit}_S{digit}_E");
        }
        raw.push_str("EvT_");
        assert!(demangle(&raw).len() <= MAX_DEMANGLED);
    }
}

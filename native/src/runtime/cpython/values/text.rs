//! Numbers and strings as Python writes them.

use std::fmt::Write;

/// Decimal digits that are taken from a big number at a time.
const CHUNK: u64 = 1_000_000_000;
/// Decimal exponents from which on a float is written with one: float_repr_style "short", Python/pystrtod.c.
const EXPONENTS: std::ops::Range<i32> = -4..16;

/// The decimal digits of a number given in digits of `shift` bits, the least significant first; at most 30 bits.
pub(super) fn write_int(out: &mut String, negative: bool, digits: &[u32], shift: u32) {
    let mut digits = digits.to_vec();
    let mut chunks = Vec::new();
    while let Some(&top) = digits.last() {
        if top == 0 {
            digits.pop();
            continue;
        }
        let mut rest = 0_u64;
        for digit in digits.iter_mut().rev() {
            rest = rest << shift | u64::from(*digit);
            *digit = (rest / CHUNK) as u32;
            rest %= CHUNK;
        }
        chunks.push(rest);
    }
    if negative {
        out.push('-');
    }
    let Some(top) = chunks.pop() else { return out.push('0') };
    let _ = write!(out, "{top}");
    for chunk in chunks.iter().rev() {
        let _ = write!(out, "{chunk:09}");
    }
}

/// As repr(float).
pub(super) fn write_float(out: &mut String, value: f64) {
    let start = out.len();
    write_short(out, value);
    if value.is_finite() && !out[start..].contains(['.', 'e']) {
        out.push_str(".0");
    }
}

/// As repr(complex).
pub(super) fn write_complex(out: &mut String, real: f64, imaginary: f64) {
    if real == 0.0 && real.is_sign_positive() {
        write_short(out, imaginary);
        return out.push('j');
    }
    out.push('(');
    write_short(out, real);
    if imaginary.is_nan() || imaginary.is_sign_positive() {
        out.push('+');
    }
    write_short(out, imaginary);
    out.push_str("j)");
}

/// The shortest digits that mean this float, without a `.0`.
fn write_short(out: &mut String, value: f64) {
    if value.is_nan() {
        return out.push_str("nan");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "inf" } else { "-inf" });
    }
    let short = format!("{value:e}");
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let _ = if EXPONENTS.contains(&exponent) {
        write!(out, "{value}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
    };
}

/// As repr(str). What is not ASCII stays as it is, for those who know which of it can be shown; lone surrogates and
/// controls are escaped.
pub(super) fn write_string(out: &mut String, characters: &[u32]) {
    let quote = quote_of(|wanted| characters.contains(&u32::from(wanted)));
    out.push(quote);
    for &code in characters {
        match char::from_u32(code) {
            Some(character) if !write_plain(out, character, quote) => {
                if code < 0xa0 {
                    let _ = write!(out, "\\x{code:02x}");
                } else {
                    out.push(character);
                }
            }
            Some(_) => {}
            None if code < 0x11_0000 => {
                let _ = write!(out, "\\u{code:04x}");
            }
            None => out.push(char::REPLACEMENT_CHARACTER),
        }
    }
    out.push(quote);
}

/// As repr(bytes); `in_array`: as it stands in repr(bytearray), where an apostrophe is escaped whatever the quotes are
/// (bytearray_repr, Objects/bytearrayobject.c).
pub(super) fn write_bytes(out: &mut String, bytes: &[u8], in_array: bool) {
    let quote = quote_of(|wanted| bytes.contains(&(wanted as u8)));
    out.push('b');
    out.push(quote);
    for &byte in bytes {
        if in_array && byte == b'\'' {
            out.push_str("\\'");
        } else if !byte.is_ascii() || !write_plain(out, char::from(byte), quote) {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push(quote);
}

fn quote_of(has: impl Fn(char) -> bool) -> char {
    if has('\'') && !has('"') { '"' } else { '\'' }
}

/// Writes a character that both str and bytes show as itself, or escaped by a letter. False: it is none.
fn write_plain(out: &mut String, character: char, quote: char) -> bool {
    match character {
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        _ if character == quote || character == '\\' => out.extend(['\\', character]),
        ' '..='~' => out.push(character),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn integers() {
        let int = |digits: &[u32]| text(|out| write_int(out, false, digits, 30));
        assert_eq!(int(&[]), "0");
        assert_eq!(int(&[0, 0]), "0");
        assert_eq!(text(|out| write_int(out, true, &[7], 30)), "-7");
        assert_eq!(int(&[0, 1]), "1073741824");
        assert_eq!(int(&[0x3fff_ffff, 0x3fff_ffff, 15]), u64::MAX.to_string());
        // 2 ** 120
        assert_eq!(int(&[0, 0, 0, 0, 1]), (1_u128 << 120).to_string());
        // 10 ** 18: chunks of nothing but zeros.
        assert_eq!(int(&[660_865_024, 931_322_574]), "1000000000000000000");
    }

    #[test]
    fn floats() {
        let float = |value| text(|out| write_float(out, value));
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e22, "1.25e+22"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
            (123_456_789_012_345.67, "123456789012345.67"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn complexes() {
        let complex = |real, imaginary| text(|out| write_complex(out, real, imaginary));
        assert_eq!(complex(0.0, 1.0), "1j");
        assert_eq!(complex(-0.0, 1.0), "(-0+1j)");
        assert_eq!(complex(1.5, -2.0), "(1.5-2j)");
        assert_eq!(complex(1.0, -0.0), "(1-0j)");
        assert_eq!(complex(f64::INFINITY, f64::NAN), "(inf+nanj)");
        assert_eq!(complex(1e20, 0.0), "(1e+20+0j)");
    }

    #[test]
    fn strings() {
        let codes = |value: &str| value.chars().map(u32::from).collect::<Vec<_>>();
        let string = |value: &[u32]| text(|out| write_string(out, value));
        assert_eq!(string(&codes("a'b")), "\"a'b\"");
        assert_eq!(string(&codes("a'\"\\")), "'a\\'\"\\\\'");
        assert_eq!(string(&codes("\0\x1b\x7f\u{85}\t\n\ré")), "'\\x00\\x1b\\x7f\\x85\\t\\n\\ré'");
        assert_eq!(string(&[0xd800, 0x1_f600, 0x11_0000]), "'\\ud800\u{1f600}\u{fffd}'");
        assert_eq!(text(|out| write_bytes(out, b"a'\xff\n\"", false)), "b'a\\'\\xff\\n\"'");
        assert_eq!(text(|out| write_bytes(out, b"it's", false)), "b\"it's\"");
        assert_eq!(text(|out| write_bytes(out, b"it's", true)), "b\"it\\'s\"");
    }
}

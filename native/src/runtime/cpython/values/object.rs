//! Objects as repr() writes them, read from memory alone: no code of the target runs.
//!
//! What has a `__repr__` of its own in Python is written as the built-in type that it derives from, in the name of its
//! class; an instance of anything else as `<module.Class object at 0x...>`. Cuts are marked by `…`.

use std::fmt::Write;
use std::rc::Rc;

use super::layout::Layout;
use super::pages::Pages;
use super::text::{write_bytes, write_complex, write_float, write_int, write_string};
use super::types::{Class, Type, Types, c_string};
use crate::error::ReadError;
use crate::memory::Memory;
use crate::runtime::cpython::offsets::Offsets;
use crate::runtime::cpython::strings::{Place, read_string};

/// Bytes of a value's text over which no further item of a container is begun.
pub const MAX_VALUE_BYTES: usize = 1024;
/// Characters of a str, and bytes of a bytes, that are shown.
pub const MAX_CHARACTERS: usize = 256;
/// Bits of an int up to which its digits are shown.
pub const MAX_INT_BITS: u64 = 4096;
/// Containers in one another that are shown.
pub const MAX_DEPTH: usize = 6;
/// Most digits of an int, most bytes of a str, most items believed.
pub(super) const MAX_LENGTH: u64 = 1 << 40;
/// Longest name of a C function.
const MAX_NAME_BYTES: usize = 256;
/// The largest upper half of a reference count. A block that was freed has a pointer to the next free one there
/// (Objects/obmalloc.c); of the 64 bits the upper 16 are flags from 3.14 on (Include/object.h).
const MAX_REFERENCES_HIGH: u64 = 1;

/// A value in words.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub text: String,
    /// The name of its type, "" where that could not be read.
    pub kind: String,
    /// Whether there is more of it.
    pub cut: bool,
    /// How many of its parts could not be read.
    pub unreadable: u32,
}

/// Writes values, one after another.
pub(super) struct Writer<'a> {
    pub pages: &'a Pages<'a>,
    pub offsets: &'a Offsets,
    pub layout: &'a Layout,
    pub types: &'a mut Types,
    pub(super) out: String,
    pub(super) cut: bool,
    unreadable: u32,
    /// The containers around what is being written.
    open: Vec<u64>,
}

/// An address as the C library of the system writes it, and so repr().
fn pointer(address: u64) -> String {
    if cfg!(windows) { format!("0x{address:016X}") } else { format!("{address:#x}") }
}

pub(super) const UNREADABLE: &str = "<unreadable>";

impl<'a> Writer<'a> {
    pub fn new(pages: &'a Pages<'a>, offsets: &'a Offsets, layout: &'a Layout, types: &'a mut Types) -> Self {
        Writer { pages, offsets, layout, types, out: String::new(), cut: false, unreadable: 0, open: Vec::new() }
    }

    /// The object at `address`.
    ///
    /// Errors: no more may be read. What makes no sense is none, but shown as `<unreadable>`.
    pub fn show(&mut self, address: u64) -> Result<Shown, ReadError> {
        (self.cut, self.unreadable) = (false, 0);
        self.out.clear();
        self.open.clear();
        self.write(address)?;
        let kind = self.kind_of(address).map_or_else(|_| String::new(), |kind| kind.name.clone());
        Ok(Shown { text: std::mem::take(&mut self.out), kind, cut: self.cut, unreadable: self.unreadable })
    }

    /// The type of the object at `address`, if it looks like one that is alive.
    pub fn kind_of(&mut self, address: u64) -> Result<Rc<Type>, ReadError> {
        const NOT_AN_OBJECT: ReadError = ReadError::Corrupt("not an object");
        if address == 0 || !address.is_multiple_of(8) {
            return Err(NOT_AN_OBJECT);
        }
        let references = self.pages.glance(address)?;
        if references << 32 == 0 || (references >> 32) & 0xffff > MAX_REFERENCES_HIGH {
            return Err(NOT_AN_OBJECT);
        }
        let kind = self.field(address, self.layout.object_type)?;
        self.types.find(self.pages, self.offsets, self.layout, kind)
    }

    /// Writes the object at `address`. Errors as [`Writer::show`].
    pub(super) fn write(&mut self, address: u64) -> Result<(), ReadError> {
        let (start, depth) = (self.out.len(), self.open.len());
        match self.try_write(address) {
            Err(error @ (ReadError::OverBudget | ReadError::Gone | ReadError::Denied)) => return Err(error),
            Err(_) => {
                self.out.truncate(start);
                self.out.push_str(UNREADABLE);
                self.unreadable += 1;
            }
            Ok(()) => {}
        }
        self.open.truncate(depth);
        Ok(())
    }

    fn try_write(&mut self, address: u64) -> Result<(), ReadError> {
        self.pages.check_budget()?;
        let kind = self.kind_of(address)?;
        match kind.class {
            Class::None => self.say("None"),
            Class::Ellipsis => self.say("Ellipsis"),
            Class::NotImplemented => self.say("NotImplemented"),
            Class::Bool => {
                let (_, digits) = self.int_digits(address)?;
                self.say(if digits == [1] { "True" } else { "False" })
            }
            Class::Int | Class::Float | Class::Complex | Class::Str | Class::Bytes | Class::List | Class::Dict
                if !kind.inherits_repr =>
            {
                self.derived(address, &kind)
            }
            Class::Tuple if !kind.inherits_repr => self.derived(address, &kind),
            Class::ByteArray | Class::Set | Class::FrozenSet => self.in_parentheses(address, &kind),
            class => self.plain(address, class, &kind),
        }
    }

    /// What is written the same for a built-in type and for those that inherit its `__repr__`.
    pub(super) fn plain(&mut self, address: u64, class: Class, kind: &Type) -> Result<(), ReadError> {
        match class {
            Class::Int => self.int(address),
            Class::Float => {
                let value = f64::from_bits(self.field(address, self.layout.float_value)?);
                write_float(&mut self.out, value);
                Ok(())
            }
            Class::Complex => {
                let at = self.layout.complex_value;
                let (real, imaginary) = (self.field(address, at)?, self.field(address, at + 8)?);
                write_complex(&mut self.out, f64::from_bits(real), f64::from_bits(imaginary));
                Ok(())
            }
            Class::Str => self.string(address),
            Class::Bytes => {
                let (size, data) = (self.offsets.bytes_size, self.offsets.bytes_data);
                let size = self.field(address, size)?;
                self.bytes(address.wrapping_add(u64::from(data)), size, false)
            }
            Class::Tuple => self.tuple(address),
            Class::List => self.list(address),
            Class::Dict => self.dict(address),
            Class::Range => self.range(address),
            Class::Slice => self.slice(address),
            Class::Exception => self.exception(address, kind),
            Class::Function => {
                let name = self.text(self.field(address, self.layout.function_qualname)?)?;
                self.say(&format!("<function {name} at {}>", pointer(address)))
            }
            Class::Builtin => self.builtin(address),
            Class::Method => self.method(address),
            Class::Type => {
                let named = self.types.find(self.pages, self.offsets, self.layout, address)?;
                self.say(&format!("<class '{}'>", named.name))
            }
            Class::Module => {
                let name = self.text(self.field(address, self.layout.module_name)?)?;
                self.say(&format!("<module '{name}'>"))
            }
            Class::Generator => {
                let name = self.text(self.field(address, self.layout.generator_qualname)?)?;
                self.say(&format!("<{} object {name} at {}>", kind.short, pointer(address)))
            }
            _ => self.say(&format!("<{} object at {}>", kind.name, pointer(address))),
        }
    }

    pub(super) fn say(&mut self, text: &str) -> Result<(), ReadError> {
        self.out.push_str(text);
        Ok(())
    }

    /// The word at `at` in the object at `address`.
    pub(super) fn field(&self, address: u64, at: u32) -> Result<u64, ReadError> {
        self.pages.read_u64(address.wrapping_add(u64::from(at)))
    }

    /// A name that the target gave something.
    fn text(&self, address: u64) -> Result<String, ReadError> {
        read_string(self.pages, self.offsets, address)
    }

    /// Goes into a container. False: it is around itself, or too deep down, which is written instead: `cyclic`, or with
    /// its dots as one character.
    pub(super) fn enter(&mut self, address: u64, cyclic: &str) -> bool {
        if self.open.contains(&address) {
            self.out.push_str(cyclic);
        } else if self.open.len() >= MAX_DEPTH {
            self.out.push_str(&cyclic.replace("...", "…"));
            self.cut = true;
        } else {
            self.open.push(address);
            return true;
        }
        false
    }

    /// Sign and digits of an int. Errors: over [`MAX_INT_BITS`], among others.
    fn int_digits(&self, address: u64) -> Result<(bool, Vec<u32>), ReadError> {
        let (negative, count) = self.int_head(address)?;
        if count * u64::from(self.layout.int_shift) > MAX_INT_BITS + u64::from(self.layout.int_shift) {
            return Err(ReadError::Bound("an int over its bound"));
        }
        let data = address.wrapping_add(u64::from(self.layout.int_digits));
        let bytes = self.pages.read_bytes(data, count as usize * 4, MAX_INT_BITS as usize)?;
        let digits: Vec<u32> =
            bytes.chunks_exact(4).map(|digit| u32::from_le_bytes([digit[0], digit[1], digit[2], digit[3]])).collect();
        if digits.iter().any(|digit| digit >> self.layout.int_shift != 0) {
            return Err(ReadError::Corrupt("not an int"));
        }
        Ok((negative, digits))
    }

    /// Whether an int is negative, and the number of its digits.
    fn int_head(&self, address: u64) -> Result<(bool, u64), ReadError> {
        let tag = self.field(address, self.layout.int_tag)?;
        let (negative, count) = if self.layout.int_tag_bits == 0 {
            (tag.cast_signed() < 0, tag.cast_signed().unsigned_abs())
        } else {
            (
                tag & u64::from(self.layout.int_sign_mask) == u64::from(self.layout.int_negative),
                tag >> self.layout.int_tag_bits,
            )
        };
        if count > MAX_LENGTH { Err(ReadError::Corrupt("not an int")) } else { Ok((negative, count)) }
    }

    fn int(&mut self, address: u64) -> Result<(), ReadError> {
        let (negative, count) = self.int_head(address)?;
        let shift = u64::from(self.layout.int_shift);
        if count * shift > MAX_INT_BITS {
            let last = address.wrapping_add(u64::from(self.layout.int_digits)).wrapping_add((count - 1) * 4);
            let top = self.pages.read_u32(last)?;
            let bits = (count - 1) * shift + u64::from(top.checked_ilog2().unwrap_or(0)) + 1;
            if bits > MAX_INT_BITS {
                self.cut = true;
                return self.say(&format!("<{}int of {bits} bits>", if negative { "negative " } else { "" }));
            }
        }
        let (negative, digits) = self.int_digits(address)?;
        write_int(&mut self.out, negative, &digits, self.layout.int_shift);
        Ok(())
    }

    fn string(&mut self, address: u64) -> Result<(), ReadError> {
        let place = Place::find(self.pages, self.offsets, address, self.layout.string_data)?;
        let codes = place.code_points(self.pages, MAX_CHARACTERS)?;
        write_string(&mut self.out, &codes);
        self.mark_cut(place.length > codes.len() as u64);
        Ok(())
    }

    pub(super) fn bytes(&mut self, data: u64, size: u64, in_array: bool) -> Result<(), ReadError> {
        if size > MAX_LENGTH {
            return Err(ReadError::Corrupt("not a bytes object"));
        }
        let kept = size.min(MAX_CHARACTERS as u64);
        let bytes = self.pages.read_bytes(data, kept as usize, MAX_CHARACTERS)?;
        write_bytes(&mut self.out, &bytes, in_array);
        self.mark_cut(kept < size);
        Ok(())
    }

    fn mark_cut(&mut self, cut: bool) {
        if cut {
            self.out.push('…');
            self.cut = true;
        }
    }

    fn builtin(&mut self, address: u64) -> Result<(), ReadError> {
        let definition = self.field(address, self.layout.builtin_definition)?;
        let name = self.field(definition, self.layout.definition_name)?;
        let name = c_string(self.pages, name, MAX_NAME_BYTES)?;
        let of = self.field(address, self.layout.builtin_self)?;
        if of == 0 {
            return self.say(&format!("<built-in function {name}>"));
        }
        let kind = self.kind_of(of)?;
        if kind.class == Class::Module {
            return self.say(&format!("<built-in function {name}>"));
        }
        self.say(&format!("<built-in method {name} of {} object at {}>", kind.c_name, pointer(of)))
    }

    fn method(&mut self, address: u64) -> Result<(), ReadError> {
        if !self.enter(address, "<bound method ...>") {
            return Ok(());
        }
        let function = self.field(address, self.layout.method_function)?;
        let name = match self.kind_of(function)?.class {
            Class::Function => self.text(self.field(function, self.layout.function_qualname)?)?,
            _ => "?".to_string(),
        };
        let _ = write!(self.out, "<bound method {name} of ");
        self.write(self.field(address, self.layout.method_self)?)?;
        self.say(">")
    }
}

//! What an object is: its type, and the built-in type whose layout it has.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::dict::{Item, Table};
use super::layout::Layout;
use super::pages::Pages;
use crate::error::ReadError;
use crate::memory::Memory;
use crate::runtime::cpython::offsets::Offsets;
use crate::runtime::cpython::strings::read_string;
use crate::runtime::cpython::{half, word};

/// Most types on the way from a type to `object`.
const MAX_BASES: usize = 64;
/// Most names of a class looked through for one.
const MAX_CLASS_NAMES: usize = 1024;
/// Most fields of a namedtuple.
const MAX_FIELDS: usize = 256;
/// Longest name of a type in C.
const MAX_NAME_BYTES: usize = 256;
/// Bytes of it read at a time.
const PIECE: usize = 64;
/// Largest fixed part of a type, and the qualified name of a heap type behind it.
const MAX_TYPE_BYTES: usize = 4096;

/// The built-in types whose values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    None,
    Ellipsis,
    NotImplemented,
    Bool,
    Int,
    Float,
    Complex,
    Str,
    Bytes,
    ByteArray,
    Tuple,
    List,
    Dict,
    Set,
    FrozenSet,
    Range,
    Slice,
    Function,
    Builtin,
    Method,
    Type,
    Module,
    Exception,
    Cell,
    Generator,
    /// Any other: known by its name only.
    Object,
}

/// Their names in C.
const CLASSES: [(&str, Class); 28] = [
    ("NoneType", Class::None),
    ("ellipsis", Class::Ellipsis),
    ("NotImplementedType", Class::NotImplemented),
    ("bool", Class::Bool),
    ("int", Class::Int),
    ("float", Class::Float),
    ("complex", Class::Complex),
    ("str", Class::Str),
    ("bytes", Class::Bytes),
    ("bytearray", Class::ByteArray),
    ("tuple", Class::Tuple),
    ("list", Class::List),
    ("dict", Class::Dict),
    ("set", Class::Set),
    ("frozenset", Class::FrozenSet),
    ("range", Class::Range),
    ("slice", Class::Slice),
    ("function", Class::Function),
    ("builtin_function_or_method", Class::Builtin),
    ("method", Class::Method),
    ("type", Class::Type),
    ("module", Class::Module),
    ("BaseException", Class::Exception),
    ("cell", Class::Cell),
    ("generator", Class::Generator),
    ("coroutine", Class::Generator),
    ("async_generator", Class::Generator),
    ("object", Class::Object),
];

/// What is known of a type.
#[derive(Debug)]
pub(super) struct Type {
    pub class: Class,
    /// With its module, which is left out where it is `builtins`.
    pub name: String,
    /// As in C.
    pub c_name: String,
    /// The last part of that.
    pub short: String,
    /// Whether its values are written as those of the built-in type.
    pub inherits_repr: bool,
    /// Of a namedtuple.
    pub fields: Vec<String>,
}

/// Types met so far, by address. A look is short: a type that it met stays.
#[derive(Debug, Default)]
pub(super) struct Types(FxHashMap<u64, (u64, Rc<Type>)>);

/// The fields of one PyTypeObject.
struct Head {
    name: u64,
    repr: u64,
    flags: u32,
    base: u64,
    dict: u64,
    qualname: u64,
}

const NOT_A_TYPE: ReadError = ReadError::Corrupt("not a type");

impl Types {
    /// The type at `address`.
    pub fn find(
        &mut self,
        pages: &Pages<'_>,
        offsets: &Offsets,
        layout: &Layout,
        address: u64,
    ) -> Result<Rc<Type>, ReadError> {
        // The C name tells it from a type that was there before; the rest of a type hardly ever changes.
        let name = pages.read_u64(address.wrapping_add(u64::from(layout.type_name)))?;
        if let Some((_, known)) = self.0.get(&address).filter(|(known, _)| *known == name) {
            return Ok(known.clone());
        }
        let found = Rc::new(pages.aside(|| Reader { pages, offsets, layout }.read(address))?);
        self.0.insert(address, (name, found.clone()));
        Ok(found)
    }
}

struct Reader<'a> {
    pages: &'a Pages<'a>,
    offsets: &'a Offsets,
    layout: &'a Layout,
}

impl Reader<'_> {
    fn read(&self, address: u64) -> Result<Type, ReadError> {
        let head = self.head(address)?;
        let c_name = self.c_name(head.name)?;
        let (module, qualname) = if self.is_heap(&head) {
            let module = self.class_name(&head, "__module__").and_then(|value| self.text(value).ok());
            (module.unwrap_or_default(), self.text(head.qualname)?)
        } else {
            let (module, name) = c_name.rsplit_once('.').unwrap_or(("builtins", &c_name));
            (module.to_string(), name.to_string())
        };
        let short = c_name.rsplit('.').next().unwrap_or_default().to_string();
        let name = match module.as_str() {
            "" | "builtins" => qualname,
            _ => format!("{module}.{qualname}"),
        };
        let mut found = Type { class: Class::Object, name, c_name, short, inherits_repr: false, fields: Vec::new() };
        let (mut at, repr) = (head, head_repr(address, self)?);
        for _ in 0..MAX_BASES {
            if found.fields.is_empty() && self.is_heap(&at) {
                found.fields =
                    self.class_name(&at, "_fields").and_then(|value| self.names(value).ok()).unwrap_or_default();
            }
            let c_name = self.c_name(at.name)?;
            let known = CLASSES.iter().find(|(name, _)| !self.is_heap(&at) && *name == c_name);
            if let Some(&(_, class)) = known {
                (found.class, found.inherits_repr) = (class, at.repr == repr);
                break;
            }
            if at.base == 0 {
                break;
            }
            at = self.head(at.base)?;
        }
        if found.class != Class::Tuple {
            found.fields.clear();
        }
        Ok(found)
    }

    fn is_heap(&self, head: &Head) -> bool {
        head.flags & self.layout.flag_heap != 0
    }

    /// What is at `address`, if it is a type: its own type is one that makes types.
    fn head(&self, address: u64) -> Result<Head, ReadError> {
        if address == 0 || !address.is_multiple_of(8) {
            return Err(NOT_A_TYPE);
        }
        let layout = self.layout;
        let bytes = self.pages.read_bytes(address, layout.type_size as usize, MAX_TYPE_BYTES)?;
        let field = |at: u32| word(&bytes, at).ok_or(NOT_A_TYPE);
        let metatype = field(layout.object_type)?;
        let makes_types = self.pages.read_u32(metatype.wrapping_add(u64::from(layout.type_flags)))? & layout.flag_type;
        if metatype == 0 || makes_types == 0 {
            return Err(NOT_A_TYPE);
        }
        let flags = half(&bytes, layout.type_flags).ok_or(NOT_A_TYPE)?;
        let qualname = if flags & layout.flag_heap == 0 {
            0
        } else {
            self.pages.read_u64(address.wrapping_add(u64::from(layout.heap_qualname)))?
        };
        Ok(Head {
            name: field(layout.type_name)?,
            repr: field(layout.type_repr)?,
            flags,
            base: field(layout.type_base)?,
            dict: field(layout.type_dict)?,
            qualname,
        })
    }

    fn c_name(&self, address: u64) -> Result<String, ReadError> {
        let name = c_string(self.pages, address, MAX_NAME_BYTES)?;
        if name.is_empty() { Err(NOT_A_TYPE) } else { Ok(name) }
    }

    fn text(&self, address: u64) -> Result<String, ReadError> {
        read_string(self.pages, self.offsets, address)
    }

    /// The value of a name in the class itself.
    fn class_name(&self, head: &Head, name: &str) -> Option<u64> {
        let mut table = Table::open(self.pages, self.layout, head.dict).ok()?;
        for _ in 0..MAX_CLASS_NAMES {
            let Item { key, value, .. } = table.next(self.pages).ok()??;
            let length = self.pages.read_u64(key.wrapping_add(u64::from(self.offsets.string_length))).ok()?;
            if length == name.len() as u64 && self.text(key).ok()? == name {
                return Some(value);
            }
        }
        None
    }

    fn names(&self, tuple: u64) -> Result<Vec<String>, ReadError> {
        let size = self.pages.read_u64(tuple.wrapping_add(u64::from(self.layout.var_size)))?;
        if size > MAX_FIELDS as u64 {
            return Err(ReadError::Bound("a namedtuple's fields"));
        }
        let items = tuple.wrapping_add(u64::from(self.layout.tuple_items));
        (0..size).map(|index| self.text(self.pages.read_u64(items.wrapping_add(index * 8))?)).collect()
    }
}

fn head_repr(address: u64, reader: &Reader<'_>) -> Result<u64, ReadError> {
    reader.pages.read_u64(address.wrapping_add(u64::from(reader.layout.type_repr)))
}

/// The NUL-terminated text at `address`.
pub(super) fn c_string(memory: &dyn Memory, address: u64, bound: usize) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    while bytes.len() < bound {
        // Pieces that lie in one page each: what is behind the text may not be mapped.
        let at = address.wrapping_add(bytes.len() as u64);
        let piece = memory.read_bytes(at, PIECE - at as usize % PIECE, PIECE)?;
        let end = piece.iter().position(|&byte| byte == 0);
        bytes.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if end.is_some() {
            return String::from_utf8(bytes).map_err(|_| ReadError::Corrupt("not a text"));
        }
    }
    Err(ReadError::Bound("text over its bound"))
}

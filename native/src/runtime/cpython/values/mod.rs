//! The variables of frames, and their values as text: read from memory alone, within bounds.
//!
//! Where each version keeps them is in `layout`; `scope` finds a frame's names and where their values are, `object` and
//! `containers` write a value, `types` says what it is. Nothing here is part of sampling: it is read once, on demand.

mod containers;
mod dict;
mod layout;
mod layout_tables;
mod object;
mod pages;
mod scope;
mod text;
mod types;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::object::{Shown, UNREADABLE, Writer};
use self::pages::Pages;
use self::scope::Variable;
use self::types::Types;
use super::frames::Walked;
use super::offsets::Offsets;
use crate::error::ReadError;
use crate::memory::{Budget, Memory};
pub(super) use layout::Layout;

/// Most variables of one frame.
const MAX_VARIABLES: usize = 128;
/// Most bytes of text of one frame's variables, and of a thread's: when so much is there, nothing more is read.
const MAX_FRAME_BYTES: usize = 16 << 10;
const MAX_THREAD_BYTES: usize = 256 << 10;
/// Most frames of one thread whose variables are read, the innermost first.
const MAX_FRAMES: usize = 512;
/// Readings of a value that changes meanwhile.
const ATTEMPTS: usize = 3;

/// What a variable is to its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Of the function, whether inner functions use it too or not.
    Argument,
    /// Neither an argument nor used by inner functions; or a name of a class body.
    Local,
    /// Inner functions use it too.
    Cell,
    /// Of an outer function.
    Free,
    /// The frame is that of a module, whose variables are global.
    Global,
}

impl Kind {
    /// As people, and JSON, call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Argument => "argument",
            Kind::Local => "local",
            Kind::Cell => "cell",
            Kind::Free => "free",
            Kind::Global => "global",
        }
    }
}

/// A variable that has a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Its name.
    pub name: String,
    /// What it is to the frame.
    pub kind: Kind,
    /// The value as `repr()` has it, within bounds.
    pub value: String,
    /// The name of the value's type, with its module unless that is `builtins`; empty if not known.
    pub type_name: String,
    /// Whether the value is longer than the bounds allow.
    pub cut: bool,
}

/// The variables of one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameLocals {
    /// The frame's address.
    pub address: u64,
    /// In the order of the function's names.
    pub locals: Vec<Local>,
    /// How many more there are.
    pub left_out: u32,
}

/// The variables of a thread's frames, and how reading them went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocals {
    /// Leaf first.
    pub frames: Vec<FrameLocals>,
    /// Values, parts of values and frames that could not be read.
    pub unreadable: u32,
    /// Values that changed faster than they could be read.
    pub changing: u32,
    /// Frames of which nothing was read, because there was so much already.
    pub frames_left_out: u32,
    /// Whether the time was up before all was read.
    pub over_budget: bool,
    /// Bytes of text.
    pub bytes: usize,
}

/// How values may be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Longest work, where a thread waits for it.
    pub budget: Option<Duration>,
    /// Whether nothing can change any of it meanwhile.
    pub still: bool,
}

/// What is needed for all frames of a thread.
struct Reader<'a> {
    pages: &'a Pages<'a>,
    offsets: &'a Offsets,
    layout: &'a Layout,
    look: Look,
    types: Types,
    result: ThreadLocals,
}

/// The variables of the frames of a walk. The thread itself stands still.
pub(super) fn read(
    memory: &dyn Memory,
    offsets: &Offsets,
    layout: &Layout,
    frames: &[Walked],
    look: Look,
) -> ThreadLocals {
    let pages = Pages::new(memory, look.budget.map(Budget::new));
    let mut reader =
        Reader { pages: &pages, offsets, layout, look, types: Types::default(), result: ThreadLocals::default() };
    for (index, frame) in frames.iter().enumerate() {
        let full = index >= MAX_FRAMES || reader.result.bytes >= MAX_THREAD_BYTES;
        let read = if full { Ok(()) } else { reader.frame(frame) };
        reader.result.over_budget |= read == Err(ReadError::OverBudget);
        if full || read.is_err() {
            reader.result.frames_left_out = (frames.len() - index) as u32;
            break;
        }
    }
    reader.result
}

impl Reader<'_> {
    /// Errors: no more may be read.
    fn frame(&mut self, frame: &Walked) -> Result<(), ReadError> {
        let mut found = FrameLocals { address: frame.address, ..FrameLocals::default() };
        let (variables, more) = match self.variables(frame) {
            Ok(found) => found,
            Err(error) if ends(error) => return Err(error),
            Err(_) => {
                self.result.unreadable += 1;
                Default::default()
            }
        };
        found.left_out = u32::try_from(more).unwrap_or(u32::MAX);
        let before = self.result.bytes;
        for (index, variable) in variables.iter().enumerate() {
            if found.locals.len() >= MAX_VARIABLES || self.result.bytes - before >= MAX_FRAME_BYTES {
                found.left_out = found.left_out.saturating_add((variables.len() - index) as u32);
                break;
            }
            match self.value(variable) {
                Ok(Some(shown)) => {
                    self.result.bytes += shown.text.len() + shown.kind.len() + variable.name.len();
                    let (name, kind) = (variable.name.clone(), variable.kind);
                    let Shown { text: value, kind: type_name, cut, .. } = shown;
                    found.locals.push(Local { name, kind, value, type_name, cut });
                }
                Ok(None) => {}
                Err(error) => {
                    found.left_out = found.left_out.saturating_add((variables.len() - index) as u32);
                    self.result.frames.push(found);
                    return Err(error);
                }
            }
        }
        self.result.frames.push(found);
        Ok(())
    }

    /// The value of a variable; None: it has none. Errors: no more may be read.
    fn value(&mut self, variable: &Variable) -> Result<Option<Shown>, ReadError> {
        let mut last = Shown::default();
        for _ in 0..ATTEMPTS {
            if !self.look.still {
                self.pages.begin();
            }
            let address = match variable.read(self.pages) {
                Ok(address) => address,
                Err(error) if ends(error) => return Err(error),
                Err(_) => {
                    self.result.unreadable += 1;
                    return Ok(Some(Shown { text: UNREADABLE.to_string(), ..Shown::default() }));
                }
            };
            let mut writer = Writer::new(self.pages, self.offsets, self.layout, &mut self.types);
            let shown = if address == 0 { None } else { Some(writer.show(address)?) };
            if self.look.still || self.pages.unchanged()? {
                self.result.unreadable += shown.as_ref().map_or(0, |shown| shown.unreadable);
                return Ok(shown);
            }
            last = shown.unwrap_or_default();
        }
        self.result.changing += 1;
        let kind = if last.kind.is_empty() { "a value" } else { &last.kind };
        Ok(Some(Shown { text: format!("<{kind}, changing>"), kind: last.kind.clone(), cut: true, unreadable: 0 }))
    }
}

/// Whether an error is the end of all reading.
fn ends(error: ReadError) -> bool {
    matches!(error, ReadError::OverBudget | ReadError::Gone | ReadError::Denied)
}

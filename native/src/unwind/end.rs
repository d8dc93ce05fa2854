//! How walks end.

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the first frame of the thread: the stack is complete.
    Bottom,
    /// Short of it.
    Truncated(Reason),
    /// At an address that was not copied.
    NeedMore {
        /// The missing word.
        address: u64,
    },
}

/// Why a stack is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Deeper than [`super::MAX_NATIVE_DEPTH`].
    Depth,
    /// A return address, or the leaf's pc, is in no known executable mapping.
    UnknownCode,
    /// No table covers the code, and neither a frame pointer nor a return address held good.
    NoTables,
    /// The table needs a register whose value is not known there.
    LostRegister,
    /// It goes on on another stack, and it is not known where.
    OtherStack,
    /// It goes on on a stack that is being moved.
    Moving,
    /// The stack pointer did not grow.
    StackPointer,
    /// The table makes no sense.
    BadTable,
    /// Between an exception's throw and its handler, where the stack is neither the one's nor the other's.
    Throwing,
}

impl Reason {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Depth => "too deep",
            Reason::UnknownCode => "code in no known mapping",
            Reason::NoTables => "no unwind tables",
            Reason::LostRegister => "a register is lost",
            Reason::OtherStack => "a switch of stacks",
            Reason::Moving => "a stack that is being moved",
            Reason::StackPointer => "stack pointer out of order",
            Reason::BadTable => "bad unwind table",
            Reason::Throwing => "an exception on its way to its handler",
        }
    }
}

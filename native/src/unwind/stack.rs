//! The copied pieces of a stack.

/// A piece of a thread's stack, copied while it did not run.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Where its first byte was.
    pub address: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// The word at `address`, if it was copied.
    pub fn read(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// All pieces: usually one, two where a signal is handled on a stack of its own.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a>(pub &'a [StackCopy<'a>]);

impl Stack<'_> {
    /// The word at `address`, if it was copied.
    pub fn read(&self, address: u64) -> Option<u64> {
        self.0.iter().find_map(|piece| piece.read(address))
    }
}

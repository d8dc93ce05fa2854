//! The copied pieces of a stack.

/// Bytes below the stack pointer that a function may use (System V AMD64 ABI, 3.2.2): libffi's `ffi_call_unix64` still has
/// its caller's registers there in its last instructions.
const RED_ZONE: u64 = 128;
const PAGE: u64 = 4096;

/// Where a copy of the stack with the stack pointer `sp` starts: with its red zone, as far as that is on the same page;
/// the page below may not be there.
pub fn copy_start(sp: u64) -> u64 {
    sp.saturating_sub(RED_ZONE).max(sp & !(PAGE - 1))
}

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

/// All pieces, as one frame sees them: usually one, two where a signal is handled on a stack of its own.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    pieces: &'a [StackCopy<'a>],
    low: u64,
}

impl<'a> Stack<'a> {
    /// Of the frame with the stack pointer `sp`. It has a red zone unless it has called.
    pub fn of_frame(pieces: &'a [StackCopy<'a>], sp: u64, has_called: bool) -> Stack<'a> {
        Stack { pieces, low: if has_called { sp } else { sp.saturating_sub(RED_ZONE) } }
    }

    /// The word at `address`, if it was copied and is not below what the frame may use.
    pub fn read(&self, address: u64) -> Option<u64> {
        if address < self.low {
            return None;
        }
        self.pieces.iter().find_map(|piece| piece.read(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_holds_the_red_zone_and_no_other_page() {
        assert_eq!(copy_start(0x7000_1800), 0x7000_1780);
        assert_eq!(copy_start(0x7000_1010), 0x7000_1000);
        assert_eq!(copy_start(0x7000_1000), 0x7000_1000);
        assert_eq!(copy_start(8), 0);
    }

    #[test]
    fn only_a_frame_that_has_not_called_has_a_red_zone() {
        let bytes: Vec<u8> = (0..64u64).flat_map(u64::to_le_bytes).collect();
        let pieces = [StackCopy { address: 0x1000, bytes: &bytes }];
        let (leaf, caller) = (Stack::of_frame(&pieces, 0x1100, false), Stack::of_frame(&pieces, 0x1100, true));
        assert_eq!((leaf.read(0x1100), caller.read(0x1100)), (Some(32), Some(32)));
        assert_eq!((leaf.read(0x1080), caller.read(0x10f8)), (Some(16), None));
        assert_eq!(leaf.read(0x1078), None);
    }
}

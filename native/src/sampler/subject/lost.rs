//! What a stack shows out of which no walk leads: the names are those of Go's own profiles (src/runtime/proc.go, sigprof).

use super::native::{Native, Walked};
use crate::runtime::cpython::PyStack;
use crate::tables::TRUNCATED;
use crate::unwind::NativeFrame;
use crate::unwind::guest::Seen;

impl Native {
    /// What a leaf is called out of which no walk leads.
    pub(super) fn lost_leaf(&self, leaf: &NativeFrame) -> Option<&'static str> {
        match self.mappings.get(leaf.mapping as usize) {
            None => Some("_ExternalCode"),
            Some(mapping) if mapping.path == "[vdso]" => Some("_VDSO"),
            Some(_) => None,
        }
    }

    /// What stands at the root of a stack that is cut short. Where nothing but the leaf is known of a thread of Go, that is
    /// what the runtime is taken to be doing.
    pub(super) fn lost_root(&self, walked: Option<Walked>, seen: &Seen, python: &PyStack) -> &'static str {
        let alone = matches!(walked, Some(Walked::Cut(_))) && self.frames.len() <= 1 && python.frames.is_empty();
        match (alone && seen.places.known, seen.collecting) {
            (false, _) => TRUNCATED,
            (true, false) => "_System",
            (true, true) => "_GC",
        }
    }
}

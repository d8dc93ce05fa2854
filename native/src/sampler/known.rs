//! Stacks met before, by what a runtime's walk gives: one look-up for a stack instead of one for each of its frames.

use std::hash::Hasher;

use rustc_hash::FxHashMap;

use crate::runtime::cpython::{End, PyStack};
use crate::stats::Cache;
use crate::tables::StackId;

/// Most words kept; then all is forgotten and begins anew.
const MAX_WORDS: usize = 16 << 20;

/// The stacks of one window. Two that hash alike are told apart by their words; only the latest of them is kept.
#[derive(Debug, Default)]
pub struct KnownStacks {
    words: Vec<u64>,
    stacks: FxHashMap<u64, (u32, u32, StackId)>,
    /// Stacks looked for.
    pub looks: Cache,
}

fn words(stack: &PyStack) -> impl Iterator<Item = u64> {
    let end = match stack.end {
        End::Truncated => 1,
        End::PutOff => 2,
        End::Base | End::Torn => 0,
    };
    let frames = stack.frames.iter().map(|frame| u64::from(frame.code.0) << 32 | u64::from(frame.lasti));
    frames.chain([end])
}

fn hash_of(stack: &PyStack) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    words(stack).for_each(|word| hasher.write_u64(word));
    hasher.finish()
}

impl KnownStacks {
    /// The stack, if it was met before.
    pub fn find(&mut self, stack: &PyStack) -> Option<StackId> {
        let found = self.stacks.get(&hash_of(stack)).and_then(|&(start, end, id)| {
            let kept = &self.words[start as usize..end as usize];
            kept.iter().copied().eq(words(stack)).then_some(id)
        });
        self.looks.count(found.is_some());
        found
    }

    /// Keeps a stack.
    pub fn keep(&mut self, stack: &PyStack, id: StackId) {
        if self.words.len() + stack.frames.len() > MAX_WORDS {
            self.clear();
        }
        let start = self.words.len() as u32;
        self.words.extend(words(stack));
        self.stacks.insert(hash_of(stack), (start, self.words.len() as u32, id));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.words.clear();
        self.stacks.clear();
    }
}

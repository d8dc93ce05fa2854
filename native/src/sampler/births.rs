//! What the kernel tells of births and execs below the targets, between two looks at the tree.

use std::io;

use super::Sampler;
use super::follow::LOOK_SHARE;
use crate::target::births::{Births, Told};
use crate::target::sys;

/// Shortest and longest time between two moments at which we hear what was told.
const WAIT_NS: (u64, u64) = (200_000, 1_000_000_000);

/// The kernel's word, where it is to be had.
#[derive(Debug)]
pub(super) struct Hearing {
    births: Option<Births>,
    /// When to hear again: with many births most are met by the looks.
    again: u64,
}

impl Hearing {
    /// Begins to hear.
    pub(super) fn begin() -> Hearing {
        Hearing { births: Births::listen(), again: 0 }
    }

    /// What becomes readable when something was told; -1 if nothing is to be heard now. `now`: on the monotonic clock,
    /// nanoseconds.
    pub(super) fn descriptor(&self, now: u64) -> i32 {
        self.births.as_ref().filter(|_| now >= self.again).map_or(-1, Births::descriptor)
    }

    /// When it is to be heard again, if not now.
    pub(super) fn due(&self, now: u64) -> u64 {
        if self.births.is_some() && now < self.again { self.again } else { u64::MAX }
    }
}

impl Sampler {
    /// Takes up who was born, and sees who has become another.
    pub(super) fn hear(&mut self, now: u64) -> io::Result<()> {
        let Some(mut following) = self.following.take() else { return Ok(()) };
        let began = sys::thread_cpu_ns();
        let mut told = Vec::new();
        if let Some(births) = &following.hearing.births {
            births.read(&mut told);
        }
        if following.pattern.is_some() {
            // Between fork and exec a process has its parent's name: the next look is soon enough.
            let ours = |told: &Told| match told {
                Told::Executed { pid } if following.tree.get(*pid).is_some() => Some(*pid),
                _ => None,
            };
            let executed: Vec<u32> = told.iter().filter_map(ours).collect();
            if !executed.is_empty() {
                for &pid in &executed {
                    following.tree.settle(pid);
                }
                self.part(&mut following);
            }
            let passed = following.tree.passed(&executed);
            self.turn_to(&mut following, &passed, now)?;
        } else {
            let births = told.iter().filter_map(|told| match told {
                Told::Born { pid, parent } => Some((*pid, *parent)),
                Told::Executed { .. } => None,
            });
            let born = following.tree.told(&births.collect::<Vec<_>>());
            if let Some(root) = self.subjects.first_mut() {
                root.stats.told_births += born.len() as u64;
            }
            self.take_up_all(&mut following, born, now)?;
        }
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        following.hearing.again = now + (cost * LOOK_SHARE).clamp(WAIT_NS.0, WAIT_NS.1);
        self.following = Some(following);
        Ok(())
    }
}

//! Who descends from whom where a process keeps the number of its parent for good, and numbers are given again (Windows):
//! a child is younger than its parent, and was born while that lived.

use rustc_hash::FxHashMap;

/// Most processes of which it is known when they lived.
const MAX_LIVES: usize = 1 << 16;
/// Stands for the end of a process that lives.
const NEVER: u64 = u64::MAX;

/// When a process lived, by the system's clock, and the number of its parent.
#[derive(Clone, Copy, Debug)]
struct Life {
    parent: u32,
    created: u64,
    ended: u64,
}

/// A process that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Its number.
    pub pid: u32,
    /// That of its parent.
    pub parent: u32,
    /// When it was created.
    pub created: u64,
}

/// The processes of a tree, those that ended among them.
#[derive(Debug, Default)]
pub struct Descent(FxHashMap<u32, Life>);

impl Descent {
    /// A process belongs to the tree.
    pub fn begin(&mut self, Birth { pid, parent, created }: Birth) {
        if self.0.len() >= MAX_LIVES {
            self.0.retain(|_, life| life.ended == NEVER);
        }
        self.0.insert(pid, Life { parent, created, ended: NEVER });
    }

    /// One of them has ended.
    pub fn end(&mut self, pid: u32, ended: u64) {
        if let Some(life) = self.0.get_mut(&pid) {
            life.ended = ended;
        }
    }

    /// Whether it lives: nobody else has its number then.
    pub fn lives(&self, pid: u32) -> bool {
        self.0.get(&pid).is_some_and(|life| life.ended == NEVER)
    }

    /// Whether it is one of the tree, ended or not.
    pub fn knows(&self, pid: u32, created: u64) -> bool {
        self.0.get(&pid).is_some_and(|life| life.created == created)
    }

    /// The number of its parent.
    pub fn parent(&self, pid: u32) -> Option<u32> {
        self.0.get(&pid).map(|life| life.parent)
    }

    fn is_child(&self, parent: u32, created: u64) -> bool {
        self.0.get(&parent).is_some_and(|life| (life.created..=life.ended).contains(&created))
    }

    /// Those of `list`, pairs of a process and its parent, that are new and descend from the tree, parents before their
    /// children; they belong to it from now on. `created`: when a process was created, None = it is gone.
    pub fn births(&mut self, list: &[(u32, u32)], mut created: impl FnMut(u32) -> Option<u64>) -> Vec<Birth> {
        let mut open: Vec<(u32, u32)> = list.iter().copied().filter(|&(pid, _)| !self.lives(pid)).collect();
        let mut born = Vec::new();
        loop {
            let before = born.len();
            open.retain(|&(pid, parent)| {
                if !self.0.contains_key(&parent) || pid == parent {
                    return true;
                }
                if let Some(created) = created(pid)
                    && !self.knows(pid, created)
                    && self.is_child(parent, created)
                {
                    let birth = Birth { pid, parent, created };
                    self.begin(birth);
                    born.push(birth);
                }
                false
            });
            if born.len() == before {
                return born;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Descent {
        let mut tree = Descent::default();
        tree.begin(Birth { pid: 100, parent: 4, created: 1000 });
        tree
    }

    fn pids(born: &[Birth]) -> Vec<u32> {
        born.iter().map(|birth| birth.pid).collect()
    }

    #[test]
    fn grandchildren_are_found_in_any_order_and_once() {
        let mut tree = tree();
        let list = [(300, 200), (200, 100), (100, 4), (400, 300), (500, 4)];
        let born = tree.births(&list, |pid| Some(1000 + u64::from(pid)));
        assert_eq!(pids(&born), [200, 300, 400]);
        assert_eq!(tree.births(&list, |pid| Some(1000 + u64::from(pid))), []);
        assert_eq!((tree.parent(400), tree.parent(500)), (Some(300), None));
    }

    #[test]
    fn who_is_older_than_its_parent_is_the_child_of_another_of_that_number() {
        let mut tree = tree();
        assert_eq!(tree.births(&[(200, 100)], |_| Some(999)), []);
        assert_eq!(pids(&tree.births(&[(200, 100)], |_| Some(1000))), [200]);
    }

    #[test]
    fn orphans_are_found_and_children_of_a_successor_are_not() {
        let mut tree = tree();
        tree.births(&[(200, 100)], |_| Some(2000));
        tree.end(200, 3000);
        assert!(!tree.lives(200) && tree.lives(100));
        let when = |pid| Some(if pid == 300 { 2500 } else { 3500 });
        assert_eq!(pids(&tree.births(&[(300, 200), (400, 200)], when)), [300]);
    }

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        let mut tree = tree();
        tree.births(&[(200, 100)], |_| Some(2000));
        tree.end(200, 3000);
        assert_eq!(tree.births(&[(200, 100)], |_| Some(2000)), [], "it is the one that ended");
        assert_eq!(pids(&tree.births(&[(200, 100)], |_| Some(4000))), [200]);
        assert_eq!(tree.births(&[(300, 100), (100, 100)], |_| None), [], "gone");
    }

    #[test]
    fn what_is_kept_of_the_ended_is_bounded() {
        let mut tree = tree();
        for pid in 0..2 * MAX_LIVES as u32 {
            tree.begin(Birth { pid: pid + 1000, parent: 100, created: 2000 });
            tree.end(pid + 1000, 2001);
        }
        assert!(tree.0.len() <= MAX_LIVES && tree.lives(100));
    }
}

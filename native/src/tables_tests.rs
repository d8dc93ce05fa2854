//! What is folded, kept apart, and counted.

use super::*;

#[test]
fn stacks_fold_and_sums_stay() {
    let mut tables = Tables::default();
    let (a, b) = (tables.label("[a]"), tables.label("[b]"));
    assert_ne!(a, 0, "index 0 is the frame for what does not fit");
    let (one, two, none) = (tables.stack(&[a, b]), tables.stack(&[b]), tables.stack(&[]));
    assert_eq!(tables.stack(&[a, b]), one);
    for stack in [one, two, one, none] {
        let key = RowKey { thread: 0, stack, state: State::Running, time: 0, labels: 0 };
        tables.count(key, Values { samples: 1, cpu: 5, wall: 7, gil: 2 });
    }
    let key = RowKey { thread: 1, stack: one, state: State::Sleeping, time: 0, labels: 0 };
    tables.count(key, Values { samples: 3, ..Values::default() });
    let columns = tables.take(vec![(10, "x".into()), (11, "y".into())]);
    assert_eq!(columns.samples.iter().sum::<u64>(), 7);
    assert_eq!(columns.cpu.iter().sum::<u64>(), 20);
    assert_eq!(columns.row_threads, [0, 0, 0, 1]);
    assert_eq!(columns.stack_starts, [0, 2, 3, 3]);
    assert_eq!(columns.strings[columns.frames[a as usize].name as usize], "[a]");
}

#[test]
fn rows_of_different_times_are_kept_apart_up_to_a_bound() {
    let mut tables = Tables::default();
    let stack = tables.stack(&[]);
    let key = |time| RowKey { thread: 0, stack, state: State::Running, time, labels: 0 };
    for time in (1..=MAX_TIMED_ROWS as u64).chain([1, 1 << 40, 1 << 41]) {
        tables.count(key(time), Values { samples: 1, ..Values::default() });
    }
    assert!(tables.timed_full());
    let columns = tables.take(Vec::new());
    assert_eq!(columns.samples.iter().sum::<u64>(), MAX_TIMED_ROWS as u64 + 3);
    assert_eq!((columns.row_times[0], columns.samples[0]), (0, 2));
    assert_eq!((columns.row_times[1], columns.samples[1]), (1, 2));
    assert_eq!(columns.samples.len(), MAX_TIMED_ROWS + 1);
}

#[test]
fn rows_beyond_the_bound_are_folded_and_counted() {
    let mut tables = Tables::default();
    let label = tables.label("[a]");
    let stack = tables.stack(&[label]);
    let value = Values { samples: 1, cpu: 3, ..Values::default() };
    for thread in 0..MAX_ROWS as u32 + 5 {
        tables.count(RowKey { thread, stack, state: State::Running, time: 0, labels: 0 }, value);
    }
    tables.count(RowKey { thread: 7, stack, state: State::Running, time: 0, labels: 0 }, value);
    assert_eq!(tables.folded(), (5, 0));
    let columns = tables.take(Vec::new());
    assert_eq!(columns.samples.iter().sum::<u64>(), MAX_ROWS as u64 + 6);
    assert_eq!(columns.cpu.iter().sum::<u64>(), 3 * (MAX_ROWS as u64 + 6));
    let full = columns.row_stacks[columns.row_stacks.len() - 1] as usize;
    let frame = columns.stack_frames[columns.stack_starts[full] as usize];
    assert_eq!(columns.strings[columns.frames[frame as usize].name as usize], "[table full]");
}

#[test]
fn equal_hashes_do_not_mix_stacks() {
    let mut tables = Tables::default();
    let a = tables.label("[a]");
    let one = tables.stack(&[a]);
    let two = tables.stack(&[a, a]);
    // Point the hash of a third stack at the first: it must be told apart by its frames.
    tables.stack_ids.insert(hash_of(&[a, a, a]), one);
    let three = tables.stack(&[a, a, a]);
    assert!(one != two && two != three && one != three);
    assert_eq!(tables.stack_frames(three), [a, a, a]);
}

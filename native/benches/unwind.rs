//! Unwinding 30 frames, warm: 3 µs at most is the aim. The stack is one of this process, recorded before: no other
//! process is needed, and no right to trace one.

use std::arch::asm;
use std::hint::black_box;

use _native::target::linux::Process;
use _native::target::recorded::{Recorded, Recorder};
use _native::unwind::{End, NativeFrame, Registers, StackCopy, Unwinder};
use criterion::{Criterion, criterion_group, criterion_main};

const FRAMES: usize = 30;

/// A stack, and the memory that was read while it was walked.
struct Stack {
    start: Registers,
    bytes: Vec<u8>,
    memory: Recorded,
    unwinder: Unwinder,
}

/// Calls itself `depth` times, then records.
#[inline(never)]
fn descend(depth: usize, room: &mut [u64; 4]) -> Stack {
    room[depth % 4] += depth as u64;
    let mut own = *black_box(&*room);
    let stack = if depth > 1 { descend(depth - 1, &mut own) } else { record() };
    black_box(&own);
    stack
}

/// Here and now, as the kernel tells it of a stopped thread.
#[inline(always)]
fn here() -> Registers {
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: reads three registers.
    unsafe {
        asm!("lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp", ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp,
             options(nostack, nomem));
    }
    Registers::new(ip, sp, bp)
}

#[inline(never)]
fn record() -> Stack {
    let process = Process::open(std::process::id()).expect("this process");
    let mappings = process.mappings().expect("its mappings");
    let mut unwinder = Unwinder::new();
    unwinder.set_mappings(&process, &mappings, &|mapping| process.open_mapped_file(mapping));
    let start = here();
    let around = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&start.sp())).expect("its stack");
    // SAFETY: the rest of this thread's stack, which nobody writes to meanwhile: all of it are callers' frames.
    let bytes = unsafe { std::slice::from_raw_parts(start.sp() as *const u8, (around.end - start.sp()) as usize) };
    let mut stack = Stack { start, bytes: bytes.to_vec(), memory: Recorded::default(), unwinder };
    let recorder = Recorder::new(&process);
    let pieces = [StackCopy { address: start.sp(), bytes: &stack.bytes }];
    let end = stack.unwinder.unwind(&recorder, &start, &pieces, &mut Vec::new());
    assert_eq!(end, End::Bottom);
    stack.memory = recorder.finish(mappings);
    stack
}

fn walk(stack: &mut Stack, frames: &mut Vec<NativeFrame>) -> End {
    let pieces = [StackCopy { address: stack.start.sp(), bytes: &stack.bytes }];
    stack.unwinder.unwind(&stack.memory, &stack.start, &pieces, frames)
}

fn unwinding(criterion: &mut Criterion) {
    let mut frames = Vec::new();
    walk(&mut descend(1, &mut [0; 4]), &mut frames);
    let mut stack = descend(FRAMES + 1 - frames.len(), &mut [0; 4]);
    criterion.bench_function("unwind 30 frames, warm", |bench| {
        bench.iter(|| {
            let end = walk(black_box(&mut stack), &mut frames);
            assert_eq!((end, frames.len()), (End::Bottom, FRAMES));
        });
    });
}

criterion_group!(benches, unwinding);
criterion_main!(benches);

//! In steady state nothing is allocated: neither per packet nor per flow nor per hole.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flowgauge_capture::PacketSource;
use flowgauge_flow::FlowConfig;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_wire::{Batch, Nanos, PacketDescriptor};

/// The system's allocator, counting. Only here: an allocator cannot be written without `unsafe`.
struct Counting;

thread_local! {
    /// Of each thread its own: the harness's allocates now and then, too.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract;
// counting touches no memory but a thread's own number, which neither allocates nor is ever dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's obligations are those of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[derive(Default)]
struct Count {
    bytes: u64,
    ended: u64,
}

impl Handler for Count {
    const STREAMS: bool = true;

    fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
    }

    fn stream_terminated(&mut self, _: &Stream<'_>, _: u64) {
        self.ended += 1;
    }
}

/// A whole trace as owned batches.
fn trace(preset: Preset, packets: u64) -> Vec<(Vec<u8>, Vec<PacketDescriptor>)> {
    let mut file = Vec::new();
    generate(&Config::new(preset).with_packets(packets), &mut file).unwrap();
    let mut source = flowgauge_capture::open_reader(std::io::Cursor::new(file), "trace").unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        batches.push((batch.memory.to_vec(), batch.packets.to_vec()));
    }
    batches
}

#[test]
fn steady_state_allocates_nothing() {
    for preset in [Preset::Mix, Preset::Small, Preset::Late, Preset::Loss] {
        let mut batches = trace(preset, 60_000);
        let first = batches[0].1[0].time;
        let last = batches.last().unwrap().1.last().unwrap().time;
        let period = (last - first) + Nanos::from_secs(1000);
        let mut shard = Shard::new(ShardConfig {
            flow: FlowConfig {
                max_flows: 1 << 20,
                ..FlowConfig::default()
            },
            ..ShardConfig::default()
        });
        let mut seen = Count::default();
        let mut allocations = Vec::new();
        // The same traffic again and again, later each time: the first rounds find the sizes.
        for _ in 0..5 {
            let before = ALLOCATIONS.get();
            for (memory, packets) in &batches {
                shard.process(&Batch::new(memory, packets), &mut seen);
            }
            allocations.push(ALLOCATIONS.get() - before);
            for (_, packets) in &mut batches {
                for packet in packets {
                    packet.time = packet.time + period;
                }
            }
        }
        assert!(seen.bytes > 0 && seen.ended > 0);
        assert!(allocations[0] > 0);
        assert_eq!(allocations[3..], [0, 0], "{preset:?}: {allocations:?}");
    }
}

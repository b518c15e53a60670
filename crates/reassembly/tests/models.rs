//! Sequences of segments and fragments, compared with naive models.

#[path = "../../../fuzz/harness/reassembly.rs"]
mod fuzz;

use fuzz::{fuzz_defragment, fuzz_reassembly};

/// xorshift64*: the same sequences in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 32) as u8).collect()
    }
}

#[test]
fn random_segments_as_the_model() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for round in 0..6000 {
        let len = 8 + (random.next() % 240) as usize;
        let mut data = random.bytes(len);
        // Half of the rounds stay in a small window, where everything overlaps.
        if round % 2 == 0 {
            for at in (5..data.len()).step_by(4) {
                data[at] = 0;
            }
        }
        fuzz_reassembly(&data);
    }
}

#[test]
fn random_fragments_as_the_model() {
    let mut random = Random(0xfeed_5678_9abc_def1);
    for _ in 0..6000 {
        let len = 4 + (random.next() % 200) as usize;
        fuzz_defragment(&random.bytes(len));
    }
}

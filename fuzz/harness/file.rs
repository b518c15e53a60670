//! Any bytes as a capture file.

use std::io::Cursor;

use flowgauge_capture::open_reader;

/// Reads any bytes as a file, to its end. Returns the number of packets.
pub(crate) fn fuzz_file(data: &[u8]) -> u64 {
    let Ok(mut source) = open_reader(Cursor::new(data.to_vec()), "fuzzed") else {
        return 0;
    };
    let mut sum = 0u64;
    loop {
        match source.next_batch() {
            Ok(Some(batch)) => {
                for index in 0..batch.len() {
                    sum += batch.bytes(index).len() as u64;
                }
            }
            Ok(None) => break,
            Err(_) => {}
        }
    }
    let ledger = source.ledger();
    assert!(ledger.is_balanced(), "{sum} bytes: {ledger:?}");
    ledger.delivered()
}

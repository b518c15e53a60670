//! Reads a capture and decodes every packet, nothing more: the floor of every command.
//!
//! usage: `decode FILE`
//! Prints packets, how many of them carry IP, and a sum over the decoded keys (so that decoding
//! cannot be optimized away).
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use flowgauge_capture::PacketSource;
use flowgauge_wire::{DecodeOptions, DecodedBatch, Decoder};

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: decode FILE");
        return ExitCode::from(2);
    };
    match run(path.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("decode: error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut source = flowgauge_capture::open(path)?;
    let mut decoder = Decoder::new(DecodeOptions::default());
    let mut decoded = DecodedBatch::new();
    let (mut packets, mut ip, mut sum) = (0_u64, 0_u64, 0_u64);
    while let Some(batch) = source.next_batch()? {
        decoder.decode_batch(&batch, &mut decoded);
        packets += batch.len() as u64;
        for packet in &decoded.packets {
            ip += u64::from(packet.has_ip());
            sum =
                sum.wrapping_add(u64::from(packet.key.low_port) ^ u64::from(packet.key.high_port));
        }
    }
    writeln!(
        std::io::stdout(),
        "{{\"packets\": {packets}, \"ip\": {ip}, \"sum\": {sum}}}"
    )?;
    Ok(())
}

//! Streams in contiguous chunks, every byte read: `chunks FILE [--chunk BYTES] [--packets]
//! [--mode wait|fast|strict] [--cutoff BYTES] [--memory BYTES]`; with `--beside` on the shard of another handler, which reads
//! them, too.

use flowgauge_capture::PacketSource;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoff, DataChunk, Engine, EngineConfig, Events, StreamRef,
};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_sys::tally::byte_sum;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = EngineConfig::default();
    let mut application = ApplicationConfig::default();
    let (mut path, mut beside) = (None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--chunk" => application.chunk_bytes = value()?.parse()?,
            "--overlap" => application.overlap_bytes = value()?.parse()?,
            "--mode" => application.mode = value()?.parse()?,
            "--cutoff" => application.cutoff.default = Cutoff(value()?.parse()?),
            "--memory" => config.memory_bytes = value()?.parse()?,
            "--beside" => beside = true,
            "--packets" => config.need_packets = true,
            _ => path = Some(argument),
        }
    }
    let path = path.ok_or("usage: chunks FILE [--chunk BYTES] [--packets] ...")?;
    let mut source = flowgauge_capture::open(&path)?;
    let mut engine = Engine::new(config);
    let mut read = Read::default();
    if beside {
        let mut engine = Engine::beside(ShardConfig::default());
        engine.add(application);
        let mut shard = Box::new(Shard::new(ShardConfig::default()));
        let mut guest = Guest::default();
        while let Some(batch) = source.next_batch()? {
            engine.on(&mut shard, false, |it| {
                it.process_for(&batch, &mut read, &mut guest)
            });
        }
        engine.on(&mut shard, false, |it| it.finish_for(&mut read, &mut guest));
        eprintln!("{read:?}\n{guest:?}");
        return Ok(());
    }
    engine.add(application);
    while let Some(batch) = source.next_batch()? {
        engine.process(&batch, &mut read);
    }
    engine.finish(&mut read);
    eprintln!("{read:?}\n{:#?}", engine.statistics());
    Ok(())
}

#[derive(Debug, Default)]
struct Read {
    streams: u64,
    chunks: u64,
    bytes: u64,
    packets: u64,
    sum: u64,
}

impl Events for Read {
    fn created(&mut self, _: ApplicationId, _: &mut StreamRef<'_>) {
        self.streams += 1;
    }

    fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        self.chunks += 1;
        self.bytes += chunk.new_bytes().len() as u64;
        for packet in chunk.packets() {
            self.packets += 1;
            self.sum = self.sum.wrapping_add(u64::from(packet.wire_len));
        }
        let (words, rest) = chunk.bytes().as_chunks::<8>();
        self.sum = words.iter().fold(self.sum, |sum, word| {
            sum.wrapping_add(u64::from_le_bytes(*word))
        });
        self.sum = rest
            .iter()
            .fold(self.sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    }
}

/// Reads each byte in order.
#[derive(Debug, Default)]
struct Guest {
    bytes: u64,
    sum: u64,
}

impl Handler for Guest {
    const STREAMS: bool = true;

    fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
        self.sum = self.sum.wrapping_add(byte_sum(chunk.bytes));
    }
}

//! Streams in contiguous chunks, every byte read: `chunks FILE [--chunk BYTES] [--packets]
//! [--mode wait|fast|strict] [--cutoff BYTES] [--memory BYTES]`.

use flowgauge_capture::PacketSource;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoff, DataChunk, Engine, EngineConfig, Events, StreamRef,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = EngineConfig::default();
    let mut application = ApplicationConfig::default();
    let mut path = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--chunk" => application.chunk_bytes = value()?.parse()?,
            "--overlap" => application.overlap_bytes = value()?.parse()?,
            "--mode" => application.mode = value()?.parse()?,
            "--cutoff" => application.cutoff.default = Cutoff(value()?.parse()?),
            "--memory" => config.memory_bytes = value()?.parse()?,
            "--packets" => config.need_packets = true,
            _ => path = Some(argument),
        }
    }
    let path = path.ok_or("usage: chunks FILE [--chunk BYTES] [--packets] ...")?;
    let mut source = flowgauge_capture::open(&path)?;
    let mut engine = Engine::new(config);
    engine.add(application);
    let mut read = Read::default();
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

//! `flowgauge packets`

use std::path::Path;

use flowgauge_capture::PacketSource;
use flowgauge_components::{Condition, DisplayFilter};
use flowgauge_kit::writing::lost;
use flowgauge_record::packet::{PACKET_BYTES_SCHEMA, PACKET_SCHEMA};
use flowgauge_record::picked::Picker;
use flowgauge_record::text::write_hex_bytes;
use flowgauge_record::{Format, Output, PacketRow, RecordWriter, WriterThread};
use flowgauge_stack::Packets;
use flowgauge_stream::is_partial;
use flowgauge_wire::checksum::{ChecksumVerdict, verify_transport};
use flowgauge_wire::decode::Decoder;
use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, PacketFlags};

use crate::control::Control;
use crate::failure::{self, Failure};
use crate::input;
use crate::options::PacketsOptions;
use crate::packet_contents::Connections;
use crate::packet_line::{Detail, Lines, write_hex_dump};
use crate::say::say;
use crate::sinks;
use crate::summary::{self, Outcome};

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &PacketsOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    control.say_what_takes_long(options.output.common.quiet);
    let mut opened = input::open(&options.input, &control)?;
    if opened.sources.len() > 1 {
        return Err(Failure::usage(
            "packets are printed by one worker",
            "leave --workers out",
        ));
    }
    let thread = opened.live.then(WriterThread::default);
    let mut printer = Printer::open(options, thread.as_ref())?;
    opened.announce(options.output.common.quiet);
    control.begin();
    let mut outcome = Outcome::default();
    let started = std::time::Instant::now();
    for source in &mut opened.sources {
        let mut names = Vec::new();
        while (opened.live || !control.stopped()) && !printer.writer.has_failed() {
            let known = source.interfaces();
            // Files can add interfaces by the thousand: only the new ones are copied.
            let new = known.get(names.len()..).unwrap_or(&[]);
            names.extend(new.iter().map(|interface| interface.name.clone()));
            match source.next_batch() {
                Ok(Some(batch)) => {
                    printer.batch(&batch, &names);
                    if opened.live {
                        printer.writer.flush();
                    }
                }
                Ok(None) => break,
                Err(error) => outcome.errors.push(error),
            }
            if control.statistics_wanted() {
                let ledger = source.ledger();
                say!("{}", summary::ledger_line(&ledger));
                summary::print_statistics(&ledger, &[], started.elapsed());
            }
        }
        outcome.ledger.merge(&source.ledger());
        outcome.notes.extend(source.notes());
    }
    outcome.elapsed = started.elapsed();
    thread.iter().for_each(WriterThread::begin_finish);
    let mut written = printer.writer.finish();
    if let Some(thread) = &thread {
        written = written.and_then(|()| thread.finish());
    }
    let thing = if printer.lines.is_some() {
        "line"
    } else {
        "packet"
    };
    let path = options.output.write.as_deref().unwrap_or(Path::new("-"));
    let lost = lost(thread.as_ref(), thing, path);
    outcome.notes.extend(lost.map(|lost| lost.to_string()));
    let connections = printer
        .lines
        .as_ref()
        .and_then(|lines| lines.connections.as_ref());
    if connections.is_some_and(|it| it.forgotten > 0) {
        outcome.notes.push(
            "too many connections: relative sequence numbers of some start mid-stream (-S prints absolute \
            ones)".to_owned(),
        );
    }
    outcome.conclude(&options.output.common)?;
    written.or_else(|error| failure::of_output(error).map_or(Ok(()), Err))
}

/// Prints packets as lines for people or as records.
struct Printer {
    decoder: Decoder,
    decoded: DecodedBatch,
    number: u64,
    hex: bool,
    /// Of lines for people: what is in them.
    lines: Option<Lines>,
    display_filter: Option<DisplayFilter>,
    /// Which packets of the batch that selects.
    displayed: Vec<bool>,
    /// Of which packets something is printed.
    condition: Option<Condition>,
    /// Which fields are.
    picker: Option<Picker>,
    writer: RecordWriter,
    line: String,
    text: Vec<u8>,
}

impl Printer {
    fn open(options: &PacketsOptions, thread: Option<&WriterThread>) -> Result<Printer, Failure> {
        let format = sinks::format(&options.output);
        let schema = match options.hex > 0 {
            true => PACKET_BYTES_SCHEMA,
            false => PACKET_SCHEMA,
        };
        let condition = options.select.condition.text("condition");
        let condition = condition
            .map(|text| Condition::of(text, &[schema]))
            .transpose();
        let condition = condition.map_err(|error| Failure::Usage {
            what: format!("--where: {}", error.message),
            hint: error.hint,
        })?;
        let fields = options.select.fields.text("fields");
        let picker = fields
            .map(|names| Picker::read(names, &[schema]))
            .transpose();
        let picker = picker
            .map_err(|error| Failure::usage(format!("--fields: {error}"), error.hint.clone()))?;
        let lines = (format == Format::Table && picker.is_none()).then_some(Detail {
            link: options.link,
            verbose: options.verbose > 0,
            time: options.time,
            has_colors: sinks::has_colors(&options.output),
        });
        let connections = (!options.absolute_sequence_numbers).then(Connections::default);
        let lines = lines.map(|detail| Lines::new(detail, connections));
        let display_filter = options.display_filter.as_deref().map(DisplayFilter::read);
        let display_filter = display_filter.transpose().map_err(|error| Failure::Usage {
            what: format!("-Y: {}", error.message),
            hint: error.hint,
        })?;
        let writer = if lines.is_some() {
            let output = Output::raw(sinks::target(options.output.write.as_deref())?);
            RecordWriter::of_lines(output.by(thread, ""), &[])
        } else {
            let schema = picker.as_ref().map_or(schema, Picker::schema);
            let output = sinks::open(&options.output, schema)?.by(thread, "");
            RecordWriter::new(output, format, schema)
        };
        Ok(Printer {
            decoder: Decoder::default(),
            decoded: DecodedBatch::new(),
            number: 0,
            hex: options.hex > 0,
            lines,
            display_filter,
            displayed: Vec::new(),
            condition,
            picker,
            writer,
            line: String::new(),
            text: Vec::new(),
        })
    }

    fn batch(&mut self, batch: &Batch<'_>, names: &[Option<String>]) {
        self.decoder.decode_batch(batch, &mut self.decoded);
        self.displayed.clear();
        if let Some(filter) = &self.display_filter {
            let packets = Packets::new(batch, &self.decoded);
            let holds = self.decoded.packets.iter();
            self.displayed
                .extend(holds.map(|packet| filter.holds(&packets, packet)));
        }
        let tunnels = &self.decoded.tunnels;
        for (index, (packet, decoded)) in batch
            .packets
            .iter()
            .zip(&mut self.decoded.packets)
            .enumerate()
        {
            self.number += 1;
            if self.displayed.get(index) == Some(&false) {
                continue;
            }
            let bytes = batch.bytes(index);
            let checksum = mark_bad_checksum(bytes, packet.flags, decoded);
            self.text.clear();
            if self.hex && self.lines.is_none() {
                write_hex_bytes(&mut self.text, bytes);
            }
            let row = PacketRow {
                number: self.number,
                packet,
                interface: names
                    .get(usize::from(packet.interface))
                    .and_then(Option::as_deref),
                decoded,
                checksum,
                frame: bytes,
                tunnel: usize::from(decoded.tunnel)
                    .checked_sub(1)
                    .and_then(|at| tunnels.get(at)),
                bytes: self
                    .hex
                    .then(|| core::str::from_utf8(&self.text).unwrap_or("")),
            };
            if self.condition.as_mut().is_some_and(|it| !it.holds(&row)) {
                continue;
            }
            let Some(lines) = &mut self.lines else {
                match &mut self.picker {
                    Some(picker) => self.writer.write(&picker.pick(&row)),
                    None => self.writer.write(&row),
                }
                continue;
            };
            self.line.clear();
            lines.write(&mut self.line, &row);
            self.line.push('\n');
            if self.hex {
                write_hex_dump(&mut self.line, bytes);
            }
            self.writer.write_bytes(self.line.as_bytes());
        }
    }
}

/// Verifies the transport checksum; nothing is refused here, only told. One that the sender has not
/// computed yet, by what the kernel says or by what Linux leaves in the field, is not wrong.
fn mark_bad_checksum(bytes: &[u8], given: PacketFlags, decoded: &mut Decoded) -> ChecksumVerdict {
    let settled = PacketFlags::CHECKSUM_NOT_READY.with(PacketFlags::CHECKSUM_VALID);
    if given.0 & settled.0 != 0 {
        return ChecksumVerdict::Unknown;
    }
    match verify_transport(bytes, decoded) {
        ChecksumVerdict::Bad if is_partial(bytes, decoded) => ChecksumVerdict::Unknown,
        ChecksumVerdict::Bad => {
            decoded.flags.insert(DecodeFlags::BAD_CHECKSUM);
            ChecksumVerdict::Bad
        }
        verdict => verdict,
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{LinkType, Nanos, PacketDescriptor};

    use super::*;

    /// UDP from 192.0.2.1 to 192.0.2.2 without payload.
    fn datagram(checksum: [u8; 2]) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        bytes.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 53, 0, 53, 0, 8]);
        bytes.extend(checksum);
        bytes
    }

    fn is_marked(checksum: [u8; 2], flags: PacketFlags) -> bool {
        let bytes = datagram(checksum);
        let packet = PacketDescriptor {
            time: Nanos(1),
            captured_len: bytes.len() as u32,
            wire_len: bytes.len() as u32,
            link: LinkType::IPV4,
            flags,
            ..PacketDescriptor::default()
        };
        let packets = [packet];
        let mut decoded = DecodedBatch::new();
        Decoder::default().decode_batch(&Batch::new(&bytes, &packets), &mut decoded);
        mark_bad_checksum(&bytes, flags, &mut decoded.packets[0]);
        decoded.packets[0].flags.contains(DecodeFlags::BAD_CHECKSUM)
    }

    #[test]
    fn a_checksum_left_to_the_network_card_is_not_bad() {
        assert!(is_marked([1, 2], PacketFlags::default()));
        assert!(!is_marked([1, 2], PacketFlags::CHECKSUM_NOT_READY));
        assert!(!is_marked([1, 2], PacketFlags::CHECKSUM_VALID));
        // 0xc000 + 0x0201 + 0xc000 + 0x0202 + 17 + 8
        assert!(!is_marked([0x84, 0x1d], PacketFlags::default()));
    }
}

//! Stacks that want less of flows: what they write and count does not depend on who else runs, nor on a source that keeps
//! packets away as it is told.

#[path = "../../../../tests/shared/card.rs"]
mod card;

use std::io::Cursor;

use card::Card;
use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_registry::registry;
use flowgauge_runtime::stacks::{Runner, RunnerOptions};
use flowgauge_stack::{Program, Sources, check, parse};
use flowgauge_stream::Findings;
use flowgauge_stream::offload::{Verdict, Verdicts};
use flowgauge_wire::{Batch, Ledger, PacketDescriptor, Place};

/// A capture behind a card.
struct Through<S> {
    source: S,
    card: Option<Card>,
    packets: Vec<PacketDescriptor>,
}

impl<S: PacketSource> PacketSource for Through<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let Some(mut batch) = self.source.next_batch()? else {
            return Ok(None);
        };
        if let Some(card) = &self.card {
            self.packets = card.pass(&batch);
            if self.packets.is_empty() {
                batch.now = batch.packets.iter().map(|packet| packet.time).max();
            }
            batch.packets = &self.packets;
        }
        Ok(Some(batch))
    }

    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.source.ledger()
    }
}

fn program(text: String) -> Program {
    let mut sources = Sources::default();
    let file = sources.add("test", text).expect("room");
    let document = parse(&sources, file).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let checked = check(&document, registry());
    let found = checked.diagnostics.iter();
    let found: Vec<String> = found.map(|it| it.show(&sources).to_string()).collect();
    let program = checked.program;
    program.unwrap_or_else(|| panic!("{}", found.join("\n")))
}

/// What stacks write, line by line.
fn written(stacks: &[&str], trace: &[u8], card: Option<&Card>) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |stack: usize| folder.path().join(format!("{stack}.json"));
    let text = stacks.iter().enumerate().map(|(number, stack)| {
        let file = file(number).display().to_string();
        format!("[stack s{number}] {stack} output {{ file = \"{file}\" }}\n")
    });
    let options = RunnerOptions {
        offload: card
            .map(|card| Verdicts::new(card.clone()))
            .into_iter()
            .collect(),
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(program(text.collect()), &options).expect("it can be made");
    let mut source = Through {
        source: flowgauge_capture::open_reader(Cursor::new(trace.to_vec()), "trace")
            .expect("it is one"),
        card: card.cloned(),
        packets: Vec::new(),
    };
    while runner.wants_packets() && runner.step(&mut source).expect("it is whole").is_some() {}
    runner.finish();
    assert!(runner.failures().is_empty());
    let written = (0..stacks.len()).map(|number| {
        let text = std::fs::read_to_string(file(number)).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    });
    written.collect()
}

#[test]
fn what_stacks_write_does_not_depend_on_a_backend() {
    let log = "transactions { checksums = ignore }";
    let list = "streams { checksums = ignore }";
    let mut withheld = 0;
    for preset in [Preset::Mix, Preset::Web, Preset::Zoo] {
        let mut trace = Vec::new();
        let config = Config::new(preset).with_packets(20_000);
        generate(&config, &mut trace).expect("memory does not fail");
        for (stacks, wants_less) in [
            (&[log][..], true),
            (
                &[log, "transactions { checksums = ignore, anomalies = yes }"],
                true,
            ),
            // One that reads all, and a filter that looks at all packets.
            (&[log, list], false),
            (
                &[log, "filter { expression = \"tcp\" } transactions"],
                false,
            ),
        ] {
            let card = Card::default();
            let expected = written(stacks, &trace, None);
            let seen = written(stacks, &trace, Some(&card));
            assert!(expected.iter().all(|lines| !lines.is_empty()));
            assert!(seen == expected, "{preset:?} {stacks:?}");
            let table = card.table();
            assert!(table.flows.is_empty(), "all were forgotten");
            for verdicts in table.verdicts.values() {
                assert_eq!(verdicts.last(), Some(&Verdict::Forget));
            }
            withheld += table.withheld;
            if !wants_less {
                assert_eq!(table.withheld, 0, "{preset:?} {stacks:?}");
            }
        }
    }
    assert!(withheld > 100, "{withheld}");
}

/// The trace with a wrong byte at the end of every so many-th packet of some size.
fn damaged(mut trace: Vec<u8>) -> Vec<u8> {
    let (mut at, mut number) = (24, 0);
    while let Some(len) = trace.get(at + 8..at + 12) {
        let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
        at += 16 + len;
        number += usize::from(len > 200);
        if len > 200 && number % 20 == 0 {
            trace[at - 1] ^= 1;
        }
    }
    assert!(number > 200, "{number}");
    trace
}

/// Packets that each stack's first component refused as malformed, and what is told of senders.
fn accounts(stacks: &[&str], trace: &[u8]) -> Vec<(u64, Findings)> {
    let text = stacks.iter().enumerate();
    let text = text.map(|(number, stack)| format!("[stack s{number}] {stack} discard\n"));
    let program = program(text.collect());
    let mut runner = Runner::new(program, &RunnerOptions::default()).expect("it can be made");
    let reader = Cursor::new(trace.to_vec());
    let mut source = flowgauge_capture::open_reader(reader, "trace").expect("it is one");
    while runner.step(&mut *source).expect("it is whole").is_some() {}
    runner.finish();
    let snapshot = runner.snapshot();
    let accounts = snapshot.stacks.iter().map(|stack| {
        let account = stack.components[0].account.as_ref().expect("of an engine");
        assert!(account.ledger.is_balanced());
        let malformed = account.ledger.at(Place::Malformed);
        (malformed, account.findings.clone())
    });
    accounts.collect()
}

#[test]
fn damage_is_on_the_account_of_who_was_to_read_it() {
    let stacks = ["transactions", "streams", "flows"];
    let mut differ = 0;
    for preset in [Preset::Mix, Preset::Zoo] {
        let mut trace = Vec::new();
        let config = Config::new(preset).with_packets(20_000);
        generate(&config, &mut trace).expect("memory does not fail");
        let trace = damaged(trace);
        let alone: Vec<_> = (stacks.iter())
            .flat_map(|stack| accounts(&[stack], &trace))
            .collect();
        assert!(accounts(&stacks, &trace) == alone, "{preset:?}");
        let [(log, _), (all, _), (flows, _)] = alone[..] else {
            panic!("three stacks");
        };
        assert!(flows <= log && log <= all, "{flows} {log} {all}");
        differ += u32::from(flows < log && log < all);
    }
    assert!(differ > 0, "nothing is wanted of some, and not of all");
}

//! Many filters of one place, added and removed at random packets, against each filter's program alone: packet by packet, of
//! the packets from when a stack was added to when it was removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use flowgauge_capture::{Filter, PacketSource};
use flowgauge_runtime::stacks::{Runner, RunnerOptions, StackState};
use flowgauge_stack::{ResultValue, Stack};
use flowgauge_wire::{LinkType, PacketDescriptor};

use crate::changing_stacks::program;
use crate::stack_threads::Small;
use crate::support;

const FILTERS: [&str; 36] = [
    "",
    "tcp",
    "udp",
    "icmp or icmp6",
    "arp",
    "ip6",
    "ip",
    "not ip",
    "vlan",
    "vlan and tcp port 80",
    "tcp port 80",
    "tcp port 443",
    "tcp dst port 80",
    "tcp src portrange 1024-40000",
    "udp portrange 1-1023",
    "udp port 53",
    "port 22 or port 25 or port 110",
    "host 10.0.0.1",
    "net 10.0.0.0/8",
    "src net 192.168.0.0/16 and not dst net 192.168.0.0/16",
    "dst host 255.255.255.255 or multicast",
    "ether multicast",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] & tcp-push != 0 and not port 80",
    "len > 100",
    "less 90",
    "len > 60 and len < 600 and ip",
    "ip[8] > 64",
    "ip[2:2] - ((ip[0] & 15) << 2) > 40",
    "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420",
    "ip[6:2] & 0x3fff != 0",
    "ip[2:2] % 4 = ip[8] & 3",
    "ip6 protochain 17",
    "ip[12:4] > ip[16:4]",
    "udp[8:2] & 0x8000 = 0",
    "host 1.1.1.1 or host 2.2.2.2 or host 3.3.3.3 or host 4.4.4.4 or host 5.5.5.5 or host 6.6.6.6 or host 7.7.7.7 \
     or host 8.8.8.8 or host 10.0.0.1 or host 192.168.1.1",
];

/// Filters behind another: the first is shared by several stacks, and filters behind it are.
const BEHIND: [(usize, usize); 8] = [
    (6, 10),
    (6, 11),
    (6, 24),
    (6, 10),
    (1, 22),
    (24, 1),
    (18, 10),
    (18, 11),
];

/// One of so many captures of the corpora.
const STRIDE: usize = 11;
/// Packets in a batch.
const SIZES: [usize; 3] = [1, 40, 256];

#[test]
fn many_filters_give_what_each_gives_alone() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let captures = support::captures_below(&corpora, STRIDE);
    let numbered: Vec<_> = captures.iter().enumerate().collect();
    let found = support::in_parallel(&numbered, 2, |&(number, capture)| {
        compare(number as u64, capture)
    });
    let compared: usize = found.iter().map(|found| found.0).sum();
    let differ: Vec<&String> = found.iter().flat_map(|found| &found.1).collect();
    support::say(&format!(
        "\n{} captures, {compared} results that are not 0 compared, {} differences\n",
        captures.len(),
        differ.len()
    ));
    assert!(compared > 1000, "{compared}");
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
}

/// The filters of a stack, by its number.
fn filters_of(stack: usize) -> Vec<usize> {
    match stack.checked_sub(FILTERS.len()) {
        None => vec![stack],
        Some(behind) => vec![BEHIND[behind].0, BEHIND[behind].1],
    }
}

/// How many results were compared that are not 0, and which are wrong.
fn compare(seed: u64, capture: &Path) -> (usize, Vec<String>) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit.max(1) as u64) as usize
    };
    let (size, workers) = (SIZES[below(SIZES.len())], 1 + below(2));
    let batches = batches(capture, size);
    let links = batches.iter().flatten().map(|(packet, _)| packet.link);
    if batches.is_empty() || links.into_iter().any(|link| link != LinkType::ETHERNET) {
        return (0, Vec::new());
    }
    let compile = |expression: &&str| Filter::compile(expression, LinkType::ETHERNET, 96).unwrap();
    let filters: Vec<Filter> = FILTERS.iter().map(compile).collect();
    // Of each stack, what it accepts of each batch: packets and their bytes.
    let accepted = |stack: usize, batch: &[(PacketDescriptor, Vec<u8>)]| {
        let filters_of = filters_of(stack);
        let matches = |(packet, bytes): &&(PacketDescriptor, Vec<u8>)| {
            let mut all = filters_of.iter();
            all.all(|&filter| filters[filter].verdict_on(bytes, packet) != 0)
        };
        let lens = batch.iter().filter(matches);
        lens.fold((0, 0), |sum, (packet, _)| {
            (sum.0 + 1, sum.1 + u64::from(packet.wire_len))
        })
    };
    let stacks = FILTERS.len() + BEHIND.len();
    let timed = below(2) == 1;
    let text = |running: &BTreeMap<usize, usize>| -> String {
        let texts = running.keys().map(|&stack| {
            let filters = filters_of(stack).into_iter();
            let filters = filters.map(|it| format!("filter {{ \"{}\" }} ", FILTERS[it]));
            format!(
                "[stack s{stack}] {} count bytes\n",
                filters.collect::<String>()
            )
        });
        // One that looks at the clock has all others take batches in parts.
        let flows = if timed {
            "[stack flows] flows discard\n"
        } else {
            ""
        };
        flows.to_owned() + &texts.collect::<String>()
    };
    let changes: BTreeSet<usize> = (0..5).map(|_| below(batches.len())).collect();
    let mut running: BTreeMap<usize, usize> = (0..stacks)
        .filter(|_| below(4) > 0)
        .map(|it| (it, 0))
        .collect();
    let options = RunnerOptions {
        workers,
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(program(&text(&running)), &options).expect("it can begin");
    let mut source = Small::new(flowgauge_capture::open(capture).expect("it was read"), size);
    let (mut compared, mut differ) = (0, Vec::new());
    let mut judge = |stack: &Stack, state: &StackState, since: &BTreeMap<usize, usize>, until| {
        let name = stack.name.as_deref().unwrap_or_default();
        let Some(number) = name.strip_prefix('s').and_then(|it| it.parse().ok()) else {
            return;
        };
        let of = batches[since[&number]..until].iter();
        let expected = of.map(|batch| accepted(number, batch));
        let expected = expected.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let mut results = state.components.iter().rev();
        let mut result = || {
            results
                .next()?
                .result
                .as_ref()
                .and_then(ResultValue::number)
        };
        let (bytes, packets) = (result(), result());
        compared += usize::from(expected.0 > 0);
        if (packets, bytes) != (Some(expected.0.into()), Some(expected.1.into())) {
            let filters: Vec<&str> = filters_of(number).iter().map(|&it| FILTERS[it]).collect();
            differ.push(format!(
                "{}, {workers} workers, batches of {size}, {} to {until}, {filters:?}: \
                 {packets:?} packets, {bytes:?} bytes; expected {expected:?}",
                capture.display(),
                since[&number]
            ));
        }
    };
    for at in 0..batches.len() {
        if changes.contains(&at) {
            let before = running.clone();
            for stack in 0..stacks {
                match (running.contains_key(&stack), below(3)) {
                    (true, 0) => drop(running.remove(&stack)),
                    (false, 0) => drop(running.insert(stack, at)),
                    _ => {}
                }
            }
            let change = runner
                .replace(program(&text(&running)))
                .expect("it can begin");
            for ended in &change.ended {
                judge(&ended.stack, &ended.state, &before, at);
            }
        }
        let _ = runner.step(&mut source);
    }
    runner.finish();
    for (stack, state) in runner.stacks().iter().zip(&runner.snapshot().stacks) {
        judge(stack, state, &running, batches.len());
    }
    (compared, differ)
}

/// The packets of a capture, up to what is damaged.
fn batches(capture: &Path, size: usize) -> Vec<Vec<(PacketDescriptor, Vec<u8>)>> {
    let mut batches = Vec::new();
    let Ok(source) = flowgauge_capture::open(capture) else {
        return batches;
    };
    let mut source = Small::new(source, size);
    while let Ok(Some(batch)) = source.next_batch() {
        let packets = batch.packets.iter();
        batches.push(
            packets
                .map(|it| (*it, batch.bytes_of(it).to_vec()))
                .collect(),
        );
    }
    batches
}

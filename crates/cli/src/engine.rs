//! What the engine counted and found, in words.

use flowgauge_record::text::protocol_name;
use flowgauge_stream::{Findings, OffloadingSender, ShardStatistics};

use crate::say::count;

/// Senders of packets with wrong checksums that are named at the end; the others are counted.
const NAMED_SENDERS: usize = 5;

/// Counters, for `--stats`.
pub(crate) fn statistics(counters: &ShardStatistics) -> Vec<String> {
    let (flow, checksums) = (counters.flow, counters.checksums);
    let (fragments, segments) = (counters.defragment, counters.reassembly);
    vec![
        format!(
            "flows: {} created, {} at once at most, {} evicted; {} without a flow, {} before the \
             clock; up to {} probes for one; {} within connections refused, {} of addresses forgotten",
            flow.created,
            flow.most_flows,
            flow.evicted,
            count(flow.without_flow, "packet"),
            flow.time_backwards,
            flow.most_probes,
            count(flow.syns_refused + counters.syns_refused, "SYN"),
            count(counters.pairs_forgotten, "pair")
        ),
        format!(
            "checksums: {} with a wrong IP header, {} with a wrong transport checksum, {} with a \
             wrong one taken as they are",
            count(checksums.bad_ip, "packet"),
            checksums.bad_transport,
            checksums.offloaded
        ),
        format!(
            "fragments: {} seen, {} completed, {} timed out, {} evicted, {}, {} of memory at most",
            fragments.fragments,
            count(fragments.completed, "datagram"),
            fragments.timed_out,
            fragments.evicted,
            count(fragments.overlaps, "overlap"),
            count(fragments.memory_high, "byte")
        ),
        format!(
            "streams: {}, {} at once at most, {} in {}, {} out of order, {} missing, {} of memory \
             for segments at most",
            count(counters.connections, "connection"),
            counters.connections_high,
            count(counters.delivered_bytes, "byte"),
            count(counters.chunks, "chunk"),
            count(segments.out_of_order, "segment"),
            count(segments.gap_bytes, "byte"),
            count(segments.memory_high, "byte")
        ),
    ]
}

/// Findings as lines, with addresses only if `names_addresses`.
pub(crate) fn notes(findings: &Findings, names_addresses: bool) -> Vec<String> {
    let named = if names_addresses { NAMED_SENDERS } else { 0 };
    let mut notes: Vec<String> = findings.accepted.iter().take(named).map(accepted).collect();
    let others = findings.accepted.get(named..).unwrap_or_default();
    if !others.is_empty() && !names_addresses {
        let packets: u64 = others.iter().map(|sender| sender.packets).sum();
        notes.push(format!(
            "{} taken in spite of wrong or uncomputed checksums (offloading to a network card, or a \
             rewritten address)",
            count(packets, "packet").were()
        ));
    } else if !others.is_empty() {
        let packets: u64 = others.iter().map(|sender| sender.packets).sum();
        notes.push(format!(
            "{packets} further packets of {} taken as well",
            count(others.len() as u64, "further sender").were()
        ));
    }
    if findings.left_out > 0 {
        let most = findings.most_left_out.filter(|_| names_addresses);
        let most = most.map_or(String::new(), |sender| {
            let address = sender.address.to_ip(sender.version);
            format!(" (most from {address}: {})", sender.packets)
        });
        notes.push(format!(
            "{} left out because of wrong checksums{most}; hint: --checksums ignore takes them",
            count(findings.left_out, "packet").were()
        ));
    }
    if findings.evicted > 0 {
        notes.push(format!(
            "{} evicted to make room, so long ones may be in several records; \
                 hint: raise --max-flows or --memory",
            count(findings.evicted, "flow").were()
        ));
    }
    if findings.datagrams > 0 {
        notes.push(format!(
            "{} given up for memory before all fragments came; hint: raise --memory",
            count(findings.datagrams, "datagram").were()
        ));
    }
    if findings.relieved > 0 {
        notes.push(format!(
            "{} given up early for memory, so that bytes that came later in their streams are \
                 missing; hint: raise --memory",
            count(findings.relieved, "hole").were()
        ));
    }
    notes
}

fn accepted(sender: &OffloadingSender) -> String {
    let address = sender.address.to_ip(sender.version);
    let (packets, taken) = match sender.packets {
        1 => ("1 packet".to_owned(), "was taken as it is"),
        count => (format!("{count} packets"), "were taken as they are"),
    };
    let of = sender.protocol.map_or("IP header".to_owned(), |protocol| {
        protocol_name(protocol).to_string()
    });
    format!(
        "{packets} of {address} with wrong or uncomputed {of} checksums {taken} \
         (offloading to its network card, or a rewritten address)"
    )
}

//! What suricata-verify's tests state of anomalies, and what `transactions { anomalies = yes }` tells of the same captures.

#[path = "support/conversations.rs"]
mod conversations;
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../../../tests/shared/run.rs"]
mod support;

use std::collections::BTreeSet;

use conversations::{Compared, records_of_stack, suricata_checks, text};
use corpora::corpora;

/// Suricata's names, and ours of the same. Those that are not here have none of ours: most are of protocols' own
/// events, or of bounds that are Suricata's.
const NAMES: &[(&str, &[&str])] = &[
    ("UNABLE_TO_MATCH_RESPONSE_TO_REQUEST", &["unmatched_reply"]),
    ("decoder.ipv4.trunc_pkt", &["bad_ip_header", "short_header"]),
    ("decoder.ipv6.trunc_pkt", &["bad_ip_header", "short_header"]),
    ("decoder.ipv4.frag_overlap", &["fragment_overlap"]),
    ("decoder.ipv4.frag_pkt_too_large", &["fragment_too_long"]),
    ("decoder.too_many_layers", &["too_many_tunnels"]),
    ("stream.reassembly_seq_gap", &["gap"]),
    ("stream.est_packet_out_of_window", &["out_of_window"]),
    ("stream.3whs_wrong_seq_wrong_ack", &["out_of_window"]),
    (
        "stream.reassembly_overlap_different_data",
        &["conflicting_overlap"],
    ),
];

#[test]
fn anomalies_as_suricata_has_them() {
    let Some(corpora) = corpora() else { return };
    let mut compared = Compared::default();
    let (mut stated, mut names) = (0, BTreeSet::new());
    for (name, trace, count, wanted) in suricata_checks(&corpora, "anomaly") {
        let Some(event) = wanted.get("anomaly.event") else {
            continue;
        };
        stated += 1;
        names.insert(event.clone());
        let Some((_, ours)) = NAMES.iter().find(|it| it.0 == event) else {
            continue;
        };
        let stack = "transactions { anomalies = yes, checksums = ignore }";
        let found = records_of_stack(&trace, stack);
        // How often is another matter: ours tells each once of a flow.
        let is_there = (found.iter()).any(|it| ours.contains(&text(it, "anomaly").as_str()));
        let differences: Vec<String> = (is_there != (count > 0))
            .then(|| format!("{event}: {is_there}, not {count}"))
            .into_iter()
            .collect();
        compared.note(&name, &differences, &[]);
    }
    eprintln!("{stated} statements with {} names", names.len());
    compared.show("anomalies");
    compared.assert_equal();
}

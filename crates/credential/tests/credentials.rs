//! Credentials that are forged, narrowed, replayed and damaged.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../fuzz/harness/credential.rs"]
mod harness;

use biscuit_auth::builder::Algorithm;
use biscuit_auth::{Biscuit, BiscuitBuilder, KeyPair};
use flowgauge_credential::{
    Argument, Check, Credential, Denial, Error, Facts, Function, Holder, IssuerKey, IssuerName,
    Layer, Limits, Policy, Request, Visible, Window,
};
use proptest::prelude::*;

/// Tue Dec 1 2026, 12:00 UTC.
const NOON: u64 = 1_796_126_400;

fn on(device: &str, components: &[&str]) -> Facts {
    let mut facts = Facts::default().on(device);
    for component in components {
        facts.component(component, None);
    }
    facts
}

fn judged_at(time: u64, credential: &Credential, facts: &Facts, by: &Facts) -> Result<(), Denial> {
    let policy = Policy::new(credential.layers().collect());
    policy.judge(&Request { facts, by, time })
}

fn judged(credential: &Credential, facts: &Facts) -> Result<(), Denial> {
    judged_at(NOON, credential, facts, &Facts::default())
}

fn text(limits: &str) -> Limits {
    Limits {
        checks: vec![Check::parse(limits).unwrap()],
        ..Limits::default()
    }
}

#[test]
fn a_credential_says_what_its_issuer_said() {
    let issuer = IssuerKey::generate();
    let limits = Limits {
        holders: vec![
            Holder::Key("ab12".to_owned()),
            Holder::User("alice".to_owned()),
        ],
        devices: Some(vec!["eth0".to_owned(), "eth1".to_owned()]),
        packets: Some(Visible::Headers),
        functions: Some(vec![Function::parse("top(count<=10)").unwrap()]),
        requests: Some(vec!["list".to_owned()]),
        filter: Some("host \"a\\b\"\n".to_owned()),
        anonymize: Some("strict".to_owned()),
        most_flows: Some(3),
        packets_per_second: Some(1000),
        times: Window::parse("mon-fri 22:00-06:00").unwrap(),
        expires: Some(NOON),
        checks: vec![Check::parse("check if device($d), $d.starts_with(\"eth\")").unwrap()],
    };
    let issued = Credential::issue(&issuer, &limits).unwrap();
    let read = Credential::parse(&format!(" {}\n", issued.text())).unwrap();
    assert_eq!(read.blocks(), [limits.block()]);
    assert_eq!(read.ids(), issued.ids());
    assert!(read.is_of(&issuer.public()));
    let key = IssuerKey::parse(&issuer.secret_text()).unwrap();
    assert_eq!(key.public(), issuer.public());
    assert_eq!(
        IssuerName::parse(&key.public().to_string()),
        Ok(key.public())
    );
    let shown = format!("{issued:?} {key:?}");
    assert!(
        !shown.contains(&issued.text()) && !shown.contains(&key.secret_text()),
        "{shown}"
    );
}

#[test]
fn nobody_else_can_issue_one() {
    let (issuer, other) = (IssuerKey::generate(), IssuerKey::generate());
    let credential = Credential::issue(&other, &Limits::default()).unwrap();
    assert!(!credential.is_of(&issuer.public()));
    let narrower = credential
        .attenuate(&text("check if device(\"eth0\")"))
        .unwrap();
    assert!(!narrower.is_of(&issuer.public()) && narrower.is_of(&other.public()));
    // Blocks of two credentials cannot be put together, nor can the last one be left out of a sealed one.
    let one = Credential::issue(&issuer, &Limits::default()).unwrap();
    let two = one.attenuate(&text("check if device(\"eth0\")")).unwrap();
    assert_eq!(
        two.seal()
            .unwrap()
            .attenuate(&Limits::default())
            .unwrap_err(),
        Error::Sealed
    );
    assert_eq!(two.seal().unwrap().blocks(), two.blocks());
    assert!(two.seal().unwrap().is_of(&issuer.public()));
    assert_ne!(
        one.ids(),
        Credential::issue(&issuer, &Limits::default())
            .unwrap()
            .ids()
    );
    assert_eq!(one.ids()[0], two.ids()[0]);
}

#[test]
fn a_block_only_takes_away() {
    let issuer = IssuerKey::generate();
    let wide = Credential::issue(&issuer, &Limits::default().devices(["eth0"])).unwrap();
    assert_eq!(judged(&wide, &on("eth0", &["count"])), Ok(()));
    let denied = judged(&wide, &on("eth1", &["count"]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        denied,
        "device eth1 is not allowed: only on eth0 (block 0 of the credential)"
    );
    let wider = wide
        .attenuate(&Limits::default().devices(["eth0", "eth1"]))
        .unwrap();
    assert!(judged(&wider, &on("eth1", &["count"])).is_err());
    assert_eq!(judged(&wider, &on("eth0", &["count"])), Ok(()));
    let narrow = wider
        .attenuate(&Limits::default().function("top(count<=10)").unwrap())
        .unwrap();
    let denied = judged(&narrow, &on("eth0", &["count"]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        denied,
        "count is not allowed: only the components top (block 2 of the credential)"
    );
    for (count, refused) in [
        (Argument::Number(10), None),
        (Argument::Number(11), Some("top with count = 11")),
        (Argument::LeftOut, Some("top without count")),
        (
            Argument::Text("9".to_owned()),
            Some("a value that cannot be compared"),
        ),
    ] {
        let mut facts = on("eth0", &["top"]);
        facts.argument("top", "count", &count);
        // That of another component is not bounded.
        facts.argument("other", "count", &Argument::Number(99));
        let denied = judged(&narrow, &facts).err().map(|it| it.to_string());
        assert_eq!(denied.is_some(), refused.is_some(), "{count:?}: {denied:?}");
        assert!(
            denied
                .unwrap_or_default()
                .contains(refused.unwrap_or_default())
        );
    }
}

#[test]
fn times_and_holders_are_looked_at() {
    let issuer = IssuerKey::generate();
    let limits = Limits {
        expires: Some(NOON + 10),
        times: Window::parse("mon-fri 08:00-18:00").unwrap(),
        holders: vec![
            Holder::Key("ab12".to_owned()),
            Holder::User("1000".to_owned()),
        ],
        ..Limits::default()
    };
    let credential = Credential::issue(&issuer, &limits).unwrap();
    let policy = Policy::new(credential.layers().collect());
    assert_eq!(
        (policy.expires(), policy.is_timed()),
        (Some(NOON + 10), true)
    );
    let asked = on("eth0", &["count"]);
    let alice = Facts::default().certificate("alice", Some("ab12"));
    let at = |time, by: &Facts| judged_at(time, &credential, &asked, by);
    assert_eq!(at(NOON, &alice), Ok(()));
    assert_eq!(at(NOON, &Facts::default().user(1000, None)), Ok(()));
    let expired = at(NOON + 10, &alice).unwrap_err().to_string();
    assert!(
        expired.contains("only before 2026-12-01T12:00:10Z"),
        "{expired}"
    );
    // Sunday; and Tuesday at seven.
    assert!(at(NOON - 2 * 86_400, &alice).is_err());
    assert!(at(NOON - 5 * 3600, &alice).is_err());
    assert_eq!(at(NOON - 4 * 3600, &alice), Ok(()));
    for other in [
        Facts::default().certificate("ab12", Some("ab13")),
        Facts::default().certificate("alice", None),
        Facts::default().certificate("1000", Some("1000")),
        Facts::default().user(1001, Some("ab12")),
        Facts::default().user(1001, Some("1000")),
        Facts::default(),
    ] {
        let refused = at(NOON, &other).unwrap_err().to_string();
        assert!(
            refused.contains("another holder") || refused.contains("this request"),
            "{refused}"
        );
    }
}

#[test]
fn the_least_of_all_layers_counts() {
    let layer = |origin: &str, packets| Layer {
        origin: origin.to_owned(),
        id: None,
        block: Limits {
            packets,
            ..Limits::default()
        }
        .block(),
    };
    let table = layer("users.alice", Some(Visible::Payload));
    let block = layer("block 0", Some(Visible::None));
    let policy = Policy::new(vec![
        table.clone(),
        block,
        layer("block 1", Some(Visible::Payload)),
    ]);
    assert_eq!(policy.visible(), Visible::None);
    let mut facts = on("eth0", &["count"]);
    let by = Facts::default();
    let judge = |policy: &Policy, facts: &Facts| {
        policy.judge(&Request {
            facts,
            by: &by,
            time: 0,
        })
    };
    assert_eq!(judge(&policy, &facts), Ok(()));
    facts.component("search", Some("it can reveal packet contents"));
    let denied = judge(&policy, &facts).unwrap_err().to_string();
    assert_eq!(
        denied,
        "search (it can reveal packet contents) is not allowed: counts only (block 0)"
    );
    assert_eq!(judge(&Policy::new(vec![table]), &facts), Ok(()));
    assert_eq!(judge(&Policy::default(), &facts), Ok(()));
}

#[test]
fn what_others_can_sign_with_the_right_key_is_bounded_too() {
    let key = KeyPair::new_with_algorithm(Algorithm::Ed25519);
    let text = |code: &str| {
        let token = BiscuitBuilder::new().code(code).unwrap().build(&key);
        token.unwrap().to_base64().unwrap()
    };
    for code in [
        "right(\"eth0\");",
        "packets(\"all\");",
        "packets(\"none\"); packets(\"payload\");",
        "most_flows(-1);",
        "packets_per_second(0);",
        "anonymize(\"a\"); anonymize(\"b\");",
        "filter(\"tcp\", \"udp\");",
        "packets(\"none\") <- device(\"eth0\");",
        "check if device($a), device($b);",
        "check all device($a), $a == \"eth0\";",
        "check if device($a) trusting previous;",
        "check if device($a), $a.matches(\"(a*)*b\");",
    ] {
        let refused = Credential::parse(&text(code)).unwrap_err();
        assert!(
            matches!(refused, Error::Unknown { block: 0, .. }),
            "{code}: {refused}"
        );
    }
    assert!(Credential::parse(&text("check if device(\"eth0\");")).is_ok());
    let other = KeyPair::new_with_algorithm(Algorithm::Secp256r1);
    let token = BiscuitBuilder::new().build_with_key_pair(
        &key,
        biscuit_auth::datalog::SymbolTable::new(),
        &other,
    );
    let refused = Credential::parse(&token.unwrap().to_base64().unwrap()).unwrap_err();
    assert!(refused.to_string().contains("Ed25519"), "{refused}");
    assert!(IssuerKey::parse(&other.private().to_prefixed_string()).is_err());
}

#[test]
fn what_biscuit_reads_it_reads_the_same_way() {
    let issuer = IssuerKey::generate();
    let limits = Limits::default()
        .devices(["eth0"])
        .function("top(count<=10)")
        .unwrap();
    let credential = Credential::issue(&issuer, &limits).unwrap();
    let root = issuer.public().to_string();
    let root: biscuit_auth::PublicKey = root.parse().unwrap();
    let token = Biscuit::from_base64(credential.text(), root).unwrap();
    let source = token.print_block_source(0).unwrap();
    assert_eq!(source.trim(), credential.blocks()[0].to_string().trim());
    for (facts, allowed) in [
        (
            "device(\"eth0\"); component(\"top\"); argument(\"top\", \"count\", 10);",
            true,
        ),
        (
            "device(\"eth0\"); component(\"top\"); argument(\"top\", \"count\", 11);",
            false,
        ),
        ("device(\"eth1\"); component(\"top\");", false),
        ("device(\"eth0\"); component(\"search\");", false),
    ] {
        let authorizer = biscuit_auth::AuthorizerBuilder::new();
        let authorizer = authorizer.code(format!("{facts} allow if true;")).unwrap();
        let limits = biscuit_auth::AuthorizerLimits {
            max_time: std::time::Duration::from_secs(60),
            ..Default::default()
        };
        let mut authorizer = authorizer.set_limits(limits).build(&token).unwrap();
        assert_eq!(authorizer.authorize().is_ok(), allowed, "{facts}");
    }
}

#[test]
fn long_ones_are_refused() {
    let issuer = IssuerKey::generate();
    let mut credential = Credential::issue(&issuer, &Limits::default()).unwrap();
    let mut blocks = 1;
    let refused = loop {
        match credential.attenuate(&text("check if device(\"eth0\")")) {
            Ok(longer) => credential = longer,
            Err(error) => break error,
        }
        blocks += 1;
    };
    assert_eq!((refused, blocks), (Error::TooLong, 16));
    let long = text(&format!("check if device(\"{}\")", "x".repeat(9000)));
    assert_eq!(
        Credential::issue(&issuer, &long).unwrap_err(),
        Error::TooLong
    );
    assert_eq!(
        Credential::parse(&"A".repeat(10_000)).unwrap_err(),
        Error::TooLong
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        harness::fuzz_credential(&bytes);
    }

    #[test]
    fn no_damage_makes_a_credential_of_its_issuer(choices in prop::collection::vec(any::<u8>(), 3..24)) {
        harness::fuzz_damaged(&choices);
    }
}

//! Any bytes as a credential, and damaged copies of a good one.

use flowgauge_credential::{
    Credential, Facts, Function, Holder, IssuerKey, Limits, Policy, Request,
};

/// What a user asks for.
fn asked() -> Facts {
    let mut facts = Facts::default().on("eth0");
    facts.component("count", None);
    facts.component("search", Some("it can tell what is in packets"));
    facts
}

/// Reads the bytes, and does with what was read whatever a sensor does with it.
pub(crate) fn fuzz_credential(bytes: &[u8]) {
    let Ok(credential) = Credential::parse(&text_of(bytes)) else {
        return;
    };
    let _ = credential.is_of(&IssuerKey::generate().public());
    let policy = Policy::new(credential.layers().collect());
    let (facts, by) = (asked(), Facts::default().user(1000, Some("alice")));
    for time in [0, 1 << 31, u64::MAX] {
        let request = Request {
            facts: &facts,
            by: &by,
            time,
        };
        let denied = policy.judge(&request);
        let refused = policy
            .explain(&request)
            .iter()
            .any(|it| it.refused.is_some());
        assert_eq!(denied.is_err(), refused);
    }
    for block in credential.blocks() {
        let _ = (block.words(), block.to_string());
    }
    if let Ok(narrower) = credential.attenuate(&Limits::default().devices(["eth0"])) {
        assert_eq!(
            narrower.blocks()[..credential.blocks().len()],
            *credential.blocks()
        );
    }
}

/// Damages a good credential: whatever comes out is none of its issuer's, unless nothing was changed.
pub(crate) fn fuzz_damaged(choices: &[u8]) {
    let issuer = IssuerKey::parse(KEY).expect("a key");
    let limits = Limits {
        holders: vec![Holder::User("alice".to_owned())],
        functions: Some(vec![Function::parse("top(count<=10)").expect("a function")]),
        filter: Some("tcp port 80".to_owned()),
        expires: Some(1 << 31),
        ..Limits::default()
    };
    let good = Credential::issue(&issuer, &limits).expect("a credential");
    let good = good
        .attenuate(&Limits::default().devices(["eth0"]))
        .expect("a credential");
    let text = good.text();
    let mut bytes = bytes_of(&text);
    let before = bytes.clone();
    for choice in choices.chunks_exact(3) {
        let at = usize::from(choice[0]) << 8 | usize::from(choice[1]);
        let at = at % bytes.len();
        bytes[at] ^= choice[2];
    }
    let Ok(changed) = Credential::parse(&text_of(&bytes)) else {
        return;
    };
    let is_same =
        bytes == before || changed.blocks() == good.blocks() && changed.ids() == good.ids();
    assert!(is_same || !changed.is_of(&issuer.public()), "{choices:?}");
    fuzz_credential(&bytes);
}

const KEY: &str =
    "ed25519-private/0101010101010101010101010101010101010101010101010101010101010101";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base 64 (RFC 4648, section 5).
fn text_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let all = three
            .iter()
            .fold(0_u32, |all, byte| all << 8 | u32::from(*byte));
        let all = all << (8 * (3 - three.len()));
        for at in 0..4 {
            match at <= three.len() {
                true => text.push(DIGITS[(all >> (18 - 6 * at)) as usize & 63].into()),
                false => text.push('='),
            }
        }
    }
    text
}

fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let value = |letter: &u8| DIGITS.iter().position(|digit| digit == letter);
        let known: Vec<u32> = four.iter().filter_map(value).map(|it| it as u32).collect();
        let all = known.iter().fold(0, |all, value| all << 6 | value) << (6 * (4 - known.len()));
        bytes.extend(&all.to_be_bytes()[1..known.len()]);
    }
    bytes
}

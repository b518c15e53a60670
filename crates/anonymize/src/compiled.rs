//! A policy, ready to be applied: keys derived, tables made.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::bytes::{self, Left};
use crate::cryptopan::CryptoPan;
use crate::field::{Class, Field, Otherwise};
use crate::key::Key;
use crate::keyed::{
    AddressFunction, HashedAddresses, Mapped, NumberFunction, Permutation, Random, subkey,
};
use crate::policy::{Others, Policy};
use crate::rule::{Function, Subject};

/// What is done with each field, by one thread.
pub(crate) struct Compiled {
    /// By the field's place.
    functions: Vec<Function>,
    /// By the field's place; of others than numbers nothing is asked.
    numbers: Vec<NumberFunction>,
    /// Those that differ.
    addresses: Vec<AddressFunction>,
    /// By the field's place: which of them.
    address_of: Vec<usize>,
    replaces_addresses: bool,
    key: [u8; 32],
    pub(crate) random: Random,
    http: HashMap<String, Function>,
    ftp: HashMap<&'static str, Function>,
    pub(crate) records: HashMap<String, Function>,
    memory: Vec<u8>,
    policy: Policy,
}

impl Compiled {
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new(policy: &Policy) -> io::Result<Compiled> {
        let functions: Vec<Function> = Field::ALL
            .iter()
            .map(|it| function_of(policy, *it))
            .collect();
        let mut made = Compiled {
            replaces_addresses: false,
            numbers: Vec::new(),
            addresses: Vec::new(),
            address_of: Vec::new(),
            functions,
            key: subkey(policy.key(), "hash text"),
            random: Random::new()?,
            http: HashMap::new(),
            ftp: HashMap::new(),
            records: HashMap::new(),
            memory: Vec::new(),
            policy: policy.clone(),
        };
        for rule in policy.rules() {
            let function = rule.function.clone();
            match &rule.subject {
                Subject::Field(_) => {}
                Subject::Http(name) => _ = made.http.insert(name.clone(), function),
                Subject::Ftp(name) => _ = made.ftp.insert(name, function),
                Subject::Record(name) => _ = made.records.insert(name.clone(), function),
            }
        }
        made.fill_tables(policy);
        Ok(made)
    }

    fn fill_tables(&mut self, policy: &Policy) {
        let mut permutations: HashMap<(&str, u32), Arc<Permutation>> = HashMap::new();
        let mut known: Vec<(Class, Function)> = Vec::new();
        for (field, function) in Field::ALL.iter().zip(&self.functions) {
            let number = match field.class() {
                Class::Number(bits, kind) => {
                    number_function(policy.key(), function, bits, kind, &mut permutations)
                }
                _ => NumberFunction::Unchanged,
            };
            self.numbers.push(number);
            let class = field.class();
            if !matches!(class, Class::Address | Class::Mac) {
                self.address_of.push(0);
                continue;
            }
            self.replaces_addresses |= class == Class::Address && *function != Function::Unchanged;
            let same = known
                .iter()
                .position(|it| it.0 == class && it.1 == *function);
            self.address_of.push(same.unwrap_or(known.len()));
            if same.is_none() {
                known.push((class, function.clone()));
                self.addresses
                    .push(address_function(policy, class, function));
            }
        }
    }

    pub(crate) fn function(&self, field: Field) -> &Function {
        self.functions.get(field.place()).unwrap_or(&Function::Zero)
    }

    /// What a number of a header becomes.
    #[inline]
    pub(crate) fn number(&mut self, field: Field, number: u64, bits: u32) -> u64 {
        match self.numbers.get(field.place()) {
            Some(function) => function.apply(number, bits, &mut self.random),
            None => 0,
        }
    }

    /// What an address becomes, where it stands.
    #[inline]
    pub(crate) fn address(&mut self, field: Field, bytes: &mut [u8]) {
        let which = self.address_of.get(field.place());
        match which.and_then(|which| self.addresses.get_mut(*which)) {
            Some(function) => function.apply(bytes, &mut self.random),
            None => bytes.fill(0),
        }
    }

    /// Whether IP addresses are others than before.
    pub(crate) fn replaces_addresses(&self) -> bool {
        self.replaces_addresses
    }

    /// What is done with a field of bytes, and what it needs.
    pub(crate) fn payload_function(&mut self, field: Field) -> (&Function, &[u8; 32], &mut Random) {
        let function = self.functions.get(field.place()).unwrap_or(&Function::Zero);
        (function, &self.key, &mut self.random)
    }

    /// Whether rules are about text within segments.
    pub(crate) fn has_text(&self) -> bool {
        self.has_http() || self.has_ftp()
    }

    pub(crate) fn has_http(&self) -> bool {
        !self.http.is_empty()
    }

    pub(crate) fn has_ftp(&self) -> bool {
        !self.ftp.is_empty()
    }

    pub(crate) fn http_rule(&self, name: &str) -> bool {
        self.http.contains_key(name)
    }

    pub(crate) fn http_payload(&self) -> Option<&Function> {
        self.http.get("PAYLOAD")
    }

    pub(crate) fn apply_http_payload(&mut self, part: &mut [u8]) -> Left {
        let function = self.http.get("PAYLOAD").unwrap_or(&Function::Zero);
        bytes::payload(function, &self.key, &mut self.random, part)
    }

    /// A part of an HTTP message, where it stands; without a rule it is written over.
    pub(crate) fn apply_http(&mut self, name: &str, part: &mut [u8], filler: u8) {
        let function = self.http.get(name).unwrap_or(&Function::Zero);
        bytes::text_in_place(
            function,
            &self.key,
            &mut self.random,
            part,
            filler,
            &mut self.memory,
        );
    }

    /// The name of an FTP command that there is a rule for.
    pub(crate) fn ftp_rule(&self, name: &str) -> Option<&'static str> {
        self.ftp.get_key_value(name).map(|(name, _)| *name)
    }

    pub(crate) fn apply_ftp(&mut self, name: &str, part: &mut [u8], filler: u8) {
        let function = self.ftp.get(name).unwrap_or(&Function::Zero);
        bytes::text_in_place(
            function,
            &self.key,
            &mut self.random,
            part,
            filler,
            &mut self.memory,
        );
    }

    /// The rule for a part of HTTP messages.
    pub(crate) fn http_function(&self, name: &str) -> Option<&Function> {
        self.http.get(name)
    }

    /// What a text becomes, at the end of `out`.
    pub(crate) fn text(&mut self, function: &Function, value: &[u8], out: &mut Vec<u8>) {
        bytes::text(function, &self.key, &mut self.random, value, out);
    }

    /// Whether what no rule names stays.
    pub(crate) fn keeps_others(&self) -> bool {
        self.policy.others() == Others::Unchanged
    }

    /// A permutation that is the same wherever this policy's key is.
    pub(crate) fn permutation(&self, purpose: &str, bits: u32) -> Permutation {
        Permutation::new(self.policy.key(), &format!("map {purpose}"), bits)
    }

    /// What a function does with IP addresses, if it is for them.
    pub(crate) fn address_function(&self, function: &Function) -> Option<AddressFunction> {
        let is_for_text = matches!(
            function,
            Function::Strip(_)
                | Function::Replace(_)
                | Function::FilenameRandom
                | Function::Regexp(_)
        );
        (!is_for_text).then(|| address_function(&self.policy, Class::Address, function))
    }

    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }
}

/// What is done with a field of packets.
fn function_of(policy: &Policy, field: Field) -> Function {
    let rules = policy.rules().iter().rev();
    let mut own = rules.filter(|rule| rule.subject == Subject::Field(field));
    if let Some(rule) = own.next() {
        return rule.function.clone();
    }
    match (policy.others(), field.otherwise()) {
        // What was replaced changes checksums, whether they are named or not.
        (_, Otherwise::Adjusted) => Function::ChecksumAdjust,
        (Others::Unchanged, _) | (_, Otherwise::Kept) => Function::Unchanged,
        (_, Otherwise::Zero) => Function::Zero,
        (_, Otherwise::Mapped) => Function::Map,
        (_, Otherwise::Stripped) => Function::Strip(0),
    }
}

fn number_function(
    key: &Key,
    function: &Function,
    bits: u32,
    kind: &'static str,
    permutations: &mut HashMap<(&'static str, u32), Arc<Permutation>>,
) -> NumberFunction {
    let purpose = |what: &str| subkey(key, &format!("{what} {kind}"));
    match function {
        Function::Unchanged => NumberFunction::Unchanged,
        Function::Random => NumberFunction::Random,
        Function::Map => {
            let made = permutations.entry((kind, bits));
            let made = made
                .or_insert_with(|| Arc::new(Permutation::new(key, &format!("map {kind}"), bits)));
            NumberFunction::Map(Arc::clone(made))
        }
        Function::MapDistribution(distribution) => {
            NumberFunction::Distribution(purpose("distribution"), *distribution)
        }
        Function::Hashed(digest, _) => NumberFunction::Hashed(*digest, purpose("hash")),
        Function::PatternFill(pattern) => {
            let bytes = pattern.iter().cycle().take(bits.div_ceil(8) as usize);
            NumberFunction::Constant(bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        }
        _ => NumberFunction::Constant(0),
    }
}

fn address_function(policy: &Policy, class: Class, function: &Function) -> AddressFunction {
    // Addresses of Ethernet have tables of their own: what is known of one kind tells nothing of the other.
    let pan = |key: &Key| match class {
        Class::Mac => CryptoPan::with_cache(&Key::new(subkey(key, "mac")), 8),
        _ => CryptoPan::new(key),
    };
    match function {
        Function::Unchanged => AddressFunction::Unchanged,
        Function::Random => AddressFunction::Random,
        Function::PatternFill(pattern) => AddressFunction::Pattern(pattern.clone()),
        Function::PrefixPreserving => AddressFunction::Pan(Box::new(pan(policy.key()))),
        Function::PrefixPreservingMap => AddressFunction::Pan(Box::new(pan(policy.key_of_run()))),
        Function::Map => AddressFunction::Map(Box::new(Mapped::new(policy.key()))),
        Function::Hashed(digest, _) => {
            AddressFunction::Hashed(Box::new(HashedAddresses::new(policy.key(), *digest)))
        }
        _ => AddressFunction::Zero,
    }
}

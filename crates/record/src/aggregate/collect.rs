//! Adds a record to its group.

use flowgauge_wire::Address;

use super::{Action, tag};
use crate::schema::{Field, FieldVisitor};
use crate::value::ValueRef;

/// Gathers a record's key and amounts. A key is a sequence of `slot, tag, length (u16), bytes`.
pub(super) struct Collector<'a> {
    pub(super) actions: core::slice::Iter<'a, Action>,
    pub(super) key: &'a mut Vec<u8>,
    pub(super) amounts: &'a mut Vec<Option<u64>>,
}

impl Collector<'_> {
    #[inline]
    fn apply(&mut self, action: &Action, tag: u8, bytes: &[u8], amount: u64) {
        for &(slot, _) in &action.keys {
            self.push(slot, tag, bytes);
        }
        for &slot in &action.sums {
            if let Some(sum) = self.amounts.get_mut(slot).filter(|_| tag != tag::NULL) {
                *sum = Some(sum.unwrap_or(0).saturating_add(amount));
            }
        }
    }

    fn address(&mut self, action: &Action, value: Address, version: u8) {
        for &(slot, prefix) in &action.keys {
            let mut bytes = [0; 18];
            bytes[0] = version;
            match prefix {
                None => {
                    bytes[1..17].copy_from_slice(&value.0);
                    self.push(slot, tag::ADDRESS, &bytes[..17]);
                }
                Some(bits) => {
                    let bits = if version == 4 { bits.min(32) } else { bits };
                    let kept = if version == 4 { 96 + bits } else { bits };
                    bytes[1..17].copy_from_slice(&masked(value, kept).0);
                    bytes[17] = bits;
                    self.push(slot, tag::PREFIX, &bytes);
                }
            }
        }
    }

    fn push(&mut self, slot: u8, tag: u8, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        let [low, high] = (bytes.len() as u16).to_le_bytes();
        self.key.extend_from_slice(&[slot, tag, low, high]);
        self.key.extend_from_slice(bytes);
    }
}

impl FieldVisitor for Collector<'_> {
    fn value(&mut self, _: &'static Field, value: ValueRef<'_>) {
        let Some(action) = self.actions.next() else {
            return;
        };
        match value {
            ValueRef::Null => self.apply(action, tag::NULL, &[], 0),
            ValueRef::Unsigned(value) => {
                self.apply(action, tag::UNSIGNED, &value.to_be_bytes(), value);
            }
            ValueRef::Float(value) => self.apply(action, tag::FLOAT, &value.to_be_bytes(), 0),
            ValueRef::Text(text) | ValueRef::Symbol(text) => {
                self.apply(action, tag::TEXT, text.as_bytes(), 0);
            }
            ValueRef::Hex(value) => self.apply(action, tag::HEX, &value.to_be_bytes(), 0),
            ValueRef::Address(address, version) => self.address(action, address, version),
            ValueRef::Time(time) => self.apply(action, tag::TIME, &time.0.to_be_bytes(), 0),
            ValueRef::Duration(span) => {
                self.apply(action, tag::DURATION, &span.0.to_be_bytes(), span.0);
            }
            // What is made for a key only.
            _ if action.keys.is_empty() => {}
            ValueRef::List(list) => {
                let numbers = list.iter().take(4);
                let bytes: Vec<u8> = numbers.flat_map(|it| (it as u32).to_be_bytes()).collect();
                self.apply(action, tag::LIST, &bytes, 0);
            }
            ValueRef::Texts(texts) => {
                let mut bytes = Vec::new();
                for text in texts.iter().map(str::as_bytes) {
                    let text = &text[..text.len().min(usize::from(u16::MAX))];
                    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
                    bytes.extend_from_slice(text);
                }
                self.apply(action, tag::TEXTS, &bytes, 0);
            }
            ValueRef::Object(Some(object)) => {
                let mut text = Vec::new();
                crate::json::JsonEncoder::default().object(&object, &mut text);
                self.apply(action, tag::TEXT, &text, 0);
            }
            ValueRef::Object(None) => self.apply(action, tag::NULL, &[], 0),
        }
    }
}

fn masked(address: Address, bits: u8) -> Address {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Address((u128::from_be_bytes(address.0) & mask).to_be_bytes())
}

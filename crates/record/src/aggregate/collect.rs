//! What a record adds to its group.

use flowgauge_wire::{Address, Nanos};

use super::{Action, tag};
use crate::schema::{Field, FieldVisitor, Record};

/// Gathers a record's key and amounts. A key is a sequence of `slot, tag, length (u16), bytes`.
pub(super) struct Collector<'a> {
    pub(super) actions: core::slice::Iter<'a, Action>,
    pub(super) key: &'a mut Vec<u8>,
    pub(super) amounts: &'a mut Vec<Option<u64>>,
}

impl<'a> Collector<'a> {
    #[inline]
    fn value(&mut self, tag: u8, bytes: &[u8], amount: u64) {
        let Some(action) = self.actions.next() else {
            return;
        };
        self.apply(action, tag, bytes, amount);
    }

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

    fn push(&mut self, slot: u8, tag: u8, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        let [low, high] = (bytes.len() as u16).to_le_bytes();
        self.key.extend_from_slice(&[slot, tag, low, high]);
        self.key.extend_from_slice(bytes);
    }
}

impl FieldVisitor for Collector<'_> {
    fn null(&mut self, _field: &'static Field) {
        self.value(tag::NULL, &[], 0);
    }
    fn unsigned(&mut self, _field: &'static Field, value: u64) {
        self.value(tag::UNSIGNED, &value.to_be_bytes(), value);
    }
    fn float(&mut self, _field: &'static Field, value: f64) {
        self.value(tag::FLOAT, &value.to_be_bytes(), 0);
    }
    fn text(&mut self, _field: &'static Field, value: &str) {
        self.value(tag::TEXT, value.as_bytes(), 0);
    }
    fn symbol(&mut self, _field: &'static Field, value: &[u8]) {
        self.value(tag::TEXT, value, 0);
    }
    fn hex(&mut self, _field: &'static Field, value: u64) {
        self.value(tag::HEX, &value.to_be_bytes(), 0);
    }
    fn address(&mut self, _field: &'static Field, value: Address, version: u8) {
        let Some(action) = self.actions.next() else {
            return;
        };
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
    fn time(&mut self, _field: &'static Field, value: Nanos) {
        self.value(tag::TIME, &value.0.to_be_bytes(), 0);
    }
    fn duration(&mut self, _field: &'static Field, value: Nanos) {
        self.value(tag::DURATION, &value.0.to_be_bytes(), value.0);
    }
    fn list<N: Copy + Into<u64>>(&mut self, _field: &'static Field, values: &[N]) {
        let Some(action) = self.actions.next() else {
            return;
        };
        for &(slot, _) in &action.keys {
            let mut bytes = [0; 16];
            let mut len = 0;
            for (place, &value) in bytes.chunks_exact_mut(4).zip(values) {
                let value: u64 = value.into();
                place.copy_from_slice(&(value as u32).to_be_bytes());
                len += 4;
            }
            self.push(slot, tag::LIST, &bytes[..len]);
        }
    }
    fn texts<S: AsRef<str>>(&mut self, _field: &'static Field, values: &[S]) {
        let mut bytes = Vec::new();
        for value in values {
            let text = value.as_ref().as_bytes();
            let text = &text[..text.len().min(usize::from(u16::MAX))];
            bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
            bytes.extend_from_slice(text);
        }
        self.value(tag::TEXTS, &bytes, 0);
    }
    fn object<R: Record>(&mut self, _field: &'static Field, value: Option<&R>) {
        let Some(action) = self.actions.next() else {
            return;
        };
        if action.keys.is_empty() {
            return;
        }
        let mut text = Vec::new();
        if let Some(value) = value {
            crate::json::JsonEncoder::default().object(value, &mut text);
        }
        let tag = if value.is_some() {
            tag::TEXT
        } else {
            tag::NULL
        };
        self.apply(action, tag, &text, 0);
    }
}

fn masked(address: Address, bits: u8) -> Address {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    Address((u128::from_be_bytes(address.0) & mask).to_be_bytes())
}

//! What was logged before.

use std::collections::HashMap;

use flowgauge_wire::Nanos;

use super::super::values::{Name, Values};

/// How long a certificate that comes again is not logged again.
const CERTIFICATE: Nanos = Nanos(86_400_000_000_000);
/// Certificates that are known; with more all are forgotten.
const MOST: usize = 1 << 16;

/// Certificates that were logged, by fingerprint, and when.
#[derive(Debug, Default)]
pub(in super::super) struct Known(HashMap<String, Nanos>);

impl Known {
    /// Whether this record says what a line said already: Zeek logs a certificate once a day.
    pub(in super::super) fn has(&mut self, values: &Values<'_>) -> bool {
        let (Some(name), Some(now)) = (values.text(Name::sha256), values.begin()) else {
            return false;
        };
        if let Some(before) = self.0.get_mut(name) {
            let is_fresh = now.0.saturating_sub(before.0) < CERTIFICATE.0;
            if !is_fresh {
                *before = now;
            }
            return is_fresh;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(name.to_owned(), now);
        false
    }
}

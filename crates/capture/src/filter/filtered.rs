//! A source with a filter.

use flowgauge_wire::{Batch, LinkType, PacketDescriptor, Place, Selection};

use super::{Columns, DEFAULT_SNAP_LEN, FilterSet};
use crate::as_source_within;
use crate::error::Error;
use crate::file::wire_bytes;
use crate::source::PacketSource;
use flowgauge_wire::Ledger;

/// A source whose packets are selected by a filter expression. Packets that do not match are
/// counted as [`Place::Filter`]; the others stay in place, only descriptors are copied.
///
/// Files can mix link types, so the expression is compiled once per type, for the type's first
/// packet.
#[derive(Debug)]
pub struct Filtered<S> {
    source: S,
    filters: FilterSet,
    columns: Columns,
    selected: Vec<PacketDescriptor>,
    refused: u64,
    refused_bytes: u64,
    failed: bool,
}

impl<S: PacketSource> Filtered<S> {
    /// Filters `source` by `expression`. It is compiled immediately for the link types that the
    /// source knows (Ethernet if it knows none yet), so that errors are reported before the
    /// first packet.
    ///
    /// # Errors
    /// [`Error::Filter`] if the expression does not compile.
    pub fn new(source: S, expression: &str) -> Result<Filtered<S>, Error> {
        let mut filters = FilterSet::new(expression, DEFAULT_SNAP_LEN, None);
        for interface in source.interfaces() {
            filters.for_link(interface.link)?;
        }
        if source.interfaces().is_empty() {
            filters.for_link(LinkType::ETHERNET)?;
        }
        Ok(Filtered {
            source,
            filters,
            columns: Columns::default(),
            selected: Vec::with_capacity(flowgauge_wire::BATCH_SIZE),
            refused: 0,
            refused_bytes: 0,
            failed: false,
        })
    }

    /// The filtered source.
    pub fn source(&self) -> &S {
        &self.source
    }
}

impl<S: PacketSource> PacketSource for Filtered<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if self.failed {
            return Ok(None);
        }
        let Some(batch) = self.source.next_batch()? else {
            return Ok(None);
        };
        self.columns.begin();
        let mut selected = Selection::first(batch.len());
        let found = self
            .filters
            .select(&mut self.columns, &batch, None, &mut selected);
        if let Err(error) = found {
            // Nothing of this batch goes on.
            self.failed = true;
            self.refused += batch.len() as u64;
            self.refused_bytes += wire_bytes(batch.packets);
            return Err(error);
        }
        self.selected.clear();
        let packets = selected.iter().filter_map(|at| batch.packets.get(at));
        self.selected.extend(packets);
        self.refused += (batch.len() - self.selected.len()) as u64;
        self.refused_bytes += wire_bytes(batch.packets) - wire_bytes(&self.selected);
        Ok(Some(Batch {
            memory: batch.memory,
            packets: &self.selected,
            now: batch.now,
        }))
    }

    as_source_within!(source);

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.source.ledger();
        ledger.refuse(Place::Filter, self.refused, self.refused_bytes);
        ledger
    }
}

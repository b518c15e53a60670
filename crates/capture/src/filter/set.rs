//! One expression for packets of several link types.

use std::net::Ipv4Addr;

use flowgauge_wire::{Batch, DecodedBatch, LinkType, Selection};

use super::Filter;
use super::columns::{Binding, Columns, Places, Refusal};
use crate::error::Error;

/// An expression and its programs, one per link type, compiled for the first packet of a link type.
#[derive(Clone, Debug)]
pub struct FilterSet {
    expression: String,
    snap_len: u32,
    netmask: Option<Ipv4Addr>,
    filters: Vec<Filter>,
    bindings: Vec<Binding>,
    /// Place in `filters` of the one used last.
    current: usize,
}

impl FilterSet {
    /// A set without compiled programs. For `netmask` see [`Filter::compile_with_netmask`].
    pub fn new(expression: &str, snap_len: u32, netmask: Option<Ipv4Addr>) -> FilterSet {
        FilterSet {
            expression: expression.to_owned(),
            snap_len,
            netmask,
            filters: Vec::new(),
            bindings: Vec::new(),
            current: 0,
        }
    }

    /// The filter for packets of type `link`.
    ///
    /// # Errors
    /// [`Error::Filter`] if the expression does not compile for it.
    #[inline]
    pub fn for_link(&mut self, link: LinkType) -> Result<&Filter, Error> {
        if self.filters.get(self.current).map(Filter::link) != Some(link) {
            self.current = self.turn_to(link)?;
        }
        Ok(&self.filters[self.current])
    }

    /// Removes packets that do not match from `selected`: indices in the batch, or in the `decoded` packets of it.
    /// Results are kept in `columns` until another batch [begins](Columns::begin).
    ///
    /// # Errors
    /// As [`FilterSet::for_link`]; nothing is selected then.
    pub fn select(
        &mut self,
        columns: &mut Columns,
        batch: &Batch<'_>,
        decoded: Option<&DecodedBatch>,
        selected: &mut Selection,
    ) -> Result<(), Error> {
        let places = Places { batch, decoded };
        let packets = core::mem::take(selected);
        let mut accepted = Selection::NONE;
        for number in 0..columns.links(places) {
            let (link, of_link) = columns.link(number);
            let packets = packets.and(of_link);
            if !packets.is_empty() {
                self.for_link(link)?;
                let (filter, binding) = (
                    &self.filters[self.current],
                    &mut self.bindings[self.current],
                );
                accepted = accepted.or(columns.accepted(filter, binding, places, packets));
            }
        }
        *selected = accepted;
        Ok(())
    }

    /// Whether [`FilterSet::select`] is already known to remove all of these packets.
    pub fn refuses(
        &mut self,
        columns: &mut Columns,
        batch: &Batch<'_>,
        decoded: Option<&DecodedBatch>,
        selected: Selection,
    ) -> bool {
        let places = Places { batch, decoded };
        if columns.links(places) != 1 {
            return false;
        }
        let (link, _) = columns.link(0);
        match (
            self.filters.get(self.current),
            self.bindings.get_mut(self.current),
        ) {
            (Some(filter), Some(binding)) if filter.link() == link => {
                columns.refused(filter, binding, places, selected)
            }
            _ => false,
        }
    }

    /// The entry that tells immediately whether the filter [refuses](FilterSet::refuses) packets of the latest link
    /// type.
    pub fn refusal(&self) -> Option<Refusal> {
        let filter = self.filters.get(self.current)?;
        self.bindings.get(self.current)?.refusal(filter.link())
    }

    /// The programs compiled so far.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    #[cold]
    fn turn_to(&mut self, link: LinkType) -> Result<usize, Error> {
        if let Some(found) = self.filters.iter().position(|filter| filter.link() == link) {
            return Ok(found);
        }
        self.filters.push(Filter::compile_with_netmask(
            &self.expression,
            link,
            self.snap_len,
            self.netmask,
        )?);
        self.bindings.push(Binding::default());
        Ok(self.filters.len() - 1)
    }
}

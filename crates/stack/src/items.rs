//! Types of the items that components exchange.

use core::fmt;

use flowgauge_record::schema::Schema;

/// The type of items at a port.
///
/// Some types are subtypes of others: a component that takes packets also takes segments.
///
/// ```text
/// packet <- datagram <- segment          record <- message
///                                        record <- transaction
/// chunk                                  record <- flow
/// ```
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[non_exhaustive]
#[strum(serialize_all = "snake_case")]
pub enum ItemType {
    /// A captured frame, its headers decoded.
    Packet,
    /// A complete IP datagram, not a fragment.
    Datagram,
    /// A TCP segment.
    Segment,
    /// Bytes of one direction of a connection, in order.
    Chunk,
    /// One message of an application protocol: a request, a reply.
    Message,
    /// A request with its reply.
    Transaction,
    /// Any record with fields.
    Record,
    /// A flow's record.
    Flow,
}

impl ItemType {
    /// All of them.
    pub const ALL: &[ItemType] = <ItemType as strum::VariantArray>::VARIANTS;

    /// Its name in messages and listings.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Finds a type by name.
    pub fn named(name: &str) -> Option<ItemType> {
        (ItemType::ALL.iter().copied()).find(|item| item.name() == name)
    }

    /// What it is besides being itself.
    const fn parent(self) -> Option<ItemType> {
        match self {
            ItemType::Datagram => Some(ItemType::Packet),
            ItemType::Segment => Some(ItemType::Datagram),
            ItemType::Message | ItemType::Transaction | ItemType::Flow => Some(ItemType::Record),
            ItemType::Packet | ItemType::Chunk | ItemType::Record => None,
        }
    }

    /// Whether an item of this type can go where `other` is expected.
    pub fn is_a(self, other: ItemType) -> bool {
        self == other || self.parent().is_some_and(|parent| parent.is_a(other))
    }

    /// The nearest common supertype, if there is one.
    pub fn common(self, other: ItemType) -> Option<ItemType> {
        if other.is_a(self) {
            return Some(self);
        }
        self.parent().and_then(|parent| parent.common(other))
    }
}

/// The input or output of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Nothing.
    Nothing,
    /// Items of a type.
    Items(ItemType),
    /// Items of unrelated types.
    Mixed,
}

/// What the checker knows of what comes along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coming {
    pub(crate) port: Port,
    /// Of records: their fields, where that is known.
    pub(crate) schema: Option<Schema>,
    /// Of records of several kinds: which there may be, where that is known.
    pub(crate) kinds: Option<fn() -> Vec<Schema>>,
}

impl From<Port> for Coming {
    fn from(port: Port) -> Coming {
        Coming {
            port,
            schema: None,
            kinds: None,
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Nothing => f.write_str("nothing"),
            Port::Items(item) => item.fmt(f),
            Port::Mixed => f.write_str("any"),
        }
    }
}

impl fmt::Display for ItemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_a_packet_but_no_packet_a_segment() {
        assert!(ItemType::Segment.is_a(ItemType::Packet));
        assert!(!ItemType::Packet.is_a(ItemType::Segment));
        assert!(!ItemType::Chunk.is_a(ItemType::Packet));
    }

    #[test]
    fn what_two_branches_give_is_what_both_are() {
        let common = ItemType::Segment.common(ItemType::Packet);
        assert_eq!(common, Some(ItemType::Packet));
        let common = ItemType::Flow.common(ItemType::Transaction);
        assert_eq!(common, Some(ItemType::Record));
        assert_eq!(ItemType::Flow.common(ItemType::Chunk), None);
        for &one in ItemType::ALL {
            for &other in ItemType::ALL {
                assert_eq!(one.common(other), other.common(one), "{one} {other}");
            }
        }
    }
}

//! The source trait.

use flowgauge_wire::{Batch, Ledger, LinkType};

use crate::error::Error;
use crate::memory::SharedMemory;

/// One interface a source's packets come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Name, where the source knows one.
    pub name: Option<String>,
    /// Description, where the source knows one.
    pub description: Option<String>,
    /// Link type of its packets.
    pub link: LinkType,
    /// Snap length in bytes; 0 when unlimited or unknown.
    pub snap_len: u32,
    /// Capture filter that was in force when the file was written, if it says.
    pub filter: Option<String>,
}

/// Something packets come from, batch by batch.
pub trait PacketSource {
    /// The next batch, borrowed until the next call; `None` at the end of input. A live source
    /// returns an empty batch with `now` set when it has been idle for its tick (100 ms).
    ///
    /// # Errors
    /// A damaged file yields all that was readable first, then one error that says where it is
    /// damaged; later calls return `None`.
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error>;

    /// The interfaces known so far; a pcapng file can add some at any time.
    fn interfaces(&self) -> &[Interface];

    /// Packets received, delivered and refused so far. Always balanced after a batch.
    fn ledger(&mut self) -> Ledger;

    /// What a user should know of the input beside its packets and errors, so far: a line each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Packets that were lost where the input was captured, as far as it says so: of pcapng by its interface statistics. They are in
    /// no [ledger](PacketSource::ledger), which is about this run.
    fn capture_lost(&self) -> u64 {
        0
    }

    /// A handle to the memory of the last batch, which stays as it is while the handle is held; what
    /// it holds begins where [`Batch::memory`] does. `None` where memory is only lent, as that of a
    /// kernel's ring is.
    fn share(&mut self) -> Option<SharedMemory> {
        None
    }

    /// Whether all packets are there already, as those of a file are: the next batch does not wait for
    /// what is yet to happen, so that who gives packets on to others may let some come together.
    fn is_at_hand(&self) -> bool {
        false
    }

    /// Whether all memory that it has is held elsewhere (see [`PacketSource::share`]): the next batch waits
    /// until some of it comes back. Who holds some, too, gives it back before.
    fn is_exhausted(&self) -> bool {
        false
    }

    /// Whether more packets wait than is good, of a source that cannot wait: some are lost soon.
    fn is_behind(&self) -> bool {
        false
    }
}

/// What a source that narrows another one leaves to that: all but the packets and their account.
#[doc(hidden)]
#[macro_export]
macro_rules! as_source_within {
    ($source:ident) => {
        fn interfaces(&self) -> &[$crate::Interface] {
            self.$source.interfaces()
        }

        fn notes(&self) -> Vec<String> {
            self.$source.notes()
        }

        fn capture_lost(&self) -> u64 {
            self.$source.capture_lost()
        }

        fn share(&mut self) -> Option<$crate::SharedMemory> {
            self.$source.share()
        }

        fn is_at_hand(&self) -> bool {
            self.$source.is_at_hand()
        }

        fn is_exhausted(&self) -> bool {
            self.$source.is_exhausted()
        }
    };
}
impl<S: PacketSource + ?Sized> PacketSource for Box<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        (**self).next_batch()
    }

    fn interfaces(&self) -> &[Interface] {
        (**self).interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        (**self).ledger()
    }

    fn notes(&self) -> Vec<String> {
        (**self).notes()
    }

    fn capture_lost(&self) -> u64 {
        (**self).capture_lost()
    }

    fn share(&mut self) -> Option<SharedMemory> {
        (**self).share()
    }

    fn is_at_hand(&self) -> bool {
        (**self).is_at_hand()
    }

    fn is_exhausted(&self) -> bool {
        (**self).is_exhausted()
    }
}

//! The source trait.

use flowgauge_wire::{Batch, Ledger, LinkType};

use crate::error::Error;
use crate::memory::SharedMemory;

/// An interface of a source's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Name, if known.
    pub name: Option<String>,
    /// Description, if known.
    pub description: Option<String>,
    /// Link type of its packets.
    pub link: LinkType,
    /// Snap length in bytes; 0 if unlimited or unknown.
    pub snap_len: u32,
    /// Capture filter used when the file was written, if recorded.
    pub filter: Option<String>,
}

/// A source of packets, batch by batch.
pub trait PacketSource {
    /// The next batch, borrowed until the next call; `None` at the end of input. A live source returns an empty batch
    /// with `now` set if it has been idle for its tick (100 ms).
    ///
    /// # Errors
    /// A damaged file yields all readable packets first, then one error with the position of the damage; later calls
    /// return `None`.
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error>;

    /// The interfaces known so far; pcapng files can add some at any time.
    fn interfaces(&self) -> &[Interface];

    /// Packets received, delivered and refused so far. Always balanced after a batch.
    fn ledger(&mut self) -> Ledger;

    /// Notes about the input other than its packets and errors, so far, one per line.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Packets lost where the input was captured, if recorded: for pcapng, by its interface statistics. They are in no
    /// [ledger](PacketSource::ledger), which only covers this run.
    fn capture_lost(&self) -> u64 {
        0
    }

    /// A handle to the memory of the last batch, which does not change while the handle exists, and starts where
    /// [`Batch::memory`] does. `None` if the memory is only lent, like that of a kernel's ring.
    fn share(&mut self) -> Option<SharedMemory> {
        None
    }

    /// Whether all packets already exist, like those of a file: the next batch does not wait for future events, so that
    /// consumers may gather several batches before passing packets on.
    fn is_at_hand(&self) -> bool {
        false
    }

    /// Whether all of its memory is in use elsewhere (see [`PacketSource::share`]): the next batch waits until some is
    /// returned. A caller that holds some must return it first.
    fn is_exhausted(&self) -> bool {
        false
    }

    /// Whether, in a source that cannot wait, so many packets wait that some will be lost soon.
    fn is_behind(&self) -> bool {
        false
    }
}

/// The methods that a wrapping source delegates to the inner one: all except packets and ledger.
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

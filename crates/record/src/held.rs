//! Memory of records and messages while they wait, and its reuse.

use core::mem::needs_drop;
use core::net::IpAddr;

use flowgauge_wire::{Address, Nanos};

use crate::http::Piece;
use crate::origin::Origin;

/// A type that may own buffers.
pub trait Held {
    /// Size of its buffers in bytes, including unused capacity.
    #[inline]
    fn held(&self) -> usize {
        0
    }

    /// Resets it to its initial state; its buffers can be reused.
    fn clear(&mut self);
}

impl Held for String {
    #[inline]
    fn held(&self) -> usize {
        self.capacity()
    }

    fn clear(&mut self) {
        self.clear();
    }
}

impl<T: Held> Held for Vec<T> {
    #[inline]
    fn held(&self) -> usize {
        let own = self.capacity() * size_of::<T>();
        // What need not be dropped has no buffers.
        match needs_drop::<T>() {
            true => own + self.iter().map(T::held).sum::<usize>(),
            false => own,
        }
    }

    fn clear(&mut self) {
        self.clear();
    }
}

impl<T: Held, const N: usize> Held for [T; N] {
    fn held(&self) -> usize {
        self.iter().map(T::held).sum()
    }

    fn clear(&mut self) {
        self.iter_mut().for_each(T::clear);
    }
}

impl<T: Held> Held for Option<T> {
    #[inline]
    fn held(&self) -> usize {
        self.as_ref().map_or(0, T::held)
    }

    fn clear(&mut self) {
        *self = None;
    }
}

impl<T: Held> Held for Box<T> {
    #[inline]
    fn held(&self) -> usize {
        size_of::<T>() + (**self).held()
    }

    fn clear(&mut self) {
        (**self).clear();
    }
}

/// Types without buffers.
macro_rules! plain {
    ($($type:ty,)*) => {
        $(impl Held for $type {
            fn clear(&mut self) {
                *self = Default::default();
            }
        })*
    };
}

plain! {
    bool, u8, u16, u32, u64, usize, i64, f64, &'static str, (bool, u16), (u32, u32), (Address, u8), (Address, u16),
    Option<(IpAddr, u16)>, Nanos, Origin, Piece,
}

/// Declares a struct that is [`Held`]: its buffers are those of all its fields.
macro_rules! held {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $( $(#[$field_about:meta])* $visible:vis $field:ident: $type:ty, )*
        }
    ) => {
        $(#[$about])*
        pub struct $name {
            $( $(#[$field_about])* $visible $field: $type, )*
        }

        impl $crate::Held for $name {
            fn held(&self) -> usize {
                0 $(+ $crate::Held::held(&self.$field))*
            }

            fn clear(&mut self) {
                $( $crate::Held::clear(&mut self.$field); )*
            }
        }
    };
}
pub(crate) use held;

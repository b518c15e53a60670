//! Encoding and decoding of values: the layout of each type in an event is declared once
//! ([`wire`]).

/// A value as bytes: numbers are little-endian, fields stand one after the other.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes one off; `None` when it is not there, or wrong.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Declares the encoding of types:
///
/// - `Type { field, ... }`: the fields in this order; those in `with own = value` are not sent;
/// - `Type(..)`: its contents;
/// - `Type as u8 { Variant, ... }`: the variant's number.
macro_rules! wire {
    ($type:ident { $($field:ident),* $(,)? } $(with $($own:ident = $value:expr),*)?) => {
        impl $crate::shared::codec::Wire for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Option<Self> {
                Some($type {
                    $($field: $crate::shared::codec::Wire::take(from)?,)*
                    $($($own: $value,)*)?
                })
            }
        }
    };
    ($type:ident(..)) => {
        impl $crate::shared::codec::Wire for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Option<Self> {
                $crate::shared::codec::Wire::take(from).map($type)
            }
        }
    };
    ($type:ident as u8 { $($variant:ident),* $(,)? }) => {
        impl $crate::shared::codec::Wire for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Option<Self> {
                let number: u8 = $crate::shared::codec::Wire::take(from)?;
                [$($type::$variant),*].into_iter().find(|one| *one as u8 == number)
            }
        }
    };
}
pub(super) use wire;

macro_rules! numbers {
    ($($type:ident),*) => {$(
        impl Wire for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn take(from: &mut &[u8]) -> Option<$type> {
                Wire::take(from).map($type::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i64);

impl<const N: usize> Wire for [u8; N] {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(*taken)
    }
}

impl Wire for bool {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<bool> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// Whether it is there, then what it is.
impl<T: Wire> Wire for Option<T> {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<Option<T>> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    #[inline]
    fn take(from: &mut &[u8]) -> Option<(A, B)> {
        Some((A::take(from)?, B::take(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_back() {
        let value = (
            ((1_u8, 0x0203_u16), (4_u32, 5_u64)),
            ((None::<u64>, Some(6_u64)), true),
        );
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        let mut rest = &bytes[..];
        assert_eq!(Wire::take(&mut rest), Some(value));
        assert!(rest.is_empty());
        assert_eq!(u8::take(&mut rest), None);
        assert_eq!(bool::take(&mut &[2][..]), None);
    }
}

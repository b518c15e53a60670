//! Values as bytes and back: how each type of a message or an event is laid out is declared once ([`wire`]).

use flowgauge_record::text::harmless;

/// A value as bytes: numbers are little-endian, fields stand one after the other.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes one off; `None` when it is not there, or wrong.
    fn take(from: &mut &[u8]) -> Option<Self>;

    /// A message of its own.
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// A message that is one of these and nothing else.
    fn decoded(mut message: &[u8]) -> Option<Self> {
        let value = Self::take(&mut message)?;
        message.is_empty().then_some(value)
    }
}

/// Declares the bytes of types:
///
/// - `Type { field, ... }`: the fields in this order; those in `with own = value` do not travel;
/// - `Type(..)`: what is in it;
/// - `Type as u8 { Variant, ... }`: the variant's number;
/// - `enum Type { 1 => Variant { field, ... }, ... }`: the number, then the fields; a variant that is not listed
///   travels as one that nobody understands.
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
    (enum $type:ident { $($number:literal => $variant:ident
        $(($($one:ident),*))? $({ $($field:ident),* })?),* $(,)? }) => {
        impl $crate::shared::codec::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $(($($one),*))? $({ $($field),* })? => {
                        out.push($number);
                        $($($one.put(out);)*)?
                        $($($field.put(out);)*)?
                    })*
                    #[allow(unreachable_patterns)]
                    _ => out.push(u8::MAX),
                }
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                use $crate::shared::codec::Wire;
                Some(match u8::take(from)? {
                    $($number => {
                        $($(let $one = Wire::take(from)?;)*)?
                        $($(let $field = Wire::take(from)?;)*)?
                        $type::$variant $(($($one),*))? $({ $($field),* })?
                    })*
                    _ => return None,
                })
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

/// How many, and each of them.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u16).put(out);
        self.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Vec<T>> {
        // Room is made as they come: a number alone takes no memory.
        let mut all = Vec::new();
        for _ in 0..u16::take(from)? {
            all.push(T::take(from)?);
        }
        Some(all)
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }

    fn take(from: &mut &[u8]) -> Option<Box<T>> {
        T::take(from).map(Box::new)
    }
}

/// Bytes of a text at most.
const LONGEST_TEXT: usize = 1024;

/// Its length, and at most 1024 bytes of a text; it comes back without what a terminal would obey.
impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        let end = self.floor_char_boundary(LONGEST_TEXT);
        (end as u16).put(out);
        out.extend_from_slice(&self.as_bytes()[..end]);
    }

    fn take(from: &mut &[u8]) -> Option<String> {
        let len = usize::from(u16::take(from)?);
        if len > LONGEST_TEXT {
            return None;
        }
        let text = core::str::from_utf8(from.split_off(..len)?).ok()?;
        Some(text.replace(|letter| harmless(letter) != letter, "?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_back() {
        let value = (
            ((1_u8, 0x0203_u16), (4_u32, 5_u64)),
            (
                (None::<u64>, Some(6_u64)),
                (String::from("caf\u{e9}"), true),
            ),
        );
        let mut bytes = value.encoded();
        let mut back = Wire::decoded(&bytes);
        assert_eq!(back, Some(value));
        bytes.push(0);
        back = Wire::decoded(&bytes);
        assert_eq!(back, None);
        assert_eq!(u8::take(&mut &[][..]), None);
    }

    #[test]
    fn texts_are_short_and_harmless() {
        let texts = ("\u{e9}".repeat(1000), "a\x1b[2Jb\n".to_owned());
        let (long, odd) = <(String, String)>::decoded(&texts.encoded()).unwrap();
        assert_eq!((long.len(), odd.as_str()), (LONGEST_TEXT, "a?[2Jb?"));
        assert_eq!(String::decoded(&[1, 0, 0xff]), None, "not UTF-8");
        assert_eq!(String::decoded(&[0xff, 0xff, 0]), None, "too long");
        assert_eq!(bool::decoded(&[2]), None);
    }
}

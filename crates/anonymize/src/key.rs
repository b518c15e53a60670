//! The secret that everything keyed is derived from.

use core::fmt;

/// 32 bytes that nobody else knows. Crypto-PAn uses them as they are, so that the same key gives the
/// same addresses as in other programs.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; Key::BYTES]);

impl Key {
    /// Length of a key.
    pub const BYTES: usize = 32;

    /// One of these bytes.
    pub const fn new(bytes: [u8; Key::BYTES]) -> Key {
        Key(bytes)
    }

    /// Its bytes, not for output of any kind.
    pub const fn bytes(&self) -> &[u8; Key::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Key {
    /// Without its bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

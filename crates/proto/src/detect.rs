//! Recognising protocols by what is sent first.

/// What the first bytes of a direction say about a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// They are none of it.
    No,
    /// They can be the beginning of it; too few came to tell.
    More,
    /// They are.
    Yes,
}

//! Files that are read at once, and are not to be too large.

use std::io::{self, Read};

/// All that comes, if that is no more than `limit` bytes: a device that never ends is not read on.
///
/// # Errors
/// That of the reader.
pub fn read(from: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

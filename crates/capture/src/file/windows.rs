//! Memory for the windows of decompressors: each file declares its size, and all open files share a bound.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

/// Unless bounded otherwise: eight files of `zstd --long`, or 512 of its usual levels.
const USUAL: u64 = 1 << 30;
/// What is charged at least, and allowed to later frames of a file: a window of zstd's usual level, as a power of two.
const LEAST_LOG: u32 = 21;

static LIMIT: AtomicU64 = AtomicU64::new(USUAL);
static USED: AtomicU64 = AtomicU64::new(0);

/// Bounds the memory for windows of compressed files that are open at the same time; files that need more are refused.
/// At least 8 MiB, which every decoder should support (RFC 8878, section 3.1.1.1.2).
pub fn bound_windows(bytes: u64) {
    LIMIT.store(bytes.max(8 << 20), Ordering::Relaxed);
}

/// A decompressor of zstd, and the window that it may have.
pub(super) struct Unzstd<R: io::BufRead> {
    decoder: zstd::Decoder<'static, R>,
    _window: Window,
}

/// Memory that counts until it is dropped.
struct Window(u64);

impl Drop for Window {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Why a file is not decompressed.
pub(super) enum Refusal {
    /// Its window, and what may be had.
    Window(u64, u64),
    Io(io::Error),
}

impl<R: io::BufRead> Unzstd<R> {
    /// Of a file that begins with these bytes.
    pub(super) fn new(begin: &[u8], packed: R) -> Result<Unzstd<R>, Refusal> {
        let wanted = window_of(begin).unwrap_or(0).max(1 << LEAST_LOG);
        let charged = wanted.checked_next_power_of_two().unwrap_or(u64::MAX);
        let limit = LIMIT.load(Ordering::Relaxed);
        let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(charged).filter(|sum| *sum <= limit)
        });
        if taken.is_err() {
            return Err(Refusal::Window(wanted, limit));
        }
        let window = Window(charged);
        let mut decoder = zstd::Decoder::with_buffer(packed).map_err(Refusal::Io)?;
        let most = decoder.window_log_max(charged.trailing_zeros().min(31));
        most.map_err(Refusal::Io)?;
        Ok(Unzstd {
            decoder,
            _window: window,
        })
    }
}

impl<R: io::BufRead> Read for Unzstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer)
    }
}

/// Bytes of the window that the first frame asks for (RFC 8878, section 3.1.1.1); `None`: not known.
fn window_of(begin: &[u8]) -> Option<u64> {
    let (magic, header) = begin.split_first_chunk::<4>()?;
    if *magic != [0x28, 0xb5, 0x2f, 0xfd] {
        return None;
    }
    let (descriptor, rest) = header.split_first()?;
    let is_single = descriptor & 0x20 != 0;
    if !is_single {
        let window = rest.first()?;
        let base = 1_u64 << (10 + u32::from(window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // The window is the content, whose size stands behind the dictionary's number.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = rest.get(dictionary..dictionary + (1 << (descriptor >> 6)))?;
    let mut bytes = [0; 8];
    bytes.get_mut(..size.len())?.copy_from_slice(size);
    let size = u64::from_le_bytes(bytes);
    Some(size + if descriptor >> 6 == 1 { 256 } else { 0 })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A zstd file with a window of this logarithm.
    fn packed(window_log: u32) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(window_log).unwrap();
        encoder.write_all(&[7; 100_000]).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn windows_are_read_from_the_header() {
        for log in [20, 23, 27] {
            assert_eq!(window_of(&packed(log)), Some(1 << log));
        }
        let whole = zstd::bulk::compress(&[7; 1000], 1).unwrap();
        assert_eq!(window_of(&whole), Some(1000));
        // A mantissa; a skippable frame; nothing.
        let header = [0x28, 0xb5, 0x2f, 0xfd, 0, 0x53];
        assert_eq!(window_of(&header), Some((1 << 20) + 3 * (1 << 17)));
        assert_eq!(window_of(&[0x50, 0x2a, 0x4d, 0x18, 0, 0]), None);
        assert_eq!(window_of(&[0x28, 0xb5, 0x2f, 0xfd]), None);
    }

    /// Windows of files that are open together have a bound, and what is closed makes room again.
    #[test]
    fn what_does_not_fit_is_refused() {
        let long = packed(27);
        let open = |bytes: &[u8]| Unzstd::new(bytes, io::Cursor::new(bytes.to_vec()));
        let mut held: Vec<_> = core::iter::from_fn(|| open(&long).ok()).take(100).collect();
        // Other tests may have some open.
        assert!((4..=8).contains(&held.len()), "{}", held.len());
        assert!(matches!(open(&long), Err(Refusal::Window(window, _)) if window == 1 << 27));
        let mut text = Vec::new();
        held.pop().unwrap().read_to_end(&mut text).unwrap();
        assert_eq!(text, [7; 100_000]);
        assert!(open(&long).is_ok());
        // A later frame may not have more than the first has asked for.
        let mut two = packed(20);
        two.extend(packed(24));
        text.clear();
        drop(held);
        let error = open(&two).ok().unwrap().read_to_end(&mut text).unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
        assert_eq!(text, [7; 100_000]);
    }
}

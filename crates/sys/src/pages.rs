//! Huge pages for large tables.

use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// Size of a huge page on the machines this is for; where it differs, the advice helps less.
const HUGE: usize = 2 << 20;

/// Asks the kernel to back the whole huge pages inside this memory by such pages when they are
/// first touched. A table that is visited in random order then needs a page table entry per two
/// megabytes rather than per four kilobytes, and its look-ups stop missing the TLB. Advice only:
/// where transparent huge pages are off, nothing happens.
pub fn advise_huge<T>(memory: &mut [T]) {
    let start = memory.as_mut_ptr().addr();
    let end = start + size_of_val(memory);
    let (first, last) = (start.next_multiple_of(HUGE), end / HUGE * HUGE);
    if first >= last {
        return;
    }
    let address = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: the range lies within memory that is borrowed exclusively, and this advice changes
    // neither its contents nor its protection.
    unsafe {
        libc::madvise(
            address.wrapping_add(first - start).cast(),
            last - first,
            libc::MADV_HUGEPAGE,
        );
    }
}

/// So many words, zero at first, in huge pages if they fill half of one: taken from the system as they
/// are touched.
#[derive(Debug)]
pub struct Words {
    start: NonNull<u64>,
    len: usize,
    /// Bytes mapped from `start` on; 0 where it is memory of the allocator's.
    mapped: usize,
}

// SAFETY: it owns its memory as a box does.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Words that are zero.
    pub fn zeroed(len: usize) -> Words {
        if size_of::<u64>().saturating_mul(len) >= HUGE / 2
            && let Some(words) = Words::mapped(len)
        {
            return words;
        }
        let memory = Box::into_raw(vec![0u64; len].into_boxed_slice());
        Words {
            start: NonNull::new(memory.cast()).unwrap_or(NonNull::dangling()),
            len,
            mapped: 0,
        }
    }

    /// In a mapping that begins at a huge page; `None` where the system gives none.
    fn mapped(len: usize) -> Option<Words> {
        let bytes = size_of::<u64>()
            .checked_mul(len)?
            .checked_next_multiple_of(HUGE)?;
        let whole = bytes.checked_add(HUGE)?;
        // SAFETY: a new mapping at an address of the system's choice touches no other memory.
        let address = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        let before = address.addr().next_multiple_of(HUGE) - address.addr();
        let start = address.cast::<u8>().wrapping_add(before);
        let behind = HUGE - before;
        // SAFETY: both ends lie within the mapping just made, and nobody knows of them.
        unsafe {
            if before != 0 {
                libc::munmap(address, before);
            }
            if behind != 0 {
                libc::munmap(start.wrapping_add(bytes).cast(), behind);
            }
            libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        Some(Words {
            start: NonNull::new(start.cast())?,
            len,
            mapped: bytes,
        })
    }
}

impl Clone for Words {
    fn clone(&self) -> Words {
        let mut copy = Words::zeroed(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl Default for Words {
    fn default() -> Words {
        Words::zeroed(0)
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        // SAFETY: `len` words from `start` on are this one's, and were zeroed when it was made.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.mapped == 0 {
            let memory = core::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len);
            // SAFETY: that is the slice whose box was given up when this was made.
            drop(unsafe { Box::from_raw(memory) });
            return;
        }
        // SAFETY: so many bytes from `start` on were mapped for this one, and nobody else knows of them.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.mapped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_number_are_zero_and_keep_what_is_written() {
        let half = HUGE / 2 / 8;
        for len in [0, 1, 1000, half - 1, half, half + 1, 2 * half, 5 * half + 3] {
            let mut words = Words::zeroed(len);
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|&word| word == 0));
            assert_eq!(words.mapped != 0, len >= half);
            if words.mapped != 0 {
                assert_eq!(words.as_ptr().addr() % HUGE, 0);
            }
            for (at, word) in words.iter_mut().enumerate() {
                *word = at as u64;
            }
            let copy = words.clone();
            words.fill(0);
            assert!(copy.iter().zip(0..).all(|(&word, at)| word == at));
            assert_eq!(copy.len(), len);
        }
        assert!(Words::default().is_empty());
    }
}

//! Huge pages for large tables.

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
    #[cfg(target_os = "linux")]
    // SAFETY: the range lies within memory that is borrowed exclusively, and this advice changes
    // neither its contents nor its protection.
    unsafe {
        libc::madvise(
            memory
                .as_mut_ptr()
                .cast::<libc::c_void>()
                .wrapping_byte_add(first - start),
            last - first,
            libc::MADV_HUGEPAGE,
        );
    }
}

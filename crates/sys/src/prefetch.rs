//! Cache prefetch hints.

/// Asks the CPU to bring the cache line that holds `value` closer. Never faults, never blocks.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    prefetch_address(core::ptr::from_ref(value).cast());
}

/// [`prefetch`] of `slice[index]`, which need not be there: the address is all that matters.
#[inline(always)]
pub fn prefetch_at<T>(slice: &[T], index: usize) {
    prefetch_address(slice.as_ptr().wrapping_add(index).cast());
}

/// [`prefetch`] of the line with this address, whatever is there.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no architectural effect and cannot fault.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// [`prefetch_address`] no closer than the second level cache: for what is needed later.
#[inline(always)]
pub fn prefetch_address_for_later(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no architectural effect and cannot fault.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

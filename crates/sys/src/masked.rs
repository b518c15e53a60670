//! Loads of slices shorter than a few vectors.

use core::arch::x86_64::{__m512i, _bzhi_u64, _mm512_maskz_loadu_epi8};

/// Up to 128 bytes, followed by zeros. There is no branch that depends on how many they are. Of a
/// longer slice the first 128.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
pub(crate) fn load_up_to_128(bytes: &[u8]) -> [__m512i; 2] {
    let len = bytes.len().min(128) as u32;
    let start = bytes.as_ptr();
    // `bzhi` leaves as many of the lowest bits as its second operand's low byte says, or all.
    let masks = [
        _bzhi_u64(u64::MAX, len),
        _bzhi_u64(u64::MAX, len.saturating_sub(64)),
    ];
    // SAFETY: only bytes are read for which there is a bit in the masks: the first `len`.
    unsafe {
        [
            _mm512_maskz_loadu_epi8(masks[0], start.cast()),
            _mm512_maskz_loadu_epi8(masks[1], start.wrapping_add(64).cast()),
        ]
    }
}

//! A checksum over every byte, as fast as memory, by CPU dispatch.

#[cfg(target_arch = "x86_64")]
use crate::masked::load_up_to_128;

/// The sum of all bytes: independent of how a stream was cut into pieces, and impossible to get
/// right without reading every byte.
#[inline]
pub fn byte_sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("bmi2")
    {
        // SAFETY: the CPU has BMI2 and AVX-512 BW (and F, which it implies), just checked.
        return unsafe { byte_sum_avx512(bytes) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 128 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, just checked.
        return unsafe { byte_sum_avx2(bytes) };
    }
    byte_sum_portable(bytes)
}

/// Sums of eight bytes at once. The last up to 128 bytes are loaded through masks, so that there is no
/// branch that depends on how many they are.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
fn byte_sum_avx512(bytes: &[u8]) -> u64 {
    use core::arch::x86_64::{
        _mm512_add_epi64, _mm512_loadu_si512, _mm512_reduce_add_epi64, _mm512_sad_epu8,
        _mm512_setzero_si512,
    };
    let zero = _mm512_setzero_si512();
    let mut sums = [zero; 2];
    let mut rest = bytes;
    while rest.len() > 128
        && let Some((block, after)) = rest.split_first_chunk::<128>()
    {
        let start = block.as_ptr();
        // SAFETY: `block` is 128 readable bytes: two unaligned loads of 64.
        let lanes = unsafe {
            [
                _mm512_loadu_si512(start.cast()),
                _mm512_loadu_si512(start.add(64).cast()),
            ]
        };
        for half in 0..2 {
            sums[half] = _mm512_add_epi64(sums[half], _mm512_sad_epu8(lanes[half], zero));
        }
        rest = after;
    }
    let lanes = load_up_to_128(rest);
    for half in 0..2 {
        sums[half] = _mm512_add_epi64(sums[half], _mm512_sad_epu8(lanes[half], zero));
    }
    _mm512_reduce_add_epi64(_mm512_add_epi64(sums[0], sums[1])) as u64
}

/// Sums of eight bytes at once; the last up to 31 bytes without vector instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn byte_sum_avx2(bytes: &[u8]) -> u64 {
    use core::arch::x86_64::{
        _mm256_add_epi64, _mm256_extract_epi64, _mm256_loadu_si256, _mm256_sad_epu8,
        _mm256_setzero_si256,
    };
    let zero = _mm256_setzero_si256();
    let (blocks, tail) = bytes.as_chunks::<32>();
    let mut sums = zero;
    for block in blocks {
        // SAFETY: `block` is 32 readable bytes: an unaligned load of them.
        let lanes = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(lanes, zero));
    }
    let halves = [
        _mm256_extract_epi64::<0>(sums),
        _mm256_extract_epi64::<1>(sums),
        _mm256_extract_epi64::<2>(sums),
        _mm256_extract_epi64::<3>(sums),
    ];
    halves.iter().sum::<i64>() as u64 + byte_sum_portable(tail)
}

/// [`byte_sum`] without vector instructions.
///
/// Even and odd bytes of a word are added as four 16-bit lanes each, which compilers turn into
/// vector instructions; lanes are emptied before they can overflow.
fn byte_sum_portable(bytes: &[u8]) -> u64 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    /// A lane holds 257 bytes of 255.
    const WORDS_PER_BLOCK: usize = 256;
    let add = |lanes: u64| {
        let pairs = (lanes & 0x0000_ffff_0000_ffff) + (lanes >> 16 & 0x0000_ffff_0000_ffff);
        (pairs & 0xffff_ffff) + (pairs >> 32)
    };
    let (words, tail) = bytes.as_chunks::<8>();
    // The tail as a word, without a loop whose number of turns nobody can guess.
    let last = match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last)
            .checked_shr(64 - 8 * tail.len() as u32)
            .unwrap_or(0),
        None => (tail.iter().rev()).fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    let mut sum = add((last & EVEN) + (last >> 8 & EVEN));
    for block in words.chunks(WORDS_PER_BLOCK) {
        let (mut even, mut odd) = (0u64, 0u64);
        for word in block {
            let word = u64::from_le_bytes(*word);
            even += word & EVEN;
            odd += word >> 8 & EVEN;
        }
        sum += add(even) + add(odd);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_naive_sum_for_every_length_and_never_overflows() {
        for len in (0..400).chain([2047, 2048, 2049, 65_535]) {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 31 % 256) as u8).collect();
            let naive: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
            assert_eq!(byte_sum(&bytes), naive);
            assert_eq!(byte_sum_portable(&bytes), naive);
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has AVX2, just checked.
                assert_eq!(unsafe { byte_sum_avx2(&bytes) }, naive);
            }
        }
        assert_eq!(byte_sum(&[255; 100_000]), 255 * 100_000);
        assert_eq!(byte_sum_portable(&[255; 100_000]), 255 * 100_000);
    }
}

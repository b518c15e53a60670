//! The ones' complement sum of the Internet checksum (RFC 1071), by CPU dispatch.

/// Below this the set-up of the vector loop costs more than it saves.
const VECTOR_MIN: usize = 64;

/// Sum of the 16-bit words of `bytes` in memory order (native endian), an odd last byte padded
/// with zero, as a 64-bit number that folds to the ones' complement sum. Sums of parts may be
/// added (with end-around carry) when all parts but the last have even length.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() < VECTOR_MIN {
        return sum_portable(bytes);
    }
    sum_long(bytes)
}

#[cfg(target_arch = "x86_64")]
fn sum_long(bytes: &[u8]) -> u64 {
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, just checked.
        return unsafe { sum_avx2(bytes) };
    }
    sum_portable(bytes)
}

#[cfg(not(target_arch = "x86_64"))]
fn sum_long(bytes: &[u8]) -> u64 {
    sum_portable(bytes)
}

/// [`sum`] without vector instructions.
#[inline]
pub fn sum_portable(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let halves = |word: u64| (word & 0xffff_ffff) + (word >> 32);
    let sum: u64 = words
        .iter()
        .map(|&word| halves(u64::from_ne_bytes(word)))
        .sum();
    let (words, rest) = rest.as_chunks::<4>();
    let sum = words
        .iter()
        .fold(sum, |sum, &word| sum + u64::from(u32::from_ne_bytes(word)));
    let last = match *rest {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    };
    sum + u64::from(u32::from_ne_bytes(last))
}

/// Four 64-bit lanes. Each is added up twice: whole, modulo 2^64, and its upper half alone,
/// exactly; the sum of the lower halves is the difference. So a lane costs two additions and one
/// shift, and nothing is carried until the end.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_srli_epi64,
        _mm256_storeu_si256,
    };
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut whole = [_mm256_setzero_si256(); 2];
    let mut upper = [_mm256_setzero_si256(); 2];
    for block in blocks {
        let start = block.as_ptr().cast::<__m256i>();
        // SAFETY: `block` is 64 readable bytes: two unaligned loads of 32.
        let lanes = unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] };
        for half in 0..2 {
            whole[half] = _mm256_add_epi64(whole[half], lanes[half]);
            upper[half] = _mm256_add_epi64(upper[half], _mm256_srli_epi64::<32>(lanes[half]));
        }
    }
    let lanes = |vectors: [__m256i; 2]| {
        let mut lanes = [0u64; 4];
        let total = _mm256_add_epi64(vectors[0], vectors[1]);
        // SAFETY: `lanes` is 32 writable bytes.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), total) };
        lanes
    };
    let (whole, upper) = (lanes(whole), lanes(upper));
    let mut sum = sum_portable(rest);
    for lane in 0..4 {
        let lower = whole[lane].wrapping_sub(upper[lane] << 32);
        sum += lower + upper[lane];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(sum: u64) -> u64 {
        // Zero and all ones are the same number; the sum of non-zero bytes is never zero.
        if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 }
    }

    #[test]
    fn vector_and_portable_agree() {
        let mut state = 1u64;
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(3000)
        .collect();
        for length in 0..bytes.len() {
            for start in [0, 1, 3] {
                let part = &bytes[start.min(length)..length];
                assert_eq!(fold(sum(part)), fold(sum_portable(part)));
            }
        }
        bytes.fill(0xff);
        assert_eq!(fold(sum(&bytes)), fold(sum_portable(&bytes)));
        let large = vec![0xff; 1 << 20];
        assert_eq!(fold(sum(&large)), 0xffff);
    }

    #[test]
    fn sum_of_the_rfc_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)) as u16, u16::from_be(0xddf2));
    }
}

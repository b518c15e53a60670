//! The ones' complement sum of the Internet checksum (RFC 1071), by CPU dispatch.
//!
//! Who sums up few bytes often does it as [`Work`]: then the CPU is asked once, and the kernel stands in
//! the loop instead of being called.

#[cfg(target_arch = "x86_64")]
use crate::masked::load_up_to_128;
#[cfg(target_arch = "x86_64")]
use crate::ways::{Way, is_forced};

/// Below this the set-up of a vector loop costs more than it saves.
const VECTOR_MIN: usize = 96;

/// A way to sum bytes up.
pub trait Kernel: Copy {
    /// [`sum`].
    fn sum(self, bytes: &[u8]) -> u64;
}

/// Something that sums many slices up.
pub trait Work {
    /// Does it with this kernel. To be `#[inline(always)]`, or else the kernel is called each time.
    fn with(self, kernel: impl Kernel);
}

/// Does the work with the fastest kernel of this CPU.
#[inline]
pub fn with_fastest(work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() && !is_forced(Way::PortableSums) {
        // SAFETY: the CPU has BMI2 and AVX-512 BW (and F, which it implies), just checked.
        return unsafe { with_avx512(work) };
    }
    work.with(Dispatched);
}

/// Whether the CPU has AVX-512 BW and BMI2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512bw") && std::arch::is_x86_feature_detected!("bmi2")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
fn with_avx512(work: impl Work) {
    work.with(Avx512(()));
}

/// [`sum`] itself: asks the CPU each time.
#[derive(Clone, Copy, Debug)]
pub struct Dispatched;

impl Kernel for Dispatched {
    #[inline(always)]
    fn sum(self, bytes: &[u8]) -> u64 {
        sum(bytes)
    }
}

/// Exists only where the CPU has AVX-512 BW and BMI2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
struct Avx512(());

#[cfg(target_arch = "x86_64")]
impl Kernel for Avx512 {
    #[inline(always)]
    fn sum(self, bytes: &[u8]) -> u64 {
        // SAFETY: the CPU has what it needs, or there were no `self`.
        unsafe { sum_avx512(bytes) }
    }
}

/// Sum of the 16-bit words of `bytes` in memory order (native endian), an odd last byte padded
/// with zero, as a 64-bit number that folds to the ones' complement sum. Sums of parts may be
/// added (with end-around carry) when all parts but the last have even length.
#[inline(always)]
pub fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() < VECTOR_MIN {
        return sum_portable(bytes);
    }
    sum_long(bytes)
}

#[cfg(target_arch = "x86_64")]
fn sum_long(bytes: &[u8]) -> u64 {
    if is_forced(Way::PortableSums) {
        return sum_portable(bytes);
    }
    if has_avx512() {
        // SAFETY: the CPU has BMI2 and AVX-512 BW (and F, which it implies), just checked.
        return unsafe { sum_avx512(bytes) };
    }
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

/// [`sum`] without vector instructions: 64-bit words with end-around carry, an addition and a carry
/// for eight bytes. The last one to seven bytes are the upper ones of the eight that end with them.
#[inline(always)]
pub fn sum_portable(bytes: &[u8]) -> u64 {
    let Some(last) = bytes.last_chunk::<8>() else {
        return sum_few(bytes);
    };
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut sum = 0u64;
    for block in blocks {
        for &word in block.as_chunks::<8>().0 {
            sum = add(sum, u64::from_ne_bytes(word));
        }
    }
    // At most three words are left.
    let (pair, rest) = match rest.split_first_chunk::<16>() {
        Some((pair, rest)) => (Some(pair), rest),
        None => (None, rest),
    };
    for &word in pair.map_or(&[][..], |pair| pair.as_chunks::<8>().0) {
        sum = add(sum, u64::from_ne_bytes(word));
    }
    let rest = match rest.split_first_chunk::<8>() {
        Some((&word, rest)) => {
            sum = add(sum, u64::from_ne_bytes(word));
            rest
        }
        None => rest,
    };
    let known = 8 * (7 - rest.len() as u32 % 8);
    let last = if cfg!(target_endian = "little") {
        u64::from_le_bytes(*last) >> 8 >> known
    } else {
        u64::from_be_bytes(*last) << 8 << known
    };
    let sum = add(sum, last);
    (sum & 0xffff_ffff) + (sum >> 32)
}

/// Of fewer than eight bytes.
#[cold]
fn sum_few(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks(2).map(|pair| match *pair {
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a] => u64::from(u16::from_ne_bytes([a, 0])),
        _ => 0,
    });
    pairs.sum()
}

/// Addition with end-around carry.
#[inline(always)]
fn add(sum: u64, word: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(word);
    sum + u64::from(carry)
}

/// Whether a sum of words folds to all ones, which is what bytes with a right checksum among them sum
/// up to: 2^16 is 1 modulo 2^16 - 1, so that it is a multiple of that, but not 0. Multiples of an odd number
/// times its inverse (modulo 2^64) are the factors: the smallest numbers there are. One multiplication
/// instead of four rounds of folding.
#[inline(always)]
pub fn is_right(sum: u64) -> bool {
    const MOST: u64 = u64::MAX / 0xffff;
    // -(1 + 2^16 + 2^32 + 2^48): times 2^16 - 1 that is 1 - 2^64.
    const INVERSE: u64 = MOST.wrapping_neg();
    sum.wrapping_mul(INVERSE).wrapping_sub(1) < MOST
}

/// Eight 64-bit lanes, to each of which the halves of such lanes are added. The last up to 128 bytes
/// are loaded through masks, so that there is no branch that depends on how many they are: most
/// packets have no others. Only additions and shifts: they cost no clock rate to speak of where wide
/// vectors do.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn sum_avx512(bytes: &[u8]) -> u64 {
    use core::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_loadu_si512, _mm512_reduce_add_epi64,
        _mm512_set1_epi64, _mm512_setzero_si512, _mm512_srli_epi64,
    };
    let lower = _mm512_set1_epi64(0xffff_ffff);
    let add = |sum: __m512i, lanes: __m512i| {
        let halves = _mm512_add_epi64(
            _mm512_and_si512(lanes, lower),
            _mm512_srli_epi64::<32>(lanes),
        );
        _mm512_add_epi64(sum, halves)
    };
    let mut sums = [_mm512_setzero_si512(); 2];
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
        sums = [add(sums[0], lanes[0]), add(sums[1], lanes[1])];
        rest = after;
    }
    let lanes = load_up_to_128(rest);
    let sum = _mm512_add_epi64(add(sums[0], lanes[0]), add(sums[1], lanes[1]));
    _mm512_reduce_add_epi64(sum) as u64
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
    let total = |vectors: [__m256i; 2]| lanes(vectors).into_iter().fold(0, u64::wrapping_add);
    let (whole, upper) = (total(whole), total(upper));
    sum_portable(rest) + upper + whole.wrapping_sub(upper << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(sum: u64) -> u64 {
        // Zero and all ones are the same number; the sum of non-zero bytes is never zero.
        if sum == 0 { 0 } else { (sum - 1) % 0xffff + 1 }
    }

    /// Byte by byte, as RFC 1071 defines it.
    fn reference(bytes: &[u8]) -> u64 {
        let pair =
            |pair: &[u8]| u64::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        bytes.chunks(2).map(pair).sum()
    }

    fn every_kernel_agrees(bytes: &[u8]) {
        let expected = fold(reference(bytes));
        assert_eq!(fold(sum_portable(bytes)), expected);
        assert_eq!(fold(sum(bytes)), expected);
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has AVX2, just checked.
                assert_eq!(fold(unsafe { sum_avx2(bytes) }), expected);
            }
            if has_avx512() {
                // SAFETY: the CPU has AVX-512 BW and BMI2, just checked.
                assert_eq!(fold(unsafe { sum_avx512(bytes) }), expected);
            }
        }
    }

    #[test]
    fn kernels_agree_at_every_length_and_alignment() {
        let mut state = 1u64;
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(700)
        .collect();
        for length in 0..=600 {
            for start in 0..64 {
                every_kernel_agrees(&bytes[start..start + length]);
            }
        }
        bytes.fill(0xff);
        for length in 0..700 {
            every_kernel_agrees(&bytes[..length]);
        }
        // Long enough for carries out of the upper halves of all lanes.
        every_kernel_agrees(&vec![0xff; (1 << 20) + 7]);
    }

    #[test]
    fn right_sums_are_multiples() {
        for (sum, right) in [
            (0, false),
            (0xffff, true),
            (0xfffe, false),
            (0x1_0000, false),
            (0x1_fffe, true),
            (0xffff_ffff_ffff_ffff, true),
            (0xffff_0000_0000_0000, true),
            (0x8000_0000_0000_7fff, true),
            (0x8000_0000_0000_7ffe, false),
        ] {
            assert_eq!(is_right(sum), right, "{sum:#x}");
            assert_eq!(fold(sum) == 0xffff, right);
        }
    }

    #[test]
    fn sum_of_the_rfc_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)) as u16, u16::from_be(0xddf2));
    }
}

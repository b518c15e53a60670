//! Byte orders as types, so that the loops over records are compiled once for each order.

/// Reads integers in one byte order. All functions return 0 beyond the end: callers check lengths
/// first, once per record.
pub(crate) trait Order: Copy + Default + Send + 'static {
    /// From two bytes.
    fn of_u16(bytes: [u8; 2]) -> u16;
    /// From four bytes.
    fn of_u32(bytes: [u8; 4]) -> u32;

    /// The two bytes at `at`.
    #[inline(always)]
    fn u16(bytes: &[u8], at: usize) -> u16 {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |chunk| Self::of_u16(*chunk))
    }

    /// The four bytes at `at`.
    #[inline(always)]
    fn u32(bytes: &[u8], at: usize) -> u32 {
        bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |chunk| Self::of_u32(*chunk))
    }
}

/// Most significant byte first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Big;

impl Order for Big {
    #[inline(always)]
    fn of_u16(bytes: [u8; 2]) -> u16 {
        u16::from_be_bytes(bytes)
    }

    #[inline(always)]
    fn of_u32(bytes: [u8; 4]) -> u32 {
        u32::from_be_bytes(bytes)
    }
}

/// Least significant byte first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Little;

impl Order for Little {
    #[inline(always)]
    fn of_u16(bytes: [u8; 2]) -> u16 {
        u16::from_le_bytes(bytes)
    }

    #[inline(always)]
    fn of_u32(bytes: [u8; 4]) -> u32 {
        u32::from_le_bytes(bytes)
    }
}

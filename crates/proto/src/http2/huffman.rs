//! The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B).

/// Bits of each symbol's code; the last is the end of the string. Codes are canonical: those of the same
/// length follow each other in the order of their symbols, and longer ones follow shorter ones.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The longest code.
const MOST: usize = 30;

/// Codes of one length.
#[derive(Clone, Copy)]
struct Codes {
    /// The first of them.
    first: u32,
    /// How many.
    count: u32,
    /// Place of the first one's symbol in [`Code::symbols`].
    place: u16,
}

struct Code {
    by_length: [Codes; MOST + 1],
    symbols: [u16; 257],
}

static CODE: Code = code();

const fn code() -> Code {
    let none = Codes {
        first: 0,
        count: 0,
        place: 0,
    };
    let mut by_length = [none; MOST + 1];
    let mut symbols = [0; 257];
    let (mut next, mut place, mut length) = (0_u32, 0, 1);
    while length <= MOST {
        next <<= 1;
        by_length[length] = Codes {
            first: next,
            count: 0,
            place: place as u16,
        };
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                symbols[place] = symbol as u16;
                place += 1;
                next += 1;
                by_length[length].count += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    Code { by_length, symbols }
}

/// Decodes a string, behind what is in `out`. False: it is none.
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut bits, mut length) = (0_u32, 0_usize);
    for byte in bytes {
        for shift in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> shift & 1);
            length += 1;
            let Some(codes) = CODE.by_length.get(length) else {
                return false;
            };
            let number = bits.wrapping_sub(codes.first);
            if number < codes.count {
                let place = usize::from(codes.place) + number as usize;
                let symbol = CODE.symbols.get(place).copied();
                let Some(byte) = symbol.and_then(|symbol| u8::try_from(symbol).ok()) else {
                    // The end of the string is never sent.
                    return false;
                };
                out.push(byte);
                (bits, length) = (0, 0);
            }
        }
    }
    // What is left are fewer bits than a byte's, all ones.
    length < 8 && bits == (1 << length) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        decode(bytes, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn strings_of_the_rfc() {
        let host = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(text(&host).as_deref(), Some("www.example.com"));
        assert_eq!(
            text(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).as_deref(),
            Some("no-cache")
        );
        assert_eq!(text(&[]).as_deref(), Some(""));
    }

    #[test]
    fn padding_is_checked() {
        // Zeros, a whole byte, the end of the string.
        assert_eq!(text(&[0x18]), None);
        assert_eq!(text(&[0x1f, 0xff]), None);
        assert_eq!(text(&[0xff, 0xff, 0xff, 0xff]), None);
    }
}

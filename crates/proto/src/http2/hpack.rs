//! Header compression (RFC 7541), read without knowing all that came before.
//!
//! Behind a hole the table does not hold what its writer's holds: entries that came since then have the
//! right numbers, as those count from the newest, and a field that names an older one is not known.
//!
//! Ours since the crates are made for a peer of the connection: none of them goes on behind a hole, and
//! loona-hpack 0.4 makes maps of 257 symbols for each string that is compressed.

use std::collections::VecDeque;

use super::huffman;

/// The largest table that is kept, whatever its writer says; the usual one has 4,096 bytes.
const MOST_TABLE: usize = 64 << 10;
/// What an entry costs beside its bytes (RFC 7541, section 4.1).
const ENTRY: usize = 32;
/// Bytes of all fields of a block that are looked at; one byte can name four thousand.
const MOST_FIELDS: usize = 1 << 20;

type Bytes = Box<[u8]>;

/// What earlier blocks left.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The newest first.
    entries: VecDeque<(Bytes, Bytes)>,
    size: usize,
    limit: usize,
    /// Older entries are not known.
    is_holed: bool,
    /// Strings of the field that is read.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            entries: VecDeque::new(),
            size: 0,
            limit: 4096,
            is_holed: false,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

/// A block that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad;

/// What came of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// Fields that are not known, as their entries were lost, or were too many.
    pub(super) unknown: u32,
}

impl Table {
    /// Bytes of memory that it keeps beside itself.
    pub(super) fn held(&self) -> usize {
        // An entry's size is that of its texts and 32 bytes (RFC 7541, section 4.1).
        self.size
            + self.entries.capacity() * size_of::<(Bytes, Bytes)>()
            + self.name.capacity()
            + self.value.capacity()
    }

    /// Blocks were lost: what they added is not known.
    pub(super) fn lose(&mut self) {
        self.entries.clear();
        self.size = 0;
        self.is_holed = true;
    }

    /// Reads a whole block and gives its fields, names and values, in their order.
    pub(super) fn read(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<Read, Bad> {
        let mut read = Read::default();
        let mut rest = block;
        let mut budget = MOST_FIELDS;
        let mut left_out = 0;
        let mut give = |name: &[u8], value: &[u8]| {
            let Some(left) = budget.checked_sub(name.len() + value.len() + ENTRY) else {
                left_out += 1;
                return;
            };
            budget = left;
            field(name, value);
        };
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                match self.entry(index)? {
                    Some([name, value]) => give(name, value),
                    None => read.unknown += 1,
                }
            } else if first & 0xe0 == 0x20 {
                let limit = integer(&mut rest, 5)?;
                self.limit(limit);
            } else {
                let is_kept = first & 0x40 != 0;
                let index = integer(&mut rest, if is_kept { 6 } else { 4 })?;
                let (mut name, mut value) = (
                    core::mem::take(&mut self.name),
                    core::mem::take(&mut self.value),
                );
                name.clear();
                value.clear();
                let is_known = match index {
                    0 => {
                        string(&mut rest, &mut name)?;
                        true
                    }
                    index => match self.entry(index)? {
                        Some([known, _]) => {
                            name.extend_from_slice(known);
                            true
                        }
                        None => false,
                    },
                };
                string(&mut rest, &mut value)?;
                match is_known {
                    true => give(&name, &value),
                    false => read.unknown += 1,
                }
                if is_kept {
                    // Of one whose name is not known its place at least.
                    self.add(&name, &value);
                }
                (self.name, self.value) = (name, value);
            }
        }
        read.unknown += left_out;
        Ok(read)
    }

    /// An entry by its number; none: it was lost.
    fn entry(&self, index: usize) -> Result<Option<[&[u8]; 2]>, Bad> {
        let Some(place) = index.checked_sub(1) else {
            return Err(Bad);
        };
        if let Some(entry) = STATIC.get(place) {
            return Ok(Some([entry.0, entry.1]));
        }
        match self.entries.get(place - STATIC.len()) {
            Some((name, _)) if name.is_empty() => Ok(None),
            Some((name, value)) => Ok(Some([name, value])),
            None if self.is_holed => Ok(None),
            None => Err(Bad),
        }
    }

    fn limit(&mut self, limit: usize) {
        // What its writer keeps beyond that is as if it were lost.
        self.is_holed |= limit > MOST_TABLE;
        self.limit = limit.min(MOST_TABLE);
        self.shrink();
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY;
        if size > self.limit {
            // One that is too large empties the table (section 4.4).
            self.entries.clear();
            self.size = 0;
            return;
        }
        self.size += size;
        self.entries.push_front((name.into(), value.into()));
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.size > self.limit {
            let Some((name, value)) = self.entries.pop_back() else {
                return;
            };
            self.size -= name.len() + value.len() + ENTRY;
        }
    }
}

/// A number whose first byte has so many bits of it (section 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, Bad> {
    let (&first, mut behind) = rest.split_first().ok_or(Bad)?;
    let most = (1_usize << bits) - 1;
    let mut number = usize::from(first) & most;
    if number == most {
        let mut shift = 0;
        loop {
            let (&byte, next) = behind.split_first().ok_or(Bad)?;
            behind = next;
            if shift > 21 {
                return Err(Bad);
            }
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = behind;
    Ok(number)
}

/// A string, behind what is in `out` (section 5.2).
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Bad> {
    let is_huffman = rest.first().ok_or(Bad)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Bad)?;
    *rest = behind;
    match is_huffman {
        true => huffman::decode(bytes, out).then_some(()).ok_or(Bad),
        false => {
            out.extend_from_slice(bytes);
            Ok(())
        }
    }
}

/// Appendix A.
static STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &mut Table, hex: &str) -> Result<Vec<String>, Bad> {
        let bytes = hex.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
        let bytes: Vec<u8> = bytes
            .chunks(2)
            .map(|two| digit(two[0]) << 4 | digit(two[1]))
            .collect();
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        table.read(&bytes, |name, value| {
            fields.push(format!("{}={}", text(name), text(value)))
        })?;
        Ok(fields)
    }

    /// RFC 7541, appendix C.4: requests, with Huffman's code.
    #[test]
    fn requests_of_the_rfc() {
        let mut table = Table::default();
        assert_eq!(
            read(&mut table, "828684418cf1e3c2e5f23a6ba0ab90f4ff").unwrap(),
            [
                ":method=GET",
                ":scheme=http",
                ":path=/",
                ":authority=www.example.com"
            ]
        );
        assert_eq!(table.size, 57);
        assert_eq!(
            read(&mut table, "828684be5886a8eb10649cbf").unwrap()[3..],
            [":authority=www.example.com", "cache-control=no-cache"]
        );
        assert_eq!(table.size, 110);
        assert_eq!(
            read(
                &mut table,
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"
            )
            .unwrap(),
            [
                ":method=GET",
                ":scheme=https",
                ":path=/index.html",
                ":authority=www.example.com",
                "custom-key=custom-value",
            ]
        );
        assert_eq!(table.size, 164);
    }

    /// Appendix C.5: responses, with a table of 256 bytes from which entries fall out.
    #[test]
    fn responses_of_the_rfc() {
        let mut table = Table::default();
        table.limit(256);
        let first = read(
            &mut table,
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        );
        assert_eq!(
            first.unwrap()[..2],
            [":status=302", "cache-control=private"]
        );
        assert_eq!(table.size, 222);
        let second = read(&mut table, "4803333037c1c0bf").unwrap();
        assert_eq!(second[..2], [":status=307", "cache-control=private"]);
        assert_eq!(table.size, 222);
        let third = read(
            &mut table,
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
        );
        let third = third.unwrap();
        assert_eq!(
            (third.len(), &*third[0], &*third[4]),
            (6, ":status=200", "content-encoding=gzip")
        );
        assert_eq!(table.size, 215);
    }

    #[test]
    fn what_was_lost_is_not_made_up() {
        let mut table = Table::default();
        assert_eq!(read(&mut table, "be"), Err(Bad));
        read(&mut table, "418cf1e3c2e5f23a6ba0ab90f4ff").unwrap();
        table.lose();
        assert!(read(&mut table, "be").unwrap().is_empty());
        // One that came since then has its number.
        read(&mut table, "5886a8eb10649cbf").unwrap();
        assert_eq!(
            read(&mut table, "82bebf").unwrap(),
            [":method=GET", "cache-control=no-cache"]
        );
        for bad in ["80", "ff8080808001", "00", "4005", "3f"] {
            assert_eq!(read(&mut table, bad), Err(Bad), "{bad}");
        }
    }

    #[test]
    fn a_table_has_a_bound() {
        let mut table = Table::default();
        read(&mut table, "3fffffff03").unwrap();
        assert_eq!(table.limit, MOST_TABLE);
        for _ in 0..5000 {
            read(&mut table, "4003616263086465666465666465").unwrap();
        }
        assert!(table.size <= MOST_TABLE);
        let mut seen = 0;
        let block = [0xbe; 60_000];
        table
            .read(&block, |name, value| {
                seen += name.len() + value.len() + ENTRY
            })
            .unwrap();
        assert!(seen <= MOST_FIELDS);
    }
}

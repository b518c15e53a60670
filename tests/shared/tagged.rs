//! Frames in VLANs, for tests. Each that needs it takes this file in as a module.

/// The VLANs of a connection whose directions have one each: from the smaller address, and from the larger.
pub(crate) const BY_DIRECTION: [u16; 2] = [20, 21];

/// A frame of IP four times: without a tag, in a VLAN, in a VLAN within another, and in one for its direction. Nothing of others, and
/// of fragments, which are put together whatever VLAN they are in.
pub(crate) fn in_vlans(frame: &[u8]) -> Vec<Vec<u8>> {
    let (from, to) = match frame.get(12..14) {
        Some([8, 0]) if frame.len() >= 34 && frame[20] & 0x3f == 0 && frame[21] == 0 => {
            (&frame[26..30], &frame[30..34])
        }
        Some([0x86, 0xdd]) if frame.len() >= 54 && frame[20] != 44 => {
            (&frame[22..38], &frame[38..54])
        }
        _ => return Vec::new(),
    };
    let own = BY_DIRECTION[usize::from(from > to)];
    let tag = |kind: u16, vlan: u16| [kind.to_be_bytes(), (0x6000 | vlan).to_be_bytes()].concat();
    let all = [
        Vec::new(),
        tag(0x8100, 7),
        [tag(0x88a8, 13), tag(0x8100, 12)].concat(),
        tag(0x8100, own),
    ];
    let copies = all.iter();
    copies
        .map(|tags| [&frame[..12], tags, &frame[12..]].concat())
        .collect()
}

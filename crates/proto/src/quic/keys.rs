//! Keys of Initial packets: who sees the first packet can derive them (RFC 9001, section 5.2).

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::packet::Version;

/// Of the packets of one sender.
pub(super) struct Keys {
    key: LessSafeKey,
    iv: [u8; 12],
    header: quic::HeaderProtectionKey,
}

impl core::fmt::Debug for Keys {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("Keys")
    }
}

/// The length of a key.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of TLS 1.3 (RFC 8446, section 7.1).
fn expand<const N: usize>(secret: &Prk, label: &str) -> Option<[u8; N]> {
    let label_length = [b"tls13 ".len() as u8 + label.len() as u8];
    let parts: [&[u8]; 5] = [
        &(N as u16).to_be_bytes(),
        &label_length,
        b"tls13 ",
        label.as_bytes(),
        &[0],
    ];
    let mut out = [0; N];
    let expanded = secret.expand(&parts, Length(N)).ok()?;
    expanded.fill(&mut out).ok()?;
    Some(out)
}

/// What the keys of both sides of a connection are derived from.
pub(super) struct Secret {
    initial: Prk,
    labels: [&'static str; 3],
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("Secret")
    }
}

impl Secret {
    /// From the id that the client's first packet is sent to. `None`: the version's salt is not known.
    pub(super) fn initial(version: Version, id: &[u8]) -> Option<Secret> {
        Some(Secret {
            initial: Salt::new(HKDF_SHA256, version.salt()?).extract(id),
            labels: match version.is_2() {
                true => ["quicv2 key", "quicv2 iv", "quicv2 hp"],
                false => ["quic key", "quic iv", "quic hp"],
            },
        })
    }

    /// The keys of the client's packets, or of the server's.
    pub(super) fn keys(&self, is_client: bool) -> Option<Keys> {
        let (key, iv, header) = self.material(is_client)?;
        Some(Keys {
            key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            iv,
            header: quic::HeaderProtectionKey::new(&quic::AES_128, &header).ok()?,
        })
    }

    /// Key, initialisation vector and key of header protection.
    fn material(&self, is_client: bool) -> Option<([u8; 16], [u8; 12], [u8; 16])> {
        let label = if is_client { "client in" } else { "server in" };
        let secret = Prk::new_less_safe(HKDF_SHA256, &expand::<32>(&self.initial, label)?);
        let [key, iv, header] = self.labels;
        let (key, iv) = (expand(&secret, key)?, expand(&secret, iv)?);
        Some((key, iv, expand(&secret, header)?))
    }
}

impl Keys {
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        let places = nonce.iter_mut().rev();
        for (place, byte) in places.zip(number.to_be_bytes().iter().rev()) {
            *place ^= byte;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Takes the protection off a packet (RFC 9001, sections 5.3 and 5.4): `number_at` is where its
    /// number stands. Gives what is within, in `packet` itself. `None`: it is not protected with these.
    pub(super) fn open<'a>(&self, packet: &'a mut [u8], number_at: usize) -> Option<&'a [u8]> {
        let sample = packet.get(number_at + 4..number_at + 20)?;
        let [first, mask @ ..] = self.header.new_mask(sample).ok()?;
        let head = packet.first_mut()?;
        *head ^= first & 0x0f;
        let length = usize::from(*head & 3) + 1;
        let mut number = 0;
        let places = packet.get_mut(number_at..number_at + length)?;
        for (place, mask) in places.iter_mut().zip(mask) {
            *place ^= mask;
            number = number << 8 | u64::from(*place);
        }
        // Numbers begin at 0 in a connection: those of Initial packets do not wrap.
        let (header, payload) = packet.split_at_mut_checked(number_at + length)?;
        let opened = self
            .key
            .open_in_place(self.nonce(number), Aad::from(&*header), payload);
        opened.ok().map(|payload| &*payload)
    }

    /// Protects a packet whose number is the last byte of `header`.
    #[cfg(test)]
    pub(super) fn seal(&self, header: &[u8], payload: &[u8]) -> Vec<u8> {
        let number = header[header.len() - 1];
        let mut body = payload.to_vec();
        let nonce = self.nonce(u64::from(number));
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(header), &mut body)
            .expect("it fits");
        let mut packet = [header, &body].concat();
        let at = header.len() - 1;
        let mask = self
            .header
            .new_mask(&packet[at + 4..at + 20])
            .expect("16 bytes");
        packet[0] ^= mask[0] & 0x0f;
        packet[at] ^= mask[1];
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::HEXLOWER;

    #[test]
    fn keys_are_those_of_the_rfcs() {
        let id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
        // RFC 9001, appendix A.1, and RFC 9369, appendix A.1.
        for (version, expected) in [
            (
                1,
                [
                    "1f369613dd76d5467730efcbe3b1a22d",
                    "fa044b2f42a3fd3b46fb255c",
                    "9f50449e04a0e810283a1e9933adedd2",
                    "cf3a5331653c364c88f0f379b6067e37",
                    "0ac1493ca1905853b0bba03e",
                    "c206b8d9b9f0f37644430b490eeaa314",
                ],
            ),
            (
                0x6b33_43cf,
                [
                    "8b1a0bc121284290a29e0971b5cd045d",
                    "91f73e2351d8fa91660e909f",
                    "45b95e15235d6f45a6b19cbcb0294ba9",
                    "82db637861d55e1d011f19ea71d5d2a7",
                    "dd13c276499c0249d3310652",
                    "edf6d05c83121201b436e16877593c3a",
                ],
            ),
        ] {
            let secret = Secret::initial(Version(version), &id).expect("a known version");
            let all = [true, false].into_iter().flat_map(|is_client| {
                let (key, iv, header) = secret.material(is_client).expect("short keys");
                [&key[..], &iv, &header].map(|it| HEXLOWER.encode(it))
            });
            assert_eq!(all.collect::<Vec<_>>(), expected);
        }
    }
}

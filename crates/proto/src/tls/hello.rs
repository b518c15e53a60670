//! ClientHello and ServerHello (RFC 8446 section 4.1, RFC 5246 section 7.4.1; SSLv2 as in RFC 5246
//! appendix E.2).

use crate::cursor::{Cursor, numbers};

/// Numbers of extensions that are read.
pub(super) mod extension {
    pub(crate) const SERVER_NAME: u16 = 0;
    pub(crate) const GROUPS: u16 = 10;
    pub(crate) const POINT_FORMATS: u16 = 11;
    pub(crate) const SIGNATURES: u16 = 13;
    pub(crate) const ALPN: u16 = 16;
    pub(crate) const KEY_SHARE_OF_DRAFTS: u16 = 40;
    pub(crate) const PRE_SHARED_KEY: u16 = 41;
    pub(crate) const VERSIONS: u16 = 43;
    pub(crate) const KEY_SHARE: u16 = 51;
}

/// Whether a number is one of those that mean nothing, so that servers learn to pass over what they
/// do not know (RFC 8701).
pub const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// An extension of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its number in IANA's registry.
    pub number: u16,
    /// What it holds.
    pub data: &'a [u8],
}

/// The extensions of a hello, in order. One that ends too early is the last.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a>(Cursor<'a>);

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        let mut rest = self.0;
        let number = rest.u16()?;
        let data = rest.vector16()?;
        self.0 = rest;
        Some(Extension { number, data })
    }
}

impl<'a> Extensions<'a> {
    fn read(rest: &mut Cursor<'a>) -> Extensions<'a> {
        // One that is longer than its message is read as far as it goes.
        let length = rest.u16().unwrap_or_default();
        let bytes = rest.0.get(..usize::from(length)).unwrap_or(rest.0);
        Extensions(Cursor(bytes))
    }

    /// What the first with this number holds.
    pub fn find(mut self, number: u16) -> Option<&'a [u8]> {
        self.find_map(|it| (it.number == number).then_some(it.data))
    }
}

/// What a client offers.
#[derive(Clone, Copy, Debug)]
pub struct ClientHello<'a> {
    /// The version it says in its fixed part; see [`ClientHello::version`].
    pub legacy_version: u16,
    /// What it wants to resume, or noise.
    pub session: &'a [u8],
    /// Its extensions.
    pub extensions: Extensions<'a>,
    /// It has a field of extensions, if an empty one.
    pub has_extensions: bool,
    /// It is one of SSLv2.
    pub is_v2: bool,
    ciphers: &'a [u8],
}

impl<'a> ClientHello<'a> {
    /// Reads the body of the handshake message. `None`: its fixed part is not whole.
    pub fn read(body: &'a [u8]) -> Option<ClientHello<'a>> {
        ClientHello::of(body, false)
    }

    /// The same of DTLS, where a cookie stands within (RFC 6347, section 4.2.1).
    pub fn read_datagram(body: &'a [u8]) -> Option<ClientHello<'a>> {
        ClientHello::of(body, true)
    }

    fn of(body: &'a [u8], has_cookie: bool) -> Option<ClientHello<'a>> {
        let mut rest = Cursor(body);
        let legacy_version = rest.u16()?;
        rest.take(32)?;
        let session = rest.vector8()?;
        if has_cookie {
            rest.vector8()?;
        }
        let ciphers = rest.vector16()?;
        rest.vector8()?;
        Some(ClientHello {
            legacy_version,
            session,
            ciphers,
            has_extensions: !rest.is_empty(),
            extensions: Extensions::read(&mut rest),
            is_v2: false,
        })
    }

    /// Reads one of SSLv2, from its type on.
    pub(super) fn read_v2(message: &'a [u8]) -> Option<ClientHello<'a>> {
        let mut rest = Cursor(message);
        rest.u8()?;
        let legacy_version = rest.u16()?;
        let lengths = [rest.u16()?, rest.u16()?, rest.u16()?].map(usize::from);
        let ciphers = rest.take(lengths[0])?;
        let session = rest.take(lengths[1])?;
        Some(ClientHello {
            legacy_version,
            session,
            ciphers,
            has_extensions: false,
            extensions: Extensions(Cursor(&[])),
            is_v2: true,
        })
    }

    /// The highest version it offers, without those that mean nothing.
    pub fn version(&self) -> u16 {
        let offered = self.versions();
        // Drafts are not compared with what became of them.
        let known = offered.filter(|&it| !is_grease(it) && it >> 8 != 0x7f);
        let rank = |version: &u16| match version >> 8 {
            0xfe => !*version,
            _ => *version,
        };
        known.max_by_key(rank).unwrap_or(self.legacy_version)
    }

    /// The versions in its extension; none where it has none.
    pub fn versions(&self) -> impl Iterator<Item = u16> + 'a {
        let list = self.extensions.find(extension::VERSIONS);
        let list = list.and_then(|data| Cursor(data).vector8());
        numbers(list.unwrap_or_default())
    }

    /// Its cipher suites. Of SSLv2 those that later versions have, too.
    pub fn ciphers(&self) -> impl Iterator<Item = u16> + Clone + 'a {
        let size = if self.is_v2 { 3 } else { 2 };
        let each = self.ciphers.chunks_exact(size);
        each.filter_map(|cipher| match *cipher {
            [high, low] | [0, high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        })
    }

    /// The name of the server it wants (RFC 6066, section 3).
    pub fn server_name(&self) -> Option<&'a [u8]> {
        let mut list = Cursor(self.extensions.find(extension::SERVER_NAME)?);
        let mut names = Cursor(list.vector16()?);
        while let Some(kind) = names.u8() {
            let name = names.vector16()?;
            if kind == 0 {
                return Some(name);
            }
        }
        None
    }

    /// Names of the protocols it could speak within (RFC 7301).
    pub fn protocols(&self) -> Protocols<'a> {
        Protocols::of(self.extensions)
    }

    /// Groups for the exchange of keys, once called curves (RFC 8422, RFC 7919).
    pub fn groups(&self) -> impl Iterator<Item = u16> + Clone + 'a {
        self.list16(extension::GROUPS)
    }

    /// Formats of points on curves (RFC 8422, section 5.1.2).
    pub fn point_formats(&self) -> &'a [u8] {
        let data = self.extensions.find(extension::POINT_FORMATS);
        let list = data.and_then(|data| Cursor(data).vector8());
        list.unwrap_or_default()
    }

    /// Schemes of signatures, in order.
    pub fn signatures(&self) -> impl Iterator<Item = u16> + Clone + 'a {
        self.list16(extension::SIGNATURES)
    }

    fn list16(&self, number: u16) -> impl Iterator<Item = u16> + Clone + 'a {
        let data = self.extensions.find(number);
        let list = data.and_then(|data| Cursor(data).vector16());
        numbers(list.unwrap_or_default())
    }
}

/// What a server chose.
#[derive(Clone, Copy, Debug)]
pub struct ServerHello<'a> {
    /// The version in its fixed part; see [`ServerHello::version`].
    pub legacy_version: u16,
    /// The session, or what it repeats of the client's.
    pub session: &'a [u8],
    /// The cipher suite. 0 of SSLv2, where the client chooses.
    pub cipher: u16,
    /// Its extensions.
    pub extensions: Extensions<'a>,
    /// It asks for another ClientHello (RFC 8446, section 4.1.4).
    pub is_retry: bool,
}

/// The random number of a hello that is none (RFC 8446, section 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

impl<'a> ServerHello<'a> {
    /// Reads the body of the handshake message. `None`: its fixed part is not whole.
    pub fn read(body: &'a [u8]) -> Option<ServerHello<'a>> {
        let mut rest = Cursor(body);
        let legacy_version = rest.u16()?;
        let random = rest.take(32)?;
        // Early drafts of TLS 1.3 have neither session nor compression.
        let is_draft = matches!(legacy_version, 0x0304 | 0x7f00..=0x7f15);
        let session = match is_draft {
            true => &[],
            false => rest.vector8()?,
        };
        let cipher = rest.u16()?;
        if !is_draft {
            rest.u8()?;
        }
        Some(ServerHello {
            legacy_version,
            session,
            cipher,
            extensions: Extensions::read(&mut rest),
            is_retry: random == RETRY,
        })
    }

    /// One of SSLv2, of which nothing else is read.
    pub(super) const fn v2() -> ServerHello<'a> {
        ServerHello {
            legacy_version: 2,
            session: &[],
            cipher: 0,
            extensions: Extensions(Cursor(&[])),
            is_retry: false,
        }
    }

    /// The version it chose.
    pub fn version(&self) -> u16 {
        let chosen = self.extensions.find(extension::VERSIONS);
        let chosen = chosen.and_then(|data| Cursor(data).u16());
        chosen.unwrap_or(self.legacy_version)
    }

    /// Whether what follows is encrypted at once: TLS 1.3 and its drafts.
    pub fn is_13(&self) -> bool {
        matches!(self.version() >> 8, 0x7f | 0x7e) || matches!(self.version(), 0x0304 | 0xfefc)
    }

    /// The group for the exchange of keys, of TLS 1.3.
    pub fn group(&self) -> Option<u16> {
        let share = self.extensions.find(extension::KEY_SHARE);
        // Drafts before the 23rd had another number.
        let is_draft = self.legacy_version == 0x0304
            || self.legacy_version >> 8 == 0x7f
            || self.version() >> 8 == 0x7e;
        let share = share.or_else(|| {
            let old = self.extensions.find(extension::KEY_SHARE_OF_DRAFTS)?;
            is_draft.then_some(old)
        });
        Cursor(share?).u16()
    }

    /// It takes a key that both know from before, of TLS 1.3.
    pub fn has_known_key(&self) -> bool {
        self.extensions.find(extension::PRE_SHARED_KEY).is_some()
    }

    /// The protocol it chose.
    pub fn protocol(&self) -> Option<&'a [u8]> {
        Protocols::of(self.extensions).next()
    }
}

/// Names of protocols, in order.
#[derive(Clone, Copy, Debug)]
pub struct Protocols<'a>(Cursor<'a>);

impl<'a> Protocols<'a> {
    fn of(extensions: Extensions<'a>) -> Protocols<'a> {
        let data = extensions.find(extension::ALPN).unwrap_or_default();
        Protocols(Cursor(Cursor(data).vector16().unwrap_or_default()))
    }
}

impl<'a> Iterator for Protocols<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.vector8()
    }
}

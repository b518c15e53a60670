//! Digests of a file while it comes.

use data_encoding::HEXLOWER;
use flowgauge_stack::SettingError;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Which digests are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    md5: bool,
    sha1: bool,
    sha256: bool,
}

impl Wanted {
    /// Names, with commas between.
    ///
    /// # Errors
    /// An unknown one.
    pub(crate) fn read(text: &str) -> Result<Wanted, SettingError> {
        let mut wanted = Wanted::default();
        for name in text.split(',').map(str::trim) {
            match name {
                "md5" => wanted.md5 = true,
                "sha1" => wanted.sha1 = true,
                "sha256" => wanted.sha256 = true,
                _ => {
                    let message = format!("\"{name}\" is not a known digest");
                    return Err(SettingError::of("digests", message)
                        .with_hint("known digests: md5, sha1, sha256"));
                }
            }
        }
        Ok(wanted)
    }
}

/// Those that are wanted, so far.
#[derive(Clone, Debug)]
pub(super) struct Digests {
    md5: Option<Md5>,
    sha1: Option<Sha1>,
    sha256: Option<Sha256>,
}

impl Digests {
    pub(super) fn new(wanted: Wanted) -> Digests {
        Digests {
            md5: wanted.md5.then(Md5::new),
            sha1: wanted.sha1.then(Sha1::new),
            sha256: wanted.sha256.then(Sha256::new),
        }
    }

    pub(super) fn data(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(sha1) = &mut self.sha1 {
            sha1.update(bytes);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
    }

    /// MD5, SHA-1, SHA-256 in hexadecimal digits.
    pub(super) fn finish(self) -> [Option<String>; 3] {
        [
            self.md5.map(|it| HEXLOWER.encode(&it.finalize())),
            self.sha1.map(|it| HEXLOWER.encode(&it.finalize())),
            self.sha256.map(|it| HEXLOWER.encode(&it.finalize())),
        ]
    }
}

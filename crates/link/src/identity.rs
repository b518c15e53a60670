//! Who is who: an authority, and certificates that it signs.
//!
//! A folder holds them. What an authority needs to make more certificates stays on one machine; a
//! sensor gets `authority.crt` and the two files of its own name.
//!
//! ```text
//! authority.crt   who is believed                     every machine
//! authority.key   signs new certificates      0600    one machine
//! NAME.crt        who NAME is                         the machine of NAME
//! NAME.key        proves it                   0600    the machine of NAME
//! NAME.issuer     signs credentials           0600    the machine of who issues them
//! NAME.issuer.pub whose they are                      sensors
//! ```
//!
//! Keys are ECDSA over P-256. A certificate's first DNS name is its holder's name; more names and
//! addresses are where others reach it.

use std::env;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use flowgauge_sys::files::{self, Folder, How};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

use crate::certificate::{self, Validity};
use crate::error::Error;
use flowgauge_sys::notice::tell as notice;

const AUTHORITY: &str = "authority";
/// Endings of the files of an issuer of credentials.
const ISSUER: &str = "issuer";
const ISSUER_PUBLIC: &str = "issuer.pub";
/// How long an authority is believed.
const AUTHORITY_DAYS: i64 = 3650;
/// Clocks that are behind by less see no certificate of the future.
const SKEW: Duration = Duration::hours(1);
/// What is spoken inside TLS.
pub(crate) const PROTOCOL: &[u8] = b"flowgauge";
/// What is spoken to those who have no links (RFC 7301, 6).
const HTTP: &[u8] = b"http/1.1";
/// Larger files are neither keys nor certificates.
const MOST_BYTES: u64 = 1 << 20;

/// A folder of keys.
#[derive(Clone, Debug)]
pub struct KeyFolder {
    path: PathBuf,
    /// What its name is looked up in.
    within: Folder,
}

/// A certificate in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// Its holder; `None`: it is the authority.
    pub name: Option<String>,
    /// Names and addresses it is valid for.
    pub hosts: Vec<String>,
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// SHA-256 of its public key (SubjectPublicKeyInfo).
    pub key: String,
    /// When it is valid.
    pub validity: Validity,
    /// Whether its private key is here, too.
    pub has_key: bool,
}

/// What [`KeyFolder::choose`] was told.
static CHOSEN: OnceLock<(Option<PathBuf>, Option<String>)> = OnceLock::new();

impl KeyFolder {
    /// The environment's variable that names the folder.
    pub const VARIABLE: &str = "FLOWGAUGE_KEYS";

    /// A folder that may not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> KeyFolder {
        KeyFolder {
            path: path.into(),
            within: files::named().clone(),
        }
    }

    /// Sets which folder is the [usual](KeyFolder::usual) one of this process, and which name this machine has where none
    /// is given; once, at the start.
    pub fn choose(path: Option<PathBuf>, name: Option<String>) {
        let _ = CHOSEN.set((path, name));
    }

    /// Where keys are if nothing else is said: the [chosen](KeyFolder::choose) folder, else `$FLOWGAUGE_KEYS`, else
    /// `$XDG_CONFIG_HOME/flowgauge/keys`, else `~/.config/flowgauge/keys`.
    pub fn usual() -> KeyFolder {
        if let Some((Some(path), _)) = CHOSEN.get() {
            return KeyFolder::of_machine(path.clone());
        }
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        if let Some(path) = variable(KeyFolder::VARIABLE) {
            return KeyFolder::of_machine(path.into());
        }
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| {
            let home = variable("HOME")?;
            Some(Path::new(&home).join(".config"))
        });
        KeyFolder::of_machine(config.unwrap_or_default().join("flowgauge/keys"))
    }

    /// One that who runs the process chose, be the process confined or not.
    fn of_machine(path: PathBuf) -> KeyFolder {
        KeyFolder {
            path,
            within: Folder::anywhere(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder, if it is not there, and an authority in it.
    ///
    /// # Errors
    /// There is one already, or it cannot be written.
    pub fn create_authority(&self) -> Result<KeyFile, Error> {
        let created = self.within.make_folders(&self.path, 0o700);
        created.map_err(|source| self.failed("create", &self.path, source))?;
        let key = KeyPair::generate().map_err(|error| self.unusable(&self.path, &error))?;
        let params = authority(&key, OffsetDateTime::now_utc());
        let made = params.self_signed(&key);
        let made = made.map_err(|error| self.unusable(&self.path, &error))?;
        let files = [("key", &*key.serialize_pem()), ("crt", &made.pem())];
        self.write_both(AUTHORITY, files)?;
        self.describe(AUTHORITY)
    }

    /// Makes a key and a certificate for `name`, valid for `hosts` (names, addresses) too.
    ///
    /// # Errors
    /// A name that cannot be one, no authority here, or the files are there already.
    pub fn add(&self, name: &str, hosts: &[String], days: u32) -> Result<KeyFile, Error> {
        let from = OffsetDateTime::now_utc();
        self.add_between(name, hosts, from, from + Duration::days(days.into()))
    }

    /// The same until a time in seconds since 1970.
    ///
    /// # Errors
    /// As [`KeyFolder::add`]; or the time cannot be in a certificate.
    pub fn add_until(&self, name: &str, hosts: &[String], until: u64) -> Result<KeyFile, Error> {
        let date = i64::try_from(until).ok();
        let date = date.and_then(|until| OffsetDateTime::from_unix_timestamp(until).ok());
        let until = date.ok_or_else(|| Error::Invalid {
            what: until.to_string(),
            reason: "is not a date".to_owned(),
            hint: "a certificate expires before the year 10000",
        })?;
        self.add_between(name, hosts, OffsetDateTime::now_utc(), until)
    }

    pub(crate) fn add_between(
        &self,
        name: &str,
        hosts: &[String],
        from: OffsetDateTime,
        until: OffsetDateTime,
    ) -> Result<KeyFile, Error> {
        check_name(name)?;
        self.certificate(&self.file(AUTHORITY, "crt"))?;
        let path = self.file(AUTHORITY, "key");
        let pem = read_secret(&self.within, &path)?;
        let signer = KeyPair::from_pem(&pem).map_err(|error| self.unusable(&path, &error))?;
        let issuer = Issuer::new(authority(&signer, from), signer);
        let mut names = vec![name.to_owned()];
        names.extend(hosts.iter().cloned());
        let params = CertificateParams::new(names).map_err(|error| Error::Invalid {
            what: hosts.join(", "),
            reason: format!("not allowed in a certificate: {error}"),
            hint: "hosts are names and addresses: --host sensor1.example.org --host 192.0.2.1",
        });
        let mut params = params?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = from - SKEW;
        params.not_after = until;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|error| self.unusable(&self.path, &error))?;
        let made = params.signed_by(&key, &issuer);
        let made = made.map_err(|error| self.unusable(&self.path, &error))?;
        let files = [("key", &*key.serialize_pem()), ("crt", &made.pem())];
        self.write_both(name, files)?;
        self.describe(name)
    }

    /// Keeps the keys of an issuer of credentials, in the form of whoever made them.
    ///
    /// # Errors
    /// A name that cannot be one, or the files are there already.
    pub fn add_issuer(&self, name: &str, secret: &str, public: &str) -> Result<(), Error> {
        check_name(name)?;
        let created = self.within.make_folders(&self.path, 0o700);
        created.map_err(|source| self.failed("create", &self.path, source))?;
        self.write_both(name, [(ISSUER, secret), (ISSUER_PUBLIC, public)])
    }

    /// The secret key of an issuer.
    ///
    /// # Errors
    /// It is not there, or others can read it.
    pub fn issuer_secret(&self, name: &str) -> Result<String, Error> {
        check_name(name)?;
        read_secret(&self.within, &self.file(name, ISSUER))
    }

    /// The public key of an issuer.
    ///
    /// # Errors
    /// It is not there.
    pub fn issuer_public(&self, name: &str) -> Result<String, Error> {
        check_name(name)?;
        let path = self.file(name, ISSUER_PUBLIC);
        let text = self.within.read(&path, MOST_BYTES);
        let text = text.map_err(|source| self.failed("read", &path, source))?;
        let text = text.and_then(|text| String::from_utf8(text).ok());
        text.ok_or_else(|| self.failed("read", &path, io::ErrorKind::InvalidData.into()))
    }

    /// The certificate of a name in the folder.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn certificate_of(&self, name: &str) -> Result<KeyFile, Error> {
        check_name(name)?;
        self.describe(name)
    }

    /// The certificates in the folder, the authority first.
    ///
    /// # Errors
    /// The folder or one of the files cannot be read.
    pub fn list(&self) -> Result<Vec<KeyFile>, Error> {
        let mut names = self.names("crt")?;
        names.sort_by_key(|name| (name != AUTHORITY, name.clone()));
        names.iter().map(|name| self.describe(name)).collect()
    }

    /// Who this machine is: `name`, or the [chosen](KeyFolder::choose) one, or the only one whose key is in the folder.
    ///
    /// # Errors
    /// There is none, or more than one; a file is damaged, or a key can be read by others.
    pub fn identity(&self, name: Option<&str>) -> Result<Identity, Error> {
        let chosen = CHOSEN.get().and_then(|(_, name)| name.as_deref());
        let name = match name.or(chosen) {
            Some(name) => {
                check_name(name)?;
                name.to_owned()
            }
            None => self.only_name()?,
        };
        // Before they are read: what changes meanwhile is read again.
        let stamps = self.stamps(&name);
        let mut identity = self.read(name)?;
        identity.source = Some(Arc::new(Source {
            folder: self.clone(),
            last: Mutex::new((stamps, identity.clone())),
        }));
        Ok(identity)
    }

    /// The authority's certificate as its file has it, in PEM: for who speaks TLS in another way.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn authority_pem(&self) -> Result<String, Error> {
        self.pem(AUTHORITY)
    }

    /// Certificate and private key of a name, in PEM.
    ///
    /// # Errors
    /// As [`KeyFolder::identity`].
    pub fn identity_pem(&self, name: &str) -> Result<(String, String), Error> {
        check_name(name)?;
        let key = read_secret(&self.within, &self.file(name, "key"))?;
        Ok((self.pem(name)?, key))
    }

    fn pem(&self, name: &str) -> Result<String, Error> {
        let path = self.file(name, "crt");
        let text = self.within.read(&path, MOST_BYTES);
        let text = text.map_err(|source| self.failed("read", &path, source))?;
        let text = text.and_then(|text| String::from_utf8(text).ok());
        text.ok_or_else(|| damaged(&path))
    }

    /// When the files of a name were last written, and their lengths and places.
    fn stamps(&self, name: &str) -> Stamps {
        let files = [
            self.file(AUTHORITY, "crt"),
            self.file(name, "crt"),
            self.file(name, "key"),
        ];
        files.map(|path| {
            let about = self.within.metadata(&path).ok()?;
            Some((about.mtime(), about.mtime_nsec(), about.len(), about.ino()))
        })
    }

    fn read(&self, name: String) -> Result<Identity, Error> {
        let path = self.file(AUTHORITY, "crt");
        let root = self.certificate(&path)?;
        let mut roots = RootCertStore::empty();
        roots
            .add(root)
            .map_err(|error| self.unusable(&path, &error))?;
        let path = self.file(&name, "crt");
        let chain = vec![self.certificate(&path)?];
        let path = self.file(&name, "key");
        let pem = read_secret(&self.within, &path)?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = key.map_err(|error| self.unusable(&path, &error))?;
        Identity::new(name, roots, chain, &key).map_err(|error| self.unusable(&path, &error))
    }

    fn only_name(&self) -> Result<String, Error> {
        let mut names = self.names("key")?;
        names.retain(|name| name != AUTHORITY);
        names.sort();
        let (reason, hint) = match names.as_slice() {
            [name] => return Ok(name.clone()),
            [] => (
                "there is no key in this folder".to_owned(),
                "create one with flowgauge keys add NAME on the authority's machine".to_owned(),
            ),
            names => (
                format!(
                    "there are several keys in this folder: {}",
                    names.join(", ")
                ),
                "choose this machine's key: --identity NAME, or identity = NAME in a stack"
                    .to_owned(),
            ),
        };
        Err(Error::Key {
            path: self.path.clone(),
            reason,
            hint,
        })
    }

    /// Names of files with this ending.
    fn names(&self, ending: &str) -> Result<Vec<String>, Error> {
        let entries = self.within.list(&self.path);
        let entries = entries.map_err(|source| self.failed("read", &self.path, source))?;
        let mut names = Vec::new();
        for path in entries.into_iter().map(PathBuf::from) {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            match stem {
                Some(stem) if path.extension().is_some_and(|found| found == ending) => {
                    names.push(stem.to_owned());
                }
                _ => {}
            }
        }
        Ok(names)
    }

    fn describe(&self, name: &str) -> Result<KeyFile, Error> {
        let path = self.file(name, "crt");
        let certificate = self.certificate(&path)?;
        let read = certificate::validity(&certificate).zip(certificate::names(&certificate));
        let read = read.zip(certificate::key(&certificate));
        let ((validity, mut names), key) = read.ok_or_else(|| damaged(&path))?;
        if !names.is_empty() {
            names.remove(0);
        }
        Ok(KeyFile {
            name: (name != AUTHORITY).then(|| name.to_owned()),
            hosts: names,
            fingerprint: fingerprint(&certificate),
            key,
            validity,
            has_key: self.within.metadata(&self.file(name, "key")).is_ok(),
        })
    }

    fn certificate(&self, path: &Path) -> Result<CertificateDer<'static>, Error> {
        let pem = self.within.read(path, MOST_BYTES);
        let pem = pem.map_err(|source| self.failed("read", path, source))?;
        let pem = pem.ok_or_else(|| damaged(path))?;
        CertificateDer::from_pem_slice(&pem).map_err(|_| damaged(path))
    }

    /// Makes both files of a name, by their endings, or none; the first is a secret.
    fn write_both(&self, name: &str, [secret, public]: [(&str, &str); 2]) -> Result<(), Error> {
        self.write(name, secret.0, secret.1, 0o600)?;
        let written = self.write(name, public.0, public.1, 0o644);
        if written.is_err() {
            let _ = self.within.remove_file(&self.file(name, secret.0));
        }
        written
    }

    /// Makes a file. What is not whole is of no use to anybody.
    fn write(&self, name: &str, ending: &str, text: &str, mode: u32) -> Result<(), Error> {
        let path = self.file(name, ending);
        let failed = |source| self.failed("create", &path, source);
        let mut file = (self.within.open(&path, How::new_file().mode(mode))).map_err(failed)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = self.within.remove_file(&path);
        }
        written.map_err(failed)
    }

    fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.path.join(format!("{name}.{ending}"))
    }

    fn failed(&self, action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    fn unusable(&self, path: &Path, error: &dyn core::fmt::Display) -> Error {
        Error::Key {
            path: path.to_owned(),
            reason: format!("cannot be used: {error}"),
            hint: "create keys with flowgauge keys".to_owned(),
        }
    }
}

/// Reads a secret of less than a megabyte, which nobody else may be able to read.
///
/// # Errors
/// It is not there, or others can read it.
pub fn read_secret(within: &Folder, path: &Path) -> Result<String, Error> {
    Ok(files::read_secret(within, path)?)
}

fn damaged(path: &Path) -> Error {
    Error::Key {
        path: path.to_owned(),
        reason: "is not a certificate in PEM".to_owned(),
        hint: "copy it again from the machine where it was created".to_owned(),
    }
}

/// The authority of a key. What it is called follows from the key, so that it can be made again of
/// the key alone, to sign with.
fn authority(key: &KeyPair, from: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    let digest = HEXLOWER.encode(&Sha256::digest(key.public_key_raw())[..4]);
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = format!("Flowgauge authority {digest}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = from - SKEW;
    params.not_after = from + Duration::days(AUTHORITY_DAYS);
    params
}

/// Names are those of hosts: they stand in certificates and in file names.
fn check_name(name: &str) -> Result<(), Error> {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let reason = if name == AUTHORITY {
        "is the name of the authority's files"
    } else if name.is_empty()
        || name.len() > 63
        || !name.chars().all(is_good)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.ends_with(|c: char| c.is_ascii_alphanumeric())
    {
        "is not a name for a machine"
    } else {
        return Ok(());
    };
    Err(Error::Invalid {
        what: name.to_owned(),
        reason: reason.to_owned(),
        hint: "names consist of lower-case letters, digits, '-' and '.', at most 63: sensor1",
    })
}

/// SHA-256 of a certificate, in hexadecimal.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    HEXLOWER.encode(&Sha256::digest(certificate))
}

/// Who this machine is, and whom it believes. Cloning is cheap.
#[derive(Clone)]
pub struct Identity {
    name: Arc<str>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    https: (Arc<ClientConfig>, Arc<ServerConfig>),
    provider: Arc<CryptoProvider>,
    source: Option<Arc<Source>>,
}

/// Time in seconds and nanoseconds, length, and number of a file.
type Stamps = [Option<(i64, i64, u64, u64)>; 3];

/// Where an identity was read, and what it was then.
struct Source {
    folder: KeyFolder,
    last: Mutex<(Stamps, Identity)>,
}

impl Identity {
    fn new(
        name: String,
        roots: RootCertStore,
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Identity, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots);
        let versions = &[&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        let server = |protocol: &[u8], is_open| {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
            let verifier = match is_open {
                true => verifier.allow_unauthenticated().build(),
                false => verifier.build(),
            };
            let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
            let mut server = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)?
                .with_client_cert_verifier(verifier)
                .with_single_cert(chain.clone(), key.clone_key())?;
            server.alpn_protocols = vec![protocol.to_vec()];
            server.send_tls13_tickets = 0;
            Ok::<_, rustls::Error>(Arc::new(server))
        };
        let mut https = client.clone();
        https.alpn_protocols = vec![HTTP.to_vec()];
        Ok(Identity {
            name: name.into(),
            client: Arc::new(client),
            server: server(PROTOCOL, false)?,
            https: (Arc::new(https), server(HTTP, true)?),
            provider,
            source: None,
        })
    }

    /// The identity as its files are now; where they cannot be used, as it was before. To be asked for
    /// each connection.
    pub(crate) fn current(&self) -> Identity {
        let Some(source) = &self.source else {
            return self.clone();
        };
        let mut last = source.last.lock();
        let stamps = source.folder.stamps(&self.name);
        if stamps != last.0 {
            last.0 = stamps;
            match source.folder.read(self.name.to_string()) {
                Ok(identity) => {
                    last.1 = identity;
                    notice(format_args!(
                        "{}: keys and certificates were reread",
                        self.name
                    ));
                }
                Err(error) => notice(format_args!(
                    "changed keys and certificates are unusable, the previous ones stay in use: {error}"
                )),
            }
        }
        last.1.clone()
    }

    /// How it speaks HTTP to others of the authority, over TLS 1.3 with its certificate. To be asked for each connection.
    pub fn https_client(&self) -> Arc<ClientConfig> {
        self.current().https.0
    }

    /// How it serves HTTP over TLS 1.3: who comes may show a certificate of the authority ([`Peer::of`](crate::Peer::of)), or none. To
    /// be asked for each connection.
    pub fn https_server(&self) -> Arc<ServerConfig> {
        self.current().https.1
    }

    /// The same for somebody who says nothing of what is spoken.
    #[cfg(test)]
    pub(crate) fn without_protocol(&self) -> Identity {
        let mut client = (*self.client).clone();
        client.alpn_protocols.clear();
        let mut server = (*self.server).clone();
        server.alpn_protocols.clear();
        Identity {
            client: Arc::new(client),
            server: Arc::new(server),
            source: None,
            ..self.clone()
        }
    }

    /// The name in its certificate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Random bytes.
    pub(crate) fn random(&self) -> [u8; 16] {
        random_by(&self.provider)
    }
}

/// How HTTP is spoken over TLS 1.3 to those who have a certificate of an authority in a file (PEM, any number of them). Nothing is
/// shown of who asks.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn https_client_of(authorities: &Path) -> Result<Arc<ClientConfig>, Error> {
    let read = Folder::anywhere().read(authorities, MOST_BYTES);
    let read = read.map_err(|source| Error::File {
        action: "read",
        path: authorities.to_owned(),
        source,
    })?;
    let pem = read.ok_or_else(|| damaged(authorities))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let mut roots = RootCertStore::empty();
    // Of an old collection some may be unusable.
    roots.add_parsable_certificates(all.map_err(|_| damaged(authorities))?);
    if roots.is_empty() {
        return Err(damaged(authorities));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|_| damaged(authorities))?;
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![HTTP.to_vec()];
    Ok(Arc::new(client))
}

/// Random bytes, as the number of a session.
pub fn random() -> [u8; 16] {
    random_by(&rustls::crypto::ring::default_provider())
}

fn random_by(provider: &CryptoProvider) -> [u8; 16] {
    let mut bytes = [0; 16];
    // What fails here has failed in every handshake before.
    let _ = provider.secure_random.fill(&mut bytes);
    bytes
}

impl core::fmt::Debug for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Identity").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_made_listed_and_kept_secret() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path().join("keys"));
        let missing = keys.identity(None).unwrap_err();
        assert!(
            missing.hint().unwrap().contains("flowgauge keys"),
            "{missing}"
        );
        let authority = keys.create_authority().unwrap();
        assert_eq!((authority.name, authority.has_key), (None, true));
        let again = keys.create_authority().unwrap_err();
        assert!(matches!(again, Error::File { .. }), "{again}");
        let hosts = vec!["sensor1.example.org".to_owned(), "192.0.2.1".to_owned()];
        let one = keys.add("sensor1", &hosts, 30).unwrap();
        assert_eq!(one.hosts, hosts);
        assert_eq!(one.fingerprint.len(), 64);
        let days = (one.validity.until - one.validity.from) / 86_400;
        assert_eq!(days, 30);
        assert_eq!(keys.identity(None).unwrap().name(), "sensor1");
        keys.add("sensor2", &[], 30).unwrap();
        let several = keys.identity(None).unwrap_err().to_string();
        assert!(several.contains("sensor1, sensor2"), "{several}");
        let all = keys.list().unwrap();
        let names: Vec<Option<&str>> = all.iter().map(|file| file.name.as_deref()).collect();
        assert_eq!(names, [None, Some("sensor1"), Some("sensor2")]);
        for file in ["authority.key", "sensor1.key", "sensor2.key"] {
            let path = keys.path().join(file);
            let mode = fs::metadata(&path).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o600, "{file}");
        }
        let path = keys.path().join("sensor1.key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let readable = keys.identity(Some("sensor1")).unwrap_err();
        assert!(
            readable.hint().unwrap().starts_with("chmod 600"),
            "{readable}"
        );
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        let keys = KeyFolder::new("/nonexistent");
        for name in ["", "../x", "a/b", "authority", "A", "x_y", "-x", ".."] {
            let refused = keys.add(name, &[], 1).unwrap_err();
            assert!(
                matches!(refused, Error::Invalid { .. }),
                "{name}: {refused}"
            );
        }
    }
}

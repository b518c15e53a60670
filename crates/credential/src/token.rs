//! Credentials: chains of signed blocks, and the keys of those who issue them.

use core::fmt;

use biscuit_auth::builder::{self, BlockBuilder, Convert as _};
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::format::{convert, schema};
use biscuit_auth::{
    Algorithm, BiscuitBuilder, KeyPair, PrivateKey, PublicKey, UnverifiedBiscuit, error,
};
use data_encoding::HEXLOWER;
use prost::Message as _;

use crate::error::Error;
use crate::limits::{Block, Limits};
use crate::policy::Layer;

/// The longest credential, in characters.
pub const MOST_TEXT: usize = 8 << 10;
/// Blocks of one.
const MOST_BLOCKS: usize = 16;

/// The private key of an issuer (Ed25519). Its text is to be kept from others.
pub struct IssuerKey(KeyPair);

/// The public key of an issuer: `ed25519/` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuerName(PublicKey);

impl IssuerKey {
    /// A new one.
    pub fn generate() -> IssuerKey {
        IssuerKey(KeyPair::new_with_algorithm(Algorithm::Ed25519))
    }

    /// # Errors
    /// [`Error::Key`].
    pub fn parse(text: &str) -> Result<IssuerKey, Error> {
        let key: PrivateKey = text.trim().parse().map_err(|_| Error::Key)?;
        match &key {
            PrivateKey::Ed25519(_) => Ok(IssuerKey(KeyPair::from(&key))),
            PrivateKey::P256(_) => Err(Error::Key),
        }
    }

    /// As [`parse`](IssuerKey::parse) reads it: a secret.
    pub fn secret_text(&self) -> String {
        self.0.private().to_prefixed_string()
    }

    /// The public key.
    pub fn public(&self) -> IssuerName {
        IssuerName(self.0.public())
    }
}

impl fmt::Debug for IssuerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IssuerKey({})", self.public())
    }
}

impl IssuerName {
    /// # Errors
    /// [`Error::Key`].
    pub fn parse(text: &str) -> Result<IssuerName, Error> {
        let digits = text.trim().strip_prefix("ed25519/").ok_or(Error::Key)?;
        let key = PublicKey::from_bytes_hex(digits, Algorithm::Ed25519);
        key.map(IssuerName).map_err(|_| Error::Key)
    }
}

impl fmt::Display for IssuerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519/{}", self.0.to_bytes_hex())
    }
}

/// A credential. It is not shown by `Debug`: who has its text may use it, unless it is bound to a holder.
#[derive(Clone)]
pub struct Credential {
    token: UnverifiedBiscuit,
    blocks: Vec<Block>,
    ids: Vec<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({} blocks)", self.blocks.len())
    }
}

impl Credential {
    /// A new one, as an issuer signs it.
    ///
    /// # Errors
    /// It would be too long.
    pub fn issue(key: &IssuerKey, limits: &Limits) -> Result<Credential, Error> {
        let builder = BiscuitBuilder::new().merge(built(&limits.block()));
        let token = builder.build(&key.0).map_err(|error| damaged(&error))?;
        let bytes = token.to_vec().map_err(|error| damaged(&error))?;
        Credential::of(&bytes)
    }

    /// Reads one. Its signatures are looked at by [`is_of`](Credential::is_of), but for their form.
    ///
    /// # Errors
    /// It is none, or says what is not known here.
    pub fn parse(text: &str) -> Result<Credential, Error> {
        let text = text.trim();
        if text.len() > MOST_TEXT {
            return Err(Error::TooLong);
        }
        let bytes = data_encoding::BASE64URL.decode(text.as_bytes());
        Credential::of(&bytes.map_err(|error| Error::Damaged(error.to_string()))?)
    }

    fn of(bytes: &[u8]) -> Result<Credential, Error> {
        if bytes.len() > MOST_TEXT / 4 * 3 {
            return Err(Error::TooLong);
        }
        let broken = |error: prost::DecodeError| Error::Damaged(error.to_string());
        let raw = schema::Biscuit::decode(bytes).map_err(broken)?;
        if raw.blocks.len() >= MOST_BLOCKS {
            return Err(Error::TooLong);
        }
        let mut symbols = SymbolTable::new();
        let (mut blocks, mut ids) = (Vec::new(), Vec::new());
        for (at, signed) in [&raw.authority].into_iter().chain(&raw.blocks).enumerate() {
            let unknown = |what: String| Error::Unknown { block: at, what };
            // Signatures of other algorithms can be changed into others that are as good: they could not be revoked.
            if signed.next_key.algorithm != schema::public_key::Algorithm::Ed25519 as i32 {
                return Err(unknown("is not signed with Ed25519".to_owned()));
            }
            if signed.external_signature.is_some() {
                return Err(unknown("is signed by somebody else".to_owned()));
            }
            let raw = schema::Block::decode(&signed.block[..]).map_err(broken)?;
            blocks.push(read(&raw, &mut symbols).map_err(unknown)?);
            ids.push(HEXLOWER.encode(&signed.signature));
        }
        let token = UnverifiedBiscuit::from(bytes).map_err(|error| damaged(&error))?;
        Ok(Credential { token, blocks, ids })
    }

    /// The same, narrowed by one more block.
    ///
    /// # Errors
    /// It is sealed, or would be too long.
    pub fn attenuate(&self, limits: &Limits) -> Result<Credential, Error> {
        let longer = self.token.append(built(&limits.block()));
        self.made_of(longer)
    }

    /// The same, to which nobody can add a block.
    ///
    /// # Errors
    /// It is sealed already.
    pub fn seal(&self) -> Result<Credential, Error> {
        self.made_of(self.token.seal())
    }

    fn made_of(&self, made: Result<UnverifiedBiscuit, error::Token>) -> Result<Credential, Error> {
        let made = made.map_err(|error| match error {
            error::Token::AppendOnSealed | error::Token::AlreadySealed => Error::Sealed,
            error => damaged(&error),
        })?;
        Credential::of(&made.to_vec().map_err(|error| damaged(&error))?)
    }

    /// As [`parse`](Credential::parse) reads it: a secret.
    pub fn text(&self) -> String {
        let bytes = self.token.to_vec().unwrap_or_default();
        data_encoding::BASE64URL.encode(&bytes)
    }

    /// Whether this issuer signed it, and nobody changed it since.
    pub fn is_of(&self, issuer: &IssuerName) -> bool {
        self.token.clone().verify(issuer.0).is_ok()
    }

    /// What its blocks say, the issuer's first.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The identifiers of its blocks, in hexadecimal: who revokes one, revokes all credentials with this block.
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Its blocks as layers of a policy.
    pub fn layers(&self) -> impl Iterator<Item = Layer> {
        let blocks = self.blocks.iter().zip(&self.ids).enumerate();
        blocks.map(|(at, (block, id))| Layer {
            origin: format!("block {at} of the credential"),
            id: Some(id.clone()),
            block: block.clone(),
        })
    }
}

fn damaged(error: &error::Token) -> Error {
    Error::Damaged(error.to_string())
}

fn built(block: &Block) -> BlockBuilder {
    BlockBuilder {
        facts: block.facts(),
        checks: block.checks.iter().map(crate::Check::built).collect(),
        ..BlockBuilder::default()
    }
}

/// What a block says. The texts of it and of those before it are in `symbols`.
fn read(raw: &schema::Block, symbols: &mut SymbolTable) -> Result<Block, String> {
    let odd = |error: error::Format| format!("is odd: {error}");
    let own = SymbolTable::from(raw.symbols.clone()).map_err(odd)?;
    symbols.extend(&own).map_err(odd)?;
    if !raw.rules.is_empty() || !raw.scope.is_empty() || !raw.public_keys.is_empty() {
        return Err("has rules, or trusts others, which credentials cannot".to_owned());
    }
    let token = convert::proto_block_to_token_block(raw, None).map_err(odd)?;
    let facts = token.facts.iter();
    let facts = facts.map(|fact| builder::Fact::convert_from(fact, symbols));
    let facts = facts.collect::<Result<Vec<_>, _>>().map_err(odd)?;
    let checks = token.checks.iter();
    let checks = checks.map(|check| builder::Check::convert_from(check, symbols));
    let checks = checks.collect::<Result<Vec<_>, _>>().map_err(odd)?;
    Block::of(&facts, &checks)
}

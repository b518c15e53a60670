//! What can be wrong with a credential.

/// Why something is no credential, key or limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is too long to be looked at.
    #[error("a credential has at most {} characters", crate::MOST_TEXT)]
    TooLong,
    /// It is no Biscuit, or was damaged or cut.
    #[error("this is not a credential: {0}")]
    Damaged(String),
    /// A block says what credentials of Flowgauge cannot say.
    #[error("block {block} of the credential {what}")]
    Unknown {
        /// Which, from 0.
        block: usize,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing can be added to one that was sealed.
    #[error("the credential is sealed: nothing can be added to it")]
    Sealed,
    /// It is no key.
    #[error("this is not an issuer's key")]
    Key,
    /// A limit that cannot be one: which, and what it looks like.
    #[error("\"{text}\" is not {what}")]
    Limit {
        /// As it was given.
        text: String,
        /// What was expected.
        what: &'static str,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::TooLong => "have one issued that was narrowed less often",
            Error::Damaged(_) => "copy the file again from where it was made",
            Error::Unknown { .. } => {
                "docs/credentials.md lists what blocks can say; flowgauge credential show prints it"
            }
            Error::Sealed => "ask its issuer for a narrower one",
            Error::Key => {
                "flowgauge credential key NAME makes one; the public one begins with ed25519/"
            }
            Error::Limit { .. } => "flowgauge credential issue --help has examples",
        }
    }

    pub(crate) fn limit(text: &str, what: &'static str) -> Error {
        Error::Limit {
            text: text.to_owned(),
            what,
        }
    }
}

//! Values of objects, and why there is none or why one is refused.

use crate::Oid;

/// The value of an object, by its type on the wire (RFC 2578, 7.1).
///
/// ZeroBasedCounter32 and Unsigned32 are [`Value::Gauge32`], RowStatus and truth values
/// [`Value::Integer`], BITS and addresses of any kind [`Value::Octets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// INTEGER, Integer32, enumerations.
    Integer(i32),
    /// OCTET STRING, BITS.
    Octets(Vec<u8>),
    /// ASN.1's NULL: the type of no object, but a manager may set it.
    Null,
    /// OBJECT IDENTIFIER.
    Oid(Oid),
    /// IpAddress.
    IpAddress([u8; 4]),
    /// Counter32.
    Counter32(u32),
    /// Gauge32, Unsigned32, ZeroBasedCounter32.
    Gauge32(u32),
    /// TimeTicks: hundredths of a second.
    TimeTicks(u32),
    /// Opaque: the type of no object of ours, but a manager may set it.
    Opaque(Vec<u8>),
    /// Counter64, ZeroBasedCounter64.
    Counter64(u64),
}

/// Why an object has no value (RFC 3416, 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// noSuchObject: there is no object type of this name.
    Object,
    /// noSuchInstance: the object type has no such instance.
    Instance,
}

/// Why a value is not set, with the numbers of RFC 3416, 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::EnumIter)]
#[repr(u16)]
pub enum SetError {
    /// For no reason that another error names.
    #[error("genErr")]
    General = 5,
    /// The object cannot be reached by managers.
    #[error("noAccess")]
    NoAccess = 6,
    /// The value is of another type than the object.
    #[error("wrongType")]
    WrongType = 7,
    /// The string is too short or too long for the object.
    #[error("wrongLength")]
    WrongLength = 8,
    /// The value's encoding is none of its type.
    #[error("wrongEncoding")]
    WrongEncoding = 9,
    /// The object never has this value.
    #[error("wrongValue")]
    WrongValue = 10,
    /// There is no such instance, and there never can be.
    #[error("noCreation")]
    NoCreation = 11,
    /// The object may have this value, but not now.
    #[error("inconsistentValue")]
    InconsistentValue = 12,
    /// It needs memory or places that are not there.
    #[error("resourceUnavailable")]
    ResourceUnavailable = 13,
    /// What was tested cannot be done.
    #[error("commitFailed")]
    CommitFailed = 14,
    /// What was done cannot be taken back.
    #[error("undoFailed")]
    UndoFailed = 15,
    /// The object is only read, by anyone.
    #[error("notWritable")]
    NotWritable = 17,
    /// There is no such instance, and it cannot be created now.
    #[error("inconsistentName")]
    InconsistentName = 18,
}

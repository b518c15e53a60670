//! Messages of AgentX (RFC 2741, 6).

use crate::{Missing, Oid, Value};

/// A message: what its header says, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The session, which the master numbers.
    pub session: u32,
    /// The set, or other request of a manager, that it belongs to.
    pub transaction: u32,
    /// Equal in a request and its response.
    pub packet: u32,
    /// Flags of this kind of message alone: [`flag`].
    pub flags: u8,
    /// The context, if it is not the default one.
    pub context: Option<Vec<u8>>,
    /// The rest.
    pub pdu: Pdu,
}

/// Flags of a header.
pub mod flag {
    /// Register: the name is that of a single instance.
    pub const INSTANCE: u8 = 1;
    /// IndexAllocate: an index that was never used before.
    pub const NEW_INDEX: u8 = 2;
    /// IndexAllocate: any index that is free.
    pub const ANY_INDEX: u8 = 4;
    /// A context follows the header.
    pub const CONTEXT: u8 = 8;
    /// Numbers have their highest octet first.
    pub const NETWORK_ORDER: u8 = 16;
}

/// The contents of a message, by its type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 2741, 6.2")]
pub enum Pdu {
    Open {
        timeout: u8,
        id: Oid,
        description: Vec<u8>,
    },
    Close {
        reason: u8,
    },
    Register {
        timeout: u8,
        priority: u8,
        region: Region,
    },
    Unregister {
        priority: u8,
        region: Region,
    },
    Get(Vec<Range>),
    GetNext(Vec<Range>),
    GetBulk {
        non_repeaters: u16,
        max_repetitions: u16,
        ranges: Vec<Range>,
    },
    TestSet(Vec<Binding>),
    CommitSet,
    UndoSet,
    CleanupSet,
    Notify(Vec<Binding>),
    Ping,
    IndexAllocate(Vec<Binding>),
    IndexDeallocate(Vec<Binding>),
    AddAgentCaps {
        id: Oid,
        description: Vec<u8>,
    },
    RemoveAgentCaps {
        id: Oid,
    },
    Response(Response),
}

impl Pdu {
    /// The number of its type in the header.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Open { .. } => 1,
            Self::Close { .. } => 2,
            Self::Register { .. } => 3,
            Self::Unregister { .. } => 4,
            Self::Get(_) => 5,
            Self::GetNext(_) => 6,
            Self::GetBulk { .. } => 7,
            Self::TestSet(_) => 8,
            Self::CommitSet => 9,
            Self::UndoSet => 10,
            Self::CleanupSet => 11,
            Self::Notify(_) => 12,
            Self::Ping => 13,
            Self::IndexAllocate(_) => 14,
            Self::IndexDeallocate(_) => 15,
            Self::AddAgentCaps { .. } => 16,
            Self::RemoveAgentCaps { .. } => 17,
            Self::Response(_) => 18,
        }
    }
}

/// What is registered: a sub-tree, or a number of them side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first or only sub-tree.
    pub subtree: Oid,
    /// The position (from 1, not 0) of the number in `subtree` that goes up, and the last one it goes to.
    pub range: Option<(u8, u32)>,
}

/// What is looked for (RFC 2741, 5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The name, or where to begin behind.
    pub start: Oid,
    /// Whether an object named `start` is looked for, too.
    pub include: bool,
    /// Where to end: the first name outside. Without one, nowhere.
    pub end: Oid,
}

/// A name with what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The name.
    pub name: Oid,
    /// What stands there.
    pub bound: Bound,
}

/// A value, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A value.
    Value(Value),
    /// noSuchObject, noSuchInstance.
    Missing(Missing),
    /// endOfMibView: nothing was found in the range.
    End,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// sysUpTime of the master. That of a subagent has no meaning.
    pub uptime: u32,
    /// 0, or an error: those of SNMP below 256, AgentX's own from there ([`error`]).
    pub error: u16,
    /// The binding, from 1, that the error is about.
    pub index: u16,
    /// What was asked for.
    pub bindings: Vec<Binding>,
}

/// AgentX's own errors (RFC 2741, 6.2.16).
pub mod error {
    /// The session is not, or no longer, open.
    pub const NOT_OPEN: u16 = 257;
    /// The context is not known.
    pub const UNSUPPORTED_CONTEXT: u16 = 262;
    /// Somebody else registered the same with the same priority.
    pub const DUPLICATE_REGISTRATION: u16 = 263;
    /// The message cannot be read.
    pub const PARSE: u16 = 266;
    /// The master does not allow it.
    pub const REQUEST_DENIED: u16 = 267;

    /// The name of an error, as in the RFC.
    pub fn name(number: u16) -> &'static str {
        match number {
            256 => "openFailed",
            NOT_OPEN => "notOpen",
            258 => "indexWrongType",
            259 => "indexAlreadyAllocated",
            260 => "indexNoneAvailable",
            261 => "indexNotAllocated",
            UNSUPPORTED_CONTEXT => "unsupportedContext",
            DUPLICATE_REGISTRATION => "duplicateRegistration",
            264 => "unknownRegistration",
            265 => "unknownAgentCaps",
            PARSE => "parseError",
            REQUEST_DENIED => "requestDenied",
            268 => "processingError",
            _ => "an error of SNMP",
        }
    }
}

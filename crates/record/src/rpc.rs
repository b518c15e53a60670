//! Records about remote procedure calls (ONC RPC).

use crate::any::KnownRecord;
use crate::exchange::Exchange;
use crate::parties::{filled_or_null, number_or_null, text_or_null};
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a call and its reply.
    RpcFields, RPC, RPC_SCHEMA:
    time Time None "TIME" 1 "when the call was captured, or where there is none the reply";
    src_ip Address None "CLIENT" 1 "address of the client";
    src_port Unsigned None "PORT" 5 "port of the client";
    dst_ip Address None "SERVER" 1 "address of the server";
    dst_port Unsigned None "PORT" 3 "port of the server";
    proto Text None "" 0 "udp or tcp";
    xid Unsigned None "XID" 6 "number of the call";
    program Text None "PROGRAM" 1 "name of the program, or its number";
    version Unsigned None "VERSION" 2 "version of the program";
    procedure Text None "PROCEDURE" 1 "name of the procedure, or its number";
    argument Text None "ARGUMENT" 4 "directory of a mount; program, version and protocol that a portmapper is asked for";
    auth Text None "" 0 "how the client shows who it is: none, sys, short, dh, gss, other";
    machine Text None "" 0 "name of the client's machine, by auth sys";
    uid Unsigned None "" 0 "user, by auth sys";
    gid Unsigned None "" 0 "group, by auth sys";
    outcome Text None "OUTCOME" 1 "success, prog_unavail, prog_mismatch, proc_unavail, garbage_args, system_err, rpc_mismatch or auth_error";
    status Text None "STATUS" 2 "with which results of NFS and mount begin: ok, noent, acces, ...";
    port Unsigned None "" 0 "port that a portmapper told";
    request_bytes Unsigned Bytes "" 0 "bytes of the call";
    reply_bytes Unsigned Bytes "" 0 "bytes of the reply";
    missing_bytes Unsigned Bytes "" 0 "bytes of both that were not captured";
    latency Duration Seconds "LATENCY" 1 "from the call, where it came again from the first, to the reply";
    state Text None "STATE" 3 "matched, no_reply or no_request";
    repeats Unsigned None "" 0 "how often the call came again before the reply";
    limit Text None "" 0 "requests: more waited for their replies than are kept (256); memory: there was none left for them: so that this one has no reply; head: the argument lies behind the 2 KiB of a call that are read; or null";
}

/// A call or a reply. Its buffers can be used again ([`RpcMessage::clear`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcMessage {
    /// Number of the call.
    pub xid: u32,
    /// Program, version, procedure; of a reply those of its call.
    pub numbers: [u32; 3],
    /// Name of the program.
    pub program: String,
    /// Name of the procedure.
    pub procedure: String,
    /// What it is asked for.
    pub argument: String,
    /// How the client shows who it is.
    pub auth: &'static str,
    /// Its name.
    pub machine: String,
    /// User and group.
    pub user: Option<(u32, u32)>,
    /// What became of the call.
    pub outcome: &'static str,
    /// Status of the results.
    pub status: String,
    /// Port that was told.
    pub port: Option<u16>,
    /// Bytes of it.
    pub bytes: u64,
    /// How many of them were missing.
    pub missing: u64,
    /// The bound that left something out.
    pub limit: Option<&'static str>,
}

impl RpcMessage {
    /// Forgets all but the buffers.
    pub fn clear(&mut self) {
        let take = |mut text: String| {
            text.clear();
            text
        };
        let old = core::mem::take(self);
        *self = RpcMessage {
            program: take(old.program),
            procedure: take(old.procedure),
            argument: take(old.argument),
            machine: take(old.machine),
            status: take(old.status),
            ..RpcMessage::default()
        };
    }
}

impl Record for Exchange<'_, RpcMessage> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let request = self.request.map(|it| it.1);
        let reply = self.reply.map(|it| it.1);
        let parties = [
            &RPC.time,
            &RPC.src_ip,
            &RPC.src_port,
            &RPC.dst_ip,
            &RPC.dst_port,
            &RPC.proto,
        ];
        self.visit_parties(parties, visitor);
        let Some(first) = self.first() else { return };
        visitor.unsigned(&RPC.xid, u64::from(first.xid));
        let text = |of: fn(&RpcMessage) -> &String| request.map_or("", |it| of(it).as_str());
        filled_or_null(visitor, &RPC.program, text(|it| &it.program));
        number_or_null(visitor, &RPC.version, request.map(|it| it.numbers[1]));
        filled_or_null(visitor, &RPC.procedure, text(|it| &it.procedure));
        filled_or_null(visitor, &RPC.argument, text(|it| &it.argument));
        text_or_null(visitor, &RPC.auth, request.map(|it| it.auth));
        filled_or_null(visitor, &RPC.machine, text(|it| &it.machine));
        let user = request.and_then(|it| it.user);
        number_or_null(visitor, &RPC.uid, user.map(|it| it.0));
        number_or_null(visitor, &RPC.gid, user.map(|it| it.1));
        text_or_null(visitor, &RPC.outcome, reply.map(|it| it.outcome));
        filled_or_null(visitor, &RPC.status, reply.map_or("", |it| &it.status));
        number_or_null(visitor, &RPC.port, reply.and_then(|it| it.port));
        number_or_null(visitor, &RPC.request_bytes, request.map(|it| it.bytes));
        number_or_null(visitor, &RPC.reply_bytes, reply.map(|it| it.bytes));
        let both = [request, reply];
        let missing = both.iter().flatten().map(|it| it.missing).sum();
        visitor.unsigned(&RPC.missing_bytes, missing);
        self.visit_state(
            [&RPC.latency, &RPC.state, &RPC.repeats, &RPC.limit],
            request.and_then(|it| it.limit),
            visitor,
        );
    }
}

impl KnownRecord for Exchange<'_, RpcMessage> {
    fn schema(&self) -> Schema {
        RPC_SCHEMA
    }
}

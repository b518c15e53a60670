//! Records about remote procedure calls (ONC RPC).

use crate::exchange::Exchange;
use crate::schema::record;
use crate::value::{Symbol, filled};

record! {
    /// Fields of a call and its reply.
    RPC, RPC_SCHEMA for Exchange<'_, RpcMessage> as it {
        let Some((request, reply, first)) = it.messages() else {
            return;
        };
        let user = request.and_then(|it| it.user);
        let missing: u64 = [request, reply].iter().flatten().map(|it| it.missing).sum();
    }:
    time Time "TIME" 1 = it.time(), "time of the call, or of the reply if there is no call";
    src_ip Address "CLIENT" 1 = it.parties.client_ip(), "address of the client";
    src_port Unsigned "PORT" 5 = it.parties.client.1, "port of the client";
    dst_ip Address "SERVER" 1 = it.parties.server_ip(), "address of the server";
    dst_port Unsigned "PORT" 3 = it.parties.server.1, "port of the server";
    proto Text = it.carrier(), "udp or tcp";
    xid: u32, Unsigned "XID" 6 = first.xid, "number of the call";
    program: String, Text "PROGRAM" 1 = request.and_then(|it| filled(&it.program)), "name of the program, or its number";
    version (numbers: [u32; 3]) Unsigned "VERSION" 2 = request.map(|it| it.numbers[1]), "version of the program";
    procedure: String, Text "PROCEDURE" 1 = request.and_then(|it| filled(&it.procedure)), "name of the procedure, or its number";
    argument: String, Text "ARGUMENT" 4 = request.and_then(|it| filled(&it.argument)), "directory of a mount; program, version and protocol that a portmapper is asked for";
    auth: &'static str, Text = request.map(|it| it.auth), "the client's authentication: none, sys, short, dh, gss, other";
    machine: String, Text = request.and_then(|it| filled(&it.machine)), "name of the client's machine, by auth sys";
    uid Unsigned = user.map(|it| it.0), "user, by auth sys";
    gid Unsigned = user.map(|it| it.1), "group, by auth sys";
    outcome: &'static str, Text "OUTCOME" 1 = reply.map(|it| it.outcome), "success, prog_unavail, prog_mismatch, proc_unavail, garbage_args, system_err, rpc_mismatch or auth_error";
    status: String, Text "STATUS" 2 = reply.and_then(|it| filled(&it.status)), "with which results of NFS and mount begin: ok, noent, acces, ...";
    port: Option<u16>, Unsigned = reply.and_then(|it| it.port), "port announced by a portmapper";
    request_bytes Unsigned Bytes = request.map(|it| it.bytes), "bytes of the call";
    reply_bytes Unsigned Bytes = reply.map(|it| it.bytes), "bytes of the reply";
    missing_bytes Unsigned Bytes = missing, "bytes of both that were not captured";
    latency Duration Seconds "LATENCY" 1 = it.latency(), "from the (first) call to the reply";
    state Text "STATE" 3 = Symbol(it.state()), "matched, no_reply or no_request";
    repeats Unsigned = it.repeats, "repetitions of the call before the reply";
    limit Text = it.limit.or(request.and_then(|it| it.limit)), "requests: too many waiting for replies (256); memory: \
    none left for waiting requests, so this one has no reply; head: the argument is beyond the 2 KiB of a call that are parsed; or null";

    /// A call or a reply. Its buffers can be reused ([`crate::Held::clear`]).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct RpcMessage {
        /// User and group ids.
        pub user: Option<(u32, u32)>,
        /// Its size in bytes.
        pub bytes: u64,
        /// Missing bytes.
        pub missing: u64,
        /// The limit that caused an omission.
        pub limit: Option<&'static str>,
    }
}

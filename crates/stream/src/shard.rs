//! The stream engine of one core.

use flowgauge_flow::{
    CaptureClock, FlowConfig, FlowId, FlowTracker, Follower, PacketFlow, Withheld,
};
use flowgauge_reassembly::HostPolicies;
use flowgauge_wire::{
    Batch, Budget, DecodeFlags, Decoded, DecodedBatch, Decoder, Direction, FlowKey, Ledger, Nanos,
    Place, hash_batch,
};

use crate::checksums::{BadPayload, Checksums};
use crate::config::{ChecksumPolicy, ShardConfig};
use crate::ends::EndStreams;
use crate::findings::Findings;
use crate::fragments::{Fragments, Refused};
use crate::handler::Handler;
use crate::offload::{
    FlowWant, Interest, Loser, Overload, Packets, Standing, Verdicts, Vlan, Wanted,
};
use crate::statistics::ShardStatistics;
use crate::streams::{FollowStreams, Streams, TCP, UDP, stream_id};
use crate::vlans::{VlanAware, Vlans};
use crate::wants::Want;

/// From so many packets of a direction on a flow is worth a verdict: on a shorter one it costs more than it saves.
pub(crate) const LONG: u32 = 16;

/// Notes flows of which only records are made, whenever they have sent so many packets more.
struct NoteLong<'a>(&'a mut Vec<FlowId>);

impl Follower for NoteLong<'_> {
    #[inline(always)]
    fn fetch(&mut self, _: &Decoded, _: FlowId) {}

    #[inline(always)]
    fn packet(&mut self, tracker: &FlowTracker, packet: &Decoded, flow: PacketFlow) {
        let sent = tracker.sent(flow.id, packet.direction);
        if sent != 0 && sent.is_multiple_of(LONG) {
            self.0.push(flow.id);
        }
    }
}

/// All state of the traffic on one core: one flow table, one reassembler, one ledger.
#[derive(Clone, Debug)]
pub struct Shard {
    config: ShardConfig,
    decoder: Decoder,
    decoded: DecodedBatch,
    vlans: Vlans,
    checksums: Checksums,
    fragments: Fragments,
    tracker: FlowTracker,
    refs: Vec<PacketFlow>,
    streams: Streams,
    ledger: Ledger,
    /// The capture clock, where no other leads this shard's.
    lead: Option<CaptureClock>,
    /// Who is told what is wanted of flows.
    interest: Option<Interest>,
    /// Whether records of flows were made at last.
    makes_records: bool,
}

impl Shard {
    /// A shard without any flows.
    pub fn new(mut config: ShardConfig) -> Shard {
        config.decode.separate_vlans |= config.vlans == VlanAware::Yes;
        Shard {
            decoder: Decoder::new(config.decode.clone()),
            decoded: DecodedBatch::new(),
            vlans: Vlans::new(config.flow.max_flows),
            checksums: Checksums::new(config.checksums, config.flow.max_flows),
            fragments: Fragments::new(config.defragment),
            tracker: FlowTracker::new(FlowConfig {
                led_clock: true,
                ..config.flow
            }),
            lead: (!config.flow.led_clock).then(CaptureClock::default),
            refs: Vec::with_capacity(flowgauge_wire::BATCH_SIZE),
            streams: streams(&config),
            ledger: Ledger::default(),
            interest: None,
            makes_records: false,
            config,
        }
    }

    /// Processes a batch. An empty batch with [`Batch::now`] only advances the capture clock.
    ///
    /// Decisions that depend on time, such as giving up a hole, are made when the capture clock enters another tick (of
    /// 1.07 s), between the packets at that boundary. Results do not depend on how the input is divided into batches.
    pub fn process<H: Handler>(&mut self, batch: &Batch<'_>, handler: &mut H) {
        if self.interest.is_some() {
            self.take_withheld(handler);
        }
        let mut rest = *batch;
        while let Some(lead) = &mut self.lead
            && let Some((at, now)) = lead.crossing(rest.packets.iter().map(|packet| packet.time))
        {
            let (before, behind) = rest.packets.split_at(at);
            if !before.is_empty() {
                self.pass(&Batch::new(rest.memory, before), handler);
                self.end_flows(handler);
            }
            if H::STREAMS {
                self.tracker.advance(now);
            } else {
                // Nobody notices when exactly a flow ends.
                self.tracker.enter_tick(now);
            }
            self.tick(handler);
            rest.packets = behind;
        }
        self.pass(&rest, handler);
        if let Some(now) = rest.now {
            self.end_flows(handler);
            if let Some(lead) = &mut self.lead {
                lead.trusted(now);
            }
            self.tracker.advance(now);
            self.tick(handler);
        }
        if H::STREAMS {
            let now = self.tracker.clock();
            self.streams.maintain(now, &self.tracker, handler);
        }
        self.end_flows(handler);
        if self.interest.is_some() {
            // (Where all packets are kept away no packet comes with which the handler is asked.)
            self.take_wants(handler);
        }
    }

    /// Ends all streams and flows at the end of the input.
    pub fn finish<H: Handler>(&mut self, handler: &mut H) {
        self.take_withheld(handler);
        if let Some(lead) = self.lead {
            self.tracker.advance(lead.now());
            self.tick(handler);
        }
        self.decoded.clear();
        self.fragments.finish(&mut self.decoded);
        if !self.decoded.packets.is_empty() {
            self.track(&Batch::new(&[], &[]), handler);
        }
        self.tracker.finish();
        self.end_flows(handler);
    }

    /// Ends flows and streams that have timed out. Call it before [`Shard::show_open`].
    pub fn end_due<H: Handler>(&mut self, handler: &mut H) {
        self.tracker.end_due();
        self.end_flows(handler);
    }

    /// Shows open flows and streams to a handler as if the input were over, without any effect on them. Excludes
    /// fragments of incomplete datagrams.
    pub fn show_open<H: Handler>(&mut self, handler: &mut H) {
        self.streams.show_open(&self.tracker, handler);
        while handler.want().is_some() {}
    }

    /// What became of the packets: those of a batch are either delivered to the flow table and, if they carry payload,
    /// to a stream (or ignored because they are not IP), or refused.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The [`ledger`](Shard::ledger), [`statistics`](Shard::statistics) and [`findings`](Shard::findings) for one of
    /// several subscribers, regardless of the others: one that reads `streams`, or only flow records, and for which the
    /// payload in `bad` had wrong checksums.
    pub fn account(&self, streams: bool, bad: &BadPayload) -> (Ledger, ShardStatistics, Findings) {
        let mut ledger = self.ledger.clone();
        let all = self.checksums.of_payload().refused;
        let (frames, bytes) = (
            all.frames - bad.refused.frames,
            all.bytes - bad.refused.bytes,
        );
        ledger.restore(Place::Malformed, frames, bytes);
        let wrong = self.checksums.wrong(bad);
        let mut statistics = self.statistics();
        if !streams {
            statistics = ShardStatistics {
                flow: statistics.flow,
                defragment: statistics.defragment,
                ..ShardStatistics::default()
            };
        }
        statistics.checksums = wrong.statistics;
        let findings = Findings::new(&statistics, &wrong);
        (ledger, statistics, findings)
    }

    /// Needed payload with wrong checksums.
    pub fn bad_payload(&self) -> &BadPayload {
        self.checksums.of_payload()
    }

    /// Findings about the input, for the user.
    pub fn findings(&self) -> Findings {
        let wrong = self.checksums.wrong(self.checksums.of_payload());
        Findings::new(&self.statistics(), &wrong)
    }

    /// Counters.
    pub fn statistics(&self) -> ShardStatistics {
        ShardStatistics {
            flow: self.tracker.statistics(),
            defragment: self.fragments.defragmenter().statistics(),
            reassembly: self.streams.reassembler().statistics(),
            checksums: self.checksums.statistics(),
            connections: self.streams.created,
            connections_high: self.streams.high,
            syns_refused: self.streams.syns.refused,
            pairs_forgotten: self.checksums.pairs_forgotten() + self.vlans.forgotten,
            delivered_bytes: self.streams.delivered.bytes,
            chunks: self.streams.delivered.chunks,
        }
    }

    /// The flow table.
    pub fn tracker(&self) -> &FlowTracker {
        &self.tracker
    }

    /// The configuration.
    pub fn config(&self) -> &ShardConfig {
        &self.config
    }

    /// Bytes of memory of waiting segments.
    pub fn waiting_bytes(&self) -> u64 {
        self.streams.reassembler().memory()
    }

    /// Charges waiting segments to a shared budget. Call it before any segment waits.
    pub fn set_budget(&mut self, budget: Budget) {
        self.streams.reassembler.set_budget(budget);
    }

    /// Bytes waiting after a hole for the stream with this [`Stream::id`](crate::Stream::id).
    pub fn waiting_bytes_of(&self, stream: u32) -> u64 {
        self.streams.waiting_bytes(stream)
    }

    /// Sets the policies of receiving hosts for overlapping fragments from now on, by address, instead of
    /// [`DefragmentConfig::policy`](flowgauge_reassembly::DefragmentConfig::policy).
    pub fn set_fragment_policies(&mut self, policies: HostPolicies) {
        self.fragments.set_policies(policies);
    }

    /// Counts delivered packets, with this number of bytes, at `place`, where they ended later.
    pub fn refuse(&mut self, place: Place, packets: u64, bytes: u64) {
        self.ledger.refuse(place, packets, bytes);
    }

    /// Changes the maximum number of flows. Those in the table stay.
    pub fn set_max_flows(&mut self, flows: u32) {
        self.tracker.set_max_flows(flows);
    }

    /// Sets the idle timeouts of TCP, UDP and other flows, including those in the table.
    pub fn set_idle(&mut self, tcp: Nanos, udp: Nanos, other: Nanos) {
        self.tracker.set_idle(tcp, udp, other);
    }

    /// Sets an individual idle timeout for the flow of a stream; `None`: that of its protocol.
    pub fn set_idle_of(&mut self, stream: u32, timeout: Option<Nanos>) {
        self.tracker.set_idle_of(FlowId(stream / 2), timeout);
    }

    /// Applies a handler's want ([`Handler::want`]) immediately. False if there is no such stream.
    pub fn want<H: Handler>(&mut self, want: Want, handler: &mut H) -> bool {
        let is_known = self.streams.want(want, handler);
        self.tell_wants(H::STREAMS);
        is_known
    }

    /// The wants of streams of which less than everything is wanted.
    pub fn wanted(&self) -> impl Iterator<Item = Want> + '_ {
        self.streams.wanted()
    }

    /// Forgets all streams and their counts. Handlers from then on have no streams ([`Handler::STREAMS`]).
    pub fn forget_streams(&mut self) {
        let changed = self.streams.changed.take();
        self.streams = streams(&self.config);
        self.streams.changed = changed;
    }

    /// Delivers waiting data of a stream, with holes reported as missing.
    pub fn flush<H: Handler>(&mut self, stream: u32, handler: &mut H) {
        self.streams.flush(stream, &self.tracker, handler);
    }

    /// Passes verdicts on flows to a backend from now on.
    pub fn set_offload(&mut self, verdicts: &Verdicts) {
        self.interest = Some(verdicts.interest());
        self.streams.changed = Some(Vec::new());
    }

    /// Counts what was kept away.
    #[cold]
    fn take_withheld<H: Handler>(&mut self, handler: &mut H) {
        let makes_records = handler.wants_flows();
        if core::mem::replace(&mut self.makes_records, makes_records) != makes_records
            && self.interest.is_some()
        {
            let streams = self.streams.wanted().map(Want::stream);
            let flows: Vec<FlowId> = streams.map(|stream| FlowId(stream / 2)).collect();
            self.streams.changed.get_or_insert_default().extend(flows);
            self.tell_wants(H::STREAMS);
        }
        let Some(interest) = &mut self.interest else {
            return;
        };
        // Who verifies all checksums takes payload, too.
        interest.want_of_others(match self.config.checksums {
            ChecksumPolicy::Ignore | ChecksumPolicy::Auto if !H::STREAMS => Wanted::HEADERS,
            _ => Wanted::ALL,
        });
        let (kept, lost) = interest.withheld();
        self.tracker.count_late(self.tracker.clock());
        for (flow, both) in kept {
            if let Some(flow) = flow {
                self.tracker.count_withheld(flow, &both);
            }
            for (direction, withheld) in [Direction::LowToHigh, Direction::HighToLow]
                .into_iter()
                .zip(&both)
            {
                if withheld.packets == 0 {
                    continue;
                }
                self.ledger.take(withheld.packets, withheld.bytes);
                let stream = flow.map(|flow| stream_id(flow, direction.index()));
                if let Some(flow) = flow {
                    if let Some(identity) = self.tracker.identity(flow)
                        && self.config.vlans == VlanAware::Auto
                    {
                        self.vlans.confirm(&identity.key, direction);
                    }
                    self.streams.keep_up(flow, direction.index(), withheld);
                }
                if let Some(place) = handler.withheld(stream, withheld) {
                    let (packets, bytes) = (withheld.data_packets, withheld.data_bytes);
                    self.ledger.refuse(place, packets, bytes);
                }
            }
        }
        for (loser, both) in lost {
            self.take_lost(loser, &both, handler);
        }
    }

    /// Counts what was lost to overload.
    fn take_lost<H: Handler>(
        &mut self,
        loser: Option<Loser>,
        both: &[Withheld; 2],
        handler: &mut H,
    ) {
        for (direction, lost) in [Direction::LowToHigh, Direction::HighToLow]
            .into_iter()
            .zip(both)
        {
            if lost.packets == 0 {
                continue;
            }
            let flow = loser.and_then(|Loser { mut key, vlan }| {
                key.context = match self.config.vlans {
                    VlanAware::No => 0,
                    VlanAware::Yes => vlan,
                    VlanAware::Auto => self.vlans.context(&key, direction, vlan)?,
                };
                self.tracker.find(&key)
            });
            if let Some(flow) = flow {
                let mut counts = [Withheld::default(); 2];
                counts[direction.index()] = *lost;
                self.tracker.count_withheld(flow, &counts);
            }
            self.ledger.take(lost.packets, lost.bytes);
            (self.ledger).refuse(Place::Priority, lost.packets, lost.bytes);
            let stream = flow.map(|flow| stream_id(flow, direction.index()));
            handler.lost(stream, lost);
        }
    }

    /// Tells how overload stands, where it goes by priority.
    pub(crate) fn tell_overload(&self, overload: Option<&Overload<'_>>) {
        if let Some(interest) = &self.interest {
            interest.overload(overload);
        }
    }

    /// Does what the handler wants, and tells of it.
    #[cold]
    fn take_wants<H: Handler>(&mut self, handler: &mut H) {
        while let Some(want) = handler.want() {
            self.streams.want(want, handler);
        }
        self.tell_wants(H::STREAMS);
    }

    /// Tells what is wanted otherwise than before.
    #[cold]
    fn tell_wants(&mut self, has_streams: bool) {
        let Some(interest) = &mut self.interest else {
            return;
        };
        for (stream, standing) in self.streams.standings.drain(..) {
            if let Some(identity) = self.tracker.identity(FlowId(stream / 2)) {
                interest.classify(identity.key, stream as usize % 2, standing);
            }
        }
        let changed = self.streams.changed.as_mut().map(core::mem::take);
        for flow in changed.into_iter().flatten() {
            let Some(identity) = self.tracker.identity(flow) else {
                continue;
            };
            let vlans = vlans_of(&identity.key, &self.config, &self.vlans);
            // Who wants all checksums verified wants all packets, and so does who cannot say which they are.
            let mut wanted = match self.config.checksums {
                ChecksumPolicy::Verify => [Wanted::ALL; 2],
                _ if vlans.is_none() => [Wanted::ALL; 2],
                _ if !has_streams => [Wanted::NOTHING; 2],
                _ => self.streams.wanted_of(flow, &self.tracker),
            };
            if self.makes_records {
                for (wanted, least) in wanted.iter_mut().zip(of_record(flow, &self.tracker)) {
                    wanted.packets = wanted.packets.max(least);
                }
            }
            if vlans.is_some() {
                let standings = interest.standings(&identity.key);
                for (wanted, standing) in wanted.iter_mut().zip(standings) {
                    wanted.standing = standing;
                }
            }
            let is_long = [Direction::LowToHigh, Direction::HighToLow]
                .iter()
                .any(|&direction| self.tracker.sent(flow, direction) >= LONG);
            let has_standing = wanted.iter().any(|it| it.standing != Standing::OTHERS);
            let is_worth = (is_long || has_standing) && interest.is_special(wanted);
            if !is_worth && interest.flow(&identity.key).is_none() {
                // Its next packets ask again.
                continue;
            }
            let vlans = vlans.unwrap_or([Vlan::Any; 2]);
            let want = FlowWant { wanted, vlans };
            interest.want(identity.key, flow, identity.start, want);
        }
    }

    /// Enters the batch in the ledger; packets whose headers make no sense are refused.
    fn count(&mut self, batch: &Batch<'_>) {
        let packets = batch.packets.len() as u64;
        (self.ledger).take(packets, self.decoded.summary.wire_bytes);
        if !self.decoded.summary.unusual {
            return;
        }
        for packet in &self.decoded.packets {
            if !packet.has_ip() && packet.problem.is_malformed() {
                let bytes = u64::from(packet.wire_len);
                self.ledger.refuse(Place::Malformed, 1, bytes);
            }
        }
    }

    #[cold]
    fn refuse_fragments(&mut self, refused: Refused) {
        for (place, amount) in [
            (Place::Malformed, refused.malformed),
            (Place::Memory, refused.memory),
        ] {
            self.ledger.refuse(place, amount.frames, amount.bytes);
        }
    }

    /// Moves what the checksum pass excluded to its place in the ledger.
    #[cold]
    fn refuse_damaged(&mut self) {
        for packet in &self.decoded.packets {
            if packet.flags.contains(DecodeFlags::EXCLUDED) {
                let (frames, bytes) = (u64::from(packet.frames), u64::from(packet.wire_len));
                self.ledger.refuse(Place::Malformed, frames, bytes);
            }
        }
    }

    /// From decoded packets on: hash, the handler's view of the batch, flows and streams.
    fn track<H: Handler>(&mut self, batch: &Batch<'_>, handler: &mut H) {
        if self.config.vlans == VlanAware::Auto {
            self.vlans.pass(&mut self.decoded.packets, &self.tracker);
            if let Some(interest) = &self.interest
                && let Some(changed) = &mut self.streams.changed
            {
                // Of what was said of them before, the VLAN was a guess.
                let learned = self.vlans.learned.iter();
                changed.extend(learned.filter_map(|key| interest.flow(key)));
            }
        }
        hash_batch(&mut self.decoded.packets);
        let decoded = &self.decoded;
        handler.batch(batch, decoded);
        let (packets, tunnels) = (&decoded.packets, &decoded.tunnels);
        if H::STREAMS {
            let mut follower = FollowStreams {
                streams: &mut self.streams,
                batch,
                decoded,
                handler,
                ledger: &mut self.ledger,
                checksums: &mut self.checksums,
            };
            self.tracker
                .process_with(packets, tunnels, &mut self.refs, &mut follower);
        } else if let Some(changed) = &mut self.streams.changed
            && self.makes_records
            && self.config.flow.active.is_none()
        {
            self.tracker
                .process_with(packets, tunnels, &mut self.refs, &mut NoteLong(changed));
        } else {
            self.tracker.process(packets, tunnels, &mut self.refs);
        }
        self.checksums
            .follow(batch, decoded, &self.refs, &mut self.tracker);
        if self
            .streams
            .changed
            .as_ref()
            .is_some_and(|changed| !changed.is_empty())
        {
            self.tell_wants(H::STREAMS);
        }
    }

    /// Packets between which the capture clock enters no tick.
    fn pass<H: Handler>(&mut self, batch: &Batch<'_>, handler: &mut H) {
        self.decoder.decode_batch(batch, &mut self.decoded);
        if self.interest.is_some() {
            take_headers(&mut self.decoded);
        }
        self.count(batch);
        let before = self.checksums.left_out();
        let refused = self.fragments.pass(
            batch,
            &mut self.decoder,
            &mut self.decoded,
            &mut self.checksums,
        );
        if refused != Refused::default() {
            self.refuse_fragments(refused);
        }
        if H::REMARKS {
            for (packet, odd) in self.fragments.odd() {
                handler.fragment_remark(packet, odd);
            }
        }
        self.checksums.pass(batch, &mut self.decoded);
        if self.checksums.left_out() != before {
            self.refuse_damaged();
        }
        self.track(batch, handler);
    }

    /// The capture clock has moved on, not by a packet.
    fn tick<H: Handler>(&mut self, handler: &mut H) {
        let now = self.tracker.clock();
        self.decoded.clear();
        self.fragments.expire(now, &mut self.decoded);
        if !self.decoded.packets.is_empty() {
            self.track(&Batch::new(&[], &[]), handler);
        }
        if H::STREAMS {
            let now = self.tracker.clock();
            self.streams.look_after_holes(now, &self.tracker, handler);
            handler.tick(&self.tracker);
        }
        self.end_flows(handler);
    }

    fn end_flows<H: Handler>(&mut self, handler: &mut H) {
        if !self.tracker.has_ended() {
            return;
        }
        self.take_wants(handler);
        let (streams, interest) = (&mut self.streams, self.interest.as_mut());
        self.tracker.drain_ended_to(&mut EndStreams {
            streams,
            interest,
            handler,
        });
        // What is wanted by their last bytes is of streams that are no more: others get their numbers.
        while handler.want().is_some() {}
    }
}

/// What records of a flow take of its packets, at least: headers of those out of turn, as what was sent again or came late is in them.
/// (What came in turn is counted together, which does not tell when a record is to be cut.)
fn of_record(flow: FlowId, tracker: &FlowTracker) -> [Packets; 2] {
    let is_cut = tracker.config().active.is_some();
    match tracker.turns(flow).filter(|_| !is_cut) {
        Some(turns) => turns.map(Packets::OutOfTurn),
        None => [Packets::Headers; 2],
    }
}

/// The VLANs that packets of a flow are in, by direction, where they can be told from those of all others. (A datagram to the port of a
/// tunnel can be of any flow.)
fn vlans_of(key: &FlowKey, config: &ShardConfig, vlans: &Vlans) -> Option<[Vlan; 2]> {
    let is_tunnel = key.protocol == UDP && config.decode.is_tunnel(key.low_port, key.high_port);
    if is_tunnel || config.decode.separate_tunnels && key.context != 0 {
        return None;
    }
    match config.vlans {
        VlanAware::No => Some([Vlan::Any; 2]),
        VlanAware::Yes => Some([Vlan::Only(key.context); 2]),
        VlanAware::Auto => vlans.of(key).map(|both| both.map(Vlan::Only)),
    }
}

/// Segments that were cut to their headers because nobody wants their payload lack nothing.
#[cold]
fn take_headers(decoded: &mut DecodedBatch) {
    for packet in &mut decoded.packets {
        if packet.payload_captured == 0 && packet.key.protocol == TCP {
            packet.flags.0 &= !DecodeFlags::CUT.0;
        }
    }
}

/// Streams that have not begun.
fn streams(config: &ShardConfig) -> Streams {
    Streams::new(
        config.reassembly,
        config.overlap_policy,
        config.flow.max_flows,
    )
}

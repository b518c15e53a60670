//! Applications on a shard that another handler has, too: each gets what it would get alone.

use std::hash::{DefaultHasher, Hash, Hasher};

use flowgauge_flow::FlowRecord;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Counts, Cutoff, DataChunk, Engine, EngineConfig, Events,
    Mode, StreamFilter, StreamRef, StreamSnapshot, StreamStatistics,
};
use flowgauge_stream::{ChecksumPolicy, Chunk, Handler, Remark, Shard, ShardConfig, Stream, Want};
use flowgauge_wire::{Batch, Decoded, Ledger, Nanos};

use crate::offload::{each_batch, traces};

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// All that a handler is told. It may want nothing more of some streams.
#[derive(Default)]
struct Guest {
    log: Vec<String>,
    leaves: bool,
    wants: Vec<Want>,
}

impl Handler for Guest {
    const STREAMS: bool = true;
    const REMARKS: bool = true;

    fn want(&mut self) -> Option<Want> {
        self.wants.pop()
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let line = format!("created {} {:?}", stream.id, stream.identity());
        self.log.push(line);
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let Chunk {
            offset,
            gap_before,
            skipped,
            time,
            captured,
            bytes,
        } = *chunk;
        self.log.push(format!(
            "data {} {:?} {offset} {gap_before} {skipped} {time:?} {captured:?} {} {:x}",
            stream.id,
            stream.status,
            bytes.len(),
            hash(bytes)
        ));
        if self.leaves {
            self.wants.extend(match stream.id % 5 {
                0 => Some(Want::Nothing(stream.id)),
                1 => Some(Want::From(stream.id, offset + 5000)),
                _ => None,
            });
        }
    }

    fn stream_remark(&mut self, stream: &Stream<'_>, remark: &Remark) {
        self.log.push(format!("remark {} {remark:?}", stream.id));
    }

    fn bad_payload(&mut self, _: Option<u32>, packet: &Decoded, is_taken: bool) {
        self.log.push(format!("bad {} {is_taken}", packet.seq));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, gap: u64) {
        let (bytes, missing) = (stream.bytes, stream.missing_bytes);
        self.log.push(format!(
            "terminated {} {:?} {bytes} {missing} {} {gap}",
            stream.id, stream.status, stream.gaps
        ));
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.log.push(format!("flow {record:?}"));
    }
}

/// All that an application is told.
#[derive(Default)]
struct Program {
    log: Vec<String>,
}

impl Events for Program {
    fn created(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        self.log.push(format!("created {:?}", stream.snapshot()));
    }

    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let packets: Vec<_> = chunk
            .packets()
            .map(|it| (it.time, it.offset, hash(it.payload)))
            .collect();
        // What is not wanted of a stream that others read counts when it is its turn.
        let snapshot = StreamSnapshot {
            statistics: StreamStatistics::default(),
            opposite_statistics: StreamStatistics::default(),
            ..stream.snapshot()
        };
        let (info, bytes) = (chunk.info(), chunk.bytes());
        let (len, hash) = (bytes.len(), hash(bytes));
        self.log.push(match snapshot.mode {
            // A FIN comes in its turn where others wait for what is before it.
            Mode::Fast => format!("data {} {} {len} {hash:x}", snapshot.uid, info.offset),
            _ => format!("data {snapshot:?} {info:?} {len} {hash:x} {packets:?}"),
        });
        if stream.uid().is_multiple_of(7) {
            stream.discard();
        }
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let mut snapshot = stream.snapshot();
        if snapshot.mode == Mode::Fast {
            // Of copies that come when nothing is wanted any more one or the other counts as new.
            snapshot.statistics.discarded = Counts::default();
            snapshot.opposite_statistics.discarded = Counts::default();
        }
        self.log.push(format!("terminated {snapshot:?}"));
    }
}

/// What there is to run.
struct Plan {
    application: ApplicationConfig,
    needs_packets: bool,
}

fn plans() -> Vec<Plan> {
    let plan = |change: &dyn Fn(&mut ApplicationConfig), needs_packets| {
        let mut application = ApplicationConfig::default();
        change(&mut application);
        Plan {
            application,
            needs_packets,
        }
    };
    vec![
        plan(&|_| {}, false),
        plan(&|it| it.cutoff.default = Cutoff(3000), false),
        plan(&|it| it.mode = Mode::Fast, false),
        plan(&|_| {}, true),
        plan(&|it| it.flush_timeout = Some(Nanos::from_millis(20)), false),
        plan(
            &|it| {
                it.filter = Some(StreamFilter::new(|packet| {
                    packet.decoded.key.protocol == 17
                }))
            },
            false,
        ),
    ]
}

fn config(checksums: ChecksumPolicy) -> ShardConfig {
    let mut config = ShardConfig {
        checksums,
        ..ShardConfig::default()
    };
    config.flow.active = None;
    config
}

fn guest_alone(file: &[u8], config: &ShardConfig, leaves: bool) -> (Guest, Shard) {
    let mut guest = Guest {
        leaves,
        ..Guest::default()
    };
    let mut shard = Shard::new(config.clone());
    each_batch(file, None, 64, |batch| shard.process(batch, &mut guest));
    shard.finish(&mut guest);
    (guest, shard)
}

fn program_alone(file: &[u8], config: &ShardConfig, plan: &Plan) -> (Program, Engine) {
    let mut engine = Engine::new(EngineConfig {
        shard: config.clone(),
        ..EngineConfig::default()
    });
    engine.add_for_packets(plan.application.clone(), plan.needs_packets);
    let mut program = Program::default();
    each_batch(file, None, 64, |batch| engine.process(batch, &mut program));
    engine.finish(&mut program);
    (program, engine)
}

fn together(
    file: &[u8],
    config: &ShardConfig,
    plan: &Plan,
    leaves: bool,
) -> (Guest, Program, Box<Shard>, Engine) {
    let mut guest = Guest {
        leaves,
        ..Guest::default()
    };
    let mut program = Program::default();
    let mut shard = Box::new(Shard::new(config.clone()));
    let mut engine = Engine::beside(config.clone());
    engine.add_for_packets(plan.application.clone(), plan.needs_packets);
    let mut take = |batch: &Batch<'_>| {
        engine.on(&mut shard, false, |engine| {
            engine.process_for(batch, &mut program, &mut guest);
        });
    };
    each_batch(file, None, 64, &mut take);
    engine.on(&mut shard, false, |engine| {
        engine.finish_for(&mut program, &mut guest);
    });
    (guest, program, shard, engine)
}

fn sorted(log: &[String], sorts: bool) -> Vec<String> {
    let mut log = log.to_vec();
    if sorts {
        log.sort();
    }
    log
}

fn same(what: &str, alone: &[String], together: &[String], sorts: bool) {
    let (alone, together) = (sorted(alone, sorts), sorted(together, sorts));
    let at = alone
        .iter()
        .zip(&together)
        .position(|(one, other)| one != other);
    let at = at.unwrap_or(alone.len().min(together.len()));
    assert_eq!(
        (alone.get(at), alone.len()),
        (together.get(at), together.len()),
        "{what}: event {at}"
    );
}

#[test]
fn a_guest_and_an_application_get_what_they_would_get_alone() {
    for (name, file) in traces() {
        let config = config(ChecksumPolicy::Auto);
        let (guest, shard) = guest_alone(&file, &config, false);
        // Where others wait, what is beyond a window is taken at once in mode FAST.
        let takes_odd = |plan: &&Plan| plan.application.mode != Mode::Fast || !name.contains('/');
        let plans = plans();
        for (number, plan) in plans.iter().filter(takes_odd).enumerate() {
            let what = format!("{name}, plan {number}");
            let (program, engine) = program_alone(&file, &config, plan);
            let (beside, application, common, mine) = together(&file, &config, plan, false);
            let is_fast = plan.application.mode == Mode::Fast;
            same(&format!("{what}, guest"), &guest.log, &beside.log, false);
            same(&what, &program.log, &application.log, is_fast);
            assert_eq!(shard.ledger(), common.ledger(), "{what}");
            let own = mine.ledger();
            assert!(own.is_balanced(), "{what}");
            // (Of a copy behind a cutoff it depends on who else is there what it is.)
            let packets = |it: &Ledger| (it.received(), it.dropped(), it.discarded());
            if !is_fast {
                assert_eq!(packets(engine.ledger()), packets(own), "{what}");
            }
        }
    }
}

/// What a guest does not want an application still gets.
#[test]
fn an_application_does_not_notice_what_a_guest_does_not_want() {
    for (name, file) in traces() {
        let config = config(ChecksumPolicy::Ignore);
        // Where others wait, what is beyond a window is taken at once in mode FAST.
        let takes_odd = |plan: &&Plan| plan.application.mode != Mode::Fast || !name.contains('/');
        let plans = plans();
        for (number, plan) in plans.iter().filter(takes_odd).enumerate() {
            let (program, _) = program_alone(&file, &config, plan);
            let (_, application, ..) = together(&file, &config, plan, true);
            let (what, is_fast) = (
                format!("{name}, plan {number}"),
                plan.application.mode == Mode::Fast,
            );
            same(&what, &program.log, &application.log, is_fast);
        }
    }
}

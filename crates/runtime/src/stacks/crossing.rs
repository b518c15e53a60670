//! Where a stack goes from one thread to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_stack::{Items, NodeId, Packets, Selection};
use flowgauge_wire::Nanos;

use super::items::{Made, Message, OwnedItems, Phase};
use super::part::Part;
use super::reader::SharedBatch;
use crate::queue::Sender;

/// The end of a stage: collects what comes out of it and sends it on, batch by batch.
pub(super) struct Crossing {
    /// `None`: the stack is over.
    sender: Option<Sender<Message>>,
    current: Option<Arc<SharedBatch>>,
    left: Selection,
    made: Vec<Made>,
    pub(super) phase: Phase,
    /// Where there is no room, what comes is dropped and counted here.
    drops: Option<Arc<AtomicU64>>,
}

impl Crossing {
    pub(super) fn new(sender: Sender<Message>, drops: Option<Arc<AtomicU64>>) -> Crossing {
        Crossing {
            sender: Some(sender),
            current: None,
            left: Selection::NONE,
            made: Vec::new(),
            phase: Phase::Batch,
            drops,
        }
    }

    /// What comes belongs to this batch.
    pub(super) fn begin(&mut self, batch: &Arc<SharedBatch>) {
        self.current = Some(Arc::clone(batch));
    }

    pub(super) fn take(&mut self, maker: Option<NodeId>, items: Items<'_>) {
        let mut owned = None;
        if let (Items::Packets(packets), Some(current)) = (&items, &self.current)
            && current.has(packets.decoded)
        {
            if maker.is_none() {
                self.left = self.left.or(packets.selected);
                return;
            }
            owned = Some(OwnedItems::Shared(Arc::clone(current), packets.selected));
        }
        if let Some(items) = owned.or_else(|| OwnedItems::copy(items)) {
            self.made.push(Made {
                phase: self.phase,
                maker: maker.unwrap_or(NodeId(u32::MAX)),
                items,
            });
        }
    }

    /// The batch is over.
    pub(super) fn send(&mut self, now: Nanos, is_last: bool) {
        let batch = self.current.take();
        let left = core::mem::replace(&mut self.left, Selection::NONE);
        let Some(sender) = &mut self.sender else {
            self.made.clear();
            return;
        };
        let message = Message {
            now,
            left: batch
                .filter(|_| !left.is_empty())
                .map(|batch| (batch, left)),
            made: core::mem::take(&mut self.made),
            is_last,
        };
        let refused = match &self.drops {
            // The end is not to be lost.
            Some(drops) if !is_last => match sender.try_send(message) {
                Err(message) if !sender.is_closed() => {
                    drops.fetch_add(message.len(), Ordering::Relaxed);
                    false
                }
                sent => sent.is_err(),
            },
            _ => sender.send(message).is_err(),
        };
        if refused {
            self.sender = None;
        }
    }

    /// Nothing more is sent: the stack is over.
    pub(super) fn close(&mut self) {
        self.sender = None;
        self.current = None;
        self.left = Selection::NONE;
        self.made.clear();
    }
}

/// Takes what the threads of a stage made of one batch through the next.
pub(super) fn put_together(messages: &[Message], part: &mut Part) {
    let now = messages.iter().map(|message| message.now).max();
    let now = now.unwrap_or_default();
    give_made(messages, Phase::Batch, now, part);
    let mut left: Option<(&Arc<SharedBatch>, Selection)> = None;
    for (batch, selected) in messages.iter().filter_map(|message| message.left.as_ref()) {
        let all = left.map_or(Selection::NONE, |(_, all)| all);
        left = Some((batch, all.or(*selected)));
    }
    match left {
        Some((shared, selected)) => {
            let batch = shared.batch();
            part.begin(shared);
            part.process(
                Packets {
                    selected,
                    ..shared.packets(&batch)
                },
                now,
            );
        }
        None => part.advance(now),
    }
    if messages.iter().any(|message| {
        let mut made = message.made.iter();
        made.any(|made| made.phase == Phase::Clock)
    }) {
        give_made(messages, Phase::Clock, now, part);
        part.advance(now);
    }
}

/// Takes what was made in a phase through a part, in an order of its own if several threads made it.
pub(super) fn give_made(messages: &[Message], phase: Phase, now: Nanos, part: &mut Part) {
    let all = || {
        let lanes = messages.iter().enumerate();
        lanes.flat_map(move |(lane, message)| {
            let made = message.made.iter().enumerate();
            made.filter(move |(_, made)| made.phase == phase)
                .map(move |(number, made)| (lane, number, made))
        })
    };
    let mut lanes = all().map(|(lane, ..)| lane);
    let is_of_one = lanes
        .next()
        .is_none_or(|first| lanes.all(|lane| lane == first));
    if is_of_one {
        for (_, _, made) in all() {
            made.items.give(None, |items| part.feed(items, now));
        }
        return;
    }
    let mut places = Vec::new();
    for (lane, number, made) in all() {
        for place in made.items.places() {
            places.push((made.maker, made.items.order(place), lane, number, place));
        }
    }
    places.sort_unstable();
    let same = |one: &(NodeId, u64, usize, usize, usize),
                other: &(NodeId, u64, usize, usize, usize)| {
        (one.2, one.3) == (other.2, other.3) && one.4 < other.4
    };
    for run in places.chunk_by(same) {
        let Some(&(_, _, lane, number, _)) = run.first() else {
            continue;
        };
        let run: Vec<usize> = run.iter().map(|of| of.4).collect();
        if let Some(made) = messages
            .get(lane)
            .and_then(|message| message.made.get(number))
        {
            made.items.give(Some(&run), |items| part.feed(items, now));
        }
    }
}

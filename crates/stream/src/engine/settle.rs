//! The first packet of a connection, and the end of a stream: which applications want it, and their
//! state.

use super::config::{ApplicationId, Cutoff, FilterPacket, StreamFilter};
use super::core::{Application, Core};
use super::events::Events;
use super::first_packet::FirstPacket;
use super::pass::{Hook, TCP};
use super::record::{Extra, Record, RecordFlags, View, ViewAt, ViewFlags};
use super::slab::NONE;
use super::stream_ref::{Context, StreamRef};
use crate::handler::{Handler, Stream, StreamPacket};
use crate::wants::Want;

impl<E: Events + ?Sized, G: Handler> Hook<'_, E, G> {
    /// The first packet of a connection: which applications want its streams?
    #[cold]
    pub(super) fn introduce(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) {
        let mut first = stream.id;
        let of = |core: &Core, id: u32| {
            core.records
                .get(id)
                .is_some_and(|record| record.flags.has(RecordFlags::FROM_INITIATOR))
        };
        if !of(self.core, first) {
            first ^= 1;
        }
        let is_tcp = packet.decoded.key.protocol == TCP;
        let asked =
            (self.core.alike.is_none()).then(|| FirstPacket::new(packet, self.core.filtered));
        for id in [first, first ^ 1] {
            match &asked {
                None => self.core.settle_alike(id),
                Some(packet) => self.core.settle(id, &packet.of(id == stream.id)),
            }
            self.core.note_settled(id, is_tcp);
            let Some(record) = self.core.records.get(id) else {
                continue;
            };
            if record.flags.has(RecordFlags::UNWANTED) {
                self.core.requests.push_back(Want::Nothing(id));
                continue;
            }
            self.core.statistics.created += 1;
            let context = Context::of(stream);
            let mut at = Some(ViewAt::first(id));
            while let Some(this) = at {
                at = self.core.next_view(this);
                let Some(view) = self.core.view(this) else {
                    continue;
                };
                let application = ApplicationId(view.application);
                let mut stream = StreamRef {
                    core: self.core,
                    context,
                    at: this,
                };
                self.events.created(application, &mut stream);
            }
            self.core.share(id);
            self.core.tell_standing(id);
            if self.core.is_done(id) {
                self.finish_direction(id);
            }
        }
    }
}

impl Application {
    /// What it has of a new direction with this cutoff and priority; it is the `at`th application.
    pub(super) fn view(&self, at: u8, limit: Cutoff, priority: u8) -> View {
        let mut view = View {
            limit: limit.0,
            application: at,
            priority,
            parameters: self.parameters,
            chunk_parameters: self.parameters,
            ..View::default()
        };
        if limit.0 == 0 {
            view.flags.set(ViewFlags::OVER | ViewFlags::CUT);
        }
        view
    }
}

impl Core {
    /// Gives a new direction the views of the applications that want it.
    fn settle(&mut self, id: u32, packet: &FilterPacket<'_>) {
        let is_initiator = self
            .records
            .get(id)
            .is_some_and(|record| record.flags.has(RecordFlags::FROM_INITIATOR));
        let mut last = None;
        for index in 0..self.applications.len() {
            let Some(entered) = &self.applications[index] else {
                continue;
            };
            let application = &entered.config;
            let matches = |filter: &StreamFilter| filter.matches(packet);
            if application
                .filter
                .as_ref()
                .is_some_and(|filter| !matches(filter))
            {
                continue;
            }
            let limit = application.cutoff.of(packet, is_initiator);
            let priority = &application.priority;
            let class = priority.classes.iter().find(|(filter, _)| matches(filter));
            let priority = class.map_or(priority.default, |class| class.1);
            let view = entered.view(index as u8, limit, priority);
            self.use_priority(priority);
            last = Some(self.add_view(id, last, view));
        }
    }

    /// The same where one application wants all alike.
    #[inline]
    fn settle_alike(&mut self, id: u32) {
        if let (Some(record), Some(alike)) = (self.records.get_mut(id), &self.alike) {
            let from_initiator = record.flags.has(RecordFlags::FROM_INITIATOR);
            record.view = alike[usize::from(from_initiator)].clone();
            let priority = record.view.priority;
            self.use_priority(priority);
        }
    }

    /// A new direction has the views of those who want it.
    #[inline]
    fn note_settled(&mut self, id: u32, is_tcp: bool) {
        if let Some(record) = self.records.get_mut(id) {
            record.flags.clear(RecordFlags::NEW);
            if !is_tcp {
                record.flags.set(RecordFlags::DATAGRAMS);
            }
            if record.view.application == u8::MAX {
                record.flags.set(RecordFlags::UNWANTED);
            }
        }
        self.note_views(id);
    }

    fn add_view(&mut self, id: u32, last: Option<ViewAt>, view: View) -> ViewAt {
        let Some(last) = last else {
            if let Some(record) = self.records.get_mut(id) {
                record.view = view;
            }
            return ViewAt::first(id);
        };
        let place = last.place + 1;
        let extra = self.views.insert(Extra {
            view: View {
                chunker: place,
                ..view
            },
            ..Extra::default()
        });
        if last.extra == NONE {
            if let Some(record) = self.records.get_mut(id) {
                record.more = extra;
            }
        } else if let Some(before) = self.views.get_mut(last.extra) {
            before.next = extra;
        }
        ViewAt {
            record: id,
            extra,
            place,
        }
    }

    /// The stream is over: frees what is kept for it.
    pub(super) fn forget(&mut self, id: u32) {
        self.forget_loss(id);
        self.forget_silence(id);
        if !self.beyond.is_empty() {
            self.beyond.remove(&id);
        }
        let mut at = Some(ViewAt::first(id));
        while let Some(this) = at {
            at = self.next_view(this);
            self.free_chunk(this);
            if this.extra != NONE {
                self.views.remove(this.extra);
            }
        }
        if let Some(record) = self.records.get_mut(id) {
            *record = Record {
                generation: record.generation.wrapping_add(1),
                ..Record::default()
            };
        }
    }
}

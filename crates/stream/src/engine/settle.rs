//! The first packet of a connection, and the end of a stream: who wants it, and what is kept for them.

use super::config::{ApplicationId, FilterPacket, StreamFilter};
use super::core::Core;
use super::events::Events;
use super::first_packet::FirstPacket;
use super::pass::{Hook, TCP};
use super::record::{Extra, Record, RecordFlags, View, ViewAt, ViewFlags};
use super::slab::NONE;
use super::stream_ref::{Context, StreamRef};
use crate::handler::{Stream, StreamPacket};
use crate::wants::Want;

impl<E: Events + ?Sized> Hook<'_, E> {
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
        let packet = FirstPacket::new(packet, self.core.filtered);
        for id in [first, first ^ 1] {
            let seen = packet.of(id == stream.id);
            self.core.settle(id, &seen);
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
            if self.core.is_done(id) {
                self.finish_direction(id);
            }
        }
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
            let Some(application) = &self.applications[index] else {
                continue;
            };
            let parameters = application.parameters;
            let application = &application.config;
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
            let mut view = View {
                limit: limit.0,
                application: index as u8,
                priority,
                parameters,
                chunk_parameters: parameters,
                ..View::default()
            };
            if limit.0 == 0 {
                view.flags.set(ViewFlags::OVER | ViewFlags::CUT);
            }
            self.use_priority(priority);
            last = Some(self.add_view(id, last, view));
        }
        if let Some(record) = self.records.get_mut(id) {
            record.flags.clear(RecordFlags::NEW);
            if packet.decoded.key.protocol != TCP {
                record.flags.set(RecordFlags::DATAGRAMS);
            }
            if last.is_none() {
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

//! Records of many kinds in one place: each says of what kind it is, and of which flow.

use core::any::Any;

use crate::any::KnownRecord;
use crate::schema::{Field, FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields in front of those of the record itself.
    EventFields, EVENT, EVENT_SCHEMA:
    event_type Text None "EVENT" 1 "what kind of record it is: http, dns, flow ...";
    flow_id Hex None "" 0 "the same in every record about the flow";
    app_proto Text None "APP" 3 "protocol that was spoken in the flow, or null";
}

/// A record among others of other kinds.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a, R> {
    kind: &'static str,
    about: About,
    schema: Schema,
    record: &'a R,
}

#[derive(Clone, Copy, Debug)]
enum About {
    /// A flow, by its number.
    Flow(Option<u64>),
    /// What was spoken in it, as far as that is known.
    Spoken(Option<&'static str>),
}

/// The schemas of events, by those of their records.
#[derive(Clone, Debug, Default)]
pub struct EventSchemas(Vec<(Schema, Schema)>);

impl EventSchemas {
    /// A record of this kind, and the flow it is of.
    #[inline]
    pub fn event<'a, R: KnownRecord>(
        &mut self,
        kind: &'static str,
        flow_id: Option<u64>,
        record: &'a R,
    ) -> Event<'a, R> {
        let schema = self.of(record.schema(), &EVENT.flow_id);
        Event {
            kind,
            about: About::Flow(flow_id),
            schema,
            record,
        }
    }

    /// The record of a flow itself, and what was spoken in it.
    pub fn flow<'a, R: KnownRecord>(
        &mut self,
        spoken: Option<&'static str>,
        record: &'a R,
    ) -> Event<'a, R> {
        let schema = self.of(record.schema(), &EVENT.app_proto);
        Event {
            kind: "flow",
            about: About::Spoken(spoken),
            schema,
            record,
        }
    }

    #[inline]
    fn of(&mut self, schema: Schema, second: &'static Field) -> Schema {
        let known = self.0.iter().find(|(of, _)| core::ptr::eq(*of, schema));
        match known {
            Some((_, whole)) => whole,
            None => self.add(schema, second),
        }
    }

    #[cold]
    fn add(&mut self, schema: Schema, second: &'static Field) -> Schema {
        let whole = event_schema(schema, second);
        self.0.push((schema, whole));
        whole
    }
}

/// The schema of events with such records. There are as many as kinds of records: they stay for the life of
/// the process.
fn event_schema(schema: Schema, second: &'static Field) -> Schema {
    static MADE: std::sync::Mutex<Vec<(usize, Schema)>> = std::sync::Mutex::new(Vec::new());
    let mut made = MADE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let address = schema.as_ptr() as usize;
    if let Some((_, whole)) = made.iter().find(|(of, _)| *of == address) {
        return whole;
    }
    let all = [&EVENT.event_type, second].into_iter();
    let whole: Vec<&'static Field> = all.chain(schema.iter().copied()).collect();
    let whole: Schema = Box::leak(whole.into_boxed_slice());
    made.push((address, whole));
    whole
}

/// The fields of events whose records have these, as [`EventSchemas::event`] makes them.
pub fn schema_of_events(schema: Schema) -> Schema {
    event_schema(schema, &EVENT.flow_id)
}

impl<R: Record> Record for Event<'_, R> {
    #[inline]
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.symbol(&EVENT.event_type, self.kind.as_bytes());
        match self.about {
            About::Flow(Some(id)) => visitor.hex(&EVENT.flow_id, id),
            About::Flow(None) => visitor.null(&EVENT.flow_id),
            About::Spoken(Some(name)) => visitor.symbol(&EVENT.app_proto, name.as_bytes()),
            About::Spoken(None) => visitor.null(&EVENT.app_proto),
        }
        self.record.visit(visitor);
    }
}

impl<R: KnownRecord> KnownRecord for Event<'_, R> {
    fn schema(&self) -> Schema {
        self.schema
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.record.as_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::OwnedRecord;
    use crate::http::{HTTP_MESSAGE_SCHEMA, HttpMessage};
    use crate::json::JsonEncoder;

    #[test]
    fn what_it_is_stands_in_front() {
        let message = HttpMessage::default();
        let mut schemas = EventSchemas::default();
        let event = schemas.event("http", Some(0xfeed), &message);
        assert_eq!(event.schema().len(), HTTP_MESSAGE_SCHEMA.len() + 2);
        let mut text = Vec::new();
        JsonEncoder::default().object(&event, &mut text);
        let text = String::from_utf8(text).unwrap();
        let start = r#"{"event_type":"http","flow_id":"000000000000feed","time":"#;
        assert!(text.starts_with(start), "{text}");
        let names = event.schema().iter().map(|field| field.name);
        let owned = OwnedRecord::of(&event);
        assert!(names.eq(owned.iter().map(|(field, _)| field.name)));
        let again = schemas.event("http", None, &message);
        assert!(core::ptr::eq(again.schema(), event.schema()));
        assert!(core::ptr::eq(
            schema_of_events(HTTP_MESSAGE_SCHEMA),
            event.schema()
        ));
    }
}

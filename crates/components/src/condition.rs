//! `where`: records of which a condition holds.
//!
//! The condition is read once, and bound to the fields of each kind of record that comes. A record
//! hands its values over one after the other; each is looked at by the tests of its field, and then
//! the tests are combined. Nothing is allocated for a record.

mod literal;
mod read;

use core::cmp::Ordering;

use flowgauge_record::aggregate::halves;
use flowgauge_record::any::AnyRecord;
use flowgauge_record::picked::{field_instead_of, of_kinds};
use flowgauge_record::schema::{Field, FieldKind, Schema};
use flowgauge_record::{FieldVisitor, ValueRef};
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, ResultInfo, ResultValue,
    SettingError, Settings, forked, options,
};
use memchr::memmem::Finder;
use regex::bytes::Regex;

use self::literal::Literal;
pub use self::literal::time;
use self::read::test;
use crate::boolean::{self, Tree};
use crate::words::{Order, Trouble, Words};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "where",
    summary: "selects records by a condition",
    help: "For example: bytes > 1M and dst_port = 443. Fields are tested with = != < <= > >=, in {80, \
           8000..8080}, contains and matches (texts); a field alone is true if it has a value. Tests are \
           joined by and, or, xor, not and brackets. Values are written as the field requires: 1M (2^20 for \
           bytes, else 10^6), 5ms, 10.0.0.0/8, \"2026-11-22 10:30:00\" in UTC; texts in double quotes unless \
           they are single words. `bytes` is src_bytes + dst_bytes where there are both, `port` and `ip` match \
           either side. A field of an object is written request.src_port. If a record lacks a field or its value, \
           tests of it are false.",
    input: Input::Of(&[ItemType::Record]),
    options: Options::ALL,
    result: Some(ResultInfo::number("records let through", "records")),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    condition: Text = required, "which records";
}

#[derive(Clone)]
struct Where {
    condition: Condition,
    passed: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(Box::new(Where {
        condition: Condition::of(&Options::read(settings).condition, settings.kinds())?,
        passed: 0,
    }))
}

impl Component for Where {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Records(records) = items else {
            return;
        };
        let mut passed = 0;
        let all = *records;
        for (index, item) in all.iter().enumerate() {
            let holds = self.condition.holds(item.record);
            // As long as all come through they stay where they are.
            if holds && passed < index {
                out.emit(Items::Records(core::slice::from_ref(item)));
            } else if !holds && passed == index {
                let before = all.get(..index).unwrap_or_default();
                if !before.is_empty() {
                    out.emit(Items::Records(before));
                }
                *records = &[];
            }
            passed += usize::from(holds);
        }
        self.passed += passed as u64;
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.passed))
    }

    fn reset(&mut self) {
        self.passed = 0;
    }
}

/// A condition on records of any kind.
#[derive(Clone)]
pub struct Condition {
    tree: Tree<usize>,
    tests: Vec<Test>,
    /// For each kind of record that came: which tests look at which field.
    bound: Vec<Bound>,
    /// What each test has found in the record at work.
    found: Vec<Found>,
}

/// What is asked of a field.
#[derive(Clone)]
struct Test {
    name: String,
    /// Where it stands, in characters from 1.
    column: usize,
    relation: Relation,
}

#[derive(Clone)]
enum Relation {
    /// It has a value.
    Exists,
    Is(Order, Literal),
    In(Vec<(Literal, Literal)>),
    Contains(Box<Finder<'static>>),
    Matches(Regex),
}

/// The tests of the fields of one kind of record, in the order of the fields.
#[derive(Clone)]
struct Bound {
    schema: Schema,
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
struct Step {
    place: usize,
    test: usize,
    side: Side,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The field itself.
    Whole,
    /// The first of two that are added.
    Summand,
    /// The second.
    Sum,
    /// One of two, either of which will do.
    Either,
}

#[derive(Clone, Copy, Default)]
struct Found {
    sum: u64,
    has_value: bool,
    looked: u8,
    held: u8,
}

impl Condition {
    /// One on records of these kinds. Of no kinds nothing is known.
    ///
    /// # Errors
    /// It is not a condition, or on fields that they do not have.
    pub fn of(text: &str, kinds: &[Schema]) -> Result<Condition, SettingError> {
        let condition = Condition::read(text);
        let checked = condition.and_then(|it| it.check(kinds).map(|()| it));
        checked.map_err(|trouble| trouble.of("condition"))
    }

    fn read(text: &str) -> Result<Condition, Trouble> {
        let mut words = Words::of(text)?;
        let mut tests = Vec::new();
        let tree = boolean::parse(&mut words, &mut |words| {
            tests.push(test(words)?);
            Ok(Tree::Test(tests.len() - 1))
        })?;
        Ok(Condition {
            tree,
            found: vec![Found::default(); tests.len()],
            tests,
            bound: Vec::new(),
        })
    }

    /// Whether each test is of a field that a record of some kind can have. Of no kinds nothing is known.
    fn check(&self, kinds: &[Schema]) -> Result<(), Trouble> {
        let Some((first, others)) = kinds.split_first() else {
            return Ok(());
        };
        self.tests.iter().try_for_each(|test| {
            let mut trouble = match test.steps(first) {
                Ok(_) => return Ok(()),
                Err(trouble) => trouble,
            };
            for schema in others {
                match test.steps(schema) {
                    Ok(_) => return Ok(()),
                    // That there is such a field elsewhere, and what is wrong with it, says more.
                    Err(other) if trouble.hint.is_some() => trouble = other,
                    Err(_) => {}
                }
            }
            match trouble.hint {
                Some(_) => Err(unknown(test, kinds)),
                None => Err(trouble),
            }
        })
    }

    /// Finds the fields of a kind of record. A test that is of none of them, or does not fit, never holds.
    #[cold]
    fn bind(&mut self, schema: Schema) {
        let mut steps = Vec::new();
        for (index, test) in self.tests.iter().enumerate() {
            let found = test.steps(schema).unwrap_or_default();
            steps.extend(found.into_iter().map(|(place, side)| Step {
                place,
                test: index,
                side,
            }));
        }
        steps.sort_by_key(|step| step.place);
        self.bound.push(Bound { schema, steps });
    }

    /// Whether it holds of a record.
    pub fn holds(&mut self, record: &dyn AnyRecord) -> bool {
        let schema = record.schema();
        let is_it = |bound: &Bound| core::ptr::eq(bound.schema, schema);
        let index = match self.bound.iter().position(is_it) {
            Some(index) => index,
            None => {
                self.bind(schema);
                self.bound.len() - 1
            }
        };
        self.found.fill(Found::default());
        if let Some(bound) = self.bound.get(index) {
            record.values(&mut Look {
                tests: &self.tests,
                steps: &bound.steps,
                found: &mut self.found,
                place: 0,
            });
        }
        let holds = |test: &usize| {
            let (test, found) = (&self.tests[*test], &self.found[*test]);
            match test.relation {
                // Neither side is it.
                Relation::Is(Order::NotEqual, _) => found.looked > 0 && found.held == found.looked,
                _ => found.held > 0,
            }
        };
        self.tree.holds(&holds)
    }
}

/// Hands the values of a record to the tests of their fields.
struct Look<'a> {
    tests: &'a [Test],
    steps: &'a [Step],
    found: &'a mut [Found],
    place: usize,
}

impl FieldVisitor for Look<'_> {
    #[inline]
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        while let Some((step, rest)) = self.steps.split_first() {
            if step.place != self.place {
                break;
            }
            self.steps = rest;
            let (Some(test), Some(found)) =
                (self.tests.get(step.test), self.found.get_mut(step.test))
            else {
                continue;
            };
            if let Some((_, rest)) = test.name.split_once('.') {
                if let ValueRef::Object(Some(object)) = value {
                    object.values(&mut Inside {
                        test,
                        name: rest,
                        found,
                    });
                }
                continue;
            }
            match (step.side, value) {
                (Side::Whole | Side::Either, value) => found.look(test, field, value),
                (Side::Summand | Side::Sum, ValueRef::Unsigned(value))
                | (Side::Summand | Side::Sum, ValueRef::Duration(flowgauge_wire::Nanos(value))) => {
                    found.has_value = true;
                    found.sum = found.sum.saturating_add(value);
                }
                (Side::Summand | Side::Sum, _) => {}
            }
            if step.side == Side::Sum && found.has_value {
                let sum = match field.kind {
                    FieldKind::Duration => ValueRef::Duration(flowgauge_wire::Nanos(found.sum)),
                    _ => ValueRef::Unsigned(found.sum),
                };
                found.look(test, field, sum);
            }
        }
        self.place += 1;
    }
}

/// The fields of an object within a record.
struct Inside<'a> {
    test: &'a Test,
    name: &'a str,
    found: &'a mut Found,
}

impl FieldVisitor for Inside<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let (name, rest) = match self.name.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (self.name, None),
        };
        if field.name != name {
            return;
        }
        match (rest, value) {
            (None, value) => self.found.look(self.test, field, value),
            (Some(name), ValueRef::Object(Some(object))) => object.values(&mut Inside {
                test: self.test,
                name,
                found: self.found,
            }),
            (Some(_), _) => {}
        }
    }
}

impl Found {
    fn look(&mut self, test: &Test, field: &Field, value: ValueRef<'_>) {
        if matches!(value, ValueRef::Null | ValueRef::Object(None)) {
            return;
        }
        self.looked = self.looked.saturating_add(1);
        self.held = self.held.saturating_add(test.holds(field, value).into());
    }
}

impl Test {
    fn holds(&self, field: &Field, value: ValueRef<'_>) -> bool {
        if let ValueRef::Texts(list) = value {
            let holds = |text| self.holds(field, ValueRef::Text(text));
            return match self.relation {
                Relation::Exists => true,
                // None of them is it.
                Relation::Is(Order::NotEqual, _) => list.iter().all(holds),
                _ => list.iter().any(holds),
            };
        }
        match &self.relation {
            Relation::Exists => true,
            Relation::Is(order, literal) => match value {
                // None of them is it.
                ValueRef::List(list) if *order == Order::NotEqual => {
                    list.iter().all(|one| Some(one) != literal.number)
                }
                ValueRef::List(list) => literal
                    .number
                    .is_some_and(|number| list.iter().any(|one| order.holds(one.cmp(&number)))),
                value => literal
                    .compare(field, value)
                    .is_some_and(|found| order.holds(found)),
            },
            Relation::In(ranges) => match value {
                ValueRef::List(list) => list.iter().any(|one| {
                    let one = ValueRef::Unsigned(one);
                    ranges.iter().any(|range| is_in(range, field, one))
                }),
                value => ranges.iter().any(|range| is_in(range, field, value)),
            },
            Relation::Contains(finder) => {
                (value.as_text()).is_some_and(|text| finder.find(text.as_bytes()).is_some())
            }
            Relation::Matches(regex) => {
                (value.as_text()).is_some_and(|text| regex.is_match(text.as_bytes()))
            }
        }
    }

    /// Where in records with these fields it looks; in the order of the fields.
    fn steps(&self, schema: Schema) -> Result<Vec<(usize, Side)>, Trouble> {
        let (name, rest) = match self.name.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (self.name.as_str(), None),
        };
        let place = |name: &str| schema.iter().position(|field| field.name == name);
        if let Some(at) = place(name) {
            let field = schema[at];
            if rest.is_none() {
                self.check(field)?;
            } else if field.kind != FieldKind::Object {
                let message = format!("{name} is not an object that has fields of its own");
                return Err(Trouble::at(self.column, message));
            }
            return Ok(vec![(at, Side::Whole)]);
        }
        let halves = halves(schema, name).filter(|_| rest.is_none());
        let (one, other) = halves.ok_or_else(|| unknown(self, &[schema]))?;
        self.check(one)?;
        let (first, second) = match one.is_amount() {
            true => (Side::Summand, Side::Sum),
            false => (Side::Either, Side::Either),
        };
        let places = [place(one.name), place(other.name)];
        let sides = [first, second].into_iter();
        let [Some(one), Some(other)] = places else {
            return Ok(Vec::new());
        };
        Ok([one.min(other), one.max(other)]
            .into_iter()
            .zip(sides)
            .collect())
    }

    /// Whether a field of this kind can be asked so.
    fn check(&self, field: &Field) -> Result<(), Trouble> {
        let wrong = |message: String| Err(Trouble::at(self.column, message));
        let name = field.name;
        match (&self.relation, field.kind) {
            (Relation::Exists, _) => Ok(()),
            (_, FieldKind::Object) => wrong(format!("{name} is an object: ask for a field of it")),
            (Relation::Contains(_) | Relation::Matches(_), FieldKind::Text | FieldKind::Texts) => {
                Ok(())
            }
            (Relation::Contains(_) | Relation::Matches(_), _) => {
                wrong(format!("{name} is not text to look in"))
            }
            (Relation::Is(order, literal), kind) => {
                let has_order = !matches!(
                    kind,
                    FieldKind::Text | FieldKind::Texts | FieldKind::Hex | FieldKind::Address
                );
                if !has_order && !matches!(order, Order::Equal | Order::NotEqual) {
                    return wrong(format!("{name} is equal to something or not, nothing else"));
                }
                literal.check(field)
            }
            (Relation::In(ranges), kind) => {
                for (low, high) in ranges {
                    low.check(field)?;
                    high.check(field)?;
                    let is_one = low.column == high.column;
                    if !is_one
                        && matches!(
                            kind,
                            FieldKind::Text
                                | FieldKind::Texts
                                | FieldKind::Hex
                                | FieldKind::Address
                        )
                    {
                        return wrong(format!("{name} has no ranges"));
                    }
                    if low.exceeds(high, field) {
                        return Err(Trouble::empty_range(low.column));
                    }
                }
                Ok(())
            }
        }
    }
}

fn is_in((low, high): &(Literal, Literal), field: &Field, value: ValueRef<'_>) -> bool {
    low.compare(field, value).is_some_and(Ordering::is_ge)
        && high.compare(field, value).is_some_and(Ordering::is_le)
}

fn unknown(test: &Test, kinds: &[Schema]) -> Trouble {
    Trouble {
        hint: Some(field_instead_of(&test.name, of_kinds(kinds), |_| true)),
        ..Trouble::at(
            test.column,
            format!("the records have no field {}", test.name),
        )
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::any::{OwnedRecord, Value};
    use flowgauge_record::flow::FLOW_SCHEMA;
    use flowgauge_wire::{Address, Nanos};

    use super::*;

    /// A flow of 600 and 500 KiB from 10.1.2.3:40000 to 192.0.2.1:443, in VLANs 7 and 42.
    fn flow() -> OwnedRecord {
        let values = FLOW_SCHEMA.iter().map(|field| match field.name {
            "src_ip" => Value::Address(Address::v4([10, 1, 2, 3]), 4),
            "dst_ip" => Value::Address(Address::v4([192, 0, 2, 1]), 4),
            "src_port" => Value::Unsigned(40_000),
            "dst_port" => Value::Unsigned(443),
            "proto" => Value::Symbol("tcp".into()),
            "start" => Value::Time(Nanos(1_795_343_400_500_000_000)),
            "duration" => Value::Duration(Nanos(1_500_000_000)),
            "src_bytes" => Value::Unsigned(600 << 10),
            "dst_bytes" => Value::Unsigned(500 << 10),
            "history" => Value::Text("ShADadFf".into()),
            "vlan" => Value::List([7, 42].into()),
            "flow_id" => Value::Hex(0xfeed),
            _ => Value::Null,
        });
        OwnedRecord::new(FLOW_SCHEMA, values.collect())
    }

    fn holds(text: &str) -> bool {
        let mut condition = Condition::read(text).unwrap_or_else(|it| panic!("{text}: {it:?}"));
        condition.holds(&flow())
    }

    /// Of records of several kinds one may lack a field that others have: then no test of it holds. A field of none is
    /// found before the run.
    #[test]
    fn a_field_that_a_record_has_not_holds_no_test() {
        use flowgauge_record::dns::DNS_SCHEMA;
        let dns = DNS_SCHEMA.iter().map(|field| match field.name {
            "src_port" => Value::Unsigned(40_000),
            _ => Value::Null,
        });
        let dns = OwnedRecord::new(DNS_SCHEMA, dns.collect());
        for (text, of_flow, of_dns) in [
            ("history contains ad", true, false),
            ("history != x", true, false),
            ("not history = x", true, true),
            ("src_port = 40000", true, true),
            ("query = x or src_bytes > 1k", true, false),
            ("tunnel.id = 7 or src_port = 40000", true, true),
        ] {
            let mut condition = Condition::read(text).unwrap();
            condition.check(&[DNS_SCHEMA, FLOW_SCHEMA]).unwrap();
            let found = [flow(), dns.clone()].map(|record| condition.holds(&record));
            assert_eq!(found, [of_flow, of_dns], "{text}");
        }
        for (text, expected) in [
            (
                "nonsense = 1",
                "character 1: the records have no field nonsense",
            ),
            // There is one in a record of the second kind.
            (
                "history = x and src_bytes = x",
                "character 29: \"x\" is not a number of bytes, such as 1500 or 1M (field src_bytes)",
            ),
        ] {
            let condition = Condition::read(text).unwrap();
            let trouble = condition.check(&[DNS_SCHEMA, FLOW_SCHEMA]).unwrap_err();
            assert_eq!(trouble.message, expected, "{text}");
            condition.check(&[]).unwrap();
        }
    }

    #[test]
    fn fields_are_compared_as_what_they_are() {
        for text in [
            "bytes > 1M and dst_port = 443",
            "bytes = 1100k",
            "src_bytes >= 600k and src_bytes <= 614400",
            "port = 443 and port = 40000",
            "port in {80, 400..500}",
            "ip = 10.0.0.0/8",
            "src_ip = 10.1.2.3 and dst_ip != 10.0.0.0/8",
            "dst_ip in {2001:db8::/32, 192.0.2.0/24}",
            "duration > 1 and duration < 2s and duration = 1500ms",
            "start > \"2026-11-22 10:30:00\" and start < \"2026-11-22T10:30:01Z\"",
            "start = \"2026-11-22 10:30:00.5\" and start > 1795343400.25",
            "proto = tcp and proto != udp and proto in {udp tcp}",
            "history contains ad and history matches \"^Sh.*f$\"",
            "vlan = 42 and vlan = 7 and vlan != 8 and vlan in {1..10}",
            "flow_id = 000000000000feed",
            "vlan and not handshake_rtt",
            "proto = tcp xor proto = udp",
            "(proto = udp or port = 443) and !(port = 80)",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in [
            "bytes > 2M",
            "bytes < 1M",
            "port != 443",
            "ip != 10.0.0.0/8",
            "src_ip = 192.0.2.1",
            "src_ip = ::a01:203",
            "handshake_rtt < 1h",
            "handshake_rtt != 1h",
            "vlan != 42",
            "proto = TCP",
            "history contains x",
            "tunnel.id = 7",
            "proto = tcp xor port = 443",
        ] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, expected) in [
            ("", "character 1: a field is expected, not the end"),
            (
                "nonsense = 1",
                "character 1: the records have no field nonsense",
            ),
            (
                "proto = tcp and bits > 5",
                "character 17: the records have no field bits",
            ),
            (
                "bytes > ten",
                "character 9: \"ten\" is not a number of bytes, such as 1500 or 1M (field src_bytes)",
            ),
            (
                "src_ip = host",
                "character 10: \"host\" is not an address or network, such as 10.0.0.0/8 (field src_ip)",
            ),
            (
                "src_ip > 10.0.0.1",
                "character 1: src_ip is equal to something or not, nothing else",
            ),
            (
                "duration = 5 parsecs",
                "character 14: and, or or the end is expected, not parsecs",
            ),
            (
                "dst_port contains 4",
                "character 1: dst_port is not text to look in",
            ),
            ("proto in {a..b}", "character 1: proto has no ranges"),
            ("proto in {}", "character 12: the set is empty"),
            (
                "dst_port in {443, 80..70}",
                "character 19: the range is empty: it ends before it begins",
            ),
            (
                "src_bytes in {1M..1000}",
                "character 15: the range is empty: it ends before it begins",
            ),
            (
                "duration in {1s..5ms}",
                "character 14: the range is empty: it ends before it begins",
            ),
            (
                "tunnel = gre",
                "character 1: tunnel is an object: ask for a field of it",
            ),
            (
                "proto.name = x",
                "character 1: proto is not an object that has fields of its own",
            ),
            ("proto matches \"(\"", "character 15: unclosed group"),
            (
                "start < yesterday",
                "character 9: \"yesterday\" is not a time, such as \"2026-11-22 10:30:00\" (field start)",
            ),
        ] {
            let read = Condition::read(text).and_then(|it| it.check(&[FLOW_SCHEMA]));
            let trouble = read.expect_err(text);
            assert_eq!(trouble.message, expected, "{text}");
            let is_unknown = trouble.message.contains("have no field");
            assert_eq!(trouble.hint.is_some(), is_unknown, "{text}");
        }
    }
}

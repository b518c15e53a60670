//! Records of commands that list things: components, their costs, and the flows of a sensor.

use crate::results::Value;
use crate::schema::record;
use crate::value::Symbol;

record! {
    /// Fields of a [`ComponentRow`].
    COMPONENT, COMPONENT_SCHEMA for ComponentRow<'_> as it:
    component Text = Symbol(it.component), "name of the component";
    aliases Texts = it.aliases, "other names it has";
    usage Text "COMPONENT" 1 = it.usage, "how it is written in a stack";
    input Text "INPUT" 2 = it.input, "types of items it takes";
    output Text "OUTPUT" 2 = Symbol(it.output), "type of items it passes on";
    result Text = it.result, "its result";
    options Texts = it.options, "names of its options";
    summary Text "PURPOSE" 1 = it.summary, "its purpose in a line";
}

/// A component of stacks.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct ComponentRow<'a> {
    pub component: &'a str,
    pub aliases: &'a [&'a str],
    pub usage: &'a str,
    pub input: &'a str,
    pub output: &'a str,
    pub result: Option<&'a str>,
    pub options: &'a [&'a str],
    pub summary: &'a str,
}

record! {
    /// Fields of a [`CostRow`].
    COST, COST_SCHEMA for CostRow<'_> as it:
    stack Text "STACK" 2 = it.stack, "name of the stack, if it has one";
    component Text "COMPONENT" 1 = it.component, "label of the component; empty for the whole stack";
    depth Unsigned "DEPTH" 3 = it.depth, "number of demultiplexers and switches around it";
    packets Unsigned = it.packets, "packets of the input";
    nanoseconds Float "NS/PACKET" 1 = it.nanoseconds, "time per packet of the input, minimum of all runs";
    median Float "MEDIAN" 1 = it.median, "the same, median of all runs";
    items Unsigned "ITEMS" 1 = it.items, "items that reached the component";
    item_nanoseconds Float "NS/ITEM" 1 = it.item_nanoseconds, "time per item, minimum of all runs";
    result Unsigned = it.result, "its result, if it is a number";
    most_keys Unsigned = it.most_keys, "of a demultiplexer: largest number of keys at once";
}

/// The cost of a component.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct CostRow<'a> {
    pub stack: Option<&'a str>,
    pub component: Option<&'a str>,
    pub depth: Option<u64>,
    pub packets: u64,
    pub nanoseconds: f64,
    pub median: f64,
    pub items: Option<u64>,
    pub item_nanoseconds: Option<f64>,
    pub result: Value<'a>,
    pub most_keys: Option<u64>,
}

record! {
    /// Fields of a [`SensorFlowRow`].
    SENSOR_FLOW, SENSOR_FLOW_SCHEMA for SensorFlowRow<'_> as it:
    device Text "DEVICE" 1 = it.device, "device of the sensor";
    flow Unsigned "FLOW" 1 = it.flow, "number of the flow";
    user Unsigned "USER" 2 = it.user, "number of the user; of a user of another machine 2^32 or more";
    name Text "NAME" 2 = it.name, "name in the certificate of a user of another machine";
    process Unsigned "PROCESS" 2 = it.process, "process that opened the flow; of other machines, that of their agent";
    seconds Unsigned Seconds "AGE" 1 = it.seconds, "seconds since it was opened, or since its device began anew";
    cpu_ns Unsigned "CPU NS" 1 = it.cpu_ns, "its share of its stack's processor time, in nanoseconds";
    lost Unsigned Packets "LOST" 1 = it.lost, "packets it lost; of a libscap program, events";
    waiting Unsigned Bytes = it.waiting, "bytes that wait for its program";
    components Texts "COMPONENTS" 1 = it.components, "components of its stack";
    failure Text "FAILURE" 1 = it.failure, "why it failed";
}

/// A flow of a sensor.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct SensorFlowRow<'a> {
    pub device: &'a str,
    pub flow: u64,
    pub user: u64,
    pub name: Option<&'a str>,
    pub process: u32,
    pub seconds: u64,
    pub cpu_ns: u64,
    pub lost: u64,
    pub waiting: u64,
    pub components: &'a [String],
    pub failure: Option<&'a str>,
}

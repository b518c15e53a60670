//! `thread`: cuts a stack in two that run on a thread each.

use flowgauge_stack::{
    Component, ComponentInfo, ComponentKind, Input, Parallel, ResultInfo, ResultValue, options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "thread",
    summary: "runs the following components on a separate thread",
    help: "Between the two threads is a queue of batches. While it is full the first thread waits, or with `when_full \
       = drop` drops the batch, which the result counts: a slow end of a stack then does not delay the capture. \
       Packets of a file are passed on without copies. Allowed only in the outermost sequence of a stack.",
    kind: ComponentKind::Thread,
    input: Input::Any,
    options: Options::ALL,
    result: Some(ResultInfo::number(
        "items dropped because the queue was full",
        "items",
    )),
    parallel: Parallel::Never("what follows it runs on one thread"),
    decodes: |_| true,
    make: |_| Ok(Box::new(Cut)),
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    queue: Integer(1, 65_536) = "64", "maximum batches in the queue (at most 256 packets each)";
    when_full: Choice("wait", "drop") = "wait", "what to do with a batch when the queue is full";
}

/// The queue is the runtime's; here its end is.
struct Cut;

impl Component for Cut {
    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(0))
    }
}

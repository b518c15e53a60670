//! `thread`: cuts a stack in two that run on a thread each.

use flowgauge_stack::{
    Component, ComponentInfo, ComponentKind, Input, Parallel, ResultInfo, ResultValue, options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "thread",
    summary: "runs what follows on a thread of its own",
    help: "Between the two threads is a queue of batches. While it is full the first thread waits, or with \
           `when_full = drop` drops the batch, which the result counts: a slow end of a stack then does not \
           hold up the capture. Packets of a file are passed on without copies. It is allowed in the outermost \
           row of a stack only.",
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
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    queue: Integer(1, 65_536) = "64", "batches (at most 256 packets each) that wait at most";
    when_full: Choice("wait", "drop") = "wait", "what becomes of a batch for which there is no room";
}

/// The queue is the runtime's; here its end is.
struct Cut;

impl Component for Cut {
    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(0))
    }
}

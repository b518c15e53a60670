//! `sync`: waits until others have begun.

use flowgauge_stack::{
    Component, ComponentInfo, Input, Items, Outlet, Parallel, ResultInfo, ResultValue, options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "sync",
    summary: "passes nothing until certain components have results",
    help: "A result is present when it is not 0, or has rows. It is checked before each batch until all are \
           present.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("items held back", "items")),
    parallel: Parallel::Never("it waits for all packets' results"),
    make: |_| {
        Ok(Box::new(Sync {
            is_open: false,
            held: 0,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    of: References = required, "labels of the components";
}

struct Sync {
    is_open: bool,
    held: u64,
}

impl Component for Sync {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if !self.is_open {
            let results = out.results("of");
            self.is_open = results.iter().all(|(_, result)| match result {
                ResultValue::Table(table) => !table.rows.is_empty(),
                result => result.number() != Some(0),
            });
        }
        if !self.is_open {
            self.held += items.len() as u64;
            items.clear();
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.held))
    }
}

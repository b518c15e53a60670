//! `binary_operation`: the sum or difference of two results.

use flowgauge_stack::{Component, ComponentInfo, Input, ResultInfo, ResultValue, options};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "binary_operation",
    aliases: &["binop"],
    summary: "adds the results of two components, or subtracts them",
    help: "Computed when read. A difference may be negative.",
    input: Input::Any,
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::number("of both results", "")),
    make: |settings| {
        let options = Options::read(settings);
        Ok(Box::new(Operation {
            is_difference: matches!(options.operation, "subtract" | "1"),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    operation: Choice("add", "subtract", "0", "1") = required, "the operation; MAPI's numbers: 0 adds, 1 subtracts";
    of: Measure = required, "the first component's label";
    with: Measure = required, "the second component's label";
}

struct Operation {
    is_difference: bool,
}

impl Component for Operation {
    fn derived(&self, of: &dyn Fn(&str) -> Option<ResultValue>) -> Option<ResultValue> {
        let one = of("of")?.number()?;
        let other = of("with")?.number()?;
        let value = if self.is_difference {
            one - other
        } else {
            one + other
        };
        let clamped = value.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Some(ResultValue::Difference(clamped as i64))
    }
}

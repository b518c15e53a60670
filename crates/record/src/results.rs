//! Records about the results of components.

use crate::schema::{FieldVisitor, Record, fields};

fields! {
    /// Fields of a [`ResultRow`].
    ResultFields, RESULT, RESULT_SCHEMA:
    stack Text None "STACK" 3 "name of the stack, if it has one";
    component Text None "COMPONENT" 1 "label of the component in its stack";
    result Text None "RESULT" 2 "what it is";
    value Unsigned None "VALUE" 1 "the value";
    unit Text None "UNIT" 1 "its unit";
}

/// What a component of a stack has found.
#[derive(Clone, Copy, Debug)]
pub struct ResultRow<'a> {
    /// The stack's name.
    pub stack: Option<&'a str>,
    /// The component's label.
    pub component: &'a str,
    /// What the result is.
    pub result: &'a str,
    /// Its value.
    pub value: u64,
    /// Its unit.
    pub unit: &'a str,
}

impl Record for ResultRow<'_> {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        match self.stack {
            Some(stack) => visitor.text(&RESULT.stack, stack),
            None => visitor.null(&RESULT.stack),
        }
        visitor.text(&RESULT.component, self.component);
        visitor.text(&RESULT.result, self.result);
        visitor.unsigned(&RESULT.value, self.value);
        visitor.text(&RESULT.unit, self.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Encoder, Format};

    #[test]
    fn a_result_has_a_place_and_a_unit() {
        let row = ResultRow {
            stack: None,
            component: "count(1)",
            result: "items so far",
            value: 7,
            unit: "items",
        };
        let mut text = Vec::new();
        Encoder::new(Format::Json).encode(&row, &mut text);
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"stack\":null,\"component\":\"count(1)\",\"result\":\"items so far\",\"value\":7,\
             \"unit\":\"items\"}\n"
        );
    }
}

//! How the tests of a condition are written.

use memchr::memmem::Finder;

use super::literal::Literal;
use super::{Relation, Test};
use crate::regexp::compile;
use crate::words::{Order, TokenKind, Trouble, Words};

pub(super) fn test(words: &mut Words) -> Result<Test, Trouble> {
    let column = words.peek().column;
    let TokenKind::Word(name) = words.peek().kind.clone() else {
        let found = words.peek().kind.shown();
        return Err(words.here(format!("a field is expected, not {found}")));
    };
    words.skip();
    let test = |relation| Test {
        name,
        column,
        relation,
    };
    let order = match &words.peek().kind {
        TokenKind::Symbol("=") => Some(Order::Equal),
        TokenKind::Symbol(symbol) => Order::of(symbol),
        _ => None,
    };
    if let Some(order) = order {
        words.skip();
        return Ok(test(Relation::Is(order, literal(words)?)));
    }
    if words.accept(&["contains"]) {
        let wanted = literal(words)?;
        if wanted.text.is_empty() {
            return Err(Trouble::at(wanted.column, "there is nothing to look for"));
        }
        let finder = Finder::new(wanted.text.as_bytes()).into_owned();
        return Ok(test(Relation::Contains(Box::new(finder))));
    }
    if words.accept(&["matches", "~"]) {
        let wanted = literal(words)?;
        let regex = compile(&wanted.text, false);
        let regex = regex.map_err(|message| Trouble::at(wanted.column, message))?;
        return Ok(test(Relation::Matches(regex)));
    }
    if words.accept(&["in"]) {
        // Whether a range is empty depends on the kind of the field.
        let ranges = words.set(literal, |_, _| false)?;
        return Ok(test(Relation::In(ranges)));
    }
    Ok(test(Relation::Exists))
}

fn literal(words: &mut Words) -> Result<Literal, Trouble> {
    let column = words.peek().column;
    match words.take().kind {
        TokenKind::Word(word) => Ok(Literal::new(column, word)),
        TokenKind::Text(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok(Literal::new(column, text))
        }
        other => {
            let message = format!("a value is expected, not {}", other.shown());
            Err(Trouble::at(column, message))
        }
    }
}

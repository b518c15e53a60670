//! Streaming multi-pattern matching by Vectorscan (or Hyperscan, whose interface it has), as safe
//! types.
//!
//! The library is loaded when it is first asked for: a program that was built here runs where it is
//! not installed, and says so. Declared by hand: twelve functions whose ABI has not changed since
//! Hyperscan 4.

mod database;
mod library;
mod scanner;
mod trial;

pub use database::{CompileError, Database, Expression, ExpressionFlags};
pub use library::{LoadError, version};
pub use scanner::{Found, Scanner};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::skipped::skipped;

    fn database(expressions: &[(&str, ExpressionFlags)]) -> Option<Arc<Database>> {
        if let Err(error) = version() {
            skipped(error);
            return None;
        }
        let expressions: Vec<Expression> = expressions
            .iter()
            .map(|&(text, flags)| Expression {
                text: text.as_bytes().to_vec(),
                flags,
            })
            .collect();
        Some(Arc::new(Database::compile(&expressions).unwrap()))
    }

    #[test]
    fn streams_are_scanned_apart_and_begin_anew() {
        let none = ExpressionFlags::default();
        let Some(database) = database(&[
            ("needle", none),
            ("NEED", ExpressionFlags::CASELESS),
            ("d.e$", ExpressionFlags::START),
        ]) else {
            return;
        };
        assert!(database.stream_bytes() > 0);
        let mut scanner = Scanner::new(database).unwrap();
        let (one, two) = (scanner.open().unwrap(), scanner.open().unwrap());
        assert_eq!(scanner.scan(one, b"..nee"), []);
        assert_eq!(scanner.scan(two, b"dle"), []);
        let end = |expression, end| Found {
            end,
            expression,
            start: 0,
        };
        assert_eq!(scanner.scan(one, b"dle"), [end(1, 6), end(0, 8)]);
        let last = Found {
            start: 5,
            ..end(2, 8)
        };
        assert_eq!(scanner.close(one), [last]);
        assert_eq!(scanner.open_streams(), 1);
        scanner.scan(two, b"nee");
        scanner.restart(two);
        assert_eq!(scanner.scan(two, b"dle"), []);
        assert_eq!(scanner.open(), Some(one));
        assert_eq!(scanner.scan(one, b"need"), [end(1, 4)]);
        assert_eq!(scanner.scan(99, b"need"), []);
    }

    #[test]
    fn errors_name_the_expression() {
        let plain = |text: &str| Expression {
            text: text.as_bytes().to_vec(),
            flags: ExpressionFlags::default(),
        };
        if let Err(error) = version() {
            return skipped(error);
        }
        let error = Database::compile(&[plain("a"), plain("(b")]).unwrap_err();
        assert!(
            matches!(&error, CompileError::Expression { index: 1, message } if message.contains("parenthes")),
            "{error:?}"
        );
        assert!(Database::compile(&[plain("a\0b")]).is_err());
    }
}

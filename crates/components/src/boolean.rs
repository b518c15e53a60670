//! Tests combined by and, or, xor and not.

use crate::words::{TokenKind, Trouble, Words};

/// Brackets and `not`s inside each other.
const MAX_DEPTH: usize = 64;

/// Tests, and how they are combined.
#[derive(Clone, Debug)]
pub(crate) enum Tree<T> {
    All(Vec<Tree<T>>),
    Any(Vec<Tree<T>>),
    /// An odd number of them holds.
    Odd(Vec<Tree<T>>),
    Not(Box<Tree<T>>),
    Test(T),
}

impl<T> Tree<T> {
    /// Whether it holds, where `test` says of a single test whether that does.
    #[inline]
    pub(crate) fn holds(&self, test: &impl Fn(&T) -> bool) -> bool {
        match self {
            Tree::All(trees) => trees.iter().all(|tree| tree.holds(test)),
            Tree::Any(trees) => trees.iter().any(|tree| tree.holds(test)),
            Tree::Odd(trees) => trees.iter().filter(|tree| tree.holds(test)).count() % 2 == 1,
            Tree::Not(tree) => !tree.holds(test),
            Tree::Test(it) => test(it),
        }
    }
}

/// Reads an expression to its end; `test` reads a single test.
pub(crate) fn parse<T>(
    words: &mut Words,
    test: &mut dyn FnMut(&mut Words) -> Result<Tree<T>, Trouble>,
) -> Result<Tree<T>, Trouble> {
    let mut parser = Parser {
        words,
        test,
        depth: 0,
    };
    let tree = parser.any()?;
    match &parser.words.peek().kind {
        TokenKind::End => Ok(tree),
        other => {
            let message = format!("and, or or the end is expected, not {}", other.shown());
            Err(parser.words.here(message))
        }
    }
}

struct Parser<'a, T> {
    words: &'a mut Words,
    test: &'a mut dyn FnMut(&mut Words) -> Result<Tree<T>, Trouble>,
    depth: usize,
}

impl<T> Parser<'_, T> {
    fn any(&mut self) -> Result<Tree<T>, Trouble> {
        let mut trees = vec![self.odd()?];
        while self.words.accept(&["or", "||"]) {
            trees.push(self.odd()?);
        }
        Ok(one_or(trees, Tree::Any))
    }

    fn odd(&mut self) -> Result<Tree<T>, Trouble> {
        let mut trees = vec![self.all()?];
        while self.words.accept(&["xor", "^^"]) {
            trees.push(self.all()?);
        }
        Ok(one_or(trees, Tree::Odd))
    }

    fn all(&mut self) -> Result<Tree<T>, Trouble> {
        let mut trees = vec![self.not()?];
        while self.words.accept(&["and", "&&"]) {
            trees.push(self.not()?);
        }
        Ok(one_or(trees, Tree::All))
    }

    fn not(&mut self) -> Result<Tree<T>, Trouble> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} brackets inside each other");
            return Err(self.words.here(message));
        }
        let tree = if self.words.accept(&["not", "!"]) {
            Tree::Not(Box::new(self.not()?))
        } else if self.words.accept(&["("]) {
            let tree = self.any()?;
            self.words.expect(")")?;
            tree
        } else {
            (self.test)(self.words)?
        };
        self.depth -= 1;
        Ok(tree)
    }
}

fn one_or<T>(mut trees: Vec<Tree<T>>, make: fn(Vec<Tree<T>>) -> Tree<T>) -> Tree<T> {
    match trees.pop() {
        Some(tree) if trees.is_empty() => tree,
        last => {
            trees.extend(last);
            make(trees)
        }
    }
}

//! The position in an expression of a libpcap error, which libpcap does not report.

use flowgauge_sys::libpcap;
use flowgauge_wire::LinkType;

/// What may complete the beginning of an expression. If none of these does, its last word is
/// wrong.
const COMPLETIONS: [&str; 24] = [
    "",
    "1",
    "tcp",
    "1.2.3.4",
    "port 1",
    "host 1.2.3.4",
    "= 1",
    "] = 1",
    "1] = 1",
    ":1] = 1",
    "net 10.0.0.0/8",
    "00:00:00:00:00:00",
    "::1",
    "1-2",
    "1 = 1",
    "1) = 1",
    ") = 1",
    "broadcast",
    "proto 1",
    "proto tcp",
    "mask 255.0.0.0",
    "type mgt",
    "mgt",
    "pass",
];

/// In expressions of more words the place is looked for by halving.
const MANY_WORDS: usize = 100;

/// libpcap's `message` on `expression`, and the column it is about.
pub(super) fn with_place(expression: &str, link: LinkType, message: &str) -> String {
    let found = if message.contains("syntax error") {
        first_impossible_word(expression, super::data_link(link))
    } else {
        quoted_word(expression, message)
    };
    match found {
        Some((start, "")) => format!(
            "{message} (at the end, column {})",
            column(expression, start)
        ),
        Some((start, word)) => at(expression, start, word, message),
        None => message.to_owned(),
    }
}

/// A message about the `word` at `start` of an expression.
pub(super) fn at(expression: &str, start: usize, word: &str, message: &str) -> String {
    let column = column(expression, start);
    format!("{message} (at column {column}, \"{word}\")")
}

/// Columns are counted in characters, from 1.
fn column(expression: &str, start: usize) -> usize {
    expression
        .get(..start)
        .map_or(0, |before| before.chars().count())
        + 1
}

/// The first word that the expression cannot go on with; an empty word at the end when all words
/// are fine and something is missing.
fn first_impossible_word(expression: &str, dlt: i32) -> Option<(usize, &str)> {
    let words = words(expression);
    let is_possible = |&(start, word): &(usize, &str)| {
        let beginning = expression.get(..start + word.len()).unwrap_or("");
        can_go_on(beginning, dlt)
    };
    let first = if words.len() > MANY_WORDS {
        // What is wrong stays wrong, whatever follows.
        words.partition_point(is_possible)
    } else {
        let impossible = words.iter().position(|word| !is_possible(word));
        impossible.unwrap_or(words.len())
    };
    Some(words.get(first).copied().unwrap_or((expression.len(), "")))
}

/// Whether something makes an expression of its beginning.
fn can_go_on(beginning: &str, dlt: i32) -> bool {
    let open = beginning.matches('(').count();
    let closed = beginning.matches(')').count();
    let closing = ")".repeat(open.saturating_sub(closed));
    COMPLETIONS.iter().any(|completion| {
        // A port that there cannot be: when libpcap comes to it all before is understood, and nothing is generated.
        let trial = format!("{beginning} {completion}{closing} or port 99999");
        match libpcap::compile(&trial, dlt, 96, None) {
            Ok(_) => true,
            // Understood, but refused for its meaning.
            Err(message) => !message.contains("syntax error"),
        }
    })
}

/// The word of `expression` that `message` names: in quotes, or else as any of its words.
fn quoted_word<'a>(expression: &'a str, message: &str) -> Option<(usize, &'a str)> {
    let is_quote = |c: char| matches!(c, '\'' | '"' | '`');
    let is_space = |c: char| c.is_whitespace() || is_quote(c) || matches!(c, ',' | ':' | '(' | ')');
    let quoted = message.split(is_quote).skip(1).step_by(2);
    let once = |named: &str| {
        let mut found = words(expression)
            .into_iter()
            .filter(|(_, word)| *word == named);
        let first = found.next()?;
        // A word that stands there twice does not say which is meant.
        found.next().is_none().then_some(first)
    };
    quoted
        .chain(message.split(is_space))
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .find_map(once)
}

/// The words and signs of an expression with their places, as libpcap's scanner divides it.
fn words(expression: &str) -> Vec<(usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '\\' | ':');
    let all: Vec<(usize, char)> = expression.char_indices().collect();
    let words = all.chunk_by(|one, next| is_word(one.1) && is_word(next.1));
    let placed = words.filter_map(|word| {
        let &(start, _) = word.first().filter(|it| !it.1.is_whitespace())?;
        let end = word.last().map_or(start, |it| it.0 + it.1.len_utf8());
        Some((start, expression.get(start..end)?))
    });
    placed.collect()
}

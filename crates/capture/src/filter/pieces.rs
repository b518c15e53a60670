//! Long expressions, compiled in pieces.
//!
//! libpcap's code generator restarts for each jump that does not fit into a byte, so its time grows with the square of
//! the number of terms, and its optimiser is worse: 3,000 hosts take a minute without it. However, the operands of
//! `and`, `or` and parentheses are independent, unless they contain a word that moves the offsets of headers (`vlan`,
//! `mpls` and the like). Each piece is compiled and optimised separately, and its returns become jumps: to the next
//! piece, or to the result of the whole.
//!
//! ```text
//!  host a or host b or ... host c or host d ...        tcp and ( list )
//!   '------- piece ------' '------ piece -----          '---'   '--'
//!   true: accept           true: accept                 true: list, false: refuse
//!   false: next piece      false: refuse
//! ```
//!
//! Values are loaded in the same order as by the whole, so that truncated packets are refused at the same places. If
//! the words are not understood here, or a piece does not compile, the expression is compiled as a whole, so that
//! errors are always libpcap's.
//!
//! `vlan` and the like at the very start (`vlan 5 and (host a or ...)`) are repeated at the start of each piece, where
//! they are true already and only move the offsets of headers. Anywhere else they are not understood.
//!
//! A name or number without a preceding keyword (`host a or b`) has the meaning of the previous one; pieces that start
//! with one get its keywords.

use flowgauge_sys::libpcap::{self, Instruction};

/// Words that change what the words behind them mean: headers begin elsewhere.
const SHIFTS: [&str; 5] = ["vlan", "mpls", "pppoes", "geneve", "vxlan"];

/// Words that terms may begin with, in front of a name that the next name inherits them from.
const QUALIFIERS: [&str; 14] = [
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "sctp",
    "ether",
    "arp",
    "rarp",
];

/// Other words that terms may begin with, but those that nobody writes by the thousand.
const OTHER_WORDS: [&str; 13] = [
    "icmp",
    "icmp6",
    "igmp",
    "ah",
    "esp",
    "less",
    "greater",
    "len",
    "broadcast",
    "multicast",
    "inbound",
    "outbound",
    "proto",
];

/// Whether a term may begin with this word.
fn begins_term(word: &str) -> bool {
    QUALIFIERS.contains(&word) || OTHER_WORDS.contains(&word)
}

/// Parentheses within parentheses, and changes between `and` and `or` within them; more is no filter of a person.
const DEEPEST: usize = 50;

const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;

/// Compiles `expression` in pieces of some `piece` bytes, each by `compile`. The program returns `snap_len` for packets
/// that match. `None`: it is to be compiled as a whole.
pub(super) fn compile(
    expression: &str,
    piece: usize,
    snap_len: u32,
    compile: impl FnMut(&str) -> Result<Vec<Instruction>, String>,
) -> Option<Vec<Instruction>> {
    let (shifts, tree) = Parser::new(expression).parse()?;
    let mut program = Assembly {
        compile,
        shifts: String::new(),
        piece,
        instructions: Vec::new(),
        jumps: Vec::new(),
        labels: Vec::new(),
    };
    let (accept, refuse) = (program.label(), program.label());
    if !shifts.is_empty() {
        let behind = program.label();
        program.emit_text(&shifts, behind, refuse)?;
        program.place(behind);
        program.shifts = shifts;
    }
    program.emit(&tree, accept, refuse)?;
    program.place(accept);
    program.instructions.push(returning(snap_len));
    program.place(refuse);
    program.instructions.push(returning(0));
    program.finish()
}

fn returning(k: u32) -> Instruction {
    Instruction {
        code: RETURN,
        k,
        ..Instruction::default()
    }
}

/// What joins parts of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    And,
    Or,
}

/// An expression, as far as it is understood here.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    /// A term as it can stand alone.
    Term(String),
    /// `not` in front of parentheses.
    Not(Box<Node>),
    /// Parts from left to right. (`and` and `or` bind equally: `a or b and c` is `(a or b) and c`.)
    List(Join, Vec<Node>),
}

impl Node {
    /// Bytes of its text, more or less.
    fn len(&self) -> usize {
        match self {
            Node::Term(text) => text.len(),
            Node::Not(inner) => inner.len() + 6,
            Node::List(_, parts) => parts.iter().map(|part| part.len() + 5).sum::<usize>() + 2,
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Node::Term(term) => text.push_str(term),
            Node::Not(inner) => {
                text.push_str("not (");
                inner.write(text);
                text.push(')');
            }
            Node::List(join, parts) => {
                text.push('(');
                write_list(*join, parts, text);
                text.push(')');
            }
        }
    }
}

fn write_list(join: Join, parts: &[Node], text: &mut String) {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            text.push_str(match join {
                Join::And => " and ",
                Join::Or => " or ",
            });
        }
        part.write(text);
    }
}

/// A place in the program that is known later.
#[derive(Clone, Copy, Debug)]
struct Label(usize);

struct Assembly<C> {
    compile: C,
    /// What stands in front of each piece.
    shifts: String,
    piece: usize,
    instructions: Vec<Instruction>,
    /// Jumps to fill in.
    jumps: Vec<(usize, Label)>,
    labels: Vec<Option<usize>>,
}

impl<C: FnMut(&str) -> Result<Vec<Instruction>, String>> Assembly<C> {
    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// Appends what goes to one of two places, by whether a packet matches.
    fn emit(&mut self, node: &Node, matches: Label, fails: Label) -> Option<()> {
        match node {
            Node::Not(inner) if node.len() > self.piece => self.emit(inner, fails, matches),
            Node::List(join, parts) if node.len() > self.piece => {
                self.emit_list(*join, parts, matches, fails)
            }
            _ => {
                let mut text = String::new();
                node.write(&mut text);
                self.emit_text(&text, matches, fails)
            }
        }
    }

    fn emit_list(
        &mut self,
        join: Join,
        parts: &[Node],
        matches: Label,
        fails: Label,
    ) -> Option<()> {
        let mut rest = parts;
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest.iter().take_while(|part| {
                bytes += part.len() + 5;
                bytes <= self.piece
            });
            let count = count.count().max(1);
            let (together, behind) = rest.split_at(count);
            let (to_match, to_fail, next) = match behind.is_empty() {
                true => (matches, fails, None),
                false => {
                    let next = self.label();
                    match join {
                        Join::And => (next, fails, Some(next)),
                        Join::Or => (matches, next, Some(next)),
                    }
                }
            };
            if let [only] = together {
                self.emit(only, to_match, to_fail)?;
            } else {
                let mut text = String::new();
                write_list(join, together, &mut text);
                self.emit_text(&text, to_match, to_fail)?;
            }
            if let Some(next) = next {
                self.place(next);
            }
            rest = behind;
        }
        Some(())
    }

    fn emit_text(&mut self, text: &str, matches: Label, fails: Label) -> Option<()> {
        let compiled = match self.shifts.as_str() {
            "" => (self.compile)(text),
            shifts => (self.compile)(&format!("{shifts} and ({text})")),
        };
        for instruction in compiled.ok()? {
            let at = self.instructions.len();
            let label = match instruction {
                Instruction {
                    code: RETURN, k: 0, ..
                } => Some(fails),
                Instruction { code: RETURN, .. } => Some(matches),
                // What is in a register: libpcap has no such thing.
                Instruction { code, .. } if code & 7 == RETURN => return None,
                _ => None,
            };
            match label {
                Some(label) => {
                    self.jumps.push((at, label));
                    self.instructions.push(Instruction {
                        code: JUMP,
                        ..Instruction::default()
                    });
                }
                None => self.instructions.push(instruction),
            }
        }
        Some(())
    }

    fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0]?;
            self.instructions[at].k = u32::try_from(target.checked_sub(at + 1)?).ok()?;
        }
        Some(self.instructions)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Join(Join),
    Not,
    /// Something between blanks and the others: a word, signs, what is in brackets.
    Word,
}

/// Divides an expression at `and`, `or`, `not` and parentheses.
struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, usize, usize)>,
    at: usize,
    /// The words in front of the last name: what a name without words means.
    context: Option<String>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            tokens: tokens(text),
            at: 0,
            context: None,
        }
    }

    /// What stands in front of all else, and that.
    fn parse(mut self) -> Option<(String, Node)> {
        let shifts = self.shifts()?;
        let (node, _) = self.list(0)?;
        (self.at == self.tokens.len()).then_some((shifts, node))
    }

    /// Goes over terms that shift headers and the `and` behind each, if only `and` joins them with all else.
    fn shifts(&mut self) -> Option<String> {
        let is_shift = |at: usize| self.word(at).is_some_and(|word| SHIFTS.contains(&word));
        let mut end = 0;
        let mut at = 0;
        while is_shift(at) {
            // (With the number of a tag or label, perhaps.)
            at += 1 + usize::from(self.word(at + 1).is_some());
            end = at;
            if self.tokens.get(at).map(|token| token.0) != Some(Token::Join(Join::And)) {
                return None;
            }
            at += 1;
        }
        let Some(last) = end.checked_sub(1) else {
            return Some(String::new());
        };
        let mut depth = 0;
        for behind in at..self.tokens.len() {
            match self.tokens.get(behind)?.0 {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                Token::Join(Join::Or) if depth == 0 && !self.joins_directions(behind) => {
                    return None;
                }
                _ => {}
            }
        }
        self.at = at;
        self.text.get(..self.tokens.get(last)?.2).map(str::to_owned)
    }

    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).map(|token| token.0)
    }

    /// Parts that are joined, up to a closing parenthesis or the end; and whether the first is a name without words.
    fn list(&mut self, depth: usize) -> Option<(Node, bool)> {
        if depth > DEEPEST {
            return None;
        }
        let (mut node, bare) = self.part(depth)?;
        // How often it changed what joins; 0: nothing was joined yet, parentheses are closed.
        let mut changes = 0;
        while let Some(Token::Join(join)) = self.peek() {
            self.at += 1;
            let (part, is_bare) = self.part(depth)?;
            // Among names in parentheses there are names only.
            if bare && !is_bare {
                return None;
            }
            node = match node {
                Node::List(same, mut parts) if changes > 0 && same == join => {
                    parts.push(part);
                    Node::List(join, parts)
                }
                other => {
                    changes += 1;
                    Node::List(join, vec![other, part])
                }
            };
            if changes > DEEPEST {
                return None;
            }
        }
        Some((node, bare))
    }

    fn part(&mut self, depth: usize) -> Option<(Node, bool)> {
        let mut nots = 0;
        while self.peek() == Some(Token::Not) {
            nots += 1;
            self.at += 1;
        }
        let names = self.names();
        if let Some(end) = self.group() {
            self.at += 1;
            let (mut inner, bare) = self.list(depth + 1)?;
            if self.at != end || (names && !bare) {
                return None;
            }
            self.at += 1;
            if nots % 2 == 1 {
                inner = Node::Not(Box::new(inner));
            }
            return Some((inner, bare && !names));
        }
        let (term, bare) = self.term()?;
        let term = match nots % 2 {
            1 => format!("not {term}"),
            _ => term,
        };
        Some((Node::Term(term), bare))
    }

    /// Goes over the words in front of names in parentheses, `host (a or b)`, if there are such.
    fn names(&mut self) -> bool {
        let mut behind = self.at;
        while self.is_qualifier(behind) || (behind > self.at && self.joins_directions(behind)) {
            behind += 1;
        }
        let opens = self
            .tokens
            .get(behind)
            .is_some_and(|token| token.0 == Token::Open);
        if behind == self.at || !opens {
            return false;
        }
        let start = self.tokens.get(self.at).map_or(0, |token| token.1);
        let end = self.tokens.get(behind - 1).map_or(0, |token| token.2);
        self.context = self.text.get(start..end).map(str::to_owned);
        self.at = behind;
        true
    }

    fn word(&self, at: usize) -> Option<&'a str> {
        let token = self.tokens.get(at).filter(|token| token.0 == Token::Word);
        token.and_then(|&(_, start, end)| self.text.get(start..end))
    }

    fn is_qualifier(&self, at: usize) -> bool {
        self.word(at).is_some_and(|word| QUALIFIERS.contains(&word))
    }

    /// Where the parenthesis that opens here closes, if what is in it is an expression and no arithmetic.
    fn group(&self) -> Option<usize> {
        if self.peek() != Some(Token::Open) {
            return None;
        }
        let mut depth = 0;
        for (at, token) in self.tokens.iter().enumerate().skip(self.at) {
            match token.0 {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let behind = self.tokens.get(at + 1).map(|token| token.0);
                let ends = matches!(behind, None | Some(Token::Close | Token::Join(_)));
                return ends.then_some(at);
            }
        }
        None
    }

    /// A term, or a name that means what the one before it means.
    fn term(&mut self) -> Option<(String, bool)> {
        let first = self.at;
        let mut depth = 0;
        while let Some(token) = self.peek() {
            match token {
                Token::Open => depth += 1,
                Token::Close if depth == 0 => break,
                Token::Close => depth -= 1,
                Token::Join(_)
                    if depth == 0 && !(self.at > first && self.joins_directions(self.at)) =>
                {
                    break;
                }
                Token::Not if depth == 0 => return None,
                _ => {}
            }
            self.at += 1;
        }
        let last = self.at.checked_sub(1)?;
        let (head, tail) = (self.word(first)?, self.word(last)?);
        let (start, end) = (self.tokens.get(first)?.1, self.tokens.get(last)?.2);
        let text = self.text.get(start..end)?;
        let is_name = |text: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_/".contains(&byte);
            text.bytes().all(is_part) && !begins_term(text)
        };
        if !begins_term(head) {
            let context = self.context.as_ref()?;
            let is_bare = first == last && is_name(text);
            return is_bare.then(|| (format!("{context} {text}"), true));
        }
        let is_before = |at: usize| self.is_qualifier(at) || self.joins_directions(at);
        let has_context = first < last && is_name(tail) && (first..last).all(is_before);
        self.context = has_context.then(|| text[..text.len() - tail.len()].trim_end().to_owned());
        Some((text.to_owned(), false))
    }

    /// Whether the `and` or `or` at this place is that of `src or dst host a`.
    fn joins_directions(&self, at: usize) -> bool {
        let is_direction = |at: usize| matches!(self.word(at), Some("src" | "dst"));
        let is_join = matches!(self.tokens.get(at), Some((Token::Join(_), ..)));
        is_join && at > 0 && is_direction(at - 1) && is_direction(at + 1)
    }
}

/// The expression's tokens with their places. Brackets are closed, or all is one word.
fn tokens(text: &str) -> Vec<(Token, usize, usize)> {
    let bytes = text.as_bytes();
    let at = |place: usize| bytes.get(place).copied().unwrap_or(b' ');
    let mut tokens = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let mut end = start + 1;
        let token = match (at(start), at(start + 1)) {
            (byte, _) if byte.is_ascii_whitespace() => {
                start = end;
                continue;
            }
            (b'(', _) => Token::Open,
            (b')', _) => Token::Close,
            (b'&', b'&') => {
                end += 1;
                Token::Join(Join::And)
            }
            (b'|', b'|') => {
                end += 1;
                Token::Join(Join::Or)
            }
            (b'!', next) if next != b'=' => Token::Not,
            (b'[', _) => {
                while end < bytes.len() && at(end - 1) != b']' {
                    end += 1;
                }
                Token::Word
            }
            (b'&' | b'|' | b'!', _) => Token::Word,
            _ => {
                let ends = |byte: u8| byte.is_ascii_whitespace() || b"()[]&|!".contains(&byte);
                while end < bytes.len() && !ends(at(end)) {
                    end += 1;
                }
                match bytes.get(start..end) {
                    Some(b"and") => Token::Join(Join::And),
                    Some(b"or") => Token::Join(Join::Or),
                    Some(b"not") => Token::Not,
                    _ => Token::Word,
                }
            }
        };
        tokens.push((token, start, end));
        start = end;
    }
    tokens
}

/// Compiles with libpcap, in pieces where it is long.
pub(super) fn compile_long(
    expression: &str,
    data_link: i32,
    snap_len: u32,
    netmask: Option<u32>,
) -> Option<Vec<Instruction>> {
    /// Longer ones are compiled in pieces: those whose optimisation takes a noticeable time.
    const LONG: usize = 2048;
    /// Bytes of a piece. With twice as many 3,000 hosts take 0.7 s more to compile (0.2), and each packet 0.7 µs instead of 1.5.
    const PIECE: usize = 1024;

    if expression.len() <= LONG {
        return None;
    }
    compile(expression, PIECE, snap_len, |text| {
        libpcap::compile(text, data_link, snap_len, netmask)
    })
}

#[cfg(test)]
mod tests;

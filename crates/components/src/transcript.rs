//! `transcript`: what both sides of a connection say, as text for people.

use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Parallel, PerKey, ResultInfo,
    ResultValue, SettingError, Settings, StreamChunk, options,
};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "transcript",
    summary: "makes text of the bytes of a connection, in which both sides take turns",
    help: "Use it behind follow, or behind tcpreseq. Each line of the initiator begins with \"> \", of the responder with \
           \"< \"; with `color` the initiator is red and the responder blue instead. Bytes that are no letter, digit or sign of \
           ASCII, tabulator or line break are dots. With `hex` lines are those of a dump, indented by a tabulator for the \
           responder, as tshark's follow,tcp,hex has them. Bytes that are missing are told in a line.",
    input: Input::Of(&[ItemType::Chunk]),
    options: Options::ALL,
    result: Some(ResultInfo::number("turns", "turns")),
    parallel: Parallel::ByFlow,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    hex: Flag = "no", "print bytes in hexadecimal and ASCII";
    color: Flag = "no", "mark sides by colours, for terminals";
}

/// Bytes in a line of a dump.
const IN_LINE: usize = 16;

struct Transcript {
    options: Options,
    pages: PerKey<Page>,
    turns: u64,
    /// What is given on.
    text: Vec<u8>,
}

/// How far the text of a connection has got.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// Who spoke last: whether that was the initiator.
    side: Option<bool>,
    /// Whether a line is under way.
    in_line: bool,
    /// Whether the last byte was a carriage return, which is part of a line break if that follows.
    returned: bool,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(Box::new(Transcript {
        options: Options::read(settings),
        pages: PerKey::default(),
        turns: 0,
        text: Vec::new(),
    }))
}

/// A byte as it is shown: control characters could move a terminal's cursor.
pub(crate) const fn shown(byte: u8) -> u8 {
    match byte {
        b' '..=b'~' => byte,
        _ => b'.',
    }
}

/// Appends text line by line.
struct Lines<'a> {
    text: &'a mut Vec<u8>,
    page: &'a mut Page,
    before: &'static [u8],
    behind: &'static [u8],
}

impl Lines<'_> {
    fn byte(&mut self, byte: u8) {
        if !self.page.in_line {
            self.text.extend_from_slice(self.before);
            self.page.in_line = true;
        }
        self.text.push(byte);
    }

    fn end(&mut self) {
        self.text.extend_from_slice(self.behind);
        self.text.push(b'\n');
        self.page.in_line = false;
    }

    fn end_open(&mut self) {
        if core::mem::take(&mut self.page.returned) {
            self.byte(b'.');
        }
        if self.page.in_line {
            self.end();
        }
    }

    fn line(&mut self, line: &str) {
        self.end_open();
        line.bytes().for_each(|byte| self.byte(byte));
        self.end();
    }

    fn text(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let returned = core::mem::replace(&mut self.page.returned, byte == b'\r');
            if returned && byte != b'\n' {
                self.byte(b'.');
            }
            match byte {
                b'\n' => {
                    if !self.page.in_line {
                        self.text.extend_from_slice(self.before);
                    }
                    self.end();
                }
                b'\r' => {}
                b'\t' => self.byte(byte),
                byte => self.byte(shown(byte)),
            }
        }
    }

    fn hex(&mut self, offset: u64, bytes: &[u8]) {
        for (offset, bytes) in (offset..).step_by(IN_LINE).zip(bytes.chunks(IN_LINE)) {
            let mut line = format!("{offset:08X} ");
            for at in 0..IN_LINE {
                if at % (IN_LINE / 2) == 0 {
                    line.push(' ');
                }
                match bytes.get(at) {
                    Some(byte) => line.push_str(&format!("{byte:02x} ")),
                    None => line.push_str("   "),
                }
            }
            line.push(' ');
            for (at, &byte) in bytes.iter().enumerate() {
                if at == IN_LINE / 2 {
                    line.push(' ');
                }
                line.push(char::from(shown(byte)));
            }
            self.line(line.trim_end());
        }
    }
}

impl Transcript {
    fn chunk(&mut self, chunk: &StreamChunk<'_>, out: &mut dyn Outlet) {
        let from_initiator = chunk.stream.from_initiator;
        let (before, behind) = match (self.options.color, self.options.hex, from_initiator) {
            (true, false, true) => ("\x1b[31m", "\x1b[0m"),
            (true, false, false) => ("\x1b[34m", "\x1b[0m"),
            (true, true, true) => ("\x1b[31m", "\x1b[0m"),
            (true, true, false) => ("\t\x1b[34m", "\x1b[0m"),
            (false, true, true) => ("", ""),
            (false, true, false) => ("\t", ""),
            (false, false, true) => ("> ", ""),
            (false, false, false) => ("< ", ""),
        };
        self.text.clear();
        let page = self.pages.of(chunk.key);
        let says = chunk.gap_before > 0 || !chunk.bytes.is_empty();
        if says && page.side != Some(from_initiator) {
            // The line under way is the other side's, whose colour ends with it.
            let behind = if self.options.color { "\x1b[0m" } else { "" };
            let behind = behind.as_bytes();
            let before = b"";
            let text = &mut self.text;
            let mut lines = Lines {
                text,
                page,
                before,
                behind,
            };
            lines.end_open();
            page.side = Some(from_initiator);
            self.turns += 1;
        }
        let mut lines = Lines {
            text: &mut self.text,
            page,
            before: before.as_bytes(),
            behind: behind.as_bytes(),
        };
        if chunk.gap_before > 0 {
            let bytes = flowgauge_record::words::count(chunk.gap_before, "byte");
            lines.line(&format!("[{bytes} missing]"));
        }
        match self.options.hex {
            true => lines.hex(chunk.offset, chunk.bytes),
            false => lines.text(chunk.bytes),
        }
        if chunk.end.is_some() && lines.page.side == Some(from_initiator) {
            lines.end_open();
        }
        if !self.text.is_empty() || chunk.end.is_some() {
            out.emit(Items::Chunks(&[StreamChunk {
                bytes: &self.text,
                gap_before: 0,
                ..*chunk
            }]));
        }
    }
}

impl Component for Transcript {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Chunks(chunks) = items {
            for chunk in *chunks {
                self.chunk(chunk, out);
            }
        }
        items.clear();
    }

    fn close(&mut self, key: u32, _out: &mut dyn Outlet) {
        self.pages.take(key);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.turns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lines become of bytes that come in these pieces.
    fn text(pieces: &[&str]) -> String {
        let (mut text, mut page) = (Vec::new(), Page::default());
        let mut lines = Lines {
            text: &mut text,
            page: &mut page,
            before: b"> ",
            behind: b"",
        };
        pieces.iter().for_each(|piece| lines.text(piece.as_bytes()));
        lines.end_open();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_do_not_depend_on_pieces_and_move_no_cursor() {
        assert_eq!(text(&["a\r\nb\n\n", "c"]), "> a\n> b\n> \n> c\n");
        assert_eq!(text(&["a\r", "\nb"]), "> a\n> b\n");
        assert_eq!(text(&["a\r", "b\u{1b}[2J\u{e9}\t"]), "> a.b.[2J..\t\n");
        assert_eq!(text(&["a\r"]), "> a.\n");
        assert_eq!(text(&[]), "");
    }
}

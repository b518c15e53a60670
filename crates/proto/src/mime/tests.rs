use super::*;

/// The parts of a mail: type, name, bytes, what is missing, whether it came to its end.
#[derive(Default)]
struct Parts(Vec<(Part, Vec<u8>, u64, Option<bool>)>);

impl Events for Parts {
    fn begin(&mut self, part: Part) {
        assert!(
            self.0.last().is_none_or(|last| last.3.is_some()),
            "two at once"
        );
        self.0.push((part, Vec::new(), 0, None));
    }

    fn data(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        let last = self.0.last_mut().expect("one has begun");
        assert_eq!(last.3, None, "bytes behind the end");
        last.1.extend_from_slice(bytes);
    }

    fn missing(&mut self, bytes: u64) {
        self.0.last_mut().expect("one has begun").2 += bytes;
    }

    fn end(&mut self, is_whole: bool) {
        self.0.last_mut().expect("one has begun").3 = Some(is_whole);
    }
}

fn parts(is_stuffed: bool, pieces: &[&[u8]]) -> Vec<String> {
    let mut parser = Parser::new(is_stuffed);
    let mut parts = Parts::default();
    for piece in pieces {
        parser.data(piece, &mut parts);
        assert!(parser.held() < 4 * MAX_HEAD);
    }
    parser.finish(true, &mut parts);
    shown(&parts)
}

fn shown(parts: &Parts) -> Vec<String> {
    let show = |(part, bytes, missing, is_whole): &(Part, Vec<u8>, u64, Option<bool>)| {
        let kind = part.content_type.as_deref().unwrap_or("-");
        let name = part.name.as_deref().unwrap_or("-");
        let whole = if *is_whole == Some(true) { "" } else { " cut" };
        let text = String::from_utf8_lossy(bytes);
        format!("{kind} {name} {text:?} {missing}{whole}")
    };
    parts.0.iter().map(show).collect()
}

/// The same in all cuts.
fn parts_of(text: &str) -> Vec<String> {
    let whole = parts(true, &[text.as_bytes()]);
    for cut in 0..text.len() {
        let (first, rest) = text.as_bytes().split_at(cut);
        assert_eq!(parts(true, &[first, rest]), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(parts(true, &bytes), whole);
    whole
}

const MIXED: &str = "From: a\r\nContent-Type: multipart/mixed;\r\n boundary=\"outer\"\r\n\r\n\
    no part\r\n--outer\r\n\r\nfirst\r\n..dot\r\n\r\n--outer\r\n\
    Content-Type: multipart/alternative; boundary=in ner\r\n\r\n\
    --in ner\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=\r\n c\r\n--in ner  \r\n\
    Content-Type: text/html; name=x.html\r\n\r\n--inner\r\n--in ner--\r\nno part\r\n--outer\r\n\
    Content-Type: application/zip; name=\"a.zip\"\r\nContent-Transfer-Encoding: base64\r\n\
    Content-Disposition: attachment;\r\n\tfilename=\"=?utf-8?Q?b=20c?=.zip\"\r\n\r\nZm9v\r\nYmFy\r\n--outer--\r\nno part\r\n";

#[test]
fn parts_within_parts() {
    assert_eq!(
        parts_of(MIXED),
        [
            r#"- - "first\r\n.dot\r\n" 0"#,
            r#"text/plain - "a=b c" 0"#,
            r#"text/html x.html "--inner" 0"#,
            r#"application/zip b c.zip "foobar" 0"#,
        ]
    );
}

#[test]
fn mails_without_parts() {
    assert_eq!(
        parts_of("Subject: x\r\n\r\ntext\r\n--no\r\n"),
        [r#"- - "text\r\n--no" 0"#]
    );
    assert_eq!(parts_of("Subject: x\r\n\r\n"), [r#"- - "" 0"#]);
    assert_eq!(parts_of("Subject: x\r\n"), [""; 0]);
    assert_eq!(parts_of("A: b\n\ntext\nmore"), [r#"- - "text\nmore" 0"#]);
    assert_eq!(
        parts(false, &[b"A: b\r\n\r\n..dot\r\n"]),
        [r#"- - "..dot" 0"#]
    );
}

#[test]
fn mails_within_mails() {
    let text = "Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n\
        Subject: in\r\nContent-Type: text/plain; name=in.txt\r\n\r\ninner\r\n--b--\r\n";
    assert_eq!(parts_of(text), [r#"text/plain in.txt "inner" 0"#]);
    let attached = text.replace(
        "message/rfc822\r\n",
        "message/rfc822\r\nContent-Disposition: attachment; filename=a.eml\r\n",
    );
    assert_eq!(parts_of(&attached), parts_of(text));
}

#[test]
fn bodies_whose_type_stands_elsewhere() {
    let text = b"before\r\n--b\r\nContent-Range: bytes 0-1/9\r\n\r\nab\r\n--b--\r\nbehind";
    let mut parts = Parts::default();
    let mut parser = Parser::of_type(b"multipart/byteranges; boundary=b");
    parser.data(text, &mut parts);
    parser.finish(true, &mut parts);
    assert_eq!(shown(&parts), [r#"- - "ab" 0"#]);
    assert_eq!(parts.0[0].0.range.as_deref(), Some("bytes 0-1/9"));
}

/// One whose end never comes, and lines that are long.
#[test]
fn parts_that_are_cut() {
    let line = "x".repeat(5000);
    let text = format!(
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\n--{line}\r\n{line}\r\n--b"
    );
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(700).collect();
    let wanted = format!("- - \"--{line}\\r\\n{line}\" 0");
    // The last line has no end, and is a boundary all the same.
    assert_eq!(parts(true, &pieces), [wanted]);
    let cut = &text.as_bytes()[..text.len() - 5];
    let wanted = format!("- - \"--{line}\\r\\n{line}\" 0 cut");
    assert_eq!(parts(true, &[cut]), [wanted]);
}

#[test]
fn depth_is_bounded() {
    let mut text = String::new();
    for depth in 0..140 {
        text += &format!("Content-Type: multipart/mixed; boundary=b{depth}\r\n\r\n--b{depth}\r\n");
    }
    text += "\r\ntext\r\n";
    let found = parts(true, &[text.as_bytes()]);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("multipart/mixed - \"--b100"),
        "{found:?}"
    );
    let mails = "Content-Type: message/rfc822\r\n\r\n".repeat(140);
    assert_eq!(parts(true, &[mails.as_bytes()]).len(), 1);
}

/// With a hole at each place, of each length up to the end: no part is made up, and others are whole.
#[test]
fn holes_are_told() {
    let whole = parts_of(MIXED);
    for from in 0..MIXED.len() {
        for length in [1, 7, 60] {
            let mut parser = Parser::new(true);
            let mut found = Parts::default();
            let (first, rest) = MIXED.as_bytes().split_at(from);
            let missing = length.min(rest.len());
            parser.data(first, &mut found);
            parser.gap(missing as u64, &mut found);
            parser.data(&rest[missing..], &mut found);
            parser.finish(true, &mut found);
            let found = shown(&found);
            assert!(
                found.len() <= whole.len() + 1,
                "{from} {length}: {found:#?}"
            );
            let same = found.iter().filter(|part| whole.contains(part)).count();
            // A hole costs the part that it is in, and where a boundary is in it the next.
            let least = if from < 70 { 0 } else { 1 };
            assert!(same >= least, "{from} {length}: {found:#?}");
        }
    }
}

//! `search`: packets that contain a text.

use aho_corasick::AhoCorasick;
use flowgauge_stack::{Component, ComponentInfo, SettingError, Settings, options};

use crate::layers;
use crate::per_packet::only;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "search",
    aliases: &["str_search"],
    summary: "selects packets that contain a text",
    help: "Bytes are written in hexadecimal between pipes, `|0d 0a|`; `\\|` is a pipe, `\\\\` a backslash; \
           `||` separates alternatives, `GET||POST`. Each packet is searched on its own.",
    options: Options::ALL,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    pattern: Text = required, "text to search for";
    offset: Integer(0, u32::MAX as i64) as usize = "0", "bytes left out before the search begins";
    depth: Integer(0, u32::MAX as i64) as usize = "0", "bytes searched from there; 0: all";
    [IN.or("packet")];
    nocase: Flag = "no", "ignore case";
}

options! {
    pub(crate) const;
    /// Option `in`.
    IN = r#in: Choice("packet", "ip", "payload"),
        "where to search: the frame from its first byte, the IP datagram from its header, or the transport payload";
}

/// Which part of a packet option `in` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Packet,
    Ip,
    Payload,
}

impl Part {
    pub(crate) fn new(settings: &Settings) -> Part {
        match settings.text("in") {
            Some("payload") => Part::Payload,
            Some("ip") => Part::Ip,
            _ => Part::Packet,
        }
    }

    /// Its captured bytes.
    pub(crate) fn of<'a>(
        self,
        packets: &flowgauge_stack::Packets<'a>,
        packet: &flowgauge_wire::Decoded,
    ) -> &'a [u8] {
        match self {
            Part::Packet => packets.bytes(packet),
            Part::Ip => layers::datagram(packets, packet),
            Part::Payload => layers::payload(packets, packet),
        }
    }
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let patterns = patterns(&options.pattern).map_err(|message| {
        SettingError::of("pattern", message)
            .with_hint("as in \"GET |0d 0a|||POST\": bytes between pipes, || between alternatives")
    })?;
    let depth = options.depth;
    let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
    if depth > 0 && depth < longest {
        return Err(SettingError::of(
            "depth",
            format!("{depth} is less than the {longest} bytes of the pattern"),
        ));
    }
    let automaton = AhoCorasick::builder()
        .ascii_case_insensitive(options.nocase)
        .build(&patterns)
        .map_err(|error| SettingError::of("pattern", error.to_string()))?;
    let part = Part::new(settings);
    Ok(only(move |packets, packet| {
        let bytes = part.of(packets, packet);
        let bytes = bytes.get(options.offset..).unwrap_or(&[]);
        let within = bytes.get(..depth).filter(|_| depth > 0);
        automaton.is_match(within.unwrap_or(bytes))
    }))
}

/// Bytes of all alternatives together; automata of more take too long to make.
const LONGEST: usize = 65_536;

/// The alternatives of a pattern.
pub(crate) fn patterns(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut all = Vec::new();
    let mut pattern = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (*first, after) {
            (b'\\', [escaped @ (b'|' | b'\\'), after @ ..]) => {
                pattern.push(*escaped);
                rest = after;
            }
            (b'|', [b'|', after @ ..]) => {
                all.push(core::mem::take(&mut pattern));
                rest = after;
            }
            (b'|', _) => {
                let Some(end) = after.iter().position(|&byte| byte == b'|') else {
                    return Err("a | has no second one that ends the bytes".to_owned());
                };
                let (bytes, after) = after.split_at(end);
                hexadecimal(bytes, &mut pattern)?;
                rest = after.get(1..).unwrap_or(&[]);
            }
            (other, _) => pattern.push(other),
        }
    }
    all.push(pattern);
    if all.iter().any(Vec::is_empty) {
        return Err("there is nothing to search for".to_owned());
    }
    if all.iter().map(Vec::len).sum::<usize>() > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    Ok(all)
}

fn hexadecimal(text: &[u8], pattern: &mut Vec<u8>) -> Result<(), String> {
    let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    let values = digits.map(|digit| char::from(*digit).to_digit(16));
    let values: Option<Vec<u32>> = values.collect();
    let bytes = values.filter(|values| !values.is_empty() && values.len() % 2 == 0);
    let Some(digits) = bytes else {
        let text = String::from_utf8_lossy(text);
        return Err(format!("|{text}| is not a list of bytes in hexadecimal"));
    };
    pattern.extend(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let lossless = |bytes: &Vec<u8>| bytes.escape_ascii().to_string();
        patterns(text).map(|all| all.iter().map(lossless).collect())
    }

    #[test]
    fn bytes_escapes_and_alternatives() {
        for (text, expected) in [
            ("GET", vec!["GET"]),
            ("a|0d 0A|b", vec!["a\\r\\nb"]),
            ("|41||42|", vec!["AB"]),
            ("|41||||42|", vec!["A", "B"]),
            ("GET||POST||HEAD", vec!["GET", "POST", "HEAD"]),
            ("a\\|b\\\\c\\d", vec!["a|b\\\\c\\\\d"]),
            ("|7c7C|", vec!["||"]),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for text in ["a|41", "|", "a|4", "||", "a||", "", "|4|", "|xx|", "|  |"] {
            assert!(read(text).is_err(), "{text}: {:?}", read(text));
        }
    }
}

//! Parses functions as on a command line: `BPF_FILTER("tcp port 80") PKT_COUNTER BUCKET(2, "1s")`.
//!
//! Functions of the flow are referred to by number, starting at 1, without the flow.

use crate::call::{Argument, Call, Error};
use crate::flow::{Stack, stack};
use crate::functions::{Becomes, find};

/// No such function.
const UNKNOWN: i32 = 6144;

/// Parses functions.
///
/// # Errors
/// An unknown function, or a syntax error.
pub fn parse(text: &str) -> Result<Vec<Call>, Error> {
    let mut calls = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter.is_whitespace() || "(,".contains(letter));
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let function = find(name);
        let function =
            function.ok_or_else(|| Error::new(UNKNOWN, format!("there is no function {name}")))?;
        rest = after.trim_start();
        let mut given = Vec::new();
        if let Some(inner) = rest.strip_prefix('(') {
            let (arguments, after) = arguments(inner).ok_or_else(|| {
                Error::new(
                    UNKNOWN,
                    format!("{name}: bad or unclosed arguments; texts are in double quotes"),
                )
            })?;
            given = arguments;
            rest = after.trim_start();
        }
        rest = rest.strip_prefix([',', '-']).unwrap_or(rest).trim_start();
        // Flows are not written: there is one.
        let mut given = given.into_iter();
        let mut arguments = Vec::new();
        for becomes in function.becomes {
            arguments.extend(match becomes {
                Becomes::Flow => Some(Argument::Number(0)),
                _ => given.next(),
            });
        }
        arguments.extend(given);
        calls.push(Call {
            function,
            arguments,
            hides_flows: true,
        });
    }
    Ok(calls)
}

/// Arguments up to the closing parenthesis, and what follows it.
fn arguments(text: &str) -> Option<(Vec<Argument>, &str)> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return Some((all, after));
        }
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = string(quoted)?;
            all.push(Argument::Text(text));
            rest = after;
        } else {
            let end = rest.find([',', ')'])?;
            let (word, after) = rest.split_at(end);
            all.push(value(word.trim())?);
            rest = after;
        }
        rest = rest.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

fn string(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((out, &text[at + 1..])),
            // What follows a quotation mark's backslash is the mark; other backslashes are the function's.
            '\\' if text[at + 1..].starts_with('"') => {
                letters.next();
                out.push('"');
            }
            letter => out.push(letter),
        }
    }
    None
}

/// A number, or what MAPI's headers give a name.
fn value(word: &str) -> Option<Argument> {
    const NUMBERS: &[(&str, i128)] = &[
        ("ADD", 0),
        ("BOTH_SIDE", 3),
        ("CLIENT_SIDE", 1),
        ("DETERMINISTIC", 2),
        ("EQUAL_BOUND", 0),
        ("EQUAL_D_BOUND", 4),
        ("GT_BOUND", 1),
        ("GT_D_BOUND", 8),
        ("LT_BOUND", 2),
        ("LT_D_BOUND", 16),
        ("MFF_PCAP", 0),
        ("NOWAIT", 1),
        ("PERIODIC", 2),
        ("PKT_SIZE", 1),
        ("PKT_TS", 0),
        ("PROBABILISTIC", 3),
        ("SERVER_SIDE", 2),
        ("SORT_BY_BYTES", 2),
        ("SORT_BY_PACKETS", 1),
        ("SUB", 1),
        ("TOPX_ICMP", 4),
        ("TOPX_IP", 1),
        ("TOPX_TCP", 2),
        ("TOPX_UDP", 3),
        ("TR_MW", 128),
        ("TR_POLL", 64),
        ("TYPE_CHAR", 0),
        ("TYPE_INT", 1),
        ("TYPE_ULL", 2),
        ("WAIT", 0),
    ];
    /// `TOPX_` and one of these, by their numbers from 1.
    const TOP_FIELDS: [&str; 21] = [
        "IP_TOS",
        "IP_LENGTH",
        "IP_ID",
        "IP_OFFSET",
        "IP_TTL",
        "IP_PROTOCOL",
        "IP_CHECKSUM",
        "IP_SRCIP",
        "IP_DSTIP",
        "TCP_SRCPORT",
        "TCP_DSTPORT",
        "TCP_SEQ",
        "TCP_ACK",
        "TCP_FLAGS",
        "TCP_WIN",
        "TCP_CRC",
        "TCP_URGENT",
        "UDP_SRCPORT",
        "UDP_DSTPORT",
        "UDP_LENGTH",
        "UDP_CHECKSUM",
    ];
    const TEXTS: &[(&str, &str)] = &[
        ("IPFIXLIB_IPFIX", "IPFIX"),
        ("IPFIXLIB_NETFLOW_V5", "NETFLOW_V5"),
        ("IPFIXLIB_NETFLOW_V9", "NETFLOW_V9"),
        ("IPFIXLIB_SHMEM", "SHMEM"),
        ("PROTINFO_IP_DSTIP", "ip.dst"),
        ("PROTINFO_IP_LENGTH", "ip.len"),
        ("PROTINFO_IP_PROTOCOL", "ip.proto"),
        ("PROTINFO_IP_SRCIP", "ip.src"),
        ("PROTINFO_IP_TTL", "ip.ttl"),
        ("PROTINFO_TCP_DSTPORT", "tcp.dstport"),
        ("PROTINFO_TCP_SRCPORT", "tcp.srcport"),
        ("PROTINFO_UDP_DSTPORT", "udp.dstport"),
        ("PROTINFO_UDP_SRCPORT", "udp.srcport"),
        // Of RES2FILE, whose types are a text.
        ("R2F_RAW", "0"),
        ("R2F_STATS", "3"),
        ("R2F_ULLSEC", "2"),
        ("R2F_ULLSTR", "1"),
    ];
    if let Ok(number) = word.parse() {
        return Some(Argument::Number(number));
    }
    if let Some((_, text)) = TEXTS.iter().find(|(name, _)| *name == word) {
        return Some(Argument::Text((*text).to_owned()));
    }
    let number = NUMBERS.iter().find(|(name, _)| *name == word);
    let field = word.strip_prefix("TOPX_");
    let field = field.and_then(|word| TOP_FIELDS.iter().position(|name| *name == word));
    let field = field.map(|at| at as i128 + 1);
    number
        .map(|(_, number)| *number)
        .or(field)
        .map(Argument::Number)
}

/// Converts functions to a stack.
///
/// # Errors
/// [`parse`], [`stack`].
pub fn flow(text: &str) -> Result<Stack, Error> {
    stack(&parse(text)?, 0, &|_| None)
}

/// A call of each function with all arguments, except for trackers; for tests.
#[doc(hidden)]
pub const EXAMPLES: &[&str] = &[
    "BPF_FILTER(\"tcp port 80\", 1)",
    "PKT_COUNTER",
    "BYTE_COUNTER()",
    "STR_SEARCH(\"a\\\"|0d 0a|\", 10, 20)",
    "TO_BUFFER(WAIT)",
    "SAMPLE(10, PERIODIC)",
    "HASHSAMP(100, 10)",
    "HASH(2)",
    "PKT_COUNTER BUCKET(1, \"100ms\", 1)",
    "PKT_COUNTER BYTE_COUNTER BINOP(SUB, 1, 2)",
    "PKTINFO(PKT_SIZE) DIST(1, \"0\", \"1500\", \"100\")",
    "GAP",
    "PKTINFO(PKT_TS)",
    "PROTINFO(\"ip.ttl\")",
    "STARTSTOP(\"+10s\", \"+20s\")",
    "PKTINFO(PKT_SIZE) STATS(1, \"0\")",
    "BURST(0, 65536, 1024, 96, 1000, 1000, 1000)",
    "ETHEREAL(\"tcp.dstport == 80\")",
    "COOKING(32768, 30, 1, BOTH_SIDE)",
    "REGEXP(\"GET \\.*\")",
    "TOP(10, 2, 10, SORT_BY_PACKETS, 60)",
    "EXPIRED_FLOWS(10, 100, 1)",
    "PKT_COUNTER,BYTE_COUNTER",
    "PKT_COUNTER THRESHOLD(2, 1, 1000, 1, 60, 1, 1)",
    "TO_FILE(0, \"x.pcap\", 0)",
    "PKT_COUNTER GAP RES2FILE(\"1,2\", \"1,2\", \"packets, gap\", \"x\", \"1s\", 1)",
    "PKTINFO(PKT_SIZE) STATS(1) RES2FILE(\"3\", \"2@0\", \"\", \"x\", \"-1\")",
    "SYNC(\"1,2\")",
    "ANONYMIZE(\"IP,SRC_IP,HASHED,SHA_2,UNCHANGED;UDP,UDP_DATAGRAM_LENGTH,ZERO\")",
    "ANONYMIZEIP(\"0123456789abcdef0123456789abcdef\")",
    "FLOW_REPORT(\"IPFIX\", \"SHMEM\", \"\", \"\")",
    "FLOW_REPORT(\"NETFLOW_V9\", \"collector:2055\", \"sourceIPv4Address\", \"octetDeltaCount\")",
    "UNCOOK(1, 2, 3)",
    "INJECT(\"veth0\")",
    "RULER(\"filter f e:Ethernet_IPv4 i:IPv4 p:* => e i with [src=0#4] p;\")",
];

#[cfg(test)]
mod tests {
    use flowgauge_registry::registry;
    use flowgauge_stack::syntax::Document;
    use flowgauge_stack::{Sources, check, parse_stack};

    use super::*;
    use crate::functions::FUNCTIONS;

    fn fault(stack: &str) -> Option<String> {
        let mut sources = Sources::default();
        let file = sources.add("flow", stack.to_owned())?;
        let body = match parse_stack(&sources, file) {
            Ok(body) => body,
            Err(found) => return Some(found.show(&sources).to_string()),
        };
        let checked = check(&Document::of(body), registry());
        let found = checked
            .diagnostics
            .iter()
            .map(|it| it.show(&sources).to_string());
        checked.program.is_none().then(|| found.collect())
    }

    #[test]
    fn every_function_is_a_component_with_all_its_arguments() {
        for text in EXAMPLES {
            let stack = flow(text)
                .unwrap_or_else(|error| panic!("{text}: {error}"))
                .text;
            assert_eq!(fault(&stack), None, "{text}: {stack}");
            let calls = parse(text).unwrap();
            let last = calls.last().unwrap();
            assert!(last.arguments.len() >= last.function.required);
        }
        for function in FUNCTIONS {
            let registry = registry();
            assert!(
                registry.find(function.component).is_some(),
                "{}",
                function.name
            );
            assert_eq!(
                function.arguments.len(),
                function.becomes.len(),
                "{}",
                function.name
            );
            let is_called = EXAMPLES.iter().any(|call| {
                parse(call)
                    .unwrap()
                    .iter()
                    .any(|call| call.function == function)
            });
            assert!(
                is_called || function.library == "trackflib",
                "{}",
                function.name
            );
        }
    }

    /// The flow, which nobody writes, is no argument of what is written.
    #[test]
    fn arguments_are_counted_as_they_are_written() {
        for (text, place, what) in [
            ("PKT_COUNTER BUCKET(1)", 2, "is missing"),
            ("PKT_COUNTER BUCKET(1, \"soon\")", 2, "is not a duration"),
            ("PKT_COUNTER BINOP(ADD, 1)", 3, "is missing"),
            ("STR_SEARCH(\"a\", \"b\")", 2, "is not a number"),
        ] {
            let error = flow(text).unwrap_err();
            let said = format!("argument {place} of ");
            let is_it = error.message.starts_with(&said) && error.message.contains(what);
            assert!(is_it, "{text}: {error}");
        }
        // MAPI's number is that of the function's argument.
        assert_eq!(flow("PKT_COUNTER BUCKET(1)").unwrap_err().number, 7003);
    }

    /// Those of the headers that programs are compiled with.
    #[test]
    fn names_of_the_headers_are_arguments() {
        /// Names that are no arguments.
        const OTHERS: [&str; 6] = [
            "MAPI_LIBRARY_VERSION",
            "TCP_ACK",
            "TCP_FIN",
            "TCP_PSH",
            "TCP_RST",
            "TCP_SYN",
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../libmapi/include/mapi");
        let mut known = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let (Some("#define"), Some(name), Some(meant)) =
                    (words.next(), words.next(), words.next())
                else {
                    continue;
                };
                if name.starts_with('_') || name.contains('(') || OTHERS.contains(&name) {
                    continue;
                }
                let found = match value(name) {
                    Some(Argument::Number(number)) => number.to_string(),
                    Some(Argument::Text(text)) if name.starts_with("R2F_") => text,
                    Some(Argument::Text(text)) => format!("\"{text}\""),
                    _ => panic!("{name} is not known"),
                };
                assert_eq!(found, meant, "{name}");
                known += 1;
            }
        }
        assert!(known > 50, "{known}");
        let by_name = "TOP(5, TOPX_TCP, TOPX_TCP_DSTPORT, SORT_BY_BYTES)";
        assert_eq!(parse(by_name), parse("TOP(5, 2, 11, 2)"));
    }

    #[test]
    fn functions_have_all_the_names_that_programs_use() {
        for name in [
            "stdflib:BYTE_COUNTER",
            "BYTE_COUNTER!1",
            "ETHERREAL",
            "trackflib:FTP",
            "TRACK_FTP",
            "WEB",
        ] {
            assert!(find(name).is_some(), "{name}");
        }
        assert!(find("extraflib:BYTE_COUNTER").is_none() && find("COUNT").is_none());
    }

    #[test]
    fn fields_of_top_are_counted_through_all_protocols() {
        for (call, field) in [
            ("TOP(5, 1, 8)", "ip.src"),
            ("TOP(5, 2, 11)", "tcp.dstport"),
            ("TOP(5, 3, 18)", "udp.srcport"),
        ] {
            assert!(
                flow(call)
                    .unwrap()
                    .text
                    .contains(&format!("by = \"{field}")),
                "{call}"
            );
        }
    }

    #[test]
    fn wrong_calls_have_the_numbers_of_their_errors() {
        for (text, number) in [
            ("NO_SUCH", 6144),
            ("BPF_FILTER", 7001),
            ("BPF_FILTER(80)", 7001),
            ("SAMPLE(\"10\")", 7001),
            ("SAMPLE(10, 2, 3)", 7003),
            ("BINOP(ADD, 1, 2)", 6147),
            ("PKT_COUNTER BUCKET(1, \"soon\")", 7003),
            ("TOP(5, 4, 1)", 7002),
            ("TOP(5, 2, 1)", 7003),
            ("BPF_FILTER(\"tcp", 6144),
            (
                "PKT_COUNTER RES2FILE(\"1\", \"2\", \"\", \"x\", \"1s\")",
                7002,
            ),
            (
                "PKT_COUNTER RES2FILE(\"1\", \"1@7\", \"\", \"x\", \"1s\")",
                7002,
            ),
            (
                "PKT_COUNTER RES2FILE(\"1,1\", \"1\", \"\", \"x\", \"1s\")",
                7001,
            ),
            ("TO_FILE(2, \"x\", 0)", 7006),
            ("ANONYMIZEIP(\"short\")", 7001),
            ("THRESHOLD(3, 1, 1, 1)", 6147),
        ] {
            let error = flow(text).expect_err(text);
            assert_eq!(error.number, number, "{text}: {error}");
        }
    }

    #[test]
    fn refusals_of_a_sensor_are_said_of_functions() {
        for (text, said, is_about_rights, number, message) in [
            (
                "STR_SEARCH(\"x\")",
                "f2 is not allowed: it can reveal packet contents",
                true,
                8003,
                "STR_SEARCH is not allowed: it can reveal packet contents",
            ),
            (
                "BPF_FILTER(\"tcp prot 1\")",
                "f2: error: expression: syntax error\n  tcp prot 1",
                false,
                1025,
                "BPF_FILTER: expression: syntax error",
            ),
            (
                "SAMPLE(1, 9)",
                "flow:1:30: error: mode: 9 is none\n",
                false,
                7002,
                "SAMPLE: mode: 9 is none",
            ),
            ("PKT_COUNTER", "f20 is busy", false, 7000, "f20 is busy"),
        ] {
            let error = parse(text).unwrap()[0].refused(2, said, is_about_rights);
            assert_eq!((error.number, error.message.as_str()), (number, message));
        }
    }

    #[test]
    fn functions_of_other_flows_are_computed_beside() {
        let others =
            |flow| (flow == 2).then(|| parse("BPF_FILTER(\"tcp\") PKT_COUNTER TO_BUFFER").unwrap());
        let of = |text: &str, flow: i128, function: i128| {
            let mut calls = parse(text).unwrap();
            let last = calls.last_mut().unwrap();
            last.arguments = [0, 1, 1, flow, function].map(Argument::Number).to_vec();
            stack(&calls, 1, &others)
        };
        let found = of("BYTE_COUNTER BINOP(ADD, 1, 1)", 2, 2).unwrap();
        assert_eq!(fault(&found.text), None);
        let copied = "copy ( filter { as = g2_1, expression = \"tcp\" } count { as = g2_2 } discard ) bytes ";
        assert!(found.text.starts_with(copied), "{}", found.text);
        // What the other flow writes and sends is not written twice, and has no result here.
        for (flow, function) in [(2, 4), (3, 1), (2, 0), (2, 3)] {
            let error = of("BYTE_COUNTER BINOP(ADD, 1, 1)", flow, function).unwrap_err();
            assert_eq!(error.number, 6147, "{error}");
        }
    }

    #[test]
    fn texts_cannot_leave_their_option() {
        let hostile =
            "BPF_FILTER(\"tcp\\\" } output { file = /tmp/x } filter { expression = \\\"udp\")";
        let stack = flow(hostile).unwrap().text;
        let names = |stack: &str| {
            let mut sources = Sources::default();
            let file = sources.add("flow", stack.to_owned()).unwrap();
            parse_stack(&sources, file).map(Document::of).is_ok()
        };
        assert!(names(&stack));
        assert!(
            fault(&stack).is_some_and(|fault| fault.contains("expression")),
            "{stack}"
        );
    }
}

//! The language: the paper's listings, round trips, what is refused and how it is said.

use flowgauge_stack::syntax::{
    Assignment, Body, Comments, Document, Include, Item, Name, Node, OptionSection, Shape,
    StackKind, StackSection, Value,
};
use flowgauge_stack::{FileId, Sources, Span, format, format_line, parse, parse_stack};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Figures 2, 4 and 5 of "Pandora: A Flexible Network Monitoring Platform" (USENIX 2000).
const FIGURE_2: &str = "[stack]
ipfragswitch ( ipfragdemux < ipreass > ) ipprotoswitch ( tcpscan output | udpscan output | icmpscan output ) discard
[ipreass]
timeout = 60
[ipprotoswitch]
tcpbranch = 0
udpbranch = 1
icmpbranch = 2
[output(0)]
static file = tcp_pkts.dat
[output(1)]
static file = udp_pkts.dat
[output(2)]
static file = icmp_pkts.dat
";
const FIGURE_4: &str = "ipfragswitch ( ipfragdemux < ipreass > ) ipcnxdemux < scanudp - icpdemux < matchicp > > output";
const FIGURE_5: &str =
    "tcpscan - tcpcnxdemux < tcpdirdemux < tcpreseq - httpscan > anonymize - httpmatch > output";

fn read(text: &str) -> Result<Document, String> {
    let mut sources = Sources::default();
    let file = sources.add("test.stack", text).expect("room for a file");
    parse(&sources, file).map_err(|error| error.show(&sources).to_string())
}

fn read_stack(text: &str) -> Result<Body, String> {
    let mut sources = Sources::default();
    let file = sources.add("-", text).expect("room for a file");
    parse_stack(&sources, file).map_err(|error| error.show(&sources).to_string())
}

#[test]
fn figure_2_is_two_switches_a_demultiplexer_and_options_by_instance() {
    let document = read(FIGURE_2).expect("the paper's listing");
    let Item::Stack(stack) = &document.items[0] else {
        panic!("{document:?}");
    };
    let names: Vec<&str> = stack
        .body
        .nodes
        .iter()
        .map(|node| node.name.text.as_str())
        .collect();
    assert_eq!(names, ["ipfragswitch", "ipprotoswitch", "discard"]);
    let Shape::Switch(branches) = &stack.body.nodes[1].shape else {
        panic!("{stack:?}");
    };
    let branches: Vec<String> = branches.iter().map(format_line).collect();
    assert_eq!(
        branches,
        ["tcpscan output", "udpscan output", "icmpscan output"]
    );
    type Set = Vec<(String, String, bool)>;
    let options: Vec<(String, Option<u32>, Set)> = document.items[1..]
        .iter()
        .map(|item| {
            let Item::Options(section) = item else {
                panic!("{item:?}");
            };
            let assignments = section.assignments.iter().map(|assignment| {
                let option = assignment.option.as_ref().expect("a name");
                let value = assignment.value.text.clone();
                (option.text.clone(), value, assignment.is_static)
            });
            let instance = section.instance.map(|(number, _)| number);
            (
                section.component.text.clone(),
                instance,
                assignments.collect(),
            )
        })
        .collect();
    let one = |name: &str, value: &str, fixed| (name.to_owned(), value.to_owned(), fixed);
    assert_eq!(
        options,
        [
            (
                "ipreass".to_owned(),
                None,
                vec![one("timeout", "60", false)]
            ),
            (
                "ipprotoswitch".to_owned(),
                None,
                vec![
                    one("tcpbranch", "0", false),
                    one("udpbranch", "1", false),
                    one("icmpbranch", "2", false)
                ]
            ),
            (
                "output".to_owned(),
                Some(0),
                vec![one("file", "tcp_pkts.dat", true)]
            ),
            (
                "output".to_owned(),
                Some(1),
                vec![one("file", "udp_pkts.dat", true)]
            ),
            (
                "output".to_owned(),
                Some(2),
                vec![one("file", "icmp_pkts.dat", true)]
            ),
        ]
    );
}

#[test]
fn figures_4_and_5_read_and_print_as_the_paper_writes_them() {
    for listing in [FIGURE_4, FIGURE_5] {
        let body = read_stack(listing).expect("the paper's listing");
        assert_eq!(format_line(&body), listing);
    }
}

/// Each text, and what is said of it.
#[test]
fn errors_name_the_place_what_was_expected_and_what_is_there() {
    let cases = include_str!("language/errors.txt");
    let texts: Vec<&str> = cases
        .split("\n=====\n")
        .map(|case| case.split_once("\n-----\n").expect("two parts").0)
        .collect();
    assert!(texts.len() > 20, "only {} cases", texts.len());
    let said: Vec<String> = texts
        .iter()
        .map(|text| {
            let error = read(text).expect_err(text);
            format!("{text}\n-----\n{error}")
        })
        .collect();
    let said = said.join("\n=====\n") + "\n";
    if std::env::var_os("FLOWGAUGE_REWRITE_CASES").is_some() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/stack/language/errors.txt"
        );
        std::fs::write(file, &said).expect("the cases can be written");
        return;
    }
    assert_eq!(said, cases);
}

#[test]
fn nesting_and_numbers_have_bounds() {
    let deep = |levels: usize| format!("{}a{}", "a < ".repeat(levels), " >".repeat(levels));
    assert!(read_stack(&deep(flowgauge_stack::MAX_DEPTH - 1)).is_ok());
    let error = read_stack(&deep(100_000)).expect_err("too deep");
    assert!(error.contains("more than 64 deep"), "{error}");
    let error = read_stack(&"a ".repeat(flowgauge_stack::MAX_COMPONENTS + 1));
    assert!(error.expect_err("too many").contains("more than 16384"));
}

#[test]
fn what_is_long_or_commented_is_broken_at_its_outermost_level() {
    let text = "# what is asked for
#
#   and why
[stack   web]   # every port
tcpscan - tcpcnxdemux<tcpdirdemux<tcpreseq - httpscan{ports=\"80,8080\",maximum_headers=64k}>anonymize - httpmatch{timeout=2m}>output
ipprotoswitch(
 # what comes in order
 tcpscan output|udpscan{a=1, # the first
 \"b\"} output
 # and that is all
)

[ output( 0 ) ]
 static   file=a.dat # kept
# the end
";
    let formatted = format(&read(text).expect("it is right"));
    let expected = "# what is asked for
#
#   and why
[stack web]  # every port
tcpscan -
tcpcnxdemux <
    tcpdirdemux < tcpreseq - httpscan { ports = \"80,8080\", maximum_headers = 64k } >
    anonymize -
    httpmatch { timeout = 2m }
>
output
ipprotoswitch (
    # what comes in order
    tcpscan
    output
  | udpscan {
        a = 1,  # the first
        \"b\",
    }
    output
    # and that is all
)

[output(0)]
static file = a.dat  # kept

# the end
";
    assert_eq!(formatted, expected);
    assert_eq!(format(&read(expected).expect("it is right")), expected);
    let same = |text: &str| without_places(read(text).expect("it is right"));
    assert_eq!(same(&formatted), same(text));
    assert_eq!(format(&read(&formatted).expect("it is right")), formatted);
}

/// Spans are where things stand, which formatting changes.
fn without_places(mut document: Document) -> Document {
    fn assignments(all: &mut [Assignment]) {
        for assignment in all {
            assignment.value.span = Span::default();
            if let Some(name) = &mut assignment.option {
                name.span = Span::default();
            }
        }
    }
    fn body(all: &mut Body) {
        for node in &mut all.nodes {
            node.span = Span::default();
            node.name.span = Span::default();
            assignments(&mut node.options);
            match &mut node.shape {
                Shape::Simple => {}
                Shape::Demux(inner) => body(inner),
                Shape::Switch(branches) => branches.iter_mut().for_each(body),
            }
        }
    }
    for item in &mut document.items {
        match item {
            Item::Include(include) => include.span = Span::default(),
            Item::Stack(section) => {
                section.span = Span::default();
                if let Some(name) = &mut section.name {
                    name.span = Span::default();
                }
                body(&mut section.body);
            }
            Item::Options(section) => {
                section.span = Span::default();
                section.component.span = Span::default();
                if let Some((_, span)) = &mut section.instance {
                    *span = Span::default();
                }
                assignments(&mut section.assignments);
            }
        }
    }
    document
}

fn name() -> impl Strategy<Value = Name> {
    let reserved = ["include", "static", "stack", "substack"];
    "[a-zA-Z0-9_][a-zA-Z0-9_.]{0,11}"
        .prop_filter("reserved", move |text| {
            !reserved.contains(&text.to_ascii_lowercase().as_str())
        })
        .prop_map(|text| Name {
            text,
            span: Span::default(),
        })
}

fn value(quoted_only: bool) -> impl Strategy<Value = Value> {
    let quoted = r#"[ -~\n\t\r"\\äß語#]{0,40}"#.prop_map(|text| Value {
        text,
        is_quoted: true,
        span: Span::default(),
    });
    let bare = "[a-z0-9/.:@%-]([a-z0-9/.:@%\"# -]{0,16}[a-z0-9/.:@%-])?"
        .prop_filter("a comment begins in it", |text| !text.contains(" #"))
        .prop_map(|text| Value {
            text,
            is_quoted: false,
            span: Span::default(),
        });
    prop_oneof![
        quoted.clone(),
        if quoted_only {
            quoted.boxed()
        } else {
            bare.boxed()
        }
    ]
}

fn comment() -> impl Strategy<Value = String> {
    "[a-z0-9!\"<>|(){}\\[\\]=-]([a-z #<>|(){}\\[\\]=-]{0,20}[a-z])?"
}

/// Comments on lines of their own; never a blank line at their ends.
fn before() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        4 => Just(Vec::new()),
        1 => vec(comment(), 1..3),
        1 => (comment(), comment()).prop_map(|(a, b)| vec![a, String::new(), b]),
        1 => (comment(), comment()).prop_map(|(a, b)| vec![a, " ".to_owned(), b]),
    ]
}

fn comments() -> impl Strategy<Value = Comments> {
    (before(), option::weighted(0.2, comment()))
        .prop_map(|(before, behind)| Comments { before, behind })
}

fn assignment(in_braces: bool) -> impl Strategy<Value = Assignment> {
    (
        option::weighted(if in_braces { 0.7 } else { 0.999_999 }, name()),
        value(false),
        value(true),
        any::<bool>(),
        comments(),
    )
        .prop_filter("needs a name", move |all| in_braces || all.0.is_some())
        .prop_map(
            move |(option, any, quoted, is_static, comments)| Assignment {
                // A bare value could be read as an assignment.
                value: if option.is_some() { any } else { quoted },
                is_static: is_static && option.is_some(),
                option,
                comments,
            },
        )
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = (
        name(),
        vec(assignment(true), 0..3),
        before(),
        any::<bool>(),
        comments(),
    )
        .prop_map(|(name, options, mut option_comments, has_dash, comments)| {
            if options.is_empty() {
                option_comments.clear();
            }
            Node {
                name,
                options,
                option_comments,
                shape: Shape::Simple,
                has_dash,
                span: Span::default(),
                comments,
            }
        });
    leaf.prop_recursive(4, 24, 4, |inner| {
        let body = (vec(inner.clone(), 1..4), before())
            .prop_map(|(nodes, trailing)| Body { nodes, trailing })
            .boxed();
        let shape = prop_oneof![
            body.clone().prop_map(Shape::Demux),
            vec(body, 1..4).prop_map(Shape::Switch),
        ];
        (inner, shape).prop_map(|(node, shape)| Node { shape, ..node })
    })
}

fn item() -> impl Strategy<Value = Item> {
    let include = (value(true), comments()).prop_map(|(value, comments)| {
        Item::Include(Include {
            path: value.text,
            span: Span::default(),
            comments,
        })
    });
    let stack = (
        any::<bool>(),
        name(),
        any::<bool>(),
        vec(node(), 1..4),
        comments(),
    )
        .prop_map(|(is_sub, name, is_named, nodes, comments)| {
            Item::Stack(StackSection {
                kind: if is_sub {
                    StackKind::Substack
                } else {
                    StackKind::Stack
                },
                name: (is_sub || is_named).then_some(name),
                body: Body {
                    nodes,
                    trailing: Vec::new(),
                },
                span: Span::default(),
                comments,
            })
        });
    let options = (
        name(),
        option::of(0u32..100),
        vec(assignment(false), 0..4),
        comments(),
    )
        .prop_map(|(component, instance, assignments, comments)| {
            Item::Options(OptionSection {
                component,
                instance: instance.map(|number| (number, Span::default())),
                assignments,
                span: Span::default(),
                comments,
            })
        });
    prop_oneof![1 => include, 3 => stack, 2 => options]
}

fn document() -> impl Strategy<Value = Document> {
    (vec(item(), 0..5), before()).prop_map(|(items, comments)| Document { items, comments })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_printed_reads_as_what_it_was(document in document()) {
        let text = format(&document);
        let again = read(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&without_places(again.clone()), &document, "{}", text);
        prop_assert_eq!(format(&again), text);
    }

    #[test]
    fn no_text_panics(text in "[ -~\n\t\r#<>|(){}\\[\\]=\"äß\\\\]{0,200}") {
        check(&text);
    }

    #[test]
    fn no_listing_with_a_piece_changed_panics(
        which in 0usize..3, at in 0usize..400, cut in 0usize..20, put in "[ -~\n\\[\\]\"#<>|(){}]{0,6}",
    ) {
        let mut text = ["[stack]\n", "[stack]\n", ""].map(str::to_owned);
        text[0] += FIGURE_4;
        text[1] += FIGURE_5;
        text[2] += FIGURE_2;
        let mut text = text[which].clone();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &put);
        check(&text);
    }
}

/// Whatever the text is: it is read, and prints as what reads the same, or the error has a place
/// within it.
fn check(text: &str) {
    let mut sources = Sources::default();
    let file = sources.add("fuzz", text).expect("room");
    match parse(&sources, file) {
        Ok(document) => {
            let printed = format(&document);
            let again = read(&printed).unwrap_or_else(|error| panic!("{error}\n{text}\n{printed}"));
            assert_eq!(format(&again), printed, "of\n{text}");
        }
        Err(error) => {
            assert_eq!(error.span.file, FileId(0));
            assert!(error.span.start <= error.span.end);
            assert!(error.span.end as usize <= text.len());
            assert!(!error.show(&sources).to_string().is_empty());
        }
    }
}

//! The checker, over components that exist only here: what it builds, and what it says.

use flowgauge_stack::{
    Branches, Component, ComponentInfo, ComponentKind, Diagnostic, FieldKind, Inner, Input,
    ItemType, Merge, NodeId, OptionInfo, OptionKind, Output, Parallel, Program, Registry,
    ResultInfo, SettingError, Settings, Sources, TableColumn, check, parse,
};

struct Nothing;

impl Component for Nothing {}

fn nothing(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    match settings.text("expression") {
        Some(text) if text.contains('?') => {
            Err(SettingError::of("expression", "syntax error at '?'").with_hint("as in tcpdump"))
        }
        _ => Ok(Box::new(Nothing)),
    }
}

const SIMPLE: ComponentInfo = ComponentInfo {
    make: nothing,
    ..ComponentInfo::OF_PACKETS
};

const PORT: OptionKind = OptionKind::Integer {
    min: 0,
    max: 65_535,
};

static COLUMNS: [TableColumn; 1] = [TableColumn::new(
    "packets",
    FieldKind::Unsigned,
    Merge::Sum,
    "how many",
)];

static COMPONENTS: [ComponentInfo; 16] = [
    ComponentInfo {
        name: "thread",
        kind: ComponentKind::Thread,
        input: Input::Any,
        parallel: Parallel::Never("it is a thread"),
        ..SIMPLE
    },
    ComponentInfo {
        name: "discard",
        input: Input::Any,
        output: Output::Nothing,
        fields: |_| None,
        kinds: None,
        is_end: true,
        ..SIMPLE
    },
    ComponentInfo {
        name: "output",
        input: Input::Any,
        fields: |_| None,
        kinds: None,
        is_end: true,
        options: &[OptionInfo::new("file", OptionKind::OutputFile, "where to").required()],
        parallel: Parallel::Never("it writes one file"),
        ..SIMPLE
    },
    ComponentInfo {
        name: "count",
        aliases: &["pkt_counter"],
        fields: |_| None,
        kinds: None,
        is_end: true,
        result: Some(ResultInfo::number("packets", "packets")),
        ..SIMPLE
    },
    ComponentInfo {
        name: "filter",
        aliases: &["bpf_filter"],
        options: &[
            OptionInfo::new("expression", OptionKind::Filter, "which packets").required(),
            OptionInfo::new("snap", PORT, "how much").or("96"),
        ],
        ..SIMPLE
    },
    ComponentInfo {
        name: "tcpscan",
        aliases: &["scantcp"],
        output: Output::Of(ItemType::Segment),
        ..SIMPLE
    },
    ComponentInfo {
        name: "tcpreseq",
        input: Input::Of(&[ItemType::Segment]),
        output: Output::Of(ItemType::Chunk),
        parallel: Parallel::ByFlow,
        ..SIMPLE
    },
    ComponentInfo {
        name: "search",
        input: Input::Of(&[ItemType::Chunk, ItemType::Packet]),
        options: &[OptionInfo::new(
            "patterns",
            OptionKind::InputFile,
            "one per line",
        )],
        ..SIMPLE
    },
    ComponentInfo {
        name: "tcpcnxdemux",
        kind: ComponentKind::Demux,
        input: Input::Of(&[ItemType::Segment]),
        options: &[OptionInfo::new("timeout", OptionKind::Duration, "idle time").or("60s")],
        parallel: Parallel::ByFlow,
        ..SIMPLE
    },
    ComponentInfo {
        name: "ipfragswitch",
        kind: ComponentKind::Switch(Branches::Fixed(&["fragments"])),
        ..SIMPLE
    },
    ComponentInfo {
        name: "ipprotoswitch",
        kind: ComponentKind::Switch(Branches::ByOptions),
        options: &[
            OptionInfo::new("tcpbranch", OptionKind::Branch, "for TCP").or("0"),
            OptionInfo::new("udpbranch", OptionKind::Branch, "for UDP").or("1"),
        ],
        ..SIMPLE
    },
    ComponentInfo {
        name: "split",
        kind: ComponentKind::Switch(Branches::Any),
        ..SIMPLE
    },
    ComponentInfo {
        name: "pcap",
        input: Input::Nothing,
        output: Output::Of(ItemType::Packet),
        ..SIMPLE
    },
    ComponentInfo {
        name: "bucket",
        options: &[
            OptionInfo::new("of", OptionKind::Measure, "whose result").required(),
            OptionInfo::new("interval", OptionKind::Duration, "how often").or("1s"),
        ],
        fields: |_| None,
        kinds: None,
        is_end: true,
        ..SIMPLE
    },
    ComponentInfo {
        name: "top",
        result: Some(ResultInfo::table("the most", &COLUMNS)),
        ..SIMPLE
    },
    ComponentInfo {
        name: "save",
        options: &[OptionInfo::new(
            "of",
            OptionKind::References,
            "whose results",
        )],
        fields: |_| None,
        kinds: None,
        is_end: true,
        ..SIMPLE
    },
];

fn checked(text: &str) -> (Option<Program>, Vec<Diagnostic>, Sources) {
    let mut sources = Sources::default();
    let file = sources.add("test", text).expect("room");
    let document = parse(&sources, file).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let registry = Registry::new(&COMPONENTS);
    let checked = check(&document, &registry);
    (checked.program, checked.diagnostics, sources)
}

/// The program of a text in which nothing is wrong.
fn program(text: &str) -> Program {
    let (program, diagnostics, sources) = checked(text);
    if let Some(found) = diagnostics.first() {
        panic!("{}", found.show(&sources));
    }
    program.expect("nothing is wrong")
}

/// What is said of a text, and whether it can run.
fn said(text: &str) -> String {
    let (program, diagnostics, sources) = checked(text);
    let runs = if program.is_some() {
        "runs"
    } else {
        "does not run"
    };
    let mut said = vec![runs.to_owned()];
    said.extend(
        diagnostics
            .iter()
            .map(|found| found.show(&sources).to_string()),
    );
    said.join("\n")
}

#[test]
fn a_program_says_what_follows_what() {
    let program = program(
        "[stack web]
         ipprotoswitch ( tcpscan - tcpcnxdemux < tcpreseq search > output | filter count ) discard
         [output]
         static file = a
         [tcpcnxdemux]
         timeout = 2
         [filter(0)]
         expression = udp port 53",
    );
    let stack = &program.stacks[0];
    assert_eq!(stack.name.as_deref(), Some("web"));
    let shown: Vec<String> = stack
        .iter()
        .map(|(_, node)| {
            let label = |id: &flowgauge_stack::NodeId| stack.node(*id).label.clone();
            let inner = match &node.inner {
                Inner::Nothing => String::new(),
                Inner::PerKey(first) => format!(" <{}>", label(first)),
                Inner::Branches(firsts) => {
                    format!(
                        " ({})",
                        firsts.iter().map(label).collect::<Vec<_>>().join("|")
                    )
                }
            };
            let next = node.next.as_ref().map(label);
            let next = next.map_or(String::new(), |next| format!(" then {next}"));
            format!(
                "{}: {} to {}{inner}{next}",
                node.label, node.input, node.output
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "ipprotoswitch: packet to any (tcpscan|filter) then discard",
            "tcpscan: packet to segment then tcpcnxdemux",
            "tcpcnxdemux: segment to chunk <tcpreseq> then output",
            "tcpreseq: segment to chunk then search",
            "search: chunk to chunk",
            "output: chunk to chunk",
            "filter: packet to packet then count",
            "count: packet to packet",
            "discard: any to nothing",
        ]
    );
    let demux = stack.node(stack.find("tcpcnxdemux").expect("it is there"));
    assert_eq!(demux.settings.duration("timeout"), Some(2_000_000_000));
    let found = stack.sequential().expect("a file is written");
    assert_eq!(found.from, stack.entry);
    assert_eq!(Some(found.reason), stack.find("OUTPUT"));
    assert_eq!(found.because, "it writes one file");
}

#[test]
fn stages_are_what_can_be_parallel_and_what_threads_cut() {
    let shown = |text: &str, several| -> Vec<String> {
        let program = program(text);
        let stack = &program.stacks[0];
        let label = |id: Option<NodeId>| id.map_or("-", |id| &stack.node(id).label).to_owned();
        let stages = stack.stages(several).into_iter();
        stages
            .map(|stage| {
                let copies = if stage.is_parallel { "s" } else { "" };
                format!("{}..{}{copies}", label(stage.from), label(stage.until))
            })
            .collect()
    };
    let text = "[stack] count ipprotoswitch ( count | discard ) thread filter { x } output { f }";
    assert_eq!(shown(text, false), ["count(0)..thread", "thread..-"]);
    assert_eq!(shown(text, true), ["count(0)..threads", "thread..-"]);
    let text = "[stack] count ipprotoswitch ( output { f } | discard ) thread count";
    assert_eq!(
        shown(text, true),
        [
            "count(0)..ipprotoswitchs",
            "ipprotoswitch..thread",
            "thread..-"
        ]
    );
    assert_eq!(shown("[stack] count", true), ["count..-s"]);
    assert_eq!(shown("[stack] output { f }", true), ["output..-"]);
}

#[test]
fn what_is_nearer_to_a_component_wins() {
    let program = program(
        "[filter]
         snap = 1
         expression = a
         [stack]
         filter { as = one } filter filter { snap = 4, \"d\" } BPF_FILTER { x } count
         [filter]
         expression = b
         [bpf_filter(1)]
         snap = 2
         expression = c",
    );
    let stack = &program.stacks[0];
    let set: Vec<(String, &str, i64)> = stack
        .iter()
        .filter(|(_, node)| node.info.name == "filter")
        .map(|(_, node)| {
            let expression = node.settings.text("expression").expect("it is required");
            let snap = node.settings.integer("snap").expect("it has a default");
            (node.label.clone(), expression, snap)
        })
        .collect();
    let expected = [
        ("one", "b", 1),
        ("filter(1)", "c", 2),
        ("filter(2)", "d", 4),
        ("filter(3)", "x", 1),
    ];
    let expected = expected.map(|(label, text, snap)| (label.to_owned(), text, snap));
    assert_eq!(set, expected);
}

#[test]
fn sub_stacks_stand_in_for_their_components_each_time() {
    let program = program(
        "[stack]
         split ( dns | dns ) both count { as = all }
         [substack dns]
         filter count
         [filter]
         expression = port 53
         [substack both]
         split ( dns )
         [stack other]
         pcap count bucket { of = count, interval = 10s }",
    );
    let labels: Vec<&str> = program.stacks[0]
        .iter()
        .map(|(_, node)| node.label.as_str())
        .collect();
    let expected = [
        "split(0)",
        "filter(0)",
        "count(0)",
        "filter(1)",
        "count(1)",
        "split(1)",
        "filter(2)",
        "count(2)",
        "all",
    ];
    assert_eq!(labels, expected);
    let all = program.stacks[0].find("all").expect("it has a label");
    assert_eq!(
        program.stacks[0].row(program.stacks[0].entry).last(),
        Some(all)
    );
    let other = &program.stacks[1];
    let bucket = other.node(other.find("bucket").expect("it is there"));
    assert_eq!(
        bucket.references,
        [("of", other.find("count").expect("it is there"))]
    );
}

/// Each text, and all that is said of it.
#[test]
fn all_that_is_wrong_is_said_with_its_place() {
    let cases = include_str!("checker/said.txt");
    let texts: Vec<&str> = cases
        .split("\n=====\n")
        .map(|case| case.split_once("\n-----\n").expect("two parts").0)
        .collect();
    assert!(texts.len() > 25, "only {} cases", texts.len());
    let said: Vec<String> = texts
        .iter()
        .map(|text| format!("{text}\n-----\n{}", said(text)))
        .collect();
    let said = said.join("\n=====\n") + "\n";
    if std::env::var_os("FLOWGAUGE_REWRITE_CASES").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stack/checker/said.txt");
        std::fs::write(file, &said).expect("the cases can be written");
        return;
    }
    assert_eq!(said, cases);
}

#[test]
fn sub_stacks_that_double_do_not_fill_the_memory() {
    let mut text = "[stack]\na0\n".to_owned();
    for level in 0..40 {
        text += &format!("[substack a{level}]\na{0} a{0}\n", level + 1);
    }
    text += "[substack a40]\ncount\n";
    let said = said(&text);
    assert!(said.starts_with("does not run"), "{said}");
    assert!(said.contains("more than 16384 components"), "{said}");
}

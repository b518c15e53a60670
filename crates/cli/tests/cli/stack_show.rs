//! `flowgauge stack show` with packets: the graph with what went through its components.

use std::path::Path;

use crate::stack_support::flowgauge;

fn shown(folder: &Path, arguments: &[&str]) -> String {
    let output = flowgauge(folder, &[&["stack", "show"], arguments].concat());
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {messages}");
    String::from_utf8(output.stdout).expect("text")
}

/// What is behind the last colon of the line of a component: its counts.
fn counts<'a>(shown: &'a str, component: &str) -> &'a str {
    let mut lines = shown.lines();
    let line = lines.find(|line| line.trim_start().starts_with(component));
    let line = line.unwrap_or_else(|| panic!("{component} in {shown}"));
    line.rsplit(": ").next().unwrap_or_default()
}

#[test]
fn the_graph_has_what_went_through_each_component() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let made = flowgauge(
        folder,
        &["generate", "mix", "-q", "--flows", "50", "-w", "in.pcap"],
    );
    assert!(made.status.success());
    std::fs::write(
        folder.join("x.stack"),
        "[stack]\ncount { as = all } tcpscan tcpcnxdemux < tcpreseq discard >\n",
    )
    .expect("room");
    let packets = |filter: &str| {
        let arguments = ["packets", "-q", "--json", "-r", "in.pcap", filter];
        let output = flowgauge(folder, &arguments);
        String::from_utf8_lossy(&output.stdout).lines().count()
    };
    let (all, tcp) = (packets("ip or ip6"), packets("tcp"));
    assert!(0 < tcp && tcp < all);
    for arguments in [
        &["x.stack", "-q", "-r", "in.pcap"][..],
        &["x.stack", "-q", "-r", "in.pcap", "--watch=3600"],
        &["x.stack", "-q", "-r", "in.pcap", "--workers", "2"],
    ] {
        let shown = shown(folder, arguments);
        assert_eq!(counts(&shown, "all"), format!("{all} items; {all} items"));
        assert_eq!(counts(&shown, "tcpscan"), format!("{all} items"));
        assert!(counts(&shown, "tcpcnxdemux").starts_with(&format!("{tcp} items; ")));
        // A pipe gets it once.
        assert_eq!(shown.matches("tcpcnxdemux").count(), 1, "{shown}");
    }
    // Where the stack is on the command line there may be a filter.
    let shown_of = shown(folder, &["-e", "count", "-q", "-r", "in.pcap", "tcp"]);
    assert_eq!(
        counts(&shown_of, "count"),
        format!("{tcp} items; {tcp} items")
    );
    // What a component writes to standard output is not mixed with it.
    let arguments = [
        "stack",
        "show",
        "-q",
        "-e",
        "packets output",
        "-r",
        "in.pcap",
    ];
    let output = flowgauge(folder, &arguments);
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!(lines, all);
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(counts(&messages, "packets"), format!("{all} items"));
    for (arguments, said) in [
        (
            &["--dot", "-r", "in.pcap", "x.stack"][..],
            "cannot be used with",
        ),
        (&["x.stack", "tcp"], "takes no filter"),
        (&["-e", "count", "x.stack"], "takes no filter"),
        (&["x.stack", "--watch"], "-r"),
        (&["-r", "in.pcap", "-e", "output { in.pcap }"], "in.pcap"),
    ] {
        let output = flowgauge(folder, &[&["stack", "show"], arguments].concat());
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {messages}");
        assert!(messages.contains(said), "{arguments:?}: {messages}");
    }
}

#[test]
fn components_with_an_engine_say_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[stack a] flows - output { file = a }\n\
                [stack b] filter { expression = tcp } - streams - output { file = b }\n\
                [stack c] filter { expression = tcp } - transactions - output { file = c }\n\
                [stack d] transactions - output { file = d }\n\
                [stack e] flows { overlap_policy = last } - output { file = e }\n\
                [stack f] streams - output { file = f }\n\
                [stack g] flows { classify = yes } - output { file = g }\n";
    std::fs::write(folder.path().join("x.stack"), text).expect("room");
    let shown = shown(folder.path(), &["x.stack"]);
    let engines = shown.lines().filter(|line| line.starts_with("engine"));
    assert_eq!(
        engines.collect::<Vec<_>>(),
        [
            "engine 1: flows of a, transactions of d, streams of f, flows of g",
            "engine 2, after filter, which looks at single packets: streams of b, transactions of c",
            "engine 3: flows of e",
        ]
    );
    let drawn = |arguments: &[&str], of: &dyn Fn(usize) -> String| {
        let shown = self::shown(folder.path(), arguments);
        for (engine, components) in [(1, 4), (2, 2), (3, 1)] {
            assert_eq!(shown.matches(&of(engine)).count(), components, "{shown}");
        }
    };
    drawn(&["x.stack"], &|engine| format!(" (engine {engine}) {{"));
    drawn(&["x.stack", "--dot"], &|engine| {
        format!(" (engine {engine})\"];")
    });
    drawn(&["x.stack", "--svg"], &|engine| {
        format!(" (engine {engine})</text>")
    });
    // One engine needs no number.
    let shown = self::shown(folder.path(), &["-e", "filter { tcp } flows"]);
    assert!(!shown.contains("engine"), "{shown}");
}

//! `stack run --folder`: whatever a stack names, nothing outside of the folder is read or written. For all
//! components, by what their descriptions say is a path.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::corpora::skipped;
use crate::wait;
use flowgauge_registry::registry;
use flowgauge_stack::{ComponentInfo, OptionInfo, OptionKind};

/// What nobody may see.
const SECRET: &str = "top-secret-line";

/// A folder, and what is beside it.
struct Place {
    all: tempfile::TempDir,
    folder: PathBuf,
    outside: PathBuf,
    before: BTreeMap<PathBuf, (u64, i64, i64)>,
}

impl Place {
    fn new() -> Place {
        let all = tempfile::tempdir().unwrap();
        let (folder, outside) = (all.path().join("in"), all.path().join("out"));
        fs::create_dir_all(folder.join("x")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(folder.join("w.pcap"), capture()).unwrap();
        fs::write(outside.join("secret"), format!("{SECRET}\nsecond line\n")).unwrap();
        fs::write(outside.join("secret.pcap"), capture()).unwrap();
        symlink(&outside, folder.join("link")).unwrap();
        let mut place = Place {
            all,
            folder,
            outside,
            before: BTreeMap::new(),
        };
        for keys in [place.outside.join("keys"), place.all.path().join("own")] {
            for words in [["authority"].as_slice(), &["add", "agent"]] {
                let made = command()
                    .arg("keys")
                    .args(words)
                    .arg("--keys")
                    .arg(&keys)
                    .output();
                assert!(made.unwrap().status.success());
            }
        }
        place.before = place.around();
        place
    }

    /// Everything outside of the folder: size, time of the last change and of the last read.
    fn around(&self) -> BTreeMap<PathBuf, (u64, i64, i64)> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.all.path().to_owned()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path == self.folder {
                    continue;
                }
                let about = fs::symlink_metadata(&path).unwrap();
                if about.is_dir() {
                    left.push(path.clone());
                }
                let size = if about.is_dir() { 0 } else { about.len() };
                found.insert(path, (size, about.mtime(), about.mtime_nsec()));
            }
        }
        found
    }

    fn run(&self, stack: &str) -> Output {
        let mut run = command();
        run.current_dir(&self.folder)
            .env("FLOWGAUGE_KEYS", self.all.path().join("own"))
            .args(["stack", "run", "--folder", ".", "-e", stack]);
        if !stack.starts_with("pcap") && !stack.starts_with("input") {
            run.args(["-r", "w.pcap"]);
        }
        run.output().unwrap()
    }

    /// Runs a stack that must not do what it says; `what` is for messages.
    fn refused(&self, what: &str, stack: &str) {
        let output = self.run(stack);
        let said =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{what}: {stack}: {said}");
        assert!(!said.contains(SECRET), "{what}: {stack}: {said}");
        // For that reason, and no other.
        let reasons = [
            "the folder that this run is kept to",
            "no file matches",
            "neither an overlap policy",
        ];
        let is_reason = |reason: &&str| said.contains(*reason);
        assert!(reasons.iter().any(is_reason), "{what}: {stack}: {said}");
        assert!(!said.contains("panicked"), "{what}: {stack}: {said}");
        assert_eq!(self.around(), self.before, "{what}: {stack}: {said}");
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.stdin(Stdio::null());
    command
}

/// Two packets at whole seconds, where %.f is nothing.
fn capture() -> Vec<u8> {
    let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    bytes.extend([
        2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1, 0, 0, 0,
    ]);
    for seconds in [1_600_000_000_u32, 1_600_000_001] {
        // UDP over IPv4.
        let frame = [
            [0; 12].as_slice(),
            &[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x8e, 0x83],
            &[192, 0, 2, 1, 198, 51, 100, 7, 4, 0, 4, 1, 0, 26, 0, 0],
            &[0; 18],
        ]
        .concat();
        for number in [seconds, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}

/// A stack in which a component has an option, and what it needs to make use of it.
fn stack(info: &ComponentInfo, option: &OptionInfo, value: &str) -> String {
    let (name, option) = (info.name, option.name);
    let value = format!("{option} = \"{value}\"");
    match (name, option) {
        ("output", "keys") => format!("output {{ to = 127.0.0.1:9, peer = agent, {value} }}"),
        ("output", "spool_folder") => {
            format!("output {{ to = 127.0.0.1:9, peer = agent, {value} }}")
        }
        (_, "password") => {
            let topic = "kafka = \"127.0.0.1:9\", topic = t, plain = yes, user = u";
            match name {
                "input" => {
                    format!("input {{ {topic}, group = g, type = record, {value} }} - count")
                }
                _ => format!("packets output {{ {topic}, partitions = 1, {value} }}"),
            }
        }
        ("input", _) => format!("input {{ listen = 127.0.0.1:0, {value} }} - count"),
        ("pcap", _) => format!("pcap {{ {value} }} - count"),
        ("result_to_file", _) => {
            format!("count {{ as = c }} - result_to_file {{ of = c, header = x, {value} }}")
        }
        ("flow_export", _) => format!("flows - flow_export {{ {value} }}"),
        ("logs", _) => format!("flows - logs {{ {value} }}"),
        ("flows", "applications") => format!("flows {{ classify = yes, {value} }} - output"),
        ("transactions", "applications") => {
            format!("transactions {{ flows = yes, {value} }} - output")
        }
        ("match", "host_policy") => format!("match {{ pattern = x, {value} }} - output"),
        (_, "extract") => format!("{name} {{ files = yes, {value} }} - output"),
        _ if info.is_end => format!("{name} {{ {value} }}"),
        _ => format!("{name} {{ {value} }} - output"),
    }
}

/// All options that are paths.
fn paths() -> Vec<(&'static ComponentInfo, &'static OptionInfo)> {
    let registry = registry();
    let options = registry
        .iter()
        .flat_map(|info| info.options.iter().map(move |option| (info, option)));
    options
        .filter(|(_, option)| option.kind.is_path())
        .collect()
}

/// What an option says that it is tells whether it is a path: one that speaks of files or folders is declared as one.
#[test]
fn options_that_speak_of_files_are_declared_as_paths() {
    // What speaks of them and is none.
    let others = [
        ("digests", "digests of files"),
        ("header", "header line of the file"),
        ("identity", "if the folder has several"),
        ("to", "instead of to a file"),
    ];
    let mut met = BTreeSet::new();
    for info in registry().iter() {
        for option in info.options {
            let speaks = ["file", "folder", "path"]
                .iter()
                .any(|word| option.name.contains(word) || option.help.contains(word));
            if !speaks || option.kind.is_path() || !matches!(option.kind, OptionKind::Text) {
                continue;
            }
            let is_this = |(name, help): &&(&'static str, &str)| {
                option.name.starts_with(name) && option.help.contains(help)
            };
            let other = others.iter().find(is_this);
            assert!(
                other.is_some(),
                "{} {}: {}",
                info.name,
                option.name,
                option.help
            );
            met.extend(other);
        }
    }
    assert_eq!(met, others.iter().collect(), "no option is as these say");
    let known = paths();
    for (component, option) in [
        ("match", "file"),
        ("streams", "host_policy"),
        ("streams", "out"),
        ("pcap", "file"),
        ("transactions", "extract"),
        ("result_to_file", "file"),
        ("output", "file"),
        ("output", "keys"),
        ("output", "spool_folder"),
        ("input", "keys"),
        ("anonymize", "policy"),
        ("anonymize", "key"),
        ("logs", "file"),
        ("report", "file"),
        ("flows", "applications"),
    ] {
        assert!(
            known
                .iter()
                .any(|(info, of)| info.name == component && of.name == option),
            "{component} {option}"
        );
    }
}

#[test]
fn no_option_of_any_component_leads_out_of_the_folder() {
    let place = Place::new();
    let outside = place.outside.display().to_string();
    for (info, option) in paths() {
        let what = format!("{} {}", info.name, option.name);
        let file = match (info.name, option.name) {
            ("pcap", _) => "secret.pcap",
            (_, "keys") => "keys",
            _ => "secret",
        };
        let mut ways: Vec<String> = [&*outside, "../out", "link", "./link", "x/../../out"]
            .iter()
            .map(|folder| format!("{folder}/{file}"))
            .collect();
        ways.push(format!("/proc/self/cwd/../out/{file}"));
        let writes = matches!(
            option.kind,
            OptionKind::OutputFile | OptionKind::OutputFolder
        );
        if writes || option.name == "key" {
            ways.extend(["../new", "link/new", "/proc/self/root/new"].map(str::to_owned));
            ways.push(format!("{outside}/new"));
        }
        // Names of flow_export are as they are written.
        if option.kind == OptionKind::OutputFile && info.name != "flow_export" {
            // Known when the first packet comes.
            ways.push(format!("%.f{outside}/new"));
            ways.push(".%.f./out/new".to_owned());
            ways.push(".%.f./out/secret".to_owned());
            ways.push("l%.fink/new".to_owned());
        }
        if info.name == "pcap" {
            for pattern in [
                ".[.]/out/*",
                "[.][.]/out/secret.pca?",
                "../out/*",
                "l*/*",
                "*/s*",
            ] {
                ways.push(pattern.to_owned());
            }
            ways.push(format!("{outside}/*.pcap"));
        }
        if option.kind == OptionKind::InputFiles {
            ways.push(format!("w.pcap\\n{outside}/{file}"));
        }
        for way in ways {
            place.refused(&what, &stack(info, option, &way));
        }
    }
}

#[test]
fn what_is_named_on_the_way_stays_in_the_folder() {
    let place = Place::new();
    let outside = place.outside.display();
    let policy = |name: &str, key: &str| {
        let rules = "[ip]\nsrc_ip = \"PREFIX_PRESERVING\"\ndst_ip = \"PREFIX_PRESERVING\"\n";
        fs::write(place.folder.join(name), format!("key = \"{key}\"\n{rules}")).unwrap();
    };
    // A key that a policy names.
    for (number, key) in [
        format!("{outside}/key"),
        "../out/key".to_owned(),
        "link/key".to_owned(),
        format!("{outside}/secret"),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("p{number}.toml");
        policy(&name, key);
        let stack = format!("anonymize {{ policy = {name} }} - output {{ file = a.pcap }}");
        place.refused(key, &stack);
    }
    // Files that are made, renamed and removed as a run goes on.
    symlink(place.outside.join("secret"), place.folder.join("r.pcap1")).unwrap();
    symlink("../out/new", place.folder.join("1970.pcap")).unwrap();
    for stack in [
        "output { file = r.pcap, rotate_size = 10, rotate_files = 3 }",
        "output { file = \"../out/%s.pcap\", rotate_time = 1 }",
        "output { file = \"%.f/%.f../out/%s.pcap\", rotate_time = 1 }",
    ] {
        place.refused("rotation", stack);
    }
    // What is included, and the stack's own file.
    for text in [
        format!("include \"{outside}/secret\"\n"),
        "include \"../out/secret\"\n".to_owned(),
    ] {
        fs::write(place.folder.join("s.stack"), text).unwrap();
        for file in ["s.stack", "../out/secret", "link/secret"] {
            let output = command()
                .current_dir(&place.folder)
                .args(["stack", "run", "--folder", ".", "-r", "w.pcap", "-f", file])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(!said.contains(SECRET), "{said}");
        }
    }
    // What the command line names.
    for words in [
        ["-r", "../out/secret.pcap"],
        ["-r", ".[.]/out/secret.pcap"],
        ["-F", "../out/secret"],
        ["-w", "../out/new"],
    ] {
        let output = command()
            .current_dir(&place.folder)
            .args(["stack", "run", "--folder", ".", "-e", "count"])
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?}: {said}");
        assert!(!said.contains(SECRET), "{said}");
    }
    assert_eq!(place.around(), place.before);
}

#[test]
fn within_the_folder_a_stack_does_what_it_says() {
    let place = Place::new();
    fs::create_dir(place.folder.join("sub")).unwrap();
    fs::write(place.folder.join("patterns"), "abc\n").unwrap();
    for stack in [
        "output { file = \"sub/%Y%.f.pcap\" }",
        "count { as = c } - result_to_file { of = c, file = sub/count }",
        "streams { out = sub/streams } - output { file = sub/streams.json }",
        "transactions { files = yes, extract = sub/files } - logs { format = zeek, file = logs }",
        "match { file = patterns, fixed = yes } - output",
        "pcap { file = \"[a-z].pcap\" } - output { file = copy.pcap }",
        "anonymize { key = sub/key } - output { file = anonymous.pcap, rotate_size = 10 }",
        "report { file = report.txt }",
    ] {
        let output = place.run(stack);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stack}: {said}");
    }
    for name in [
        "sub/2020.pcap",
        "sub/count",
        "sub/streams",
        "sub/files",
        "copy.pcap",
        "sub/key",
        "anonymous.pcap",
        "anonymous.pcap1",
        "report.txt",
    ] {
        assert!(place.folder.join(name).exists(), "{name}");
    }
    assert_eq!(
        fs::read(place.folder.join("copy.pcap")).unwrap().len(),
        capture().len()
    );
    assert_eq!(place.around(), place.before);
}

/// Of all threads: no rights, no way to get any, and the filter of system calls.
#[test]
fn a_stack_that_gave_up_root_can_gain_nothing() {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    let place = Place::new();
    let pipe = place.folder.join("p");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let mut run = command()
        .current_dir(&place.folder)
        .args(["stack", "run", "--folder", ".", "-e", "count"])
        .args(["-r", "p", "-Z", "nobody", "-q", "--workers", "2"])
        .spawn()
        .unwrap();
    // It is opened once there is a reader, who is not root any more.
    let mut writer = fs::File::options().write(true).open(&pipe).unwrap();
    writer.write_all(&capture()).unwrap();
    let mut found = Vec::new();
    wait::wait_until("its threads are there", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", run.id())).unwrap();
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status"));
        found = tasks
            .filter_map(|task| status(task.unwrap()).ok())
            .collect();
        found.len() > 1
    });
    for status in found {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Seccomp:"), "2");
        assert!(!field("Uid:").split_whitespace().any(|id| id == "0"));
    }
    drop(writer);
    assert!(run.wait().unwrap().success());
}

/// New code cannot open files by another way unseen: the crates that stacks are made of deny it (clippy.toml).
#[test]
fn crates_of_components_deny_other_ways_to_open_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in [
        "anonymize",
        "capture",
        "components",
        "conversations",
        "kit",
        "link",
        "matcher",
        "proto",
        "record",
        "registry",
        "runtime",
        "stack",
        "stream",
    ] {
        let text = fs::read_to_string(crates.join(name).join("src/lib.rs")).unwrap();
        assert!(text.contains("deny(clippy::disallowed_methods)"), "{name}");
    }
}

//! Running programs with and without the library.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use flowgauge_generate::{Config, Preset, generate};
use tempfile::TempDir;

/// Seconds after which a program counts as hung.
const TIME_LIMIT: &str = "120";

/// The library, which cargo has put beside the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libflowgauge_pcap.so");
    assert!(
        library.is_file(),
        "cargo has not built {}",
        library.display()
    );
    library
}

/// A folder for all tests of this process.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        // For programs that become other users, too.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        folder
    });
    folder.path()
}

/// A program of `tests/c`, compiled and linked with these libraries.
pub(crate) fn compiled(name: &str) -> PathBuf {
    built("gcc", "-std=gnu11", &format!("{name}.c"))
}

/// The same in C++.
pub(crate) fn compiled_as_cpp(name: &str) -> PathBuf {
    built("g++", "-std=c++17", &format!("{name}.cc"))
}

fn built(compiler: &str, standard: &str, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name);
    let test = std::thread::current().name().unwrap().replace("::", "-");
    let program = folder().join(format!("{name}-{test}"));
    let done = Command::new(compiler)
        .args([standard, "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .args(["-lpcap", "-lpthread"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    program
}

/// A trace whose flows are mixed, of some thousand packets.
pub(crate) fn trace() -> &'static Path {
    static TRACE: OnceLock<PathBuf> = OnceLock::new();
    TRACE.get_or_init(|| {
        let path = folder().join("trace.pcap");
        let config = Config::new(Preset::Mix).with_flows(300);
        generate(&config, fs::File::create(&path).unwrap()).unwrap();
        path
    })
}

/// How packets are gathered in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a>(pub(crate) &'a [(&'a str, &'a str)]);

/// The command with a time limit; `ip netns exec` and the like can stand in front of it.
pub(crate) fn limited(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg(TIME_LIMIT).arg(program.as_ref());
    command
}

/// Puts the library in front of libpcap; counts go to the file that is returned.
pub(crate) fn shimmed(command: &mut Command, settings: Settings<'_>) -> PathBuf {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let counts = folder().join(format!("counts-{number}"));
    command.env("LD_PRELOAD", library());
    command.env("FLOWGAUGE_LOCALITY_COUNTS", &counts);
    for (name, value) in settings.0 {
        command.env(format!("FLOWGAUGE_LOCALITY_{name}"), value);
    }
    counts
}

/// The counts of the handles of a run, as they were closed.
pub(crate) fn counts(file: &Path) -> Vec<Counts> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(Counts::read).collect()
}

/// What is told of a handle.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) what: String,
    numbers: BTreeMap<String, u64>,
}

impl Counts {
    fn read(line: &str) -> Counts {
        let rest = line.strip_prefix("flowgauge locality: ").unwrap();
        let (what, counts) = rest.split_once(": ").unwrap();
        let numbers = counts.split(", ").map(|count| {
            let (name, number) = count.split_once(' ').unwrap();
            (name.to_owned(), number.parse().unwrap())
        });
        Counts {
            what: what.to_owned(),
            numbers: numbers.collect(),
        }
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        self.numbers[name]
    }

    /// Nearly all packets went through buffers, where they were brought together.
    #[track_caller]
    pub(crate) fn assert_grouped(&self, variant: &str) {
        assert!(self.what.contains(variant), "{self:?}");
        let (delivered, passed) = (self.of("delivered"), self.of("passed"));
        assert!(delivered > 0, "{self:?}");
        assert!(delivered * 100 >= (delivered + passed) * 95, "{self:?}");
        assert_eq!(self.of("left"), 0, "{self:?}");
        assert_eq!(self.of("refused"), 0, "{self:?}");
        assert!(self.of("runs") > 2 * self.of("classes"), "{self:?}");
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{command:?} hangs");
    output
}

/// The packets that `reads.c` prints, without their times and in order.
pub(crate) fn packets(output: &str) -> Vec<String> {
    let lines = output.lines();
    let packets = lines.filter_map(|line| Some(line.strip_prefix("packet ")?.split_once(' ')?.1));
    let mut packets: Vec<String> = packets.map(str::to_owned).collect();
    packets.sort_unstable();
    packets
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of a text, in order.
pub(crate) fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

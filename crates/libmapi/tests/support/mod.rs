//! A sensor in the test's process, and C programs compiled against the library as it is installed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowgauge_generate::{Config, Preset, generate};
use flowgauge_link::KeyFolder;
use flowgauge_sensor::Sensor;
use flowgauge_sensor_agent::Agent;

pub(crate) mod model;

/// Seconds after which a program counts as hung.
const TIME_LIMIT: &str = "300";
const OPTIONS: [&str; 6] = [
    "-std=gnu99",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
];

pub(crate) fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A sensor that runs on a thread.
pub(crate) struct Running {
    pub(crate) folder: tempfile::TempDir,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// With these tables in its configuration; `{folder}` is a folder with the traces `mix.pcap`, `long.pcap` and `slow.pcap`.
    pub(crate) fn start(tables: &str) -> Running {
        let folder = Running::folder(tables);
        let (is_stopped, thread) = serve(&folder.path().join("sensor.toml"));
        Running {
            folder,
            is_stopped,
            thread: Some(thread),
        }
    }

    /// The traces, and the configuration.
    pub(crate) fn folder(tables: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, seconds) in [("mix", 3), ("long", 150), ("slow", 40)] {
            let trace = folder.path().join(name).with_extension("pcap");
            let mut config = Config::new(Preset::Mix).with_packets(20_000);
            config.duration = Duration::from_secs(seconds);
            generate(&config, File::create(trace).unwrap()).unwrap();
        }
        let text = format!("socket = \"{{folder}}/sock\"\nuser = \"root\"\n{tables}");
        let text = text.replace("{folder}", &folder.path().display().to_string());
        fs::write(folder.path().join("sensor.toml"), text).unwrap();
        folder
    }

    pub(crate) fn packets(&self, trace: &str) -> Vec<model::Packet> {
        model::packets(&self.folder.path().join(trace))
    }

    /// Runs a program of `tests/c` to its end, in the sensor's folder. Returns what it prints.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> String {
        run(program, &self.folder, arguments)
    }
}

/// The same, in the folder of a sensor that is a process of its own: this one keeps its rights, and the program has them.
pub(crate) fn run(program: &Path, folder: &tempfile::TempDir, arguments: &[&str]) -> String {
    text(&success(&mut command(program, folder, arguments)).stdout)
}

/// A program of `tests/c` in a sensor's folder.
fn command(program: &Path, folder: &tempfile::TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(TIME_LIMIT).arg(program).args(arguments);
    command.current_dir(folder.path());
    command.env("FLOWGAUGE_SENSOR", folder.path().join("sock"));
    command
        .env("FLOWGAUGE_KEYS", folder.path().join("keys"))
        .env("FLOWGAUGE_SCOPES", folder.path().join("scopes"))
        .env("FLOWGAUGE_IDENTITY", "user");
    command
        .env("LD_LIBRARY_PATH", installed().join("lib"))
        .env("TZ", "UTC");
    command
}

/// The variable with the configuration of a sensor that a test wants to be.
pub(crate) const CONFIG: &str = "FLOWGAUGE_TEST_SENSOR";

/// The variable with the folder of keys of a sensor that has an agent in its process, which it tells the address of.
const AGENT: &str = "FLOWGAUGE_TEST_AGENT";

#[allow(clippy::print_stdout, reason = "whoever started it reads it")]
pub(crate) fn serve_until_killed(config: &Path) {
    let (_, thread) = serve(config);
    let agent = std::env::var_os(AGENT).map(|keys| {
        let identity = KeyFolder::new(keys).identity(Some("sensor")).unwrap();
        let socket = config.with_file_name("sock");
        Agent::start(&identity, "127.0.0.1:0", Vec::new(), socket).unwrap()
    });
    if let Some(agent) = &agent {
        println!("{}", agent.local_address());
    }
    println!("serves");
    thread.join().unwrap();
}

/// A process that is killed with its owner.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// A sensor, which serves.
    pub(crate) fn sensor(folder: &tempfile::TempDir) -> Process {
        let mut sensor = Process::start(&mut Process::sensor_command(folder));
        while sensor.line() != "serves" {}
        sensor
    }

    /// A sensor and its agent, whose address is returned.
    pub(crate) fn sensor_and_agent(folder: &tempfile::TempDir, keys: &Path) -> (Process, String) {
        let mut command = Process::sensor_command(folder);
        let mut sensor = Process::start(command.env(AGENT, keys));
        let (mut line, mut before) = (sensor.line(), String::new());
        while line != "serves" {
            before = core::mem::replace(&mut line, sensor.line());
        }
        (sensor, before)
    }

    fn sensor_command(folder: &tempfile::TempDir) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "is_a_sensor_for_other_tests", "--nocapture"]);
        command.env(CONFIG, folder.path().join("sensor.toml"));
        command
    }

    pub(crate) fn program(
        program: &Path,
        folder: &tempfile::TempDir,
        arguments: &[&str],
    ) -> Process {
        Process::start(&mut command(program, folder, arguments))
    }

    fn start(command: &mut Command) -> Process {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let line = self
            .lines
            .next()
            .unwrap_or_else(|| panic!("{:?}", self.child.wait()));
        line.unwrap()
    }

    pub(crate) fn go_on(&mut self) {
        self.say("\n");
    }

    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: &str) {
        success(
            Command::new("kill")
                .arg(format!("-{signal}"))
                .arg(self.child.id().to_string()),
        );
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn succeeds(&mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(file: &Path) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let sensor = Sensor::start(file, Arc::clone(&is_stopped));
    let sensor = Arc::new(sensor.unwrap_or_else(|error| panic!("{error}")));
    (
        is_stopped,
        thread::spawn(move || {
            sensor.run(|_| {});
        }),
    )
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Where `install.sh` has put the library, once per test program.
pub(crate) fn installed() -> &'static Path {
    static INSTALLED: OnceLock<tempfile::TempDir> = OnceLock::new();
    let prefix = INSTALLED.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let prefix = tempfile::tempdir().unwrap();
        let mut install = Command::new(here().join("install.sh"));
        install
            .arg(test.parent().unwrap())
            .env("PREFIX", prefix.path())
            .env("DESTDIR", "/");
        for variable in ["LIBDIR", "INCLUDEDIR", "MANDIR", "PRIVATE_LIBS"] {
            install.env_remove(variable);
        }
        success(&mut install);
        prefix
    });
    prefix.path()
}

/// Compiles `tests/c/NAME.c`.
pub(crate) fn compile(name: &str) -> PathBuf {
    compile_with("gcc", &OPTIONS, &here().join(format!("tests/c/{name}.c")))
}

pub(crate) fn compile_with(compiler: &str, options: &[&str], source: &Path) -> PathBuf {
    let name = source.file_stem().unwrap().to_string_lossy();
    let program = installed().join(format!("{name}-{compiler}"));
    let mut command = Command::new(compiler);
    command
        .args(options)
        .args(pkg_config(&["--cflags"]))
        .arg(source);
    command
        .arg("-o")
        .arg(&program)
        .args(pkg_config(&["--libs"]));
    let done = success(&mut command);
    assert_eq!(text(&done.stderr), "", "{} has warnings", source.display());
    program
}

/// What `pkg-config` says of the installed library.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(arguments).arg("mapi");
    let said = success(command.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig")));
    text(&said.stdout)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

pub(crate) fn success(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = || format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        said()
    );
    output
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

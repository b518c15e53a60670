//! A sensor in the test's process, and C programs compiled against the library as it is installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowgauge_generate::{Config, Preset, generate};
use flowgauge_sensor::Sensor;

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
    /// With these tables in its configuration; `{folder}` is a folder with the traces `mix.pcap` and `long.pcap`.
    pub(crate) fn start(tables: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        for (name, seconds) in [("mix", 3), ("long", 150)] {
            let trace = folder.path().join(name).with_extension("pcap");
            let mut config = Config::new(Preset::Mix).with_packets(20_000);
            config.duration = Duration::from_secs(seconds);
            generate(&config, File::create(trace).unwrap()).unwrap();
        }
        let text = format!("socket = \"{{folder}}/sock\"\nuser = \"root\"\n{tables}");
        let text = text.replace("{folder}", &folder.path().display().to_string());
        let file = folder.path().join("sensor.toml");
        fs::write(&file, text).unwrap();
        let (is_stopped, thread) = serve(&file);
        Running {
            folder,
            is_stopped,
            thread: Some(thread),
        }
    }

    pub(crate) fn packets(&self, trace: &str) -> Vec<model::Packet> {
        model::packets(&self.folder.path().join(trace))
    }

    /// Runs a program of `tests/c` to its end, in the sensor's folder. Returns what it prints.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> String {
        text(&success(&mut self.command(program, arguments)).stdout)
    }

    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(TIME_LIMIT).arg(program).args(arguments);
        command.current_dir(self.folder.path());
        command.env("FLOWGAUGE_SENSOR", self.folder.path().join("sock"));
        command
            .env("LD_LIBRARY_PATH", installed().join("lib"))
            .env("TZ", "UTC");
        command
    }
}

fn serve(file: &Path) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let sensor = Sensor::start(file, Arc::clone(&is_stopped));
    let sensor = Arc::new(sensor.unwrap_or_else(|error| panic!("{error}")));
    (is_stopped, thread::spawn(move || sensor.run(|_| {})))
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

//! Compiles C programs against the library as it is installed, and runs them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Seconds after which a program counts as hung.
const TIME_LIMIT: &str = "300";

/// `crates/capi`.
pub(crate) fn here() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).expect("crates are two levels deep");
    root.join("crates/capi")
}

/// `examples/c`.
pub(crate) fn examples() -> PathBuf {
    here().join("../../examples/c")
}

/// The folder in which cargo has put the library beside the tests.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("tests have a path");
    let folder = test.parent().expect("in a folder").to_owned();
    for library in ["libscap.so", "libscap.a"] {
        let path = folder.join(library);
        assert!(path.is_file(), "cargo has not built {}", path.display());
    }
    folder
}

/// A folder of this test's own, empty. It stays until tests run again: programs in it may be looked at.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static SWEPT: OnceLock<()> = OnceLock::new();
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    SWEPT.get_or_init(|| {
        let entries = fs::read_dir(all).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| name.rsplit_once('-'));
            let process = of.and_then(|(_, process)| process.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    });
    let folder = all.join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Where `install.sh` has put the library, once per test program.
pub(crate) fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = scratch("scap-installed");
        let mut install = Command::new(here().join("install.sh"));
        install
            .arg(built())
            .env("PREFIX", &prefix)
            .env_remove("DESTDIR");
        install
            .env_remove("LIBDIR")
            .env_remove("INCLUDEDIR")
            .env_remove("PRIVATE_LIBS");
        // As if for a package: the machine's loader is not touched.
        let staged = run(install.env("DESTDIR", "/"));
        assert_success(&staged);
        prefix
    })
}

/// What `pkg-config` says of the installed library.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command
        .args(arguments)
        .arg("scap")
        .env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    let said = run(&mut command);
    assert_success(&said);
    let text = String::from_utf8(said.stdout).expect("options are text");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compiles one source file with `compiler` and links it with the installed shared library.
pub(crate) fn compile(compiler: &str, options: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(compiler);
    command
        .args(options)
        .args(pkg_config(&["--cflags"]))
        .arg("-g")
        .arg(source);
    command.arg("-o").arg(program).args(pkg_config(&["--libs"]));
    let done = run(&mut command);
    assert_success(&done);
    assert_eq!(text(&done.stderr), "", "{} has warnings", source.display());
}

/// A command that finds the installed library and is ended when it hangs.
pub(crate) fn limited(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command
        .arg(TIME_LIMIT)
        .arg(program)
        .env("LD_LIBRARY_PATH", installed().join("lib"));
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub(crate) fn assert_success(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a tool is here. Where it is not, says that the test is skipped.
pub(crate) fn has(tool: &str, test: &str) -> bool {
    let found = Command::new(tool)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        skip(test, &format!("{tool} is not installed"));
    }
    found
}

/// Says that a test is skipped, past the harness that captures output.
pub(crate) fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test} {reason}");
}

//! The Debian package: made, installed below a folder, run there, removed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::command_support::{Folder, stdout, text};
use crate::corpora::skipped;

const TOOLS: [&str; 5] = [
    "dpkg",
    "dpkg-shlibdeps",
    "strip",
    "make",
    "systemd-sysusers",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command as somebody in a fresh shell starts it; dpkg wants those of administrators on the path.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "PREFIX",
        "LIBDIR",
        "INCLUDEDIR",
        "MANDIR",
        "DESTDIR",
        "BUILT",
        "OUT",
        "MAKEFLAGS",
    ] {
        command.env_remove(variable);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    command
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// What tests were built with, in one folder as a release has it.
fn built(folder: &Folder) -> PathBuf {
    let built = folder.file("built");
    fs::create_dir(&built).unwrap();
    symlink(env!("CARGO_BIN_EXE_flowgauge"), built.join("flowgauge")).unwrap();
    let libraries = std::env::current_exe().unwrap();
    let libraries = libraries.parent().unwrap();
    for name in [
        "libscap.so",
        "libscap.a",
        "libmapi.so",
        "libmapi.a",
        "libflowgauge_pcap.so",
    ] {
        let library = libraries.join(name);
        assert!(library.is_file(), "{}", library.display());
        symlink(library, built.join(name)).unwrap();
    }
    built
}

/// dpkg on a system below a folder, of which there is nothing yet. Scripts are not run in it, but for it.
fn dpkg(root: &Path, arguments: &[&str]) -> Output {
    let is_root = is_root();
    let mut dpkg = command(if is_root { "dpkg" } else { "fakeroot" });
    if !is_root {
        dpkg.arg("dpkg");
    }
    dpkg.arg(format!("--root={}", root.display()));
    dpkg.args(["--force-script-chrootless", "--force-depends"]);
    succeed(dpkg.args(arguments))
}

fn is_root() -> bool {
    stdout(&succeed(command("id").arg("-u"))).trim() == "0"
}

/// Files and links below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => files(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

#[test]
fn the_package_is_installed_run_and_removed() {
    let has = |tool: &&str| {
        command("sh")
            .args(["-c", &format!("command -v {tool}")])
            .output()
            .unwrap()
            .status
            .success()
    };
    let mut tools = TOOLS.to_vec();
    if !is_root() {
        tools.push("fakeroot");
    }
    if let Some(lacking) = tools.iter().find(|tool| !has(tool)) {
        skipped(format!("the Debian package: there is no {lacking}"));
        return;
    }
    let folder = Folder::new("deb");
    let made = succeed(
        command(source().join("packaging/deb.sh"))
            .arg(built(&folder))
            .arg(folder.file("out")),
    );
    let package = stdout(&made).trim().to_owned();
    let said = succeed(command("dpkg-deb").args(["--field", &package, "Depends"]));
    for needed in ["libc6 (>= ", "libpcap0.8"] {
        assert!(stdout(&said).contains(needed), "{}", stdout(&said));
    }

    let root = folder.file("root");
    for part in ["updates", "info", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(part)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    dpkg(&root, &["--install", &package]);

    let flowgauge = root.join("usr/bin/flowgauge");
    let capture = folder.file("small.pcap");
    succeed(command(&flowgauge).args([
        "generate",
        "-q",
        "--preset",
        "small",
        "--flows",
        "5",
        "-w",
        text(&capture),
    ]));
    let flows = succeed(command(&flowgauge).args(["flows", "-q", "--json", "-r", text(&capture)]));
    assert_eq!(stdout(&flows).lines().count(), 5);
    // It finds the library that is preloaded.
    let preloaded = ["locality", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let preloaded = succeed(command(&flowgauge).args(preloaded));
    let shim = root
        .join("usr/lib/flowgauge/libflowgauge_pcap.so")
        .canonicalize()
        .unwrap();
    assert!(
        stdout(&preloaded).contains(text(&shim)),
        "{}",
        stdout(&preloaded)
    );
    // A program in C is compiled with what is there.
    let program = folder.file("program");
    fs::write(program.with_extension("c"), "#include <scap.h>\n#include <mapi.h>\nint main(void) { return scap_create(0, 0, 0, 0) != 0 && mapi_create_flow(\"\") >= 0; }\n").unwrap();
    let triplet = succeed(command("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"));
    let libraries = root.join("usr/lib").join(stdout(&triplet).trim());
    let pkg_config = |what: &str| {
        let mut command = command("pkg-config");
        command.env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
        command.env("PKG_CONFIG_SYSROOT_DIR", &root);
        let said = succeed(command.args([what, "scap", "mapi"]));
        stdout(&said)
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut compile = command("gcc");
    compile
        .args(pkg_config("--cflags"))
        .arg(program.with_extension("c"));
    succeed(
        compile
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", libraries.display()))
            .args(["-lscap", "-lmapi"]),
    );
    let linked = succeed(
        command("ldd")
            .arg(&program)
            .env("LD_LIBRARY_PATH", &libraries),
    );
    assert!(
        stdout(&linked).contains(text(&libraries)),
        "{}",
        stdout(&linked)
    );
    // Users of the units, pages, completions.
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    for unit in [
        "flowgauge-sensor",
        "flowgauge-sensor-agent",
        "flowgauge-element",
    ] {
        let unit = root.join(format!("usr/lib/systemd/system/{unit}.service"));
        let unit = fs::read_to_string(unit).unwrap();
        assert!(unit.contains("\nExecStart=/usr/bin/flowgauge "), "{unit}");
        let user = unit
            .lines()
            .find_map(|line| line.strip_prefix("User="))
            .unwrap();
        assert!(
            users
                .lines()
                .any(|line| line.starts_with(&format!("{user}:"))),
            "{users}"
        );
    }
    for file in [
        "usr/share/man/man1/flowgauge-streams.1.gz",
        "usr/share/man/man3/mapi_create_flow.3.gz",
        "usr/share/bash-completion/completions/flowgauge",
        "usr/share/zsh/vendor-completions/_flowgauge",
        "usr/share/doc/flowgauge/copyright",
        "etc/flowgauge/sensor.toml",
    ] {
        assert!(
            root.join(file).metadata().is_ok_and(|it| it.len() > 0),
            "{file}"
        );
    }
    let checked = command(&flowgauge)
        .args(["sensor", "check", "--config"])
        .arg(root.join("etc/flowgauge/sensor.toml"))
        .output()
        .unwrap();
    assert_ne!(checked.status.code(), None, "{checked:?}");

    dpkg(&root, &["--purge", "flowgauge"]);
    let mut left = Vec::new();
    files(&root, &mut left);
    // dpkg's own, and users, which stay: their number may own files elsewhere.
    left.retain(|path| {
        !path.starts_with(root.join("var/lib/dpkg")) && !path.starts_with(root.join("var/log"))
    });
    let left: Vec<&Path> = left
        .iter()
        .map(|path| path.strip_prefix(&root).unwrap())
        .collect();
    let is_of_users = |path: &&&Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        ["passwd", "group", "shadow", "gshadow", ".pwd.lock"]
            .iter()
            .any(|known| name.starts_with(known))
    };
    let others: Vec<_> = left.iter().filter(|path| !is_of_users(path)).collect();
    assert!(others.is_empty(), "{others:?}");
}

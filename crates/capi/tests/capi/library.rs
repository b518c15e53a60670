//! The library as files: what it exports, how it is found, how it is linked.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::support::{
    self, assert_success, built, has, here, installed, limited, pkg_config, run, scratch, text,
};
use flowgauge_generate::{Config, Preset, generate};

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header =
        fs::read_to_string(here().join("include/scap.h")).expect("test files are readable");
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let names = code.split(|byte: char| !(byte.is_ascii_alphanumeric() || "_(".contains(byte)));
    names
        .filter_map(|word| word.split_once('('))
        .filter(|(name, _)| name.starts_with("scap_"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn exactly_the_headers_functions_are_exported() {
    if !has("nm", "exactly_the_headers_functions_are_exported") {
        return;
    }
    let listed = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(built().join("libscap.so")));
    assert_success(&listed);
    let exported: BTreeSet<String> = text(&listed.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 30 - 1, "{exported:?}");
}

#[test]
fn installation_has_every_file() {
    let prefix = installed();
    let header = fs::read(prefix.join("include/scap.h")).expect("test files are readable");
    assert_eq!(
        header,
        fs::read(here().join("include/scap.h")).expect("test files are readable")
    );
    for (link, target) in [
        ("libscap.so", "libscap.so.1"),
        ("libscap.so.1", "libscap.so.1.0"),
    ] {
        let found = fs::read_link(prefix.join("lib").join(link)).expect("test files are readable");
        assert_eq!(found, std::path::Path::new(target));
    }
    assert_eq!(pkg_config(&["--modversion"]), ["1.0"]);
    let dynamic = run(Command::new("readelf")
        .arg("-d")
        .arg(prefix.join("lib/libscap.so")));
    assert!(text(&dynamic.stdout).contains("Library soname: [libscap.so.1]"));
}

#[test]
fn packages_are_staged() {
    let stage = scratch("scap-staged");
    let mut install = Command::new(here().join("install.sh"));
    install
        .arg(built())
        .env("DESTDIR", &stage)
        .env("PREFIX", "/usr");
    install.env("LIBDIR", "/usr/lib/x86_64-linux-gnu");
    assert_success(&run(&mut install));
    let described = stage.join("usr/lib/x86_64-linux-gnu/pkgconfig/scap.pc");
    let described = fs::read_to_string(described).expect("test files are readable");
    assert!(
        described.contains("libdir=/usr/lib/x86_64-linux-gnu\n"),
        "{described}"
    );
    assert!(
        described.contains("includedir=/usr/include\n"),
        "{described}"
    );
    assert!(!described.contains('@'), "{described}");
    assert!(
        stage
            .join("usr/lib/x86_64-linux-gnu/libscap.so.1.0")
            .is_file()
    );
    assert!(stage.join("usr/include/scap.h").is_file());
}

/// With the static library a program needs no file of ours when it runs.
#[test]
fn static_linking() {
    if !has("gcc", "static_linking") {
        return;
    }
    let folder = scratch("static");
    let capture = folder.join("capture.pcap");
    let config = Config::new(Preset::Zoo).with_flows(20);
    generate(
        &config,
        fs::File::create(&capture).expect("test files are readable"),
    )
    .unwrap();
    let program = folder.join("flow_export");
    let mut link = Command::new("gcc");
    link.args(["-std=c99", "-Wall", "-Wextra", "-Werror"])
        .args(pkg_config(&["--cflags"]));
    link.arg(support::examples().join("flow_export.c"))
        .arg("-o")
        .arg(&program);
    link.arg(installed().join("lib/libscap.a"));
    link.args(
        pkg_config(&["--static", "--libs-only-l"])
            .iter()
            .filter(|word| *word != "-lscap"),
    );
    assert_success(&run(&mut link));
    let mut ran = Command::new("timeout");
    let ran = run(ran
        .arg("300")
        .arg(&program)
        .arg(&capture)
        .env_remove("LD_LIBRARY_PATH"));
    assert_success(&ran);
    let needed = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(!text(&needed.stdout).contains("libscap"));

    let shared = folder.join("flow_export_shared");
    support::compile(
        "gcc",
        &["-std=c99"],
        &support::examples().join("flow_export.c"),
        &shared,
    );
    let same = run(limited(&shared).arg(&capture));
    assert_success(&same);
    assert_eq!(text(&ran.stdout), text(&same.stdout));
    assert!(text(&ran.stdout).lines().count() >= 20);
}

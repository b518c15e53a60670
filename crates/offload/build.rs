//! Compiles the programs of `bpf/`. Without clang, the objects that stand beside the sources are taken: a test says whether
//! they are of these sources.

use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=FLOWGAUGE_CLANG");
    let clang = env::var("FLOWGAUGE_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let headers = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    for name in ["verdict", "mirror", "fanout", "inbound"] {
        let object = Path::new(&out).join(format!("{name}.o"));
        let compiled = Command::new(&clang)
            .args([
                "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror", &headers,
            ])
            .args(["-fdebug-prefix-map=bpf=", "-c"])
            .arg(format!("bpf/{name}.bpf.c"))
            .arg("-o")
            .arg(&object)
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            fs::copy(format!("bpf/{name}.o"), &object)?;
        }
    }
    Ok(())
}

//! Net-SNMP's master and managers: a `snmpd` of the test's own on the loopback interface.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::skipped::skipped;

/// Of the SNMPv3 user `admin`.
pub(crate) const V3: &[&str] = &[
    "-v3",
    "-l",
    "authPriv",
    "-u",
    "admin",
    "-a",
    "SHA",
    "-A",
    "authentic",
    "-x",
    "AES",
    "-X",
    "encrypted",
];
/// Of a community that may read and write.
pub(crate) const WRITER: &[&str] = &["-v2c", "-c", "private"];
/// Of one that may only read.
pub(crate) const READER: &[&str] = &["-v2c", "-c", "public"];

/// Whether the programs are installed; says so where not.
pub(crate) fn is_there() -> bool {
    let there = ["snmpd", "snmptrapd", "snmpget"].iter().all(|program| {
        let run = Command::new(program)
            .arg("-v")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        run.is_ok()
    });
    if !there {
        skipped("snmpd, snmp or snmptrapd is not installed");
    }
    there
}

/// An address of the loopback interface that no other process has.
fn own_address() -> String {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    format!("127.{}.{c}.{d}", 1 + (b ^ a) % 250)
}

/// Ports at that address that no other test of this process has.
fn own_ports() -> [u16; 3] {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let first = NEXT.fetch_add(3, Ordering::Relaxed);
    [first, first + 1, first + 2]
}

/// A process that is ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Snmpd {
    folder: tempfile::TempDir,
    host: String,
    port: u16,
    trap_port: u16,
    tcp_port: u16,
    process: Option<Process>,
}

impl Snmpd {
    pub(crate) fn start() -> Snmpd {
        Snmpd::start_with(|snmpd| {
            format!(
                "agentaddress udp:{}:{}\n\
                 master agentx\n\
                 agentXSocket unix:{},tcp:{}\n\
                 rocommunity public 127.0.0.1\n\
                 rwcommunity private 127.0.0.1\n\
                 createUser admin SHA authentic AES encrypted\n\
                 rwuser admin priv\n\
                 trap2sink {}:{} traps\n",
                snmpd.host,
                snmpd.port,
                snmpd.socket().display(),
                snmpd.tcp(),
                snmpd.host,
                snmpd.trap_port,
            )
        })
    }

    /// With the configuration that `docs/rmon.md` shows, but for ports, paths, and a group that may not exist.
    pub(crate) fn start_as_documented() -> Snmpd {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rmon.md");
        let page = fs::read_to_string(path).unwrap();
        let mut blocks = page
            .split("```\n")
            .filter(|block| block.starts_with("agentaddress "));
        let text = blocks.next().unwrap().to_owned();
        Snmpd::start_with(|snmpd| {
            let mut text = text;
            for (from, to) in [
                ("udp:161", format!("udp:{}:{}", snmpd.host, snmpd.port)),
                ("/var/agentx/master", snmpd.socket().display().to_string()),
                (
                    "Debian-snmp flowgauge",
                    "Debian-snmp Debian-snmp".to_owned(),
                ),
                (
                    "localhost public",
                    format!("{}:{} public", snmpd.host, snmpd.trap_port),
                ),
            ] {
                assert!(text.contains(from), "{from}");
                text = text.replace(from, &to);
            }
            text
        })
    }

    /// With a socket for root and a group.
    pub(crate) fn start_for_group(group: &str) -> Snmpd {
        Snmpd::start_with(|snmpd| {
            // The folder is that of others' files, too, and may be entered by all.
            fs::set_permissions(snmpd.folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
            format!(
                "agentaddress udp:{}\nmaster agentx\nagentXSocket {}\nagentXPerms 0660 0711 root {group}\n\
                 rocommunity public 127.0.0.1\n",
                snmpd.address(),
                snmpd.socket().display(),
            )
        })
    }

    fn start_with(config: impl FnOnce(&Snmpd) -> String) -> Snmpd {
        let folder = tempfile::tempdir().unwrap();
        let [port, trap_port, tcp_port] = own_ports();
        let host = own_address();
        let mut snmpd = Snmpd {
            folder,
            host,
            port,
            trap_port,
            tcp_port,
            process: None,
        };
        fs::write(snmpd.path("snmpd.conf"), config(&snmpd)).unwrap();
        snmpd.restart();
        snmpd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where it waits for subagents.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("master")
    }

    /// Where managers ask it.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Where it does, too.
    pub(crate) fn tcp(&self) -> String {
        format!("{}:{}", self.host, self.tcp_port)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SNMP_PERSISTENT_DIR", self.path("state"));
        command
            .env("SNMPCONFPATH", self.folder.path())
            .env("MIBS", "")
            .env("HOME", self.folder.path());
        command
    }

    /// Ends it without any farewell.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.path("log"))
            .unwrap();
        let mut command = self.command("snmpd");
        command
            .args(["-f", "-Lo", "-C", "-c"])
            .arg(self.path("snmpd.conf"));
        let child = command
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(Process(child));
        let end = Instant::now() + Duration::from_secs(60);
        // An answer, whatever it is: who may read what is the configuration's.
        let nobody = ["-v3", "-l", "noAuthNoPriv", "-u", "nobody"];
        loop {
            let (_, text) = self.tool("snmpget", &nobody, &["-t0.2", "1.3.6.1.2.1.1.3.0"]);
            if text.contains("Unknown user name") {
                return;
            }
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(Instant::now() < end, "snmpd does not answer: {text} {log}");
        }
    }

    /// A manager. Options stand first among the arguments.
    fn manager(&self, program: &str, access: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.command(program);
        command.args(access).args(["-On", "-t", "5", "-r", "0"]);
        let options = arguments
            .iter()
            .take_while(|argument| argument.starts_with('-'));
        let (options, names) = arguments.split_at(options.count());
        command.args(options).arg(self.address()).args(names);
        command
    }

    /// Starts a manager whose output nobody needs.
    pub(crate) fn start_tool(&self, program: &str, access: &[&str], arguments: &[&str]) -> Child {
        let mut command = self.manager(program, access, arguments);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Runs a manager; whether it succeeded, and what it printed, to standard error, too.
    pub(crate) fn tool(
        &self,
        program: &str,
        access: &[&str],
        arguments: &[&str],
    ) -> (bool, String) {
        let output = self.manager(program, access, arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// The lines of a manager that must succeed.
    pub(crate) fn lines(&self, program: &str, access: &[&str], arguments: &[&str]) -> Vec<String> {
        let (done, text) = self.tool(program, access, arguments);
        assert!(done, "{program} {arguments:?}: {text}");
        text.lines().map(str::to_owned).collect()
    }

    /// Starts `snmptrapd`; what it gets stands in the file.
    pub(crate) fn traps(&self) -> Traps {
        let config = self.path("snmptrapd.conf");
        fs::write(&config, "disableAuthorization yes\n").unwrap();
        let file = self.path("traps");
        let log = fs::File::create(&file).unwrap();
        let mut command = self.command("snmptrapd");
        command
            .args(["-f", "-Lo", "-On", "-n", "-C", "-c"])
            .arg(&config);
        command.arg(format!("udp:{}:{}", self.host, self.trap_port));
        let child = command
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let traps = Traps {
            file,
            _process: Process(child),
        };
        traps.wait_for("NET-SNMP version");
        traps
    }
}

pub(crate) struct Traps {
    file: PathBuf,
    _process: Process,
}

impl Traps {
    /// All that came, once `text` is among it.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        wait_for_text(&self.file, text)
    }
}

fn wait_for_text(file: &Path, text: &str) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let all = fs::read_to_string(file).unwrap();
        if all.contains(text) {
            return all;
        }
        assert!(Instant::now() < end, "no {text:?} in {all}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

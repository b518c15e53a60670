//! A process that reads and writes files in one folder only.
//!
//! Names are looked up beneath the folder's descriptor and cannot lead out ([`Folder`]). The kernel is asked to hold
//! the process to that whatever its code does: by Landlock, which leaves it the folder and what programs need of the
//! system to run, and by a filter of system calls, of those that no stack needs.

use std::collections::BTreeMap;
use std::path::Path;

use flowgauge_anonymize::{FORCED_BY, FORCED_POLICY};
use flowgauge_link::KeyFolder;
use flowgauge_stack::Program;
use flowgauge_sys::files::Folder;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::failure::Failure;
use crate::say::say;

/// What is asked of the kernel: of an earlier one, as much as it has.
const LANDLOCK: ABI = ABI::V6;

/// What programs read of the system: libraries (some are loaded when they are needed), the time zone, names of users
/// and hosts, what the kernel tells of the machine.
const SYSTEM: &[&str] = &[
    "/usr",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/dev/urandom",
    "/dev/null",
    "/dev/zero",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/networks",
    "/etc/ethers",
    "/run/systemd/resolve",
    "/run/netns",
];

/// System calls that no stack needs: other programs and processes, the machine, ways around names and filters.
const DENIED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_open_by_handle_at,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
];

/// Keeps the process to a folder, for good: before it has threads.
///
/// # Errors
/// The folder is not there, or the kernel cannot.
pub(crate) fn of_process(folder: &Path) -> Result<(), Failure> {
    of_names(folder)?;
    let failed = |error: &dyn core::fmt::Display| {
        let what = format!("--folder {}: {error}", folder.display());
        Failure::run(what, None)
    };
    let status = of_files(folder).map_err(|error| failed(&error))?;
    if status == RulesetStatus::NotEnforced {
        say!("note: the kernel has no Landlock: only file names are confined to the folder");
    }
    of_calls().map_err(|error| failed(&error))
}

/// Keeps the names that users give to a folder, for good.
///
/// # Errors
/// As [`of_process`].
pub(crate) fn of_names(folder: &Path) -> Result<(), Failure> {
    let confined = Folder::beneath(folder).and_then(Folder::confine);
    confined.map_err(|error| {
        Failure::usage(
            format!("--folder {}: {error}", folder.display()),
            "name an existing folder; needs Linux 5.6 or later",
        )
    })
}

/// Takes TCP from a process that is kept to a folder, where its stacks have no use for it.
///
/// # Errors
/// The kernel knows it and fails.
pub(crate) fn of_connections(program: &Program) -> Result<(), Failure> {
    let mut nodes = program.stacks.iter().flat_map(|stack| stack.nodes.iter());
    let connects = nodes.any(|node| {
        let settings = &node.settings;
        let options = ["to", "listen", "kafka"];
        options.iter().any(|option| settings.text(option).is_some())
    });
    if connects {
        return Ok(());
    }
    let rules = Ruleset::default().handle_access(AccessNet::from_all(LANDLOCK));
    let restricted = rules
        .and_then(Ruleset::create)
        .and_then(|rules| rules.restrict_self());
    restricted
        .map(drop)
        .map_err(|error| Failure::run(format!("cannot drop the right to connect: {error}"), None))
}

/// What Landlock leaves: the folder, and to be read what is the system's.
fn of_files(folder: &Path) -> Result<RulesetStatus, RulesetError> {
    let within = AccessFs::from_all(LANDLOCK)
        & !(AccessFs::Execute | AccessFs::MakeBlock | AccessFs::MakeChar | AccessFs::IoctlDev);
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let keys = KeyFolder::usual();
    let forced = std::env::var_os(FORCED_BY).unwrap_or_default();
    let policies = [Path::new(FORCED_POLICY), Path::new(&forced)];
    let policies = policies.iter().filter_map(|path| path.parent());
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules([folder], within))?
        .add_rules(path_beneath_rules(SYSTEM, reads))?
        .add_rules(path_beneath_rules([keys.path()], reads))?
        .add_rules(path_beneath_rules(policies, reads))?;
    Ok(rules.restrict_self()?.ruleset)
}

/// Takes system calls that no stack needs from the calling thread and those that it starts.
fn of_calls() -> Result<(), seccompiler::Error> {
    filter().map_or(Ok(()), |filter| seccompiler::apply_filter(&filter))
}

/// What refuses [`DENIED`]; `None`: not on this architecture.
fn filter() -> Option<BpfProgram> {
    let rules: BTreeMap<i64, _> = DENIED.iter().map(|&call| (call, Vec::new())).collect();
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    filter.ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn the_kernel_holds_a_thread_to_its_folder_whatever_it_does() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("in");
        fs::create_dir(&inside).unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        let outside = place.path().to_owned();
        let confined = thread::spawn(move || {
            if of_files(&inside).unwrap() == RulesetStatus::NotEnforced {
                return false;
            }
            fs::write(inside.join("a"), "a").unwrap();
            fs::rename(inside.join("a"), inside.join("b")).unwrap();
            assert_eq!(fs::read(inside.join("b")).unwrap(), b"a");
            fs::read("/proc/self/status").unwrap();
            for refused in [
                fs::read(outside.join("secret")).map(drop),
                fs::write(outside.join("new"), ""),
                fs::read_dir(&outside).map(drop),
                fs::rename(inside.join("b"), outside.join("b")),
                fs::remove_file(outside.join("secret")),
                fs::read("/etc/shadow").map(drop),
                Command::new("/bin/true").status().map(drop),
            ] {
                let kind = refused.unwrap_err().kind();
                assert!(
                    matches!(
                        kind,
                        ErrorKind::PermissionDenied | ErrorKind::CrossesDevices
                    ),
                    "{kind}"
                );
            }
            true
        });
        if !confined.join().unwrap() {
            eprintln!("SKIPPED the kernel has no Landlock");
        }
        assert_eq!(fs::read(place.path().join("secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn other_programs_and_namespaces_are_out_of_reach() {
        let refused = thread::spawn(|| {
            of_calls().unwrap();
            // What a stack does goes on.
            fs::read("/proc/self/status").unwrap();
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            Command::new("/bin/true").status().map(drop)
        });
        let error = refused.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}

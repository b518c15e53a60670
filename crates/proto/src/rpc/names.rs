//! Names of programs and procedures.

/// The name of a program, of those that are known.
pub const fn program_name(program: u32) -> Option<&'static str> {
    Some(match program {
        100_000 => "portmapper",
        100_001 => "rstat",
        100_002 => "rusers",
        100_003 => "nfs",
        100_004 => "ypserv",
        100_005 => "mount",
        100_007 => "ypbind",
        100_008 => "wall",
        100_009 => "yppasswd",
        100_011 => "rquota",
        100_012 => "spray",
        100_017 => "rexec",
        100_020 => "llockmgr",
        100_021 => "nlm",
        100_024 => "status",
        100_026 => "bootparam",
        100_028 => "ypupdate",
        100_068 => "cmsd",
        100_083 => "ttdbserver",
        100_227 => "nfs_acl",
        100_232 => "sadmind",
        150_001 => "pcnfsd",
        300_019 => "amd",
        395_179 | 395_183 => "vxi11",
        1_073_741_824 => "nfs_callback",
        _ => return None,
    })
}

const PORTMAPPER: &[&str] = &["null", "set", "unset", "getport", "dump", "callit"];
const RPCBIND: &[&str] = &[
    "null",
    "set",
    "unset",
    "getaddr",
    "dump",
    "bcast",
    "gettime",
    "uaddr2taddr",
    "taddr2uaddr",
    "getversaddr",
    "indirect",
    "getaddrlist",
    "getstat",
];
const MOUNT: &[&str] = &[
    "null",
    "mnt",
    "dump",
    "umnt",
    "umntall",
    "export",
    "exportall",
    "pathconf",
];
const NFS2: &[&str] = &[
    "null",
    "getattr",
    "setattr",
    "root",
    "lookup",
    "readlink",
    "read",
    "writecache",
    "write",
    "create",
    "remove",
    "rename",
    "link",
    "symlink",
    "mkdir",
    "rmdir",
    "readdir",
    "statfs",
];
const NFS3: &[&str] = &[
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];
const NFS4: &[&str] = &["null", "compound"];
const NLM: &[&str] = &[
    "null",
    "test",
    "lock",
    "cancel",
    "unlock",
    "granted",
    "test_msg",
    "lock_msg",
    "cancel_msg",
    "unlock_msg",
    "granted_msg",
    "test_res",
    "lock_res",
    "cancel_res",
    "unlock_res",
    "granted_res",
];
const STATUS: &[&str] = &[
    "null",
    "stat",
    "mon",
    "unmon",
    "unmon_all",
    "simu_crash",
    "notify",
];

/// The name of a procedure, of those that are known.
pub fn procedure_name(program: u32, version: u32, procedure: u32) -> Option<&'static str> {
    let names = match (program, version) {
        (100_000, 2) => PORTMAPPER,
        (100_000, 3 | 4) => RPCBIND,
        (100_003, 2) => NFS2,
        (100_003, 3) => NFS3,
        (100_003, 4) => NFS4,
        (100_005, 1..=3) => MOUNT,
        (100_021, _) => NLM,
        (100_024, 1) => STATUS,
        _ if procedure == 0 => return Some("null"),
        _ => return None,
    };
    names.get(usize::try_from(procedure).ok()?).copied()
}

/// The name of the status with which the results of NFS and of mount, version 3, begin (RFC 1813,
/// sections 2.6 and 5.1.5; RFC 7530, section 13.1).
pub const fn status_name(status: u32) -> Option<&'static str> {
    Some(match status {
        0 => "ok",
        1 => "perm",
        2 => "noent",
        5 => "io",
        6 => "nxio",
        13 => "acces",
        17 => "exist",
        18 => "xdev",
        19 => "nodev",
        20 => "notdir",
        21 => "isdir",
        22 => "inval",
        27 => "fbig",
        28 => "nospc",
        30 => "rofs",
        31 => "mlink",
        63 => "nametoolong",
        66 => "notempty",
        69 => "dquot",
        70 => "stale",
        71 => "remote",
        10_001 => "badhandle",
        10_002 => "not_sync",
        10_003 => "bad_cookie",
        10_004 => "notsupp",
        10_005 => "toosmall",
        10_006 => "serverfault",
        10_007 => "badtype",
        10_008 => "jukebox",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_procedures_have_their_numbers() {
        assert_eq!(procedure_name(100_003, 3, 21), Some("commit"));
        assert_eq!(procedure_name(100_003, 3, 22), None);
        assert_eq!(procedure_name(100_003, 2, 17), Some("statfs"));
        assert_eq!(procedure_name(100_000, 4, 12), Some("getstat"));
        assert_eq!(procedure_name(100_021, 4, 15), Some("granted_res"));
        assert_eq!(procedure_name(400_000, 1, 0), Some("null"));
        assert_eq!(procedure_name(400_000, 1, 1), None);
    }
}

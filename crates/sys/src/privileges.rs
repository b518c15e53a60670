//! Giving up root once the sockets are open.

use std::ffi::CString;
use std::io;

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether the system knows this user.
pub fn user_exists(user: &str) -> bool {
    CString::new(user).is_ok_and(|name| matches!(look_up(&name), Ok(Some(_))))
}

/// The number of a group: of its name in the system's group database, or the number itself.
///
/// # Errors
/// `NotFound` when there is no such group; the system's.
pub fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let unknown = || {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no group \"{}\"", group.escape_debug()),
        )
    };
    let name = CString::new(group).map_err(|_| unknown())?;
    // A group may have thousands of members, all of whom the entry names.
    let mut buffer = vec![0_u8; 1 << 20];
    // SAFETY: group is integers and pointers, for which zeroes are valid; it is only read after the
    // call has filled it.
    let mut entry: libc::group = unsafe { core::mem::zeroed() };
    let mut found: *mut libc::group = core::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, the length is the buffer's.
    let status = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            &raw mut found,
        )
    };
    match (status, found.is_null()) {
        (0, false) => Ok(entry.gr_gid),
        (0 | libc::ENOENT | libc::ESRCH, true) => Err(unknown()),
        (code, _) => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Gives up every way to gain rights by starting other programs, for the calling thread and those that it starts
/// from then on: `no_new_privs`, and an empty bounding set of capabilities where the thread may empty it. What it has
/// it keeps.
///
/// # Errors
/// The system's.
pub fn gain_no_more() -> io::Result<()> {
    // SAFETY: a system call with integers.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    for capability in 0..64_u64 {
        // SAFETY: a system call with integers.
        match check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(()) => {}
            // The last one that the kernel knows is behind us, or it is none of this process's to drop.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Becomes `user` for good: supplementary groups, group and user of all threads. Capabilities are
/// lost with the user id; open sockets stay usable. The calling thread gains nothing any more
/// ([`gain_no_more`]); a process that has others has done that before it started them.
///
/// # Errors
/// `NotFound` when there is no such user; the system's when the process may not change its user.
pub fn drop_to(user: &str) -> io::Result<()> {
    let name = CString::new(user)?;
    let (user_id, group_id) = look_up(&name)?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no user \"{user}\""),
        )
    })?;
    gain_no_more()?;
    // SAFETY: the name is a terminated string that outlives the call; the rest are integers.
    // The group goes first: afterwards there is no right to change it any more.
    unsafe {
        check(libc::initgroups(name.as_ptr(), group_id))?;
        check(libc::setgid(group_id))?;
        check(libc::setuid(user_id))?;
    }
    // SAFETY: takes an integer; it must fail, or something was kept.
    if user_id != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(io::Error::other("root could be regained after dropping it"));
    }
    Ok(())
}

/// User and group id of a user, from the system's user database.
fn look_up(name: &CString) -> io::Result<Option<(libc::uid_t, libc::gid_t)>> {
    let mut buffer = vec![0_u8; 16 * 1024];
    // SAFETY: passwd is integers and pointers, for which zeroes are valid; it is only read after
    // the call has filled it.
    let mut entry: libc::passwd = unsafe { core::mem::zeroed() };
    let mut found: *mut libc::passwd = core::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, the length is the buffer's.
    let status = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            &raw mut found,
        )
    };
    match (status, found.is_null()) {
        (0, false) => Ok(Some((entry.pw_uid, entry.pw_gid))),
        (0 | libc::ENOENT | libc::ESRCH, true) => Ok(None),
        (code, _) => Err(io::Error::from_raw_os_error(code)),
    }
}

fn check(status: i32) -> io::Result<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_user_is_named() {
        let error = drop_to("no-such-user-here").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("no-such-user-here"));
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        assert_eq!(group_id("root").unwrap(), 0);
        assert_eq!(group_id("4711").unwrap(), 4711);
        for unknown in ["no-such-group-here", "with\0zero", ""] {
            let error = group_id(unknown).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{unknown}");
        }
    }

    #[test]
    fn root_is_found() {
        assert_eq!(look_up(&c"root".to_owned()).unwrap(), Some((0, 0)));
        assert!(user_exists("root"));
        assert!(!user_exists("no-such-user-here"));
        assert!(!user_exists("with\0zero"));
    }
}

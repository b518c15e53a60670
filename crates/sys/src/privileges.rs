//! Giving up root once the sockets are open.

use std::ffi::CString;
use std::io;

use nix::errno::Errno;
use nix::unistd::{Group, Uid, User, initgroups, setgid, setuid};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};

/// Whether this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Whether the system knows this user.
pub fn user_exists(user: &str) -> bool {
    matches!(User::from_name(user), Ok(Some(_)))
}

/// The number of a group: of its name in the system's group database, or the number itself.
///
/// # Errors
/// `NotFound` when there is no such group; the system's.
pub fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let found = Group::from_name(group).or_else(known)?;
    let found = found.ok_or_else(|| {
        let message = format!("there is no group \"{}\"", group.escape_debug());
        io::Error::new(io::ErrorKind::NotFound, message)
    })?;
    Ok(found.gid.as_raw())
}

/// The number of a user: of its name in the system's user database, or the number itself.
///
/// # Errors
/// `NotFound` when there is no such user; the system's.
pub fn user_id(user: &str) -> io::Result<u32> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let found = User::from_name(user).or_else(known)?;
    let found = found.ok_or(io::ErrorKind::NotFound)?;
    Ok(found.uid.as_raw())
}

/// The name of a user in the system's user database, if there is one.
pub fn user_name(user: u32) -> Option<String> {
    let found = User::from_uid(Uid::from_raw(user)).ok()??;
    Some(found.name)
}

/// A name that no database has is an error to some of them, and so is one that cannot be one.
fn known<T>(error: Errno) -> io::Result<Option<T>> {
    match error {
        Errno::ENOENT | Errno::ESRCH | Errno::EINVAL => Ok(None),
        error => Err(error.into()),
    }
}

/// Gives up every way to gain rights by starting other programs, for the calling thread and those that it starts
/// from then on: `no_new_privs`, and an empty bounding set of capabilities where the thread may empty it. What it has
/// it keeps.
///
/// # Errors
/// The system's.
pub fn gain_no_more() -> io::Result<()> {
    set_no_new_privs(true)?;
    for capability in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << capability);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The last one that the kernel knows is behind us, or it is none of this process's to drop.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => break,
            Err(error) => return Err(error.into()),
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
    let known = User::from_name(user).or_else(known)?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no user \"{user}\""),
        )
    })?;
    gain_no_more()?;
    // The group goes first: afterwards there is no right to change it any more.
    initgroups(&name, known.gid)?;
    setgid(known.gid)?;
    setuid(known.uid)?;
    // It must fail, or something was kept.
    if !known.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("root could be regained after dropping it"));
    }
    Ok(())
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
        let root = User::from_name("root").unwrap().unwrap();
        assert_eq!((root.uid.as_raw(), root.gid.as_raw()), (0, 0));
        assert!(user_exists("root"));
        assert!(!user_exists("no-such-user-here"));
        assert!(!user_exists("with\0zero"));
    }
}

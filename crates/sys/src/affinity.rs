//! Which CPUs a thread may run on (sched_setaffinity(2)).

use std::io;

/// The CPUs the calling thread may run on, in order; empty where the system does not tell.
pub fn allowed() -> Vec<usize> {
    let Some(set) = current() else {
        return Vec::new();
    };
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE, the set is valid.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Keeps the calling thread on one CPU, of those it may run on.
///
/// # Errors
/// When the CPU is not among those, or the system refuses.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the index is below CPU_SETSIZE, the set is valid.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer is to a valid set of the length given; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn current() -> Option<libc::cpu_set_t> {
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer is to a valid set of the length given; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    (result == 0).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        let before = allowed();
        let last = *before.last().unwrap();
        let pinned = std::thread::spawn(move || pin_to(last).map(|()| allowed()));
        assert_eq!(pinned.join().unwrap().unwrap(), [last]);
        assert_eq!(allowed(), before);
        assert!(pin_to(usize::MAX).is_err());
    }
}

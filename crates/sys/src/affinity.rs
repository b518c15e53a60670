//! Which CPUs a thread may run on (sched_setaffinity(2)).

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs the calling thread may run on, in order; empty where the system does not tell.
pub fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    let all = 0..CpuSet::MAX_CPU;
    all.filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps the calling thread on one CPU, of those it may run on.
///
/// # Errors
/// When the CPU is not among those, or the system refuses.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
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

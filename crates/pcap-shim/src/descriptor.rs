//! What a program waits on: readable when packets are to be had.

use core::ffi::c_int;
use core::ptr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// Something that is set or not, and can be waited for (eventfd(2)).
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Event> {
        Ok(Event(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    /// Sets it. A signal handler may.
    pub(crate) fn set(&self) {
        // It fails where it is set already, as often as can be.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

unsafe extern "C-unwind" {
    /// ppoll(2), which a thread may be cancelled in: that unwinds it.
    fn ppoll(
        polled: *mut libc::pollfd,
        count: libc::nfds_t,
        at_most: *const libc::timespec,
        signals: *const libc::sigset_t,
    ) -> c_int;
}

/// Waits until one of these is readable or the time is over; a signal ends it, too. A thread that is cancelled ends here, so
/// nothing may have to be dropped between here and the program.
pub(crate) fn wait(for_what: &[BorrowedFd<'_>], at_most: Option<Duration>) {
    const MOST: usize = 3;
    // Negative ones are left out.
    let mut polled = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; MOST];
    for (polled, fd) in polled.iter_mut().zip(for_what) {
        polled.fd = fd.as_raw_fd();
    }
    let at_most = at_most.map(|at_most| libc::timespec {
        tv_sec: at_most.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    });
    let at_most = at_most.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: so many of them, and a time or none, which outlive the call.
    unsafe {
        ppoll(
            polled.as_mut_ptr(),
            MOST as libc::nfds_t,
            at_most,
            ptr::null(),
        )
    };
}

/// Whether a read would not wait.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut polled, Some(&timespec(Duration::ZERO))).is_ok_and(|ready| ready > 0)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The descriptor that a program is given. It becomes readable as libpcap's does, and when gathered packets are left, or a
/// buffer has been gathered for long enough.
#[derive(Debug)]
pub(crate) struct Descriptor {
    set: OwnedFd,
    left: Event,
    timer: OwnedFd,
    is_left: bool,
    is_armed: bool,
}

impl Descriptor {
    /// One that is readable when `source` is.
    pub(crate) fn new(source: BorrowedFd<'_>) -> io::Result<Descriptor> {
        let descriptor = Descriptor {
            set: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            left: Event::new()?,
            timer: timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )?,
            is_left: false,
            is_armed: false,
        };
        descriptor.add(source)?;
        descriptor.add(descriptor.left.as_fd())?;
        descriptor.add(descriptor.timer.as_fd())?;
        Ok(descriptor)
    }

    fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.set, fd, data, epoll::EventFlags::IN)?)
    }

    pub(crate) fn number(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// From now on `new` says whether there are packets, no longer `old`.
    pub(crate) fn replace(&self, old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> io::Result<()> {
        self.add(new)?;
        Ok(epoll::delete(&self.set, old)?)
    }

    /// Says whether there is something to deliver.
    #[inline]
    pub(crate) fn set_left(&mut self, is_left: bool) {
        if is_left != self.is_left {
            self.is_left = is_left;
            match is_left {
                true => self.left.set(),
                false => self.left.clear(),
            }
        }
    }

    /// Says after what time there will be something to deliver, if that is known.
    pub(crate) fn arm(&mut self, after: Option<Duration>) {
        if after.is_none() && !self.is_armed {
            return;
        }
        self.is_armed = after.is_some();
        // A time of zero would disarm it.
        let after = after.map(|after| after.max(Duration::from_nanos(1)));
        let nothing = timespec(Duration::ZERO);
        let time = Itimerspec {
            it_interval: nothing,
            it_value: after.map_or(nothing, timespec),
        };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time);
    }
}

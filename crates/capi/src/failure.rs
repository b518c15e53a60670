//! Failures as a C program sees them: a code, and a message for `scap_errbuf`.

use core::cell::RefCell;
use core::ffi::c_int;
use std::ffi::{CStr, CString};
use std::fmt;

/// `enum scap_error_code` of `scap.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr)]
#[repr(i32)]
pub(crate) enum Code {
    Handle = -1,
    Argument = -2,
    State = -3,
    Device = -4,
    Filter = -5,
    Parameter = -6,
    Stream = -7,
    Packets = -8,
    Resource = -9,
    Internal = -10,
}

impl Code {
    /// What `scap_strerror` says.
    pub(crate) fn text(code: c_int) -> &'static CStr {
        if code == 0 {
            return c"no error";
        }
        match Code::from_repr(code) {
            Some(Code::Handle) => c"not an open handle",
            Some(Code::Argument) => c"an argument is NULL or out of range",
            Some(Code::State) => c"not possible in this state of the capture",
            Some(Code::Device) => c"the interface or file cannot be opened or read",
            Some(Code::Filter) => c"the filter does not compile",
            Some(Code::Parameter) => c"no such parameter",
            Some(Code::Stream) => c"not a living stream of this capture",
            Some(Code::Packets) => c"packets were not asked for",
            Some(Code::Resource) => c"memory, threads or handles ran out",
            Some(Code::Internal) => c"a fault of the library",
            None => c"unknown error code",
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// What, where, and a hint.
    pub(crate) message: String,
}

impl Failure {
    /// A failure with something to do about it.
    pub(crate) fn new(code: Code, what: impl fmt::Display, hint: impl fmt::Display) -> Failure {
        Failure {
            code,
            message: format!("{what}; hint: {hint}"),
        }
    }

    /// A failure of the layer below, with its own hint.
    pub(crate) fn of_capture(error: &flowgauge_capture::Error) -> Failure {
        let code = match error {
            flowgauge_capture::Error::Filter { .. } => Code::Filter,
            _ => Code::Device,
        };
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Failure { code, message }
    }
}

impl Failure {
    /// The failure of what was tried after something else, with what was told of that.
    pub(crate) fn after(self, before: &str) -> Failure {
        let parts = |said: &str| match said.split_once("; hint: ") {
            Some((what, hint)) => (what.to_owned(), Some(hint.to_owned())),
            None => (said.to_owned(), None),
        };
        let ((what, hint), (before, other)) = (parts(&self.message), parts(before));
        let hints: Vec<String> = hint.into_iter().chain(other).collect();
        let message = match hints.is_empty() {
            true => format!("{what} ({before})"),
            false => format!("{what} ({before}); hint: {}", hints.join("; or ")),
        };
        Failure { message, ..self }
    }
}

/// The last failure of a thread, or of a handle.
#[derive(Debug, Default)]
pub(crate) struct LastFailure {
    failure: Option<Failure>,
    /// What is worth knowing although nothing failed.
    remark: Option<String>,
}

impl LastFailure {
    pub(crate) const NONE: LastFailure = LastFailure {
        failure: None,
        remark: None,
    };

    pub(crate) fn set(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Notes what is no failure; the next failure is told in its place.
    pub(crate) fn remark(&mut self, what: String) {
        self.remark = Some(what);
    }

    /// Its code; 0 when nothing failed.
    pub(crate) fn code(&self) -> c_int {
        self.failure
            .as_ref()
            .map_or(0, |failure| failure.code as c_int)
    }

    /// Its message; when nothing failed what else there is to say, or nothing.
    pub(crate) fn message(&self) -> &str {
        match &self.failure {
            Some(failure) => &failure.message,
            None => self.remark.as_deref().unwrap_or_default(),
        }
    }
}

thread_local! {
    /// The last failure of any call in this thread.
    static LAST: RefCell<LastFailure> = const { RefCell::new(LastFailure::NONE) };
    /// What `scap_errbuf` returned last.
    static SHOWN: RefCell<CString> = RefCell::new(CString::default());
}

/// Notes a failure of the calling thread.
pub(crate) fn note(failure: Failure) {
    LAST.with_borrow_mut(|last| last.set(failure));
}

/// Reads the last failure of the calling thread.
pub(crate) fn of_thread<T>(read: impl FnOnce(&LastFailure) -> T) -> T {
    LAST.with_borrow(read)
}

/// Keeps a message for the calling thread, until it asks for the next one.
pub(crate) fn show(message: &str) -> *const core::ffi::c_char {
    let bytes: Vec<u8> = message.bytes().filter(|&byte| byte != 0).collect();
    SHOWN.with_borrow_mut(|shown| {
        *shown = CString::new(bytes).unwrap_or_default();
        shown.as_ptr()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_tried_before() {
        let failure = Failure::new(Code::Device, "no rights to capture on eth0", "be root");
        let why = "the capture on eth0 is not shared: it has 32 clients already; hint: stop one";
        assert_eq!(
            failure.after(why).message,
            "no rights to capture on eth0 (the capture on eth0 is not shared: it has 32 clients \
             already); hint: be root; or stop one"
        );
    }

    #[test]
    fn every_code_has_a_text_of_its_own() {
        let mut texts: Vec<&CStr> = (-10..0).map(Code::text).collect();
        texts.push(Code::text(0));
        texts.push(Code::text(1));
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 10 + 2);
    }
}

//! In place of `ndpi` where the program was built without it.

use flowgauge_stack::SettingError;
use flowgauge_stream::{Chunk, Stream};

/// There is none.
pub(super) enum Ndpi {}

impl Ndpi {
    /// # Errors
    /// Always.
    pub(super) fn new() -> Result<Ndpi, SettingError> {
        let message = "this program was built without nDPI";
        Err(SettingError::of("ndpi", message).with_hint("build it with the feature ndpi"))
    }

    pub(super) fn data(&mut self, _stream: &Stream<'_>, _chunk: &Chunk<'_>) -> bool {
        match *self {}
    }

    pub(super) fn of(&mut self, _flow_id: u64, _is_over: bool) -> (Option<&str>, Option<&str>) {
        match *self {}
    }
}

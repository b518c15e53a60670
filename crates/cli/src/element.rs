//! `flowgauge element`

use std::thread;
use std::time::Duration;

use flowgauge_element::{Element, StartError};

use crate::control::Control;
use crate::failure::Failure;
use crate::options::{ElementCommand, ElementOptions};
use crate::say::{count, say};

/// How often it is looked whether the element is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// When it cannot start.
pub(crate) fn run(options: &ElementOptions) -> Result<(), Failure> {
    if let Some(ElementCommand::Check(options)) = &options.command {
        let config = Element::check(&options.config).map_err(|error| unstarted(&error))?;
        let (users, issuers) = (config.users.len(), config.issuers.len());
        let file = options.config.display();
        let users = count(users as u64, "user");
        let issuers = count(issuers as u64, "issuer");
        say!("{file}: valid: {users}, {issuers}");
        return Ok(());
    }
    let control = Control::install()?;
    let element = Element::start(&options.config.config).map_err(|error| unstarted(&error))?;
    say!("flowgauge: element at {}", element.local_address());
    control.begin();
    while !control.stopped() {
        thread::sleep(LOOK);
    }
    Ok(())
}

fn unstarted(error: &StartError) -> Failure {
    Failure::Usage {
        what: error.to_string(),
        hint: error.hint(),
    }
}

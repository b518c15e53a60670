//! Options of commands of which one is called.

use core::ops::{Deref, DerefMut};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// The options of a command, which are built when it is called: those of all commands would take longer than the rest of the start.
#[derive(Debug)]
pub(crate) struct Called<T>(Box<T>);

impl<T> Deref for Called<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Called<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Called<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Called<T>, Error> {
        T::from_arg_matches(matches).map(|options| Called(Box::new(options)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Called<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| {
            // What the list of commands says of it, not what is written about the struct.
            let about = command.get_about().cloned().unwrap_or_default();
            T::augment_args(command).about(about)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Called::<T>::augment_args(command)
    }
}

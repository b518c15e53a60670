//! Options of commands that are options of the components that the commands are made of. What they are called, what
//! they take and what they are for is declared there, once.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use flowgauge_registry::registry;
use flowgauge_stack::{OptionInfo, OptionKind, OptionValue, Setting, Settings};

use super::values::read_option;
use crate::preset::with_options;

/// An option by its name in stacks, and what the command line has of its own for it.
pub(super) type Named = (&'static str, fn(Arg) -> Arg);

/// Declares a group of options that are those of a component; its value is what was given.
macro_rules! passed {
    ($(#[$doc:meta])* $group:ident of $component:literal $(under $heading:literal)? {
        $($option:ident $(: $change:expr)?),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $group(flowgauge_stack::Settings);

        impl $group {
            const OPTIONS: &[$crate::options::passed::Named] = &[
                $((stringify!($option), $crate::options::passed::passed!(@ $($change)?))),*
            ];
        }

        impl core::ops::Deref for $group {
            type Target = flowgauge_stack::Settings;

            fn deref(&self) -> &flowgauge_stack::Settings {
                &self.0
            }
        }

        impl clap::FromArgMatches for $group {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<$group, clap::Error> {
                let given = $crate::options::passed::given($component, $group::OPTIONS, matches);
                Ok($group(given))
            }

            fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
                *self = $group::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl clap::Args for $group {
            fn augment_args(command: clap::Command) -> clap::Command {
                $(let command = command.next_help_heading($heading);)?
                $crate::options::passed::add($component, $group::OPTIONS, command)
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                $group::augment_args(command)
            }
        }
    };
    (@) => { |arg| arg };
    (@ $change:expr) => { $change };
}
pub(super) use passed;

/// Adds the options of a group to a command.
pub(super) fn add(component: &str, options: &[Named], command: Command) -> Command {
    let named = infos(component, options).map(|(info, change)| change(argument(info)));
    command.args(named)
}

/// What was given of a group.
pub(super) fn given(component: &str, options: &[Named], matches: &ArgMatches) -> Settings {
    let mut settings = Vec::new();
    for (option, _) in infos(component, options) {
        let value = match option.kind {
            OptionKind::Flag => matches
                .get_flag(option.name)
                .then_some(OptionValue::Flag(true)),
            // Several are lines of one.
            OptionKind::Text => matches.get_many(option.name).map(|all| {
                let lines: Vec<String> = all.map(OptionValue::to_string).collect();
                OptionValue::Text(lines.join("\n"))
            }),
            _ => matches.get_one(option.name).cloned(),
        };
        settings.extend(value.map(|value| setting(option, value)));
    }
    Settings::new(settings)
}

/// An option that has this value.
pub(super) fn setting(option: &'static OptionInfo, value: OptionValue) -> Setting {
    Setting {
        option,
        value,
        is_static: false,
        span: None,
    }
}

/// For an option that `-h` leaves to `--help`.
pub(super) fn rare(arg: Arg) -> Arg {
    arg.hide_short_help(true)
}

/// For an option that may be given several times, each a line of its value.
pub(super) fn lines(arg: Arg) -> Arg {
    arg.action(ArgAction::Append).allow_hyphen_values(true)
}

fn infos(
    component: &str,
    options: &[Named],
) -> impl Iterator<Item = (&'static OptionInfo, fn(Arg) -> Arg)> {
    let declared = registry().find(component).map_or(&[][..], |it| it.options);
    // A test holds them to be there.
    options.iter().filter_map(move |(name, change)| {
        let info = declared.iter().find(|option| option.name == *name)?;
        Some((info, *change))
    })
}

fn argument(option: &'static OptionInfo) -> Arg {
    let arg = Arg::new(option.name)
        .long(option.name.replace('_', "-"))
        .help(help(option));
    if option.kind == OptionKind::Flag {
        return arg.action(ArgAction::SetTrue);
    }
    arg.value_name(match option.kind {
        OptionKind::Integer { .. } => "N",
        OptionKind::Number { .. } => "NUMBER",
        OptionKind::Duration => "DURATION",
        OptionKind::Size => "SIZE",
        OptionKind::Choice(_) => "WORD",
        OptionKind::WordOrFile => "NAME|FILE",
        OptionKind::InputFile => "FILE",
        OptionKind::OutputFolder => "DIR",
        _ => "TEXT",
    })
    .allow_negative_numbers(true)
    .value_parser(Reader(option.kind))
}

fn help(option: &OptionInfo) -> String {
    let text = with_options(option.help);
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let mut help: String = first.into_iter().chain(letters).collect();
    if let Some(default) = option.default.filter(|_| option.kind != OptionKind::Flag) {
        help += &format!(" [default: {default}]");
    }
    help
}

/// Reads values as stacks have them.
#[derive(Clone)]
struct Reader(OptionKind);

impl TypedValueParser for Reader {
    type Value = OptionValue;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OptionValue, clap::Error> {
        let kind = self.0;
        let read = move |text: &str| read_option(kind, text);
        TypedValueParser::parse_ref(&read, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        match self.0 {
            OptionKind::Choice(words) => Some(Box::new(words.iter().map(PossibleValue::new))),
            _ => None,
        }
    }
}

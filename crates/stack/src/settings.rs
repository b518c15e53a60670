//! The options of a component, parsed and completed with defaults.

use core::any::Any;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flowgauge_record::schema::Schema;
use flowgauge_wire::Nanos;

use crate::component::{Component, SettingError};
use crate::items::Port;
use crate::source::Span;
use crate::value::{OptionKind, OptionValue};

/// The description of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: OptionKind,
    /// Its default, as written in a stack. `None` if it has no default.
    pub default: Option<&'static str>,
    /// Whether it is mandatory.
    pub is_required: bool,
    /// A line of help.
    pub help: &'static str,
}

impl OptionInfo {
    /// An optional option without default.
    pub const fn new(name: &'static str, kind: OptionKind, help: &'static str) -> OptionInfo {
        OptionInfo {
            name,
            kind,
            default: None,
            is_required: false,
            help,
        }
    }

    /// Sets the default.
    #[must_use]
    pub const fn or(self, default: &'static str) -> OptionInfo {
        OptionInfo {
            default: Some(default),
            ..self
        }
    }

    /// Makes it mandatory.
    #[must_use]
    pub const fn required(self) -> OptionInfo {
        OptionInfo {
            is_required: true,
            ..self
        }
    }
}

/// A type that the value of an option can be read as.
pub trait OptionType: Sized {
    /// Converts the value; `None` if it is of another kind.
    fn of(value: &OptionValue, option: &OptionInfo) -> Option<Self>;
}

macro_rules! whole_numbers {
    ($($type:ty)*) => { $(
        impl OptionType for $type {
            fn of(value: &OptionValue, _: &OptionInfo) -> Option<$type> {
                match *value {
                    OptionValue::Integer(number) => Some(number.try_into().unwrap_or(<$type>::MAX)),
                    OptionValue::Size(number) | OptionValue::Duration(number) => {
                        Some(number.try_into().unwrap_or(<$type>::MAX))
                    }
                    _ => None,
                }
            }
        }
    )* };
}
whole_numbers!(i64 u64 u32 usize);

macro_rules! option_types {
    ($($type:ty: $value:pat, $option:pat => $read:expr;)*) => { $(
        impl OptionType for $type {
            fn of(value: &OptionValue, option: &OptionInfo) -> Option<$type> {
                match (value, option.kind) {
                    ($value, $option) => $read,
                    _ => None,
                }
            }
        }
    )* };
}
option_types! {
    bool: OptionValue::Flag(flag), _ => Some(*flag);
    f64: OptionValue::Number(number), _ => Some(*number);
    Nanos: OptionValue::Duration(nanos), _ => Some(Nanos(*nanos));
    Duration: OptionValue::Duration(nanos), _ => Some(Duration::from_nanos(*nanos));
    String: OptionValue::Text(text), _ => Some(text.clone());
    &'static str: OptionValue::Text(text), OptionKind::Choice(words) => words.iter().find(|word| **word == *text).copied();
}

/// Declares the options of a component: name, kind, default or `required`, help. Generates the list for its
/// [`ComponentInfo`](crate::ComponentInfo), `ALL`, and a struct of the values, which `read` creates from
/// [`Settings`]. Options without a default are of type `Option`; `as` selects another type than the kind's own
/// ([`OptionType`]). Options in square brackets are declared and read elsewhere.
///
/// ```
/// flowgauge_stack::options! {
///     struct Options;
///     rows: Integer(1, 1000) as usize = "10", "rows that are kept";
///     by: Choice("packets", "bytes") = required, "the most of what";
///     interval: Duration, "how often";
/// }
/// assert_eq!(Options::ALL[0].name, "rows");
/// let options = Options::read(&flowgauge_stack::Settings::default());
/// assert_eq!((options.rows, options.interval), (10, None));
/// ```
///
/// Options shared by several components are constants, and read by name:
///
/// ```
/// flowgauge_stack::options! {
///     pub const;
///     /// How much may wait.
///     SPOOL = spool: Size = "64M", "memory for what waits";
/// }
/// assert_eq!(SPOOL.default, Some("64M"));
/// ```
#[macro_export]
macro_rules! options {
    (
        struct $options:ident;
        $(
            $([$($shared:expr),+ $(,)?])?
            $(
                $name:ident: $kind:ident $(($($of:expr),+ $(,)?))? $(as $type:ty)? $(= $default:tt)?,
                $help:literal
            )?;
        )*
    ) => {
        #[allow(dead_code, reason = "some options are read by their names")]
        struct $options { $($($name: $crate::options!(@field $($default)?, $kind $($type)?),)?)* }

        #[allow(dead_code, reason = "some options are read by their names")]
        impl $options {
            const ALL: &[$crate::OptionInfo] = &[$(
                $($($shared,)+)?
                $($crate::options!(@info $name, $help, [$($default)?], $kind $(, $($of),+)?),)?
            )*];

            fn read(settings: &$crate::Settings) -> $options {
                $options { $($(
                    $name: $crate::options!(@read settings.named(Self::ALL, stringify!($name)), $($default)?),
                )?)* }
            }
        }
    };
    (
        $visible:vis const;
        $(
            $(#[$about:meta])*
            $const:ident = $name:ident: $kind:ident $(($($of:expr),+ $(,)?))? $(= $default:tt)?, $help:literal;
        )*
    ) => { $(
        $(#[$about])*
        $visible const $const: $crate::OptionInfo =
            $crate::options!(@info $name, $help, [$($default)?], $kind $(, $($of),+)?);
    )* };
    (@info $name:ident, $help:literal, [$($default:tt)?], $($kind:tt)+) => {
        $crate::options!(
            @or $crate::OptionInfo::new(
                $crate::bare_name(stringify!($name)), $crate::options!(@kind $($kind)+), $help
            ) $(, $default)?
        )
    };
    (@or $info:expr) => { $info };
    (@or $info:expr, required) => { $info.required() };
    (@or $info:expr, $default:literal) => { $info.or($default) };
    (@kind Integer, $min:expr, $max:expr) => { $crate::OptionKind::Integer { min: $min, max: $max } };
    (@kind Number, $min:expr, $max:expr) => { $crate::OptionKind::Number { min: $min, max: $max } };
    (@kind Choice, $($word:expr),+) => { $crate::OptionKind::Choice(&[$($word),+]) };
    (@kind $kind:ident) => { $crate::OptionKind::$kind };
    (@field , $kind:ident $($type:ty)?) => { Option<$crate::options!(@type $kind $($type)?)> };
    (@field $default:tt, $kind:ident $($type:ty)?) => { $crate::options!(@type $kind $($type)?) };
    (@type Integer) => { i64 };
    (@type Number) => { f64 };
    (@type Flag) => { bool };
    (@type Duration) => { $crate::Nanos };
    (@type Size) => { u64 };
    (@type Choice) => { &'static str };
    (@type Branch) => { i64 };
    (@type $kind:ident) => { String };
    (@type $kind:ident $type:ty) => { $type };
    (@read $value:expr,) => { $value };
    (@read $value:expr, $default:tt) => { $value.unwrap_or_default() };
}

/// Strips the prefix of a raw identifier.
#[doc(hidden)]
pub const fn bare_name(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The name of the option.
    pub option: &'static OptionInfo,
    /// Its value.
    pub value: OptionValue,
    /// Whether it is evaluated once, instead of for each instance in a demultiplexer.
    pub is_static: bool,
    /// Where it was given; `None` for defaults.
    pub span: Option<Span>,
}

/// The options of one component.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    settings: Vec<Setting>,
    input: Option<Port>,
    schema: Option<Schema>,
    kinds: Vec<Schema>,
    around: Vec<&'static str>,
    copies: Copies,
    is_live: bool,
    attached: Attached,
    spare: Spare,
}

/// Components that were made of the settings beforehand; copies of the settings have them in common.
#[derive(Clone, Default)]
struct Spare(Option<Arc<Made>>);

struct Made(Mutex<Vec<Box<dyn Component>>>);

impl core::fmt::Debug for Spare {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Spare").field(&self.0.is_some()).finish()
    }
}

impl PartialEq for Spare {
    fn eq(&self, _: &Spare) -> bool {
        true
    }
}

/// What the program that runs the stack gave a component; no option, so all are equal.
#[derive(Clone, Debug, Default)]
struct Attached(Option<Arc<dyn Any + Send + Sync>>);

impl PartialEq for Attached {
    fn eq(&self, _: &Attached) -> bool {
        true
    }
}

/// How many components are made of the same settings, and what they share.
#[derive(Debug)]
struct Copies {
    number: usize,
    shared: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies {
            number: 1,
            shared: Mutex::new(None),
        }
    }
}

impl Clone for Copies {
    /// Those of another run share nothing with these.
    fn clone(&self) -> Copies {
        Copies {
            number: self.number,
            ..Copies::default()
        }
    }
}

impl PartialEq for Copies {
    fn eq(&self, other: &Copies) -> bool {
        self.number == other.number
    }
}

impl FromIterator<Setting> for Settings {
    fn from_iter<I: IntoIterator<Item = Setting>>(settings: I) -> Settings {
        Settings::new(settings.into_iter().collect())
    }
}

impl Settings {
    /// Settings with these values.
    pub fn new(settings: Vec<Setting>) -> Settings {
        Settings {
            settings,
            ..Settings::default()
        }
    }

    /// Adds the input of the component, its fields, and the enclosing demultiplexers, the innermost first.
    #[must_use]
    pub fn placed(
        self,
        input: Option<Port>,
        schema: Option<Schema>,
        around: Vec<&'static str>,
    ) -> Settings {
        Settings {
            input,
            schema,
            around,
            ..self
        }
    }

    /// Adds the kinds of records in the component's input, if there are several.
    #[must_use]
    pub fn of_kinds(self, kinds: Vec<Schema>) -> Settings {
        Settings { kinds, ..self }
    }

    /// Sets the number of components created from these settings, one per core.
    pub fn set_copies(&mut self, number: usize) {
        self.copies.number = number.max(1);
    }

    /// Number of components created from these settings, one per core. Each gets a share of the items and of limits
    /// given by options.
    pub fn copies(&self) -> usize {
        self.copies.number
    }

    /// Sets whether packets come from a source that cannot wait.
    pub fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
    }

    /// Whether packets come from a source that cannot wait.
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Changes the value of a text option.
    pub fn set_text(&mut self, option: &str, text: String) {
        let mut settings = self.settings.iter_mut();
        if let Some(setting) = settings.find(|setting| setting.option.name == option) {
            setting.value = OptionValue::Text(text);
        }
    }

    /// Attaches an object that cannot be expressed as an option, such as a sink for its packets.
    pub fn attach<T: Any + Send + Sync>(&mut self, what: T) {
        self.attached = Attached(Some(Arc::new(what)));
    }

    /// Whether the same object, or none, was [attached](Settings::attach) to both.
    pub fn has_same_attached(&self, other: &Settings) -> bool {
        match (&self.attached.0, &other.attached.0) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        }
    }

    /// The [attached](Settings::attach) object, if it has this type.
    pub fn attached<T: Any>(&self) -> Option<&T> {
        self.attached.0.as_deref()?.downcast_ref()
    }

    /// Stores components created from these settings, for [`Settings::take_spare`].
    pub(crate) fn keep(&mut self, made: Vec<Box<dyn Component>>) {
        self.spare = Spare(Some(Arc::new(Made(Mutex::new(made)))));
    }

    /// Takes a component created ahead of time, if there is one left.
    pub(crate) fn take_spare(&self) -> Option<Box<dyn Component>> {
        let spare = self.spare.0.as_ref()?.0.lock();
        spare.unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// The state shared by all components created from these settings. The first call creates it; it lives as long as
    /// one of them holds it.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn shared<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T, SettingError>,
    ) -> Result<Arc<T>, SettingError> {
        let place = self.copies.shared.lock();
        let mut place = place.unwrap_or_else(PoisonError::into_inner);
        let known = place.as_ref().and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|known| known.downcast::<T>().ok()) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        let kept: Arc<dyn Any + Send + Sync> = Arc::clone(&made) as _;
        *place = Some(Arc::downgrade(&kept));
        Ok(made)
    }

    /// The enclosing demultiplexers, the innermost first, whose keys the items have.
    pub fn around(&self) -> &[&'static str] {
        &self.around
    }

    /// The input of the component, as determined by the checker.
    pub fn input(&self) -> Option<Port> {
        self.input
    }

    /// The fields of the records in the component's input, if known in advance.
    pub fn schema(&self) -> Option<Schema> {
        self.schema
    }

    /// The fields of each kind of record in the component's input: one kind if [`Settings::schema`] is known, none if
    /// nothing is known.
    pub fn kinds(&self) -> &[Schema] {
        match &self.schema {
            Some(schema) => core::slice::from_ref(schema),
            None => &self.kinds,
        }
    }

    /// The setting of an option, given or default.
    pub fn setting(&self, option: &str) -> Option<&Setting> {
        self.settings
            .iter()
            .find(|setting| setting.option.name == option)
    }

    /// The value of an option, given or default.
    pub fn value<T: OptionType>(&self, option: &OptionInfo) -> Option<T> {
        match self.setting(option.name) {
            Some(setting) => T::of(&setting.value, option),
            None => T::of(&option.kind.read(option.default?).ok()?, option),
        }
    }

    /// The value of one of these options, whose name may be a raw identifier.
    #[doc(hidden)]
    pub fn named<T: OptionType>(&self, options: &[OptionInfo], name: &'static str) -> Option<T> {
        let name = bare_name(name);
        let option = options.iter().find(|option| option.name == name);
        self.value(option?)
    }

    /// All settings, in the order of the component's options.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    /// A whole number, or the number of a branch.
    pub fn integer(&self, option: &str) -> Option<i64> {
        match self.setting(option)?.value {
            OptionValue::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// A number with a fraction.
    pub fn number(&self, option: &str) -> Option<f64> {
        match self.setting(option)?.value {
            OptionValue::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether a flag is set; no by default.
    pub fn flag(&self, option: &str) -> bool {
        matches!(
            self.setting(option).map(|setting| &setting.value),
            Some(OptionValue::Flag(true))
        )
    }

    /// A duration in nanoseconds.
    pub fn duration(&self, option: &str) -> Option<u64> {
        match self.setting(option)?.value {
            OptionValue::Duration(nanos) => Some(nanos),
            _ => None,
        }
    }

    /// A size in bytes.
    pub fn size(&self, option: &str) -> Option<u64> {
        match self.setting(option)?.value {
            OptionValue::Size(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A text, word, file name, filter or reference.
    pub fn text(&self, option: &str) -> Option<&str> {
        match &self.setting(option)?.value {
            OptionValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_of_the_same_settings_share_while_one_of_them_lives() {
        let settings = Settings::new(Vec::new());
        let one = settings.shared(|| Ok(vec![1])).unwrap();
        let two = settings.shared(|| Ok(vec![2])).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        let of_another_run = settings.clone().shared(|| Ok(vec![3])).unwrap();
        assert_eq!(*of_another_run, [3]);
        drop((one, two));
        assert_eq!(*settings.shared(|| Ok(vec![4])).unwrap(), [4]);
    }
}

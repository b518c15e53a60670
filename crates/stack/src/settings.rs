//! The options of one component, read and completed with defaults.

use core::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flowgauge_record::schema::Schema;

use crate::component::SettingError;
use crate::items::Port;
use crate::source::Span;
use crate::value::{OptionKind, OptionValue};

/// An option that a component has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptionInfo {
    /// What it is called.
    pub name: &'static str,
    /// What it takes.
    pub kind: OptionKind,
    /// Its value where none is given, as it would be written. `None`: it stays unset.
    pub default: Option<&'static str>,
    /// Whether it must be given.
    pub is_required: bool,
    /// A line of help.
    pub help: &'static str,
}

impl OptionInfo {
    /// An option that may be left out.
    pub const fn new(name: &'static str, kind: OptionKind, help: &'static str) -> OptionInfo {
        OptionInfo {
            name,
            kind,
            default: None,
            is_required: false,
            help,
        }
    }

    /// With a value where none is given.
    #[must_use]
    pub const fn or(self, default: &'static str) -> OptionInfo {
        OptionInfo {
            default: Some(default),
            ..self
        }
    }

    /// That must be given.
    #[must_use]
    pub const fn required(self) -> OptionInfo {
        OptionInfo {
            is_required: true,
            ..self
        }
    }
}

/// One option's value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Which option.
    pub option: &'static OptionInfo,
    /// Its value.
    pub value: OptionValue,
    /// Evaluated once, not for each instance that a demultiplexer makes.
    pub is_static: bool,
    /// Where it was given; `None`: it is the default.
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
    /// From what was read.
    pub fn new(settings: Vec<Setting>) -> Settings {
        Settings {
            settings,
            ..Settings::default()
        }
    }

    /// With what comes into the component, which fields that has, and the demultiplexers around it, the
    /// innermost first.
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

    /// With the kinds of records that may come into the component, where they are several.
    #[must_use]
    pub fn of_kinds(self, kinds: Vec<Schema>) -> Settings {
        Settings { kinds, ..self }
    }

    /// That so many components are made of these settings, one for each core.
    pub fn set_copies(&mut self, number: usize) {
        self.copies.number = number.max(1);
    }

    /// How many components are made of these settings: on several cores there is one on each, and each
    /// gets its share of the items and of what an option bounds.
    pub fn copies(&self) -> usize {
        self.copies.number
    }

    /// What all components made of these settings have in common: the first makes it. It lives as
    /// long as one of them holds it.
    ///
    /// # Errors
    /// That of `make`.
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

    /// The demultiplexers around the component, the innermost first: that is whose keys its items
    /// have.
    pub fn around(&self) -> &[&'static str] {
        &self.around
    }

    /// What comes into the component: the checker knows it.
    pub fn input(&self) -> Option<Port> {
        self.input
    }

    /// The fields of the records that come into the component, where that is known beforehand.
    pub fn schema(&self) -> Option<Schema> {
        self.schema
    }

    /// The fields of each kind of record that may come into the component: one where [`Settings::schema`] is known, none
    /// where nothing is.
    pub fn kinds(&self) -> &[Schema] {
        match &self.schema {
            Some(schema) => core::slice::from_ref(schema),
            None => &self.kinds,
        }
    }

    /// The setting of an option, given or by default.
    pub fn setting(&self, option: &str) -> Option<&Setting> {
        self.settings
            .iter()
            .find(|setting| setting.option.name == option)
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

    /// Whether a flag is set; unset is no.
    pub fn flag(&self, option: &str) -> bool {
        matches!(
            self.setting(option).map(|setting| &setting.value),
            Some(OptionValue::Flag(true))
        )
    }

    /// A time span in nanoseconds.
    pub fn duration(&self, option: &str) -> Option<u64> {
        match self.setting(option)?.value {
            OptionValue::Duration(nanos) => Some(nanos),
            _ => None,
        }
    }

    /// Bytes.
    pub fn size(&self, option: &str) -> Option<u64> {
        match self.setting(option)?.value {
            OptionValue::Size(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A text, a word, a file's name, a filter, a reference.
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

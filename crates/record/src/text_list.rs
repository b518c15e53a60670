//! Texts in sequence in one buffer, which can be reused.

use crate::held::held;
use crate::value::Texts;

held! {
    /// A list of texts.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct TextList {
        text: String,
        /// Where each ends.
        ends: Vec<usize>,
    }
}

impl TextList {
    /// Adds the text that `write` appends.
    pub fn push(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    /// Its texts.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.as_texts().iter()
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Total size in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The texts, borrowed.
    pub fn as_texts(&self) -> Texts<'_> {
        Texts::Joined {
            text: &self.text,
            start: 0,
            ends: &self.ends,
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for TextList {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> TextList {
        let mut list = TextList::default();
        for one in texts {
            list.push(|text| text.push_str(one.as_ref()));
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Held as _;

    #[test]
    fn texts_stand_one_behind_the_other() {
        let mut list = TextList::default();
        list.push(|out| out.push_str("one"));
        list.push(|_| {});
        list.push(|out| out.push_str("three"));
        assert_eq!(list.iter().collect::<Vec<_>>(), ["one", "", "three"]);
        assert_eq!((list.len(), list.bytes(), list.is_empty()), (3, 8, false));
        list.clear();
        assert_eq!(list, TextList::default());
    }
}

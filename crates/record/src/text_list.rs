//! Texts one behind the other in one buffer, which can be used again.

use crate::held::Held;
use crate::schema::{Field, FieldVisitor};

/// A list of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextList {
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Held for TextList {
    fn held(&self) -> usize {
        self.text.held() + self.ends.held()
    }
}

impl TextList {
    /// Appends what `write` appends to the text.
    pub fn push(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    /// Its texts.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let text = self.text.get(start..end).unwrap_or_default();
            start = end;
            text
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Forgets all but the buffer.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Hands them to a visitor; none is null.
    pub(crate) fn visit<V: FieldVisitor>(&self, field: &'static Field, visitor: &mut V) {
        let mut few = [""; 16];
        match few.get_mut(..self.len()) {
            Some([]) => visitor.null(field),
            Some(list) => {
                for (place, text) in list.iter_mut().zip(self.iter()) {
                    *place = text;
                }
                visitor.texts(field, list);
            }
            None => visitor.texts(field, &self.iter().collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

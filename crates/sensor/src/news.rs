//! What happens to a sensor, for whoever runs it.

use parking_lot::Mutex;

/// Lines that are kept until somebody takes them.
const MOST: usize = 256;

/// Lines for the sensor's log, none of which is a user's to cause as often as the user likes.
#[derive(Debug, Default)]
pub(crate) struct News(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: Vec<String>,
    left_out: usize,
}

impl News {
    pub(crate) fn tell(&self, line: String) {
        let kept = &mut *self.0.lock();
        match kept.lines.len() < MOST {
            true => kept.lines.push(line),
            false => kept.left_out += 1,
        }
    }

    /// What was told since it was asked last.
    pub(crate) fn take(&self) -> Vec<String> {
        let Kept {
            mut lines,
            left_out,
        } = core::mem::take(&mut *self.0.lock());
        if left_out > 0 {
            lines.push(format!("{left_out} more lines are left out"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_counted() {
        let news = News::default();
        for number in 0..MOST + 7 {
            news.tell(number.to_string());
        }
        let lines = news.take();
        assert_eq!(lines.len(), MOST + 1);
        assert_eq!(lines[MOST], "7 more lines are left out");
        assert!(news.take().is_empty());
    }
}

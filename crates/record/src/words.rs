//! Numbers of things in sentences for people.

use core::fmt;

/// A number of things: `count(1, "packet")` is "1 packet", `count(2, "packet")` "2 packets".
pub fn count(number: u64, thing: &str) -> Count<'_> {
    Count { number, thing }
}

/// See [`count`].
#[derive(Clone, Copy, Debug)]
pub struct Count<'a> {
    number: u64,
    thing: &'a str,
}

impl Count<'_> {
    /// With its verb: "1 packet was", "2 packets were".
    pub fn were(self) -> String {
        let verb = if self.number == 1 { "was" } else { "were" };
        format!("{self} {verb}")
    }
}

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { number, thing } = *self;
        let ending = match (number, thing.ends_with("ch")) {
            (1, _) => "",
            (_, true) => "es",
            _ => "s",
        };
        write!(f, "{number} {thing}{ending}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(count(0, "packet").to_string(), "0 packets");
        assert_eq!(count(1, "match").to_string(), "1 match");
        assert_eq!(count(2, "match").to_string(), "2 matches");
        assert_eq!(count(1, "flow").were(), "1 flow was");
        assert_eq!(count(3, "flow").were(), "3 flows were");
    }
}

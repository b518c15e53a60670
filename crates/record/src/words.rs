//! Counts of things, and unknown names, in sentences for humans.

use core::fmt;

/// A count of things: `count(1, "packet")` is "1 packet", `count(2, "packet")` "2 packets".
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

/// Longer words are no misspelt names; to compare them would take its time.
const LONGEST_NAME: usize = 64;

/// The `names` most similar to `name`, at most three.
pub fn near<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > LONGEST_NAME {
        return Vec::new();
    }
    let name = name.to_ascii_lowercase();
    let allowed = 1 + name.len() / 4;
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .map(|other| (distance(&name, &other.to_ascii_lowercase()), other))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    found.sort_unstable();
    let nearest = found.first().map_or(0, |(distance, _)| *distance);
    found.retain(|(distance, _)| *distance == nearest);
    found.truncate(3);
    found.into_iter().map(|(_, other)| other).collect()
}

/// How many changes apart; words in another order are near, too (scantcp and tcpscan).
fn distance(one: &str, other: &str) -> usize {
    let direct = strsim::damerau_levenshtein(one, other);
    let turned = (1..one.len())
        .filter(|&at| one.is_char_boundary(at))
        .any(|at| [&one[at..], &one[..at]].concat() == other);
    if turned { direct.min(1) } else { direct }
}

/// More names than these are not listed.
const MOST_LISTED: usize = 16;

/// What to write instead of a name that is not among `names`: similar ones, else all if they are few, else `listed`.
pub fn instead_of<'a>(
    name: &str,
    names: impl IntoIterator<Item = &'a str>,
    listed: &str,
) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match near(name, names.iter().copied()).as_slice() {
        [] if (1..=MOST_LISTED).contains(&names.len()) => format!("there are {}", names.join(", ")),
        [] => listed.to_owned(),
        near => format!("did you mean {}?", near.join(" or ")),
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

    #[test]
    fn near_names_are_misspelt_or_turned_round() {
        let names = ["tcpscan", "udpscan", "tcpreseq", "output"];
        assert_eq!(near("tcpscann", names), ["tcpscan"]);
        assert_eq!(near("scanTCP", names), ["tcpscan"]);
        assert_eq!(near("ouptut", names), ["output"]);
        assert_eq!(near("httpmatch", names), [""; 0]);
        // Neither hours of comparing nor a hint.
        assert_eq!(near(&"tcpscan".repeat(1_000_000), names), [""; 0]);
    }

    #[test]
    fn many_names_are_not_listed() {
        let many: Vec<String> = (10..40).map(|number| format!("field{number}")).collect();
        let hint = |name| instead_of(name, many.iter().map(String::as_str), "see the list");
        assert_eq!(hint("feild12"), "did you mean field12?");
        assert_eq!(hint("colour"), "see the list");
        assert_eq!(
            instead_of("colour", ["http", "dns"], "see the list"),
            "there are http, dns"
        );
    }
}

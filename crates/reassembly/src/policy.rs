//! Which copy of a byte wins where received copies overlap.
//!
//! Operating systems differ in what they keep when a segment or fragment overlaps one received
//! before, and an observer who keeps the other copy sees another conversation than the receiver
//! (Ptacek & Newsham 1998). The rules are those of *target-based* reassembly: Shankar & Paxson
//! (Active Mapping, 2003), Novak (fragments, 2005), Novak & Sturges (TCP, 2007). Every one of them
//! compares only where the newcomer and the original begin and end:
//!
//! | TCP policy | the newcomer wins where it |
//! |---|---|
//! | first, vista | never |
//! | last | always |
//! | bsd, windows, windows2003, hpux10, irix, macos | begins before the original |
//! | bsd-right | begins where the original does or after |
//! | linux | begins before, or begins with it and ends after |
//! | old-linux | begins before, or begins with it and does not end before |
//! | solaris, hpux11 | begins no later and ends no earlier, or begins later and ends later |
//!
//! | fragment policy | the newcomer wins where it |
//! |---|---|
//! | first, hpux11, macos | never |
//! | last | always |
//! | bsd, hpux10, irix | begins before the original |
//! | bsd-right | begins where the original does or after |
//! | linux, old-linux | begins where the original does or before |
//! | windows, windows2003, vista | begins before and ends after |
//! | solaris | begins before and ends with it or after |

use core::fmt;
use core::str::FromStr;

/// How overlapping copies of the same bytes are resolved.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[repr(u8)]
#[strum(serialize_all = "kebab-case")]
pub enum OverlapPolicy {
    /// The copy that came first.
    #[default]
    First,
    /// The copy that came last.
    Last,
    /// BSD and its relatives.
    Bsd,
    /// BSD, right-trimming (HP JetDirect).
    BsdRight,
    /// Linux 2.4 and later.
    Linux,
    /// Linux before 2.4.
    OldLinux,
    /// Windows 95 to XP.
    Windows,
    /// Windows Server 2003.
    Windows2003,
    /// Windows Vista and later.
    Vista,
    /// Solaris.
    Solaris,
    /// HP-UX 10.
    Hpux10,
    /// HP-UX 11.
    Hpux11,
    /// IRIX.
    Irix,
    /// Classic Mac OS and Mac OS X.
    #[strum(serialize = "macos")]
    MacOs,
}

impl OverlapPolicy {
    /// All policies.
    pub const ALL: &[OverlapPolicy] = <OverlapPolicy as strum::VariantArray>::VARIANTS;

    /// Name as users write it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it makes no difference where newcomer and original begin and end.
    #[inline]
    pub(crate) fn ignores_bounds(self) -> bool {
        use OverlapPolicy as P;
        matches!(self, P::First | P::Vista | P::Last)
    }

    /// Whether a TCP segment wins over an original where they overlap. `starts` compares where the
    /// newcomer begins with where the original begins, `ends` likewise.
    #[inline]
    pub fn segment_wins(self, starts: core::cmp::Ordering, ends: core::cmp::Ordering) -> bool {
        use OverlapPolicy as P;
        match self {
            P::First | P::Vista => false,
            P::Last => true,
            P::Bsd | P::Windows | P::Windows2003 | P::Hpux10 | P::Irix | P::MacOs => starts.is_lt(),
            P::BsdRight => starts.is_ge(),
            P::Linux => starts.is_lt() || starts.is_eq() && ends.is_gt(),
            P::OldLinux => starts.is_lt() || starts.is_eq() && ends.is_ge(),
            P::Solaris | P::Hpux11 => {
                if starts.is_le() {
                    ends.is_ge()
                } else {
                    ends.is_gt()
                }
            }
        }
    }

    /// The same for IP fragments.
    #[inline]
    pub(crate) fn fragment_wins(
        self,
        starts: core::cmp::Ordering,
        ends: core::cmp::Ordering,
    ) -> bool {
        use OverlapPolicy as P;
        match self {
            P::First | P::Hpux11 | P::MacOs => false,
            P::Last => true,
            P::Bsd | P::Hpux10 | P::Irix => starts.is_lt(),
            P::BsdRight => starts.is_ge(),
            P::Linux | P::OldLinux => starts.is_le(),
            P::Windows | P::Windows2003 | P::Vista => starts.is_lt() && ends.is_gt(),
            P::Solaris => starts.is_lt() && ends.is_ge(),
        }
    }
}

impl FromStr for OverlapPolicy {
    type Err = UnknownPolicy;

    /// By name, upper or lower case, with `-`, `_` or nothing between words.
    fn from_str(text: &str) -> Result<OverlapPolicy, UnknownPolicy> {
        let plain = |text: &str| -> String {
            text.chars()
                .filter(|c| !matches!(c, '-' | '_' | ' '))
                .map(|c| c.to_ascii_lowercase())
                .collect()
        };
        let wanted = plain(text);
        let alias = match wanted.as_str() {
            "windows2k3" | "win2003" | "win2k3" => "windows2003",
            "windowsvista" | "windows2003/vista" => "vista",
            "win" => "windows",
            "oldsolaris" => "first",
            other => other,
        };
        OverlapPolicy::ALL
            .iter()
            .copied()
            .find(|policy| plain(policy.name()) == alias)
            .ok_or_else(|| UnknownPolicy {
                name: text.to_owned(),
            })
    }
}

/// A policy name that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// What was given.
    pub name: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown overlap policy \"{}\"; hint: one of", self.name)?;
        for (index, policy) in OverlapPolicy::ALL.iter().enumerate() {
            write!(f, "{} {policy}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &policy in OverlapPolicy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(
                policy.name().to_uppercase().replace('-', "_").parse(),
                Ok(policy)
            );
        }
        let error = "bad".parse::<OverlapPolicy>().unwrap_err().to_string();
        assert!(
            error.contains("\"bad\"") && error.contains("bsd-right"),
            "{error}"
        );
    }
}

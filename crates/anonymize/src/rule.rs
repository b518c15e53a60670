//! Rules: what is done with which field, as a policy writes it.

use core::fmt;

use flowgauge_record::words::instead_of;

use crate::field::{Class, Field, Protocol, ftp_name, http_name};

/// What is done with a field, by MAPI's names.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Function {
    /// It stays as it is.
    Unchanged,
    /// Another value for each, no two the same; keyed.
    Map,
    /// A value of a distribution for each; keyed.
    MapDistribution(Distribution),
    /// So many bytes are kept.
    Strip(u32),
    /// Something else each time.
    Random,
    /// Something else each time; the separators and the ending of a file's name stay.
    FilenameRandom,
    /// A keyed digest.
    Hashed(Digest, Rest),
    /// The same bytes again and again.
    PatternFill(Vec<u8>),
    /// Zero.
    Zero,
    /// This text in its place.
    Replace(Vec<u8>),
    /// Common prefixes stay common: Crypto-PAn.
    PrefixPreserving,
    /// The same under a key that is made for the run and kept nowhere.
    PrefixPreservingMap,
    /// What a regular expression matches is kept, its groups replaced.
    Regexp(Expression),
    /// A checksum is made to fit.
    ChecksumAdjust,
    /// A time is cut to multiples of so many nanoseconds.
    Round(u64),
}

/// Of [`Function::MapDistribution`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// From one number to another one.
    Uniform(u64, u64),
    /// Median and standard deviation.
    Gaussian(f64, f64),
}

/// The hash that a keyed digest (HMAC, RFC 2104) is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Digest {
    Sha256,
    Sha1,
    Md5,
}

/// What is done with the rest of a field that is longer than its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It becomes zero.
    PadWithZero,
    /// It is taken away.
    StripRest,
    /// It stays as it is.
    Unchanged,
}

/// A regular expression and what its groups become.
#[derive(Clone, Debug)]
pub struct Expression {
    pub(crate) regex: regex::bytes::Regex,
    /// `None`: the group stays.
    pub(crate) groups: Vec<Option<Vec<u8>>>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.groups == other.groups
    }
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A field of packets.
    Field(Field),
    /// A part of HTTP messages, or a header field by its name in small letters.
    Http(String),
    /// The argument of an FTP command, or a part of replies.
    Ftp(&'static str),
    /// A field of records.
    Record(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Field(field) => field.fmt(f),
            Subject::Http(name) => {
                write!(f, "HTTP,{}", name.to_ascii_uppercase().replace('-', "_"))
            }
            Subject::Ftp(name) => write!(f, "FTP,{name}"),
            Subject::Record(name) => write!(f, "records,{name}"),
        }
    }
}

/// A field and what is done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which field.
    pub subject: Subject,
    /// What is done with it.
    pub function: Function,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// What is wrong, the rule in it.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl RuleError {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> RuleError {
        RuleError {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Rule {
    /// Reads one in MAPI's form: `PROTO,FIELD,FUNCTION[,parameter...]`. A parameter with commas in it stands
    /// in quotation marks.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Rule, RuleError> {
        let words = split(text)?;
        let [protocol, field, function @ ..] = words.as_slice() else {
            return Err(RuleError::new(
                format!("\"{text}\" is not a rule"),
                "write PROTO,FIELD,FUNCTION, as IP,SRC_IP,PREFIX_PRESERVING",
            ));
        };
        let subject = Subject::named(protocol, field)?;
        Rule::new(subject, function)
    }

    /// One about a subject; `words` are the function and its parameters.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(subject: Subject, words: &[String]) -> Result<Rule, RuleError> {
        let function = Function::parse(&subject, words)?;
        check(&subject, &function)?;
        Ok(Rule { subject, function })
    }
}

impl Subject {
    /// The one of a protocol and a field's name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn named(protocol: &str, field: &str) -> Result<Subject, RuleError> {
        if protocol.eq_ignore_ascii_case("records") {
            return Ok(Subject::Record(field.to_ascii_lowercase()));
        }
        let Some(protocol) = Protocol::named(protocol) else {
            let names: Vec<&str> = Protocol::ALL.iter().map(|it| it.name()).collect();
            return Err(RuleError::new(
                format!("there is no protocol \"{protocol}\""),
                format!("rules are about {}, and records", names.join(", ")),
            ));
        };
        match protocol {
            Protocol::Http
                if field
                    .bytes()
                    .all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)) =>
            {
                return Ok(Subject::Http(http_name(field)));
            }
            Protocol::Ftp => {
                if let Some(name) = ftp_name(field) {
                    return Ok(Subject::Ftp(name));
                }
            }
            _ => {
                if let Some(field) = Field::named(protocol, field) {
                    return Ok(Subject::Field(field));
                }
            }
        }
        let names: Vec<&str> = match protocol {
            Protocol::Ftp => crate::field::FTP.to_vec(),
            _ => {
                let of = Field::ALL.iter().filter(|it| it.protocol() == protocol);
                of.map(|it| it.name()).collect()
            }
        };
        Err(RuleError::new(
            format!("{} has no field \"{field}\"", protocol.name()),
            instead_of(field, names, "docs/anonymization.md lists its fields"),
        ))
    }

    fn class(&self) -> Class {
        match self {
            Subject::Field(field) => field.class(),
            Subject::Http(name) if name == "PAYLOAD" => Class::Payload,
            _ => Class::Text,
        }
    }
}

/// Divides a text at commas; quotation marks keep them together, and a backslash the character behind it.
pub(crate) fn split(text: &str) -> Result<Vec<String>, RuleError> {
    let mut words = vec![(String::new(), false)];
    let mut quoted = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let Some((word, was_quoted)) = words.last_mut() else {
            break;
        };
        match character {
            '"' => {
                quoted = !quoted;
                *was_quoted = true;
            }
            '\\' if quoted => {
                let next = characters.next();
                if next.is_some_and(|next| next != '"') {
                    word.push('\\');
                }
                word.extend(next);
            }
            ',' if !quoted => words.push((String::new(), false)),
            other if other.is_whitespace() && !quoted && (word.is_empty() || *was_quoted) => {}
            other => word.push(other),
        }
    }
    if quoted {
        return Err(RuleError::new(
            format!("{text}: a quotation mark is not closed"),
            "close it, or write \\\" for the mark itself",
        ));
    }
    let trimmed = words
        .iter()
        .map(|(word, quoted)| if *quoted { word.as_str() } else { word.trim() });
    Ok(trimmed.map(str::to_owned).collect())
}

impl Function {
    fn parse(subject: &Subject, words: &[String]) -> Result<Function, RuleError> {
        let Some((name, parameters)) = words.split_first() else {
            return Err(RuleError::new(
                format!("{subject} has no function"),
                FUNCTIONS,
            ));
        };
        let name = name.to_ascii_uppercase();
        let reader = Reader {
            subject,
            name: &name,
            parameters,
        };
        let function = match name.as_str() {
            "UNCHANGED" => reader.none(Function::Unchanged)?,
            "MAP" => reader.none(Function::Map)?,
            "MAP_DISTRIBUTION" => Function::MapDistribution(reader.distribution()?),
            "STRIP" => match parameters {
                [] => Function::Strip(0),
                [_] => Function::Strip(reader.number(0, "how many bytes are kept")?),
                _ => return Err(reader.wrong("takes how many bytes are kept")),
            },
            "RANDOM" => reader.none(Function::Random)?,
            "FILENAME_RANDOM" => reader.none(Function::FilenameRandom)?,
            "HASHED" => reader.hashed()?,
            "PATTERN_FILL" => Function::PatternFill(reader.pattern()?),
            "ZERO" => reader.none(Function::Zero)?,
            "REPLACE" => match parameters {
                [text] => Function::Replace(text.as_bytes().to_vec()),
                _ => return Err(reader.wrong("takes one text")),
            },
            "PREFIX_PRESERVING" => reader.none(Function::PrefixPreserving)?,
            "PREFIX_PRESERVING_MAP" => reader.none(Function::PrefixPreservingMap)?,
            "REGEXP" => Function::Regexp(reader.expression()?),
            "CHECKSUM_ADJUST" => reader.none(Function::ChecksumAdjust)?,
            "ROUND" => Function::Round(reader.duration()?),
            other => {
                return Err(RuleError::new(
                    format!("{subject}: there is no function \"{other}\""),
                    FUNCTIONS,
                ));
            }
        };
        Ok(function)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Whether something of what was there can be read afterwards.
    pub(crate) fn keeps_plaintext(&self) -> bool {
        match self {
            Function::Unchanged | Function::Regexp(_) | Function::Hashed(_, Rest::Unchanged) => {
                true
            }
            Function::Strip(kept) => *kept > 0,
            _ => false,
        }
    }
}

const FUNCTIONS: &str = "functions are UNCHANGED, MAP, MAP_DISTRIBUTION, STRIP, RANDOM, FILENAME_RANDOM, HASHED, \
    PATTERN_FILL, ZERO, REPLACE, PREFIX_PRESERVING, PREFIX_PRESERVING_MAP, REGEXP, CHECKSUM_ADJUST, ROUND";

/// Reads parameters.
struct Reader<'a> {
    subject: &'a Subject,
    name: &'a str,
    parameters: &'a [String],
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> RuleError {
        let example = match self.name {
            "MAP_DISTRIBUTION" => {
                "MAP_DISTRIBUTION,UNIFORM,1,100 or MAP_DISTRIBUTION,GAUSSIAN,50,10"
            }
            "HASHED" => "HASHED,SHA256,PAD_WITH_ZERO",
            "PATTERN_FILL" => "PATTERN_FILL,STR,xy or PATTERN_FILL,INTEGER,7",
            "REGEXP" => "REGEXP,\"user=(\\w+)\",1,anonymous",
            "ROUND" => "ROUND,1s",
            "STRIP" => "STRIP,0",
            _ => "the name alone, or see docs/anonymization.md",
        };
        RuleError::new(
            format!("{},{}: {} {what}", self.subject, self.name, self.name),
            format!("for example {example}"),
        )
    }

    fn none(&self, function: Function) -> Result<Function, RuleError> {
        match self.parameters {
            [] => Ok(function),
            _ => Err(self.wrong("takes no parameters")),
        }
    }

    /// A parameter in capitals.
    fn word(&self, place: usize) -> Option<String> {
        let word = self.parameters.get(place);
        word.map(|it| it.to_ascii_uppercase())
    }

    fn number<N: core::str::FromStr>(&self, place: usize, what: &str) -> Result<N, RuleError> {
        let word = self
            .parameters
            .get(place)
            .map(String::as_str)
            .unwrap_or_default();
        word.parse()
            .map_err(|_| self.wrong(&format!("takes {what}, not \"{word}\"")))
    }

    fn distribution(&self) -> Result<Distribution, RuleError> {
        match self.word(0).as_deref() {
            Some("UNIFORM") if self.parameters.len() == 3 => {
                let [low, high] = [
                    self.number(1, "the lowest value")?,
                    self.number(2, "the highest value")?,
                ];
                if low > high {
                    return Err(self.wrong("has its lowest value above its highest"));
                }
                Ok(Distribution::Uniform(low, high))
            }
            Some("GAUSSIAN") if self.parameters.len() == 3 => {
                let [median, deviation]: [f64; 2] = [
                    self.number(1, "the median")?,
                    self.number(2, "the deviation")?,
                ];
                if !median.is_finite() || !deviation.is_finite() || deviation < 0.0 {
                    return Err(self.wrong("takes finite numbers, the deviation not below 0"));
                }
                Ok(Distribution::Gaussian(median, deviation))
            }
            _ => Err(self.wrong("takes UNIFORM,lowest,highest or GAUSSIAN,median,deviation")),
        }
    }

    fn hashed(&self) -> Result<Function, RuleError> {
        let digest = match self.word(0).as_deref() {
            None | Some("SHA256" | "SHA_256" | "SHA-256" | "SHA2" | "SHA_2") => Digest::Sha256,
            Some("SHA" | "SHA1" | "SHA_1" | "SHA-1") => Digest::Sha1,
            Some("MD5") => Digest::Md5,
            Some(other @ ("CRC32" | "DES" | "TRIPLEDES" | "AES")) => {
                return Err(RuleError::new(
                    format!(
                        "{},HASHED: {other} is not a one-way function (rule one-way)",
                        self.subject
                    ),
                    "use SHA256, SHA1 or MD5: they are keyed",
                ));
            }
            Some(_) => return Err(self.wrong("knows SHA256, SHA1 and MD5")),
        };
        let rest = match self.word(1).as_deref() {
            None | Some("PAD_WITH_ZERO") => Rest::PadWithZero,
            Some("STRIP_REST") => Rest::StripRest,
            Some("UNCHANGED") => Rest::Unchanged,
            Some(_) => return Err(self.wrong("knows PAD_WITH_ZERO, STRIP_REST and UNCHANGED")),
        };
        match self.parameters.len() {
            0..=2 => Ok(Function::Hashed(digest, rest)),
            _ => Err(self.wrong("takes an algorithm and what is done with the rest")),
        }
    }

    fn pattern(&self) -> Result<Vec<u8>, RuleError> {
        match self.parameters {
            [kind, text] if kind.eq_ignore_ascii_case("STR") && !text.is_empty() => {
                Ok(text.as_bytes().to_vec())
            }
            [kind, _] if kind.eq_ignore_ascii_case("INTEGER") => {
                let number: u32 = self.number(1, "a number up to 4294967295")?;
                let bytes = number.to_be_bytes();
                let zeros = bytes.iter().take(3).take_while(|it| **it == 0).count();
                Ok(bytes.get(zeros..).unwrap_or_default().to_vec())
            }
            _ => Err(self.wrong("takes STR and a text, or INTEGER and a number")),
        }
    }

    fn expression(&self) -> Result<Expression, RuleError> {
        let [text, _, groups @ ..] = self.parameters else {
            return Err(
                self.wrong("takes an expression, its number of groups, and what each becomes")
            );
        };
        let mut builder = regex::bytes::RegexBuilder::new(text);
        let regex = builder
            .size_limit(1 << 20)
            .unicode(false)
            .build()
            .map_err(|error| {
                let error = error.to_string();
                let line = error.lines().last().unwrap_or_default().to_owned();
                self.wrong(&format!("cannot read \"{text}\": {line}"))
            })?;
        let number: usize = self.number(1, "the number of groups")?;
        if number != groups.len() || number + 1 != regex.captures_len() {
            return Err(self.wrong(&format!(
                "has {} groups in its expression, says {number}, and replaces {}",
                regex.captures_len() - 1,
                groups.len()
            )));
        }
        let groups = groups
            .iter()
            .map(|it| (it != "NULL").then(|| it.as_bytes().to_vec()))
            .collect();
        Ok(Expression { regex, groups })
    }

    fn duration(&self) -> Result<u64, RuleError> {
        let word = match self.parameters {
            [word] => word.as_str(),
            _ => return Err(self.wrong("takes a duration")),
        };
        let digits = word
            .find(|it: char| !it.is_ascii_digit())
            .unwrap_or(word.len());
        let (number, unit) = word.split_at(digits);
        let unit = match unit {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000_u64,
            _ => return Err(self.wrong("knows the units us, ms, s, m and h")),
        };
        let number: Option<u64> = number.parse().ok().filter(|number| *number > 0);
        number
            .and_then(|it| it.checked_mul(unit))
            .ok_or_else(|| self.wrong("takes a duration above 0"))
    }
}

/// Whether a function makes sense for a field; the message names the rule that it breaks.
fn check(subject: &Subject, function: &Function) -> Result<(), RuleError> {
    let class = subject.class();
    let is_header = matches!(class, Class::Mac | Class::Address | Class::Number(..));
    let is_record = matches!(subject, Subject::Record(_));
    let refuse = |rule: &str, why: &str| {
        Err(RuleError::new(
            format!("{subject},{}: {why} (rule {rule})", function.name()),
            match class {
                Class::Mac | Class::Address => {
                    "use PREFIX_PRESERVING, MAP, HASHED, RANDOM, ZERO or UNCHANGED"
                }
                Class::Number(..) => "use MAP, HASHED, RANDOM, PATTERN_FILL, ZERO or UNCHANGED",
                Class::Fixed => "leave it out: it is kept",
                Class::Options => "use STRIP, ZERO or UNCHANGED",
                Class::Payload => "use STRIP, ZERO, HASHED, RANDOM, REPLACE or UNCHANGED",
                Class::Checksum => "use CHECKSUM_ADJUST, ZERO or RANDOM",
                Class::Time => "use ROUND, ZERO or UNCHANGED",
                Class::Text => "use HASHED, STRIP, REPLACE, ZERO or UNCHANGED",
            },
        ))
    };
    if let Function::Unchanged = function {
        return match class {
            Class::Checksum => refuse(
                "checksum-adjust",
                "a checksum that is kept tells the sum of what was replaced",
            ),
            _ => Ok(()),
        };
    }
    match (class, function) {
        (Class::Fixed, _) => {
            return refuse("fixed-fields", "without this field packets cannot be read");
        }
        (
            Class::Checksum,
            Function::ChecksumAdjust | Function::Zero | Function::Random | Function::PatternFill(_),
        ) => {
            return Ok(());
        }
        (Class::Checksum, _) => {
            return refuse("checksum-adjust", "a checksum is not a value of its own");
        }
        (Class::Time, Function::Zero | Function::Round(_)) => return Ok(()),
        (Class::Time, _) => return refuse("time", "it is not a function for times"),
        _ => {}
    }
    match function {
        Function::ChecksumAdjust => refuse("checksum-adjust", "it is for CHECKSUM only"),
        Function::Round(_) if !is_record => refuse("time", "it is for times only"),
        Function::PrefixPreserving | Function::PrefixPreservingMap
            if !is_record && !matches!(class, Class::Mac | Class::Address) =>
        {
            refuse("prefix-preserving", "it is for addresses only")
        }
        Function::Map | Function::MapDistribution(_) if !is_header && !is_record => refuse(
            "map",
            "it is for header fields only, not for options, payload or text",
        ),
        Function::MapDistribution(_) if matches!(class, Class::Mac | Class::Address) => {
            refuse("map-distribution", "it is for numbers only")
        }
        Function::Strip(_) if is_header => refuse(
            "strip",
            "it is for payload, options and fields of HTTP and FTP only",
        ),
        Function::Replace(_) if is_header => {
            refuse("replace", "a text does not fit into a header field")
        }
        Function::Replace(_) | Function::FilenameRandom | Function::Regexp(_)
            if class == Class::Options =>
        {
            refuse("options", "options of a header are not text")
        }
        Function::FilenameRandom | Function::Regexp(_) if is_header => {
            refuse("text", "it is for payload and text only")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Rule::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn rules_of_the_reference_are_read() {
        let rule = Rule::parse("IP,SRC_IP,PREFIX_PRESERVING").unwrap();
        assert_eq!(rule.subject, Subject::Field(Field::SourceIp));
        assert_eq!(rule.function, Function::PrefixPreserving);
        let rule = Rule::parse("tcp, payload, hashed, SHA, strip_rest").unwrap();
        assert_eq!(
            rule.function,
            Function::Hashed(Digest::Sha1, Rest::StripRest)
        );
        let rule = Rule::parse("HTTP,USER_AGENT,REPLACE,\"a, b\"").unwrap();
        assert_eq!(rule.subject, Subject::Http("user-agent".to_owned()));
        assert_eq!(rule.function, Function::Replace(b"a, b".to_vec()));
        assert_eq!(
            Rule::parse("HTTP,REFERRER,ZERO")
                .unwrap()
                .subject
                .to_string(),
            "HTTP,REFERER"
        );
        let rule = Rule::parse("IP,TTL,MAP_DISTRIBUTION,GAUSSIAN,64,5.5").unwrap();
        assert_eq!(
            rule.function,
            Function::MapDistribution(Distribution::Gaussian(64.0, 5.5))
        );
        let rule = Rule::parse("TCP,PAYLOAD,PATTERN_FILL,INTEGER,258").unwrap();
        assert_eq!(rule.function, Function::PatternFill(vec![1, 2]));
        assert!(Rule::parse(r#"TCP,PAYLOAD,REGEXP,"(a,\d+)(b)",2,NULL,x"#).is_ok());
        assert!(Rule::parse("FTP,PASS,ZERO").is_ok());
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused_by_name() {
        for (text, name) in [
            ("IP,TTL,PREFIX_PRESERVING", "prefix-preserving"),
            ("TCP,PAYLOAD,PREFIX_PRESERVING_MAP", "prefix-preserving"),
            ("IP,OPTIONS,MAP", "map"),
            ("TCP,PAYLOAD,MAP_DISTRIBUTION,UNIFORM,1,2", "map"),
            ("IP,SRC_IP,MAP_DISTRIBUTION,UNIFORM,1,2", "map-distribution"),
            ("IP,TTL,STRIP,1", "strip"),
            ("TCP,FLAGS,REPLACE,x", "replace"),
            ("IP,SRC_IP,CHECKSUM_ADJUST", "checksum-adjust"),
            ("IP,CHECKSUM,UNCHANGED", "checksum-adjust"),
            ("UDP,CHECKSUM,HASHED", "checksum-adjust"),
            ("IP,VERSION,ZERO", "fixed-fields"),
            ("IP,IHL,RANDOM", "fixed-fields"),
            ("IP,SRC_IP,REGEXP,x,0", "text"),
            ("TCP,TCP_OPTIONS,FILENAME_RANDOM", "options"),
            ("PACKET,TIME,RANDOM", "time"),
            ("IP,TTL,ROUND,1s", "time"),
            ("IP,SRC_IP,HASHED,CRC32", "one-way"),
        ] {
            let message = error(text);
            assert!(
                message.ends_with(&format!("(rule {name})")),
                "{text}: {message}"
            );
        }
        assert!(Rule::parse("IP,VERSION,UNCHANGED").is_ok());
    }

    #[test]
    fn what_is_no_rule_is_said_to_be_none() {
        for (text, part) in [
            ("", "is not a rule"),
            ("IP,SRC_IP", "has no function"),
            ("IPX,SRC_IP,ZERO", "no protocol"),
            ("IP,SRC_ADDR,ZERO", "no field"),
            ("FTP,NOTHING,ZERO", "no field"),
            ("IP,SRC_IP,BLUR", "no function"),
            ("IP,SRC_IP,ZERO,1", "takes no parameters"),
            ("IP,TTL,MAP_DISTRIBUTION,UNIFORM,9,1", "above its highest"),
            ("IP,TTL,MAP_DISTRIBUTION,GAUSSIAN,9,NaN", "finite"),
            ("TCP,PAYLOAD,STRIP,-1", "how many bytes"),
            ("TCP,PAYLOAD,REGEXP,(a,1,x", "cannot read"),
            ("TCP,PAYLOAD,REGEXP,(a),2,x,y", "groups"),
            ("HTTP,URI,REPLACE,\"x", "not closed"),
            ("PACKET,TIME,ROUND,0s", "above 0"),
        ] {
            let message = error(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}

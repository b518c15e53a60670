//! Whether the declared objects are those of the MIB modules: names, types, ranges, access, and that none is missing.

use std::collections::BTreeMap;
use std::path::Path;

use crate::declared::TABLES;
use crate::mib::{Access, Syntax};
use crate::modules::modules;

/// Objects that are not there, by the beginning of their identifiers.
const MISSING: &[&[u32]] = &[
    // Counters that do not depend on the medium.
    &[21],
];

/// An object of a module: its syntax and access.
#[derive(Debug)]
struct Object {
    name: String,
    syntax: Vec<String>,
    access: String,
}

/// The words of a module, without comments and texts.
fn words(text: &str) -> Vec<String> {
    let outside = text.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let lines = outside
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""));
    let mut spaced = String::new();
    for letter in lines.flat_map(|line| line.chars().chain(['\n'])) {
        match letter {
            '{' | '}' | '(' | ')' | ',' => spaced.extend([' ', letter, ' ']),
            letter => spaced.push(letter),
        }
    }
    spaced
        .replace("..", " .. ")
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// All objects below rmon that managers can reach, by their identifiers.
fn objects(folder: &Path) -> BTreeMap<Vec<u32>, Object> {
    let mut parents: BTreeMap<String, (String, u32)> = BTreeMap::new();
    let mut objects = Vec::new();
    for module in ["RMON-MIB", "RMON2-MIB", "HC-RMON-MIB", "SMON-MIB"] {
        let path = folder.join(format!("{module}.txt"));
        let words = words(&std::fs::read_to_string(path).unwrap());
        for at in 0..words.len() - 1 {
            let kind = words[at + 1].as_str();
            let is_assigned =
                kind == "OBJECT" && words[at + 2] == "IDENTIFIER" && words[at + 3] == "::=";
            if !is_assigned && !matches!(kind, "OBJECT-TYPE" | "MODULE-IDENTITY") {
                continue;
            }
            let rest = &words[at + 2..];
            let Some(end) = rest.iter().position(|word| word == "::=") else {
                continue;
            };
            let Ok(number) = rest[end + 3].parse() else {
                continue;
            };
            parents.insert(words[at].clone(), (rest[end + 2].clone(), number));
            let place = |names: &[&str]| {
                rest[..end]
                    .iter()
                    .position(|word| names.contains(&word.as_str()))
            };
            let (Some(access), Some(status)) =
                (place(&["MAX-ACCESS", "ACCESS"]), place(&["STATUS"]))
            else {
                continue;
            };
            let syntax = place(&["UNITS"]).unwrap_or(access).min(access);
            if rest[access + 1] != "not-accessible" && rest[status + 1] != "deprecated" {
                objects.push(Object {
                    name: words[at].clone(),
                    syntax: rest[1..syntax].to_vec(),
                    access: rest[access + 1].clone(),
                });
            }
        }
    }
    let identifier = |name: &str| {
        let (mut numbers, mut at) = (Vec::new(), name);
        while at != "rmon" {
            let (parent, number) = parents.get(at)?;
            numbers.insert(0, *number);
            at = parent;
        }
        Some(numbers)
    };
    let known = objects
        .into_iter()
        .filter_map(|object| Some((identifier(&object.name)?, object)));
    known.collect()
}

/// The syntax in our words; numbers in brackets are the bounds, of enumerations the least and the most.
fn syntax(words: &[String]) -> Syntax {
    let numbers: Vec<i64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let bounds = numbers.iter().min().zip(numbers.iter().max());
    let integers = || {
        let (least, most) = bounds.unwrap_or((&i64::MIN, &i64::MAX));
        let clamp = |number: i64| number.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        Syntax::Integer(clamp(*least), clamp(*most))
    };
    let octets = |least: usize, most: usize| {
        let bounds = bounds.map(|(least, most)| (*least as usize, *most as usize));
        let (least, most) = bounds.unwrap_or((least, most));
        Syntax::Octets(least, most)
    };
    match words[0].as_str() {
        "INTEGER" | "Integer32" => integers(),
        "InterfaceIndex" => Syntax::Integer(1, i32::MAX),
        "OCTET" | "DisplayString" => octets(0, 65_535),
        "OwnerString" => Syntax::Octets(0, 127),
        "BITS" => Syntax::Octets(0, bounds.map_or(0, |(_, most)| *most as usize / 8 + 1)),
        "OBJECT" | "DataSource" | "SmonDataSource" => Syntax::Oid,
        "Counter32" => Syntax::Counter32,
        "Gauge32" | "ZeroBasedCounter32" => Syntax::Gauge32,
        "Counter64" | "ZeroBasedCounter64" | "CounterBasedGauge64" => Syntax::Counter64,
        "TimeTicks" | "TimeStamp" | "LastCreateTime" => Syntax::TimeTicks,
        "RowStatus" => Syntax::RowStatus,
        "EntryStatus" => Syntax::EntryStatus,
        other => panic!("unknown syntax {other}"),
    }
}

#[test]
fn objects_are_those_of_the_modules() {
    let Some(folder) = modules() else {
        return;
    };
    let mut objects = objects(&folder);
    assert!(objects.len() > 400, "{}", objects.len());
    assert!(TABLES.is_sorted_by_key(|table| table.entry));
    for table in TABLES {
        for column in table.shown() {
            let identifier = [table.entry, &[column.number]].concat();
            let object = objects.remove(&identifier);
            let object = object.unwrap_or_else(|| panic!("no object {}", column.name));
            assert_eq!(object.name, column.name);
            let access = match column.access {
                Access::Read => "read-only",
                Access::Write => "read-write",
                Access::Create => "read-create",
            };
            assert_eq!(object.access, access, "{}", column.name);
            assert_eq!(syntax(&object.syntax), column.syntax, "{}", column.name);
        }
    }
    let is_known = |identifier: &[u32]| {
        MISSING
            .iter()
            .any(|missing| identifier.starts_with(missing))
    };
    objects.retain(|identifier, _| !is_known(identifier));
    let names: Vec<_> = objects.values().map(|object| &object.name).collect();
    assert!(names.is_empty(), "missing: {names:?}");
}

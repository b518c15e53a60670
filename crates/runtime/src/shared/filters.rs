//! Filters of clients. They travel as programs, each with a number; which of them decide about what follows.

use std::collections::BTreeMap;

use flowgauge_capture::Filter;
use flowgauge_capture::filter::DEFAULT_SNAP_LEN;
use flowgauge_stream::engine::{ApplicationConfig, Cutoff, StreamFilter};
use flowgauge_wire::LinkType;

use super::application::check_classes;
use super::codec::wire;
use super::error::Error;
use super::protocol::Request;

/// Which filters an application has, by the numbers of those that were sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chosen {
    /// Of the streams that are wanted.
    pub(super) filter: Option<u16>,
    pub(super) cutoff_classes: Vec<(u16, Cutoff)>,
    pub(super) priority_classes: Vec<(u16, u8)>,
}

wire!(Chosen {
    filter,
    cutoff_classes,
    priority_classes,
});

/// The filter that an expression is for packets of these link types.
///
/// # Errors
/// [`Error::Filter`] when it is none for packets of the first. What cannot be asked of others, none of them has.
pub(super) fn compile(expression: &str, links: &[LinkType]) -> Result<StreamFilter, Error> {
    let mut programs = Vec::new();
    for (place, &link) in links.iter().enumerate() {
        match Filter::compile(expression, link, DEFAULT_SNAP_LEN) {
            Ok(program) => programs.push(program),
            Err(error) if place == 0 => return Err(Error::Filter(error)),
            Err(_) => {}
        }
    }
    Ok(StreamFilter::of_programs(expression, programs))
}

/// Whether two applications have the same filters, for the same.
pub(super) fn are_same(one: &ApplicationConfig, other: &ApplicationConfig) -> bool {
    let of_streams = match (&one.filter, &other.filter) {
        (Some(one), Some(other)) => one.is_same(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    of_streams
        && are_same_classes(&one.cutoff.classes, &other.cutoff.classes)
        && are_same_classes(&one.priority.classes, &other.priority.classes)
}

fn are_same_classes<V: PartialEq>(one: &[(StreamFilter, V)], other: &[(StreamFilter, V)]) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len()
        && pairs.all(|(one, other)| one.0.is_same(&other.0) && one.1 == other.1)
}

/// The messages that bring an application's filters, and which are for what.
///
/// # Errors
/// [`Error::Wanted`] where there are too many, they are too long, or one is no expression; [`Error::Filter`] where one
/// is no filter of such packets.
pub(super) fn sent(
    config: &ApplicationConfig,
    links: &[LinkType],
) -> Result<(Vec<Request>, Chosen), Error> {
    check_classes(config.cutoff.classes.len(), config.priority.classes.len())?;
    let mut requests = Vec::new();
    let (mut next, mut instructions) = (0, 0);
    let mut send = |filter: &StreamFilter| -> Result<u16, Error> {
        let expression = filter.expression().ok_or_else(|| Error::Wanted {
            what: "a filter of a shared capture is an expression".to_owned(),
        })?;
        let mut failed = None;
        let before = requests.len();
        for &link in links {
            let program = match filter.program_for(link) {
                Some(program) => program.clone(),
                None => match Filter::compile(expression, link, DEFAULT_SNAP_LEN) {
                    Ok(program) => program,
                    Err(error) => {
                        failed.get_or_insert(error);
                        continue;
                    }
                },
            };
            instructions += program.instructions().len();
            let number = next;
            requests.push(Request::Filter { number, program });
        }
        if let Some(error) = failed.filter(|_| requests.len() == before) {
            return Err(Error::Filter(error));
        }
        next += 1;
        Ok(next - 1)
    };
    let mut chosen = Chosen {
        filter: config.filter.as_ref().map(&mut send).transpose()?,
        ..Chosen::default()
    };
    for (filter, cutoff) in &config.cutoff.classes {
        chosen.cutoff_classes.push((send(filter)?, *cutoff));
    }
    for (filter, priority) in &config.priority.classes {
        chosen.priority_classes.push((send(filter)?, *priority));
    }
    if instructions > Filters::MOST_INSTRUCTIONS {
        return Err(Error::Wanted {
            what: format!(
                "filters of {instructions} instructions; those of a program have at most {}",
                Filters::MOST_INSTRUCTIONS
            ),
        });
    }
    Ok((requests, chosen))
}

/// Filters that a client has sent, by number: a program per link type.
#[derive(Debug, Default)]
pub(super) struct Filters {
    programs: BTreeMap<u16, Vec<Filter>>,
    instructions: usize,
}

impl Filters {
    /// Instructions of all filters of a client at most: they run for each new stream.
    const MOST_INSTRUCTIONS: usize = 1 << 16;

    /// Adds a program. `false` when they are too many.
    pub(super) fn add(&mut self, number: u16, program: Filter) -> bool {
        self.instructions += program.instructions().len();
        if self.instructions > Filters::MOST_INSTRUCTIONS {
            return false;
        }
        let programs = self.programs.entry(number).or_default();
        if programs.iter().any(|known| known.link() == program.link()) {
            return false;
        }
        programs.push(program);
        true
    }

    /// Gives an application those that were chosen, or says why it cannot have them.
    pub(super) fn give(
        self,
        chosen: &Chosen,
        config: &mut ApplicationConfig,
    ) -> Result<(), String> {
        check_classes(chosen.cutoff_classes.len(), chosen.priority_classes.len())
            .map_err(|error| error.to_string())?;
        let filters: BTreeMap<u16, StreamFilter> = self
            .programs
            .into_iter()
            .map(|(number, programs)| (number, StreamFilter::of_programs("", programs)))
            .collect();
        let find = |number: u16| {
            let filter = filters.get(&number).cloned();
            filter.ok_or_else(|| "a filter that was not sent".to_owned())
        };
        let filter = chosen.filter.map(find).transpose()?;
        let mut cutoffs = Vec::new();
        for (filter, bytes) in &chosen.cutoff_classes {
            cutoffs.push((find(*filter)?, *bytes));
        }
        let mut priorities = Vec::new();
        for (filter, value) in &chosen.priority_classes {
            priorities.push((find(*filter)?, *value));
        }
        config.filter = filter;
        config.cutoff.classes = cutoffs;
        config.priority.classes = priorities;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec::Wire as _;
    use super::*;

    const LINKS: [LinkType; 2] = [LinkType::ETHERNET, LinkType::RAW];

    /// What arrives of an application's filters.
    fn arrived(config: &ApplicationConfig) -> ApplicationConfig {
        let (requests, chosen) = sent(config, &LINKS).unwrap();
        let mut filters = Filters::default();
        for request in requests {
            let Some(Request::Filter { number, program }) = Request::decoded(&request.encoded())
            else {
                panic!("{request:?}");
            };
            assert!(filters.add(number, program));
        }
        assert_eq!(Chosen::decoded(&chosen.encoded()), Some(chosen.clone()));
        let mut there = ApplicationConfig::default();
        filters.give(&chosen, &mut there).unwrap();
        there
    }

    #[test]
    fn filters_are_sent_for_each_link_type() {
        let mut config = ApplicationConfig::default();
        let ethernet = "ether proto 0x0800 and tcp port 80";
        config.filter = Some(compile(ethernet, &LINKS).unwrap());
        let class = flowgauge_stream::stream_filter("udp").unwrap();
        config.cutoff.classes.push((class.clone(), Cutoff(7)));
        config.priority.classes.push((class, 9));
        let there = arrived(&config);
        // What cannot be asked of packets without a link layer, none of them has.
        let filter = there.filter.unwrap();
        assert!(filter.program_for(LINKS[0]).is_some());
        let [(cutoff, bytes)] = &there.cutoff.classes[..] else {
            panic!("{:?}", there.cutoff.classes);
        };
        assert_eq!((*bytes, there.priority.classes[0].1), (Cutoff(7), 9));
        assert!(LINKS.iter().all(|&link| cutoff.program_for(link).is_some()));
    }

    #[test]
    fn what_is_no_expression_cannot_be_sent() {
        let config = ApplicationConfig {
            filter: Some(StreamFilter::new(|_| true)),
            ..ApplicationConfig::default()
        };
        let refused = sent(&config, &LINKS).unwrap_err().to_string();
        assert!(refused.contains("is an expression"), "{refused}");
        let wrong = compile("tcp prot 80", &LINKS).unwrap_err();
        assert!(wrong.to_string().contains("tcp prot 80"), "{wrong}");
        assert!(wrong.hint().is_some());
    }

    #[test]
    fn filters_are_told_apart() {
        let with = |expression: &str, cutoff| {
            let mut config = ApplicationConfig::default();
            let filter = compile(expression, &LINKS).unwrap();
            config.cutoff.classes.push((filter, Cutoff(cutoff)));
            config
        };
        let one = with("udp", 1);
        assert!(are_same(&one, &one.clone()) && are_same(&one, &with("udp", 1)));
        for other in [with("tcp", 1), with("udp", 2), ApplicationConfig::default()] {
            assert!(!are_same(&one, &other) && !are_same(&other, &one));
        }
        let closure = || ApplicationConfig {
            filter: Some(StreamFilter::new(|_| true)),
            ..ApplicationConfig::default()
        };
        let own = closure();
        assert!(are_same(&own, &own.clone()) && !are_same(&own, &closure()));
    }

    #[test]
    fn filters_are_bounded() {
        let program = |link| Filter::compile("tcp", link, 65_535).unwrap();
        let mut filters = Filters::default();
        assert!(filters.add(0, program(LinkType::ETHERNET)));
        assert!(!filters.add(0, program(LinkType::ETHERNET)), "twice");
        let raw = program(LinkType::RAW);
        let added = (1..).take_while(|&number| filters.add(number, raw.clone()));
        assert!(added.count() < Filters::MOST_INSTRUCTIONS);
        let unknown = Chosen {
            filter: Some(7),
            ..Chosen::default()
        };
        let mut config = ApplicationConfig::default();
        let refused = Filters::default().give(&unknown, &mut config).unwrap_err();
        assert!(refused.contains("not sent"), "{refused}");
        // And on this side.
        let hosts: Vec<String> = (0..900)
            .map(|at| format!("host 10.0.{}.{}", at / 250, at % 250))
            .collect();
        let long = compile(&hosts.join(" or "), &LINKS[1..]).unwrap();
        config.cutoff.classes = vec![(long, Cutoff(1)); 64];
        let refused = sent(&config, &LINKS[1..]).unwrap_err().to_string();
        assert!(refused.contains("instructions"), "{refused}");
        config.cutoff.classes.push(config.cutoff.classes[0].clone());
        let refused = sent(&config, &LINKS[1..]).unwrap_err().to_string();
        assert!(refused.contains("64 classes"), "{refused}");
    }
}

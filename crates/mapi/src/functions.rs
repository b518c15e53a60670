//! The functions of MAPI's libraries: arguments, and the components that implement them.

use std::sync::{PoisonError, RwLock};

use crate::call::Error;

/// How an argument is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Becomes {
    /// Text or number, as the option of this name.
    Option(&'static str),
    /// The same, with a default.
    Or(&'static str, &'static str),
    /// A duration with the unit `us`, `ms`, `s` or `m`, by default seconds.
    Time(&'static str),
    /// A number, in units of this many nanoseconds.
    Nanos(&'static str, u64),
    /// A flag: 0 is no, any other number is yes.
    Flag(&'static str),
    /// Another function of the flow, by its number.
    Function(&'static str),
    /// The flow of the function in the next argument, which must be the flow itself.
    Flow,
    /// A number, or a time in units of 2^-32 seconds.
    Ticks(&'static str),
    /// A point in time; dates are in local time.
    When(&'static str),
    /// Ignored.
    Nothing,
    /// Converted by the function, together with others; the name of the argument.
    Special(&'static str),
    /// The same; the component has an option of this name.
    Named(&'static str),
}

/// The type of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Nothing,
    /// A number of this many bytes, in eight bytes.
    Number(u8),
    /// `stats_t`.
    Stats,
    /// `dist_t`.
    Dist,
    /// `burst_category_t`, one per row.
    Burst,
    /// `struct bucket_data`, one per read.
    Bucket,
    /// `struct sample`, one per read.
    Sample,
    /// `struct threshold_result`, when the threshold is crossed.
    Threshold,
    /// A count, and that many `struct topx_result`.
    Top,
    /// `flows_stat`, and its `flow_data`.
    ExpiredFlows,
    /// Three times.
    Times,
    /// Whether a file is still being written.
    File,
    /// Packets, for `mapi_get_next_pkt`.
    Packets,
    /// This many bytes, written by a function that runs in the program.
    Own(usize),
}

/// A function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its library.
    pub library: &'static str,
    /// Its purpose in a line.
    pub description: &'static str,
    /// A letter per argument: `s` text, `S` text that names functions, `i` int, `l` 64-bit number, `r` flow, `f`
    /// function, `w` output file.
    pub arguments: &'static str,
    /// Number of mandatory arguments.
    pub required: usize,
    /// The component that implements it.
    pub component: &'static str,
    /// Its result.
    pub result: Shape,
    /// How each argument is converted for the component.
    pub becomes: &'static [Becomes],
}

impl Function {
    /// Whether it runs in the program instead of the sensor.
    pub fn is_own(&self) -> bool {
        matches!(self.result, Shape::Own(_))
    }

    /// Index of the argument that is this option of the component.
    pub fn place_of(&self, option: &str) -> core::option::Option<usize> {
        self.becomes.iter().position(|becomes| match becomes {
            Option(name)
            | Or(name, _)
            | Time(name)
            | Ticks(name)
            | When(name)
            | Nanos(name, _)
            | Flag(name)
            | Named(name)
            | Of(name) => *name == option,
            Flow | Nothing | Special(_) => false,
        })
    }
}

/// Finds a function by name, as programs write it: `BYTE_COUNTER`, `stdflib:BYTE_COUNTER`, `BYTE_COUNTER!1`.
pub fn find(name: &str) -> core::option::Option<&'static Function> {
    let name = name.split_once('!').map_or(name, |(name, _)| name);
    let (library, name) = match name.split_once(':') {
        Some((library, name)) => (Some(library), name),
        None => (None, name),
    };
    let others = others();
    let mut functions = FUNCTIONS.iter().chain(others.iter().copied());
    functions.find(|function| {
        let is_it = function.name.eq_ignore_ascii_case(name)
            || function.name == "ETHEREAL" && name.eq_ignore_ascii_case("ETHERREAL")
            || function.library == "trackflib"
                && function.name.strip_prefix("TRACK_") == Some(name);
        is_it && library.is_none_or(|library| library == function.library)
    })
}

/// Functions of other crates, and of programs.
static OTHERS: RwLock<Vec<&'static Function>> = RwLock::new(Vec::new());

fn others() -> Vec<&'static Function> {
    let others = OTHERS.read().unwrap_or_else(PoisonError::into_inner);
    others.clone()
}

/// Adds functions of other crates or of the program. Their components must be in the sensor's registry, unless the
/// functions run in the program.
///
/// # Errors
/// A name that is already in use.
pub fn add(functions: Vec<Function>) -> Result<(), Error> {
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    let known = FUNCTIONS.iter().chain(others.iter().copied());
    let known: Vec<&str> = known.map(|function| function.name).collect();
    for (at, function) in functions.iter().enumerate() {
        let mut before = known
            .iter()
            .chain(functions[..at].iter().map(|it| &it.name));
        if before.any(|known| known.eq_ignore_ascii_case(function.name)) {
            let what = format!("there is a function {} already", function.name);
            return Err(Error::new(Error::ARGUMENTS, what));
        }
        if function.becomes.len() != function.arguments.len() {
            let what = format!(
                "what the arguments of {} become is not said of each",
                function.name
            );
            return Err(Error::new(Error::ARGUMENTS, what));
        }
    }
    // Calls refer to their function for ever.
    others.extend(
        functions
            .into_iter()
            .map(|function| &*Box::leak(Box::new(function))),
    );
    Ok(())
}

/// All libraries and their functions.
pub fn libraries() -> Vec<(&'static str, Vec<&'static Function>)> {
    let mut libraries: Vec<(&'static str, Vec<&'static Function>)> = Vec::new();
    for function in FUNCTIONS.iter().chain(others()) {
        let known = libraries
            .iter_mut()
            .find(|(name, _)| *name == function.library);
        match known {
            Some((_, functions)) => functions.push(function),
            None => libraries.push((function.library, vec![function])),
        }
    }
    libraries
}

macro_rules! functions {
    ($($library:ident { $($name:ident($arguments:literal, $required:literal) = $component:literal [$($becomes:expr),*] $result:expr, $description:literal;)* })*) => {
        /// MAPI's functions, by library.
        pub const FUNCTIONS: &[Function] = &[$($(Function {
            name: stringify!($name),
            library: stringify!($library),
            description: $description,
            arguments: $arguments,
            required: $required,
            component: $component,
            result: $result,
            becomes: &[$($becomes),*],
        },)*)*];
    };
}

use Becomes::{
    Flag, Flow, Function as Of, Named, Nanos, Nothing, Option, Or, Special, Ticks, Time, When,
};
use Shape::{Nothing as NoResult, Number};

functions! {
    stdflib {
        BPF_FILTER("si", 1) = "filter" [Option("expression"), Nothing] NoResult, "passes packets that a capture filter selects";
        PKT_COUNTER("", 0) = "count" [] Number(8), "counts packets";
        BYTE_COUNTER("", 0) = "bytes" [] Number(8), "counts bytes on the wire";
        STR_SEARCH("sii", 1) = "search" [Option("pattern"), Option("offset"), Option("depth")] NoResult, "passes packets that contain a text";
        TO_BUFFER("i", 0) = "to_buffer" [Special("wait")] Shape::Packets, "keeps packets for the program";
        SAMPLE("ii", 1) = "sample" [Option("value"), Option("mode")] NoResult, "passes one packet in N, or a percentage";
        HASHSAMP("ii", 1) = "hash_sample" [Option("range"), Named("samples")] Shape::Sample, "passes flows whose hash is in a range, and keeps samples of them";
        TO_FILE("iwl", 2) = "output" [Special("format"), Named("file"), Named("packets")] Shape::File, "writes packets to a file";
        HASH("i", 0) = "hash" [Option("layer")] Number(4), "a hash of the packet";
        BUCKET("rfsi", 3) = "bucket" [Flow, Of("of"), Time("interval"), Flag("reset")] Shape::Bucket, "another function's result per interval";
        THRESHOLD("irfliiii", 5) = "threshold" [Special("type"), Flow, Of("of"), Option("threshold"), Option("boundary"), Nothing, Named("divider"), Named("count")] Shape::Threshold, "waits until another function's result reaches a bound";
        BINOP("irfrf", 5) = "binary_operation" [Option("operation"), Flow, Of("of"), Flow, Of("with")] Number(8), "adds or subtracts two results";
        DIST("rfsss", 5) = "distribution" [Flow, Of("of"), Ticks("min"), Ticks("max"), Ticks("interval")] Shape::Dist, "a histogram of another function's results";
        GAP("", 0) = "gap" [] Number(8), "time since the packet before, in 2^-32 seconds";
        PKTINFO("i", 0) = "packet_info" [Or("info", "0")] Number(8), "time (in 2^-32 seconds) or size of the packet";
        PROTINFO("s", 1) = "protocol_field" [Option("field")] Number(8), "a field of the packet";
        RES2FILE("sSswsi", 5) = "result_to_file" [Named("types"), Named("of"), Nothing, Named("file"), Named("interval"), Flag("reset")] NoResult, "writes results of functions to a file";
        STARTSTOP("ss", 1) = "start_stop" [When("start"), When("stop")] Shape::Times, "passes packets between two times";
        STATS("rfs", 2) = "statistics" [Flow, Of("of"), Special("every")] Shape::Stats, "count, sums, least and largest of another function's results";
        BURST("iiiiiii", 3) = "burst" [Option("min"), Option("max"), Option("step"), Nanos("iftime", 1), Nanos("late", 1), Nanos("early", 1), Option("speed")] Shape::Burst, "bursts of packets by size";
        SYNC("s", 1) = "identity" [Special("flows")] NoResult, "passes packets once all of several flows are connected";
        ETHEREAL("s", 1) = "display_filter" [Option("expression")] NoResult, "passes packets that a display filter selects";
    }
    extraflib {
        COOKING("iiii", 0) = "cook" [Option("threshold"), Nanos("timeout", 1_000_000_000), Flag("once"), Option("side")] NoResult, "streams as packets";
        REGEXP("s", 1) = "regexp" [Option("expression")] NoResult, "passes packets that match a regular expression";
        TOP("iiiii", 3) = "top" [Option("count"), Special("protocol"), Special("field"), Or("sort", "1"), Nanos("interval", 1_000_000_000)] Shape::Top, "the most frequent values of a field";
        EXPIRED_FLOWS("iii", 0) = "expired_flows" [Nothing, Option("flows"), Option("least")] Shape::ExpiredFlows, "flows that have ended";
        ANONYMIZEIP("s", 0) = "anonymize" [Special("key")] NoResult, "replaces addresses so that common prefixes stay common";
        FLOW_REPORT("ssss", 0) = "flow_export" [Named("format"), Named("to"), Named("keys"), Named("values")] Number(8), "counts records of flows, and exports them as NetFlow or IPFIX";
        UNCOOK("iii", 0) = "uncook" [Nothing, Nothing, Nothing] NoResult, "packets of COOKING as segments again";
        RULER("s", 1) = "ruler" [Named("filter")] NoResult, "passes and rewrites packets by rules of Ruler";
        INJECT("s", 1) = "inject" [Named("to")] Number(8), "sends packets onto an interface, and counts them";
    }
    anonflib {
        ANONYMIZE("s", 1) = "anonymize" [Option("rules")] NoResult, "replaces a field of packets";
    }
    trackflib {
        TRACK_FTP("", 0) = "track_ftp" [] NoResult, "passes packets of FTP";
        TRACK_GRID_FTP("", 0) = "track_grid_ftp" [] NoResult, "passes packets of GridFTP";
        TRACK_DC("", 0) = "track_dc" [] NoResult, "passes packets of Direct Connect";
        TRACK_GNUTELLA("", 0) = "track_gnutella" [] NoResult, "passes packets of Gnutella";
        TRACK_EDONKEY("", 0) = "track_edonkey" [] NoResult, "passes packets of eDonkey";
        TRACK_TORRENT("", 0) = "track_torrent" [] NoResult, "passes packets of BitTorrent";
        TRACK_SKYPE("", 0) = "track_skype" [] NoResult, "passes packets of Skype";
        TRACK_IPOVERIP("", 0) = "track_ipoverip" [] NoResult, "passes packets of IP in IP";
        TRACK_IRC("", 0) = "track_irc" [] NoResult, "passes packets of IRC";
        TRACK_WEB("", 0) = "track_web" [] NoResult, "passes packets of the web";
        TRACK_MAPI("", 0) = "track_mapi" [] NoResult, "passes packets of MAPI";
    }
}

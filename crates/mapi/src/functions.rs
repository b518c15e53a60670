//! The functions of MAPI's libraries: arguments, and the component that each is.

/// What an argument becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// A text, or a number as it is: the option of this name.
    Option(&'static str),
    /// A time, with `us`, `ms`, `s` or `m` behind it, or seconds.
    Time(&'static str),
    /// A whole number of so many nanoseconds.
    Nanos(&'static str, u64),
    /// 0 is no, any other number yes.
    Flag(&'static str),
    /// Another function of the flow, by its number.
    Function(&'static str),
    /// The flow of the function that follows; only the flow itself.
    Flow,
    /// It is taken, and means nothing here.
    Nothing,
    /// It becomes something together with others, as the function says.
    Special,
}

/// A function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The library that it is in.
    pub library: &'static str,
    /// What it does, in a line.
    pub description: &'static str,
    /// Its arguments: `s` text, `S` text with functions, `i` int, `l` 64 bits, `r` flow, `f` function, `w` file.
    pub arguments: &'static str,
    /// How many must be given.
    pub required: usize,
    /// The component.
    pub component: &'static str,
    pub(crate) becomes: &'static [Becomes],
}

/// The function of a name as MAPI's programs write it: `BYTE_COUNTER`, `stdflib:BYTE_COUNTER`, `BYTE_COUNTER!1`.
pub fn find(name: &str) -> core::option::Option<&'static Function> {
    let name = name.split_once('!').map_or(name, |(name, _)| name);
    let (library, name) = match name.split_once(':') {
        Some((library, name)) => (Some(library), name),
        None => (None, name),
    };
    let mut functions = FUNCTIONS.iter();
    functions.find(|function| {
        let is_it = function.name.eq_ignore_ascii_case(name)
            || function.name == "ETHEREAL" && name.eq_ignore_ascii_case("ETHERREAL")
            || function.library == "trackflib"
                && function.name.strip_prefix("TRACK_") == Some(name);
        is_it && library.is_none_or(|library| library == function.library)
    })
}

macro_rules! functions {
    ($($library:ident { $($name:ident($arguments:literal, $required:literal) = $component:literal [$($becomes:expr),*], $description:literal;)* })*) => {
        /// All functions, by library.
        pub const FUNCTIONS: &[Function] = &[$($(Function {
            name: stringify!($name),
            library: stringify!($library),
            description: $description,
            arguments: $arguments,
            required: $required,
            component: $component,
            becomes: &[$($becomes),*],
        },)*)*];
    };
}

use Becomes::{Flag, Flow, Function as Of, Nanos, Nothing, Option, Special, Time};

functions! {
    stdflib {
        BPF_FILTER("si", 1) = "filter" [Option("expression"), Nothing], "passes packets that a capture filter selects";
        PKT_COUNTER("", 0) = "count" [], "counts packets";
        BYTE_COUNTER("", 0) = "bytes" [], "counts bytes on the wire";
        STR_SEARCH("sii", 1) = "search" [Option("pattern"), Option("offset"), Option("depth")], "passes packets that contain a text";
        TO_BUFFER("i", 0) = "to_buffer" [Nothing], "keeps packets for the program";
        SAMPLE("ii", 1) = "sample" [Option("value"), Option("mode")], "passes one packet of so many, or a percentage";
        HASHSAMP("ii", 1) = "hash_sample" [Option("range"), Nothing], "passes flows whose hash is in a range";
        HASH("i", 0) = "hash" [Option("layer")], "a hash of the packet";
        BUCKET("rfsi", 3) = "bucket" [Flow, Of("of"), Time("interval"), Flag("reset")], "another function's result per interval";
        BINOP("irfrf", 5) = "binary_operation" [Option("operation"), Flow, Of("of"), Flow, Of("with")], "adds or subtracts two results";
        DIST("rfsss", 5) = "distribution" [Flow, Of("of"), Option("min"), Option("max"), Option("interval")], "a histogram of another function's results";
        GAP("", 0) = "gap" [], "time since the packet before";
        PKTINFO("i", 0) = "packet_info" [Option("info")], "time or size of the packet";
        PROTINFO("s", 1) = "protocol_field" [Option("field")], "a field of the packet";
        STARTSTOP("ss", 1) = "start_stop" [Option("start"), Option("stop")], "passes packets between two times";
        STATS("rfs", 2) = "statistics" [Flow, Of("of"), Time("every")], "count, sums, least and largest of another function's results";
        BURST("iiiiiii", 3) = "burst" [Option("min"), Option("max"), Option("step"), Nanos("iftime", 1), Nanos("late", 1), Nanos("early", 1), Option("speed")], "bursts of packets by size";
        ETHEREAL("s", 1) = "display_filter" [Option("expression")], "passes packets that a display filter selects";
    }
    extraflib {
        COOKING("iiii", 0) = "cook" [Option("threshold"), Nanos("timeout", 1_000_000_000), Flag("once"), Option("side")], "streams as packets";
        REGEXP("s", 1) = "regexp" [Option("expression")], "passes packets that match a regular expression";
        TOP("iiiii", 3) = "top" [Option("count"), Special, Special, Option("sort"), Nanos("interval", 1_000_000_000)], "the most frequent values of a field";
        EXPIRED_FLOWS("iii", 0) = "expired_flows" [Nothing, Option("flows"), Option("least")], "flows that have ended";
    }
    trackflib {
        TRACK_FTP("", 0) = "track_ftp" [], "passes packets of FTP";
        TRACK_GRID_FTP("", 0) = "track_grid_ftp" [], "passes packets of GridFTP";
        TRACK_DC("", 0) = "track_dc" [], "passes packets of Direct Connect";
        TRACK_GNUTELLA("", 0) = "track_gnutella" [], "passes packets of Gnutella";
        TRACK_EDONKEY("", 0) = "track_edonkey" [], "passes packets of eDonkey";
        TRACK_TORRENT("", 0) = "track_torrent" [], "passes packets of BitTorrent";
        TRACK_SKYPE("", 0) = "track_skype" [], "passes packets of Skype";
        TRACK_IPOVERIP("", 0) = "track_ipoverip" [], "passes packets of IP in IP";
        TRACK_IRC("", 0) = "track_irc" [], "passes packets of IRC";
        TRACK_WEB("", 0) = "track_web" [], "passes packets of the web";
        TRACK_MAPI("", 0) = "track_mapi" [], "passes packets of MAPI";
    }
}

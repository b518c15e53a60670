//! Machine-level pieces as safe types. The only home of `unsafe` for mapped memory, rings,
//! system calls and C libraries; no policy lives here.

pub mod affinity;
pub mod blocks;
pub mod bpf;
pub mod checksum;
pub mod datagrams;
mod dynamic;
pub mod echo;
pub mod ending;
pub mod files;
pub mod interfaces;
pub mod libpcap;
pub mod local;
pub mod losses;
pub mod machine;
pub mod mapping;
#[cfg(target_arch = "x86_64")]
mod masked;
#[cfg(feature = "ndpi")]
pub mod ndpi;
pub mod notice;
pub mod own;
pub mod packet;
pub mod pages;
pub mod prefetch;
pub mod privileges;
pub mod process;
pub mod shared;
#[cfg(test)]
#[path = "../../../tests/shared/skipped.rs"]
mod skipped;
pub mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transmit;
pub mod vectorscan;
pub mod ways;

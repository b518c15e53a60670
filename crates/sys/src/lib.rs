//! Machine-level pieces as safe types. The only home of `unsafe` for mapped memory, rings,
//! system calls and C libraries; no policy lives here.

pub mod checksum;
pub mod libpcap;
pub mod prefetch;

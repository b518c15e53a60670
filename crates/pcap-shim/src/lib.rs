//! `libflowgauge_pcap.so`: stands between a program and libpcap, and delivers packets of one class together.
//!
//! ```text
//!  program    pcap_loop, pcap_dispatch, pcap_next, pcap_next_ex      all other functions
//!     |                                                                     |
//!  api        the functions that read, and those that reading depends on    |
//!     | handles, handle    what is known of each pcap_t                     |
//!  gather     simple: the reader gathers, then delivers                     |
//!  thread     a thread gathers while the reader delivers                    |
//!  ring       the kernel gathers, in blocks, while the reader delivers      |
//!     | buffer             packets, copied once or in a block, and their order
//!  libpcap    pcap_dispatch, without blocking <-----------------------------+
//! ```
//!
//! It is preloaded (`LD_PRELOAD`), or linked before libpcap. Waiting is done here: libpcap is only asked for what it has, so
//! that gathering can end in time and a loop can be broken off at any moment.

pub mod api;
mod buffer;
mod counts;
mod descriptor;
mod gather;
mod handle;
mod handles;
mod pipe;
mod real;
mod ring;
mod settings;
mod thread;

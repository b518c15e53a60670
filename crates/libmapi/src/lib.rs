//! libmapi: MAPI for C programs.
//!
//! The interface is `include/mapi.h`. A flow of functions becomes a stack ([`flowgauge_mapi`]) that the sensor runs; nothing of what
//! functions do is in here.
//!
//! ```text
//!  api        the functions of mapi.h: pointers checked, panics caught, errors noted
//!  session    the flows of this process, its connection to the sensor
//!  results    results of components as MAPI's structures
//!  error      MAPI's numbers of errors
//! ```

pub mod abi;
pub mod api;
mod error;
mod results;
mod session;

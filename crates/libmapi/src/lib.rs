//! libmapi: MAPI for C programs.
//!
//! The interface is `include/mapi.h`. A flow of functions becomes a stack ([`flowgauge_mapi`]) that the sensor runs; nothing of what
//! functions do is in here.
//!
//! ```text
//!  api        the functions of mapi.h: pointers checked, panics caught, errors noted
//!  session    the flows of this process, its connection to the sensor
//!  flow       a flow of one sensor, and what comes of it
//!  scope      flows that have members on many sensors
//!  devices    devices of the sensor, and trace files
//!  own        functions of the program's own, and the thread of a flow that runs them
//!  packets    packets of TO_BUFFER
//!  results    results of components as MAPI's structures
//!  error      MAPI's numbers of errors
//! ```

pub mod abi;
pub mod api;
mod devices;
mod error;
mod flow;
mod own;
mod packets;
mod results;
mod scope;
mod session;

//! MAPI's functions, and which component of a stack each is.
//!
//! A MAPI flow is a stack: its functions, in the order applied, are the components. A function with its arguments becomes the text
//! of one ([`Call::component`]), which bears the function's number in the flow, so that results are found by it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod call;
mod functions;
mod parse;

pub use call::{Argument, Call, Error, label};
pub use functions::{FUNCTIONS, Function, find};
pub use parse::{flow, parse};

//! MAPI's functions, and which component of a stack each is.
//!
//! A MAPI flow is a stack: its functions, in the order applied, are the components ([`stack`]). Each bears the function's number in
//! the flow, so that results are found by it.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod call;
mod flow;
mod functions;
mod parse;

pub use call::{Argument, Call, Error, named, ticks};
pub use flow::{OWN, PASSED, Stack, Target, label, stack};
pub use functions::{Becomes, FUNCTIONS, Function, Shape, add, find, libraries};
#[doc(hidden)]
pub use parse::EXAMPLES;
pub use parse::{flow, parse};

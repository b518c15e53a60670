//! MAPI's functions, and the stack components that implement them.
//!
//! A MAPI flow is a stack whose components are the flow's functions, in the order applied ([`stack`]). Components are
//! labelled with the function's number in the flow, by which results are found.
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

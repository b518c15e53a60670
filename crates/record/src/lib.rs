//! Record schemas and their encodings.
#![forbid(unsafe_code)]

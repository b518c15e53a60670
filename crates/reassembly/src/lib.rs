//! IP defragmentation and TCP sequence space with overlap policies.
#![forbid(unsafe_code)]

//! Filter expressions for streams.

use std::sync::{Mutex, PoisonError};

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, FilterSet};
use flowgauge_capture::{Error, Filter};
use flowgauge_wire::LinkType;

use crate::engine::StreamFilter;

/// Link types for which an expression is compiled at once.
const USUAL: [LinkType; 3] = [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL2];

/// Selects streams whose first packet matches an expression in pcap-filter(7) syntax.
///
/// ```
/// use flowgauge_stream::stream_filter;
///
/// assert!(stream_filter("tcp port 80 or host 192.0.2.1").is_ok());
/// let error = stream_filter("tcp prt 80").err().unwrap();
/// assert!(error.to_string().contains("syntax error"));
/// ```
///
/// # Errors
/// [`Error::Filter`] if it does not compile.
pub fn stream_filter(expression: &str) -> Result<StreamFilter, Error> {
    let compile = |link| Filter::compile(expression, link, DEFAULT_SNAP_LEN);
    let mut usual = vec![compile(LinkType::ETHERNET)?];
    // An expression about Ethernet addresses means nothing elsewhere: it is an error when such a
    // packet comes, not before.
    usual.extend(
        USUAL
            .into_iter()
            .skip(1)
            .filter_map(|link| compile(link).ok()),
    );
    let others = Mutex::new(FilterSet::new(expression, DEFAULT_SNAP_LEN, None));
    Ok(StreamFilter::of_programs_and(
        expression,
        usual,
        move |packet| {
            let (frame, descriptor) = (packet.frame, packet.descriptor);
            let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
            let filter = others.for_link(descriptor.link);
            filter.is_ok_and(|filter| filter.verdict_on(frame, descriptor) != 0)
        },
    ))
}

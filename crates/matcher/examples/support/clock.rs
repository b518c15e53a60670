//! The clock of examples that measure.

/// Seconds this thread was on a CPU.
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text
        .split(' ')
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    nanos.unwrap_or(0.0) / 1e9
}

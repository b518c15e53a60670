use super::*;

#[test]
fn ring_has_whole_blocks() {
    let mut config = LiveConfig::new("x");
    assert_eq!(config.ring().blocks, 512);
    config.buffer_bytes = 1;
    assert_eq!(config.ring().block_bytes, 1 << 17);
    assert_eq!(config.ring().blocks, 2);
}

#[test]
fn a_missing_interface_is_answered_with_those_that_exist() {
    let error = LiveSource::open(&LiveConfig::new("nosuch0")).unwrap_err();
    assert!(error.to_string().contains("nosuch0"));
    assert!(error.hint().unwrap().contains("lo, "), "{:?}", error.hint());
}

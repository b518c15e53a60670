use super::*;

#[test]
fn smoke() {
    let filter = Filter::compile("ip", LinkType::ETHERNET, 96).unwrap();
    let mut frame = [0; 34];
    frame[12] = 8;
    assert!(filter.matches(&frame, 34));
    assert_eq!(filter.verdict(&frame, 34), 96);
    frame[12] = 9;
    assert!(!filter.matches(&frame, 34));
}

//! `protocol_field`: the value of a field of each packet.

use flowgauge_stack::{Component, ComponentInfo, ResultInfo, SettingError, Settings, options};

use crate::fields::{Field, Kind, Packet, Value};
use crate::per_packet::{OF_EACH_PACKET, each};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "protocol_field",
    aliases: &["protinfo"],
    summary: "reports the value of a field of each packet",
    help: "Fields have Wireshark's names, such as ip.ttl; docs/display-filter.md lists them. IPv4 addresses are \
       numbers, times are in nanoseconds; of a field that occurs several times, the first value counts. Packets \
       without the field have no value.",
    options: Options::ALL,
    result: Some(ResultInfo::per_packet(
        "of the last packet that has the field",
        "",
    )),
    make,
    ..OF_EACH_PACKET
};

options! {
    struct Options;
    field: Text = required, "which field";
}

/// That there is no such field.
pub(crate) fn unknown(name: &str) -> (String, String) {
    let near = Field::near(name);
    let hint = if near.is_empty() {
        "docs/display-filter.md lists the fields".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    };
    (format!("there is no field {name}"), hint)
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let name = options.field.as_str();
    let Some(field) = Field::find(name) else {
        let (message, hint) = unknown(name);
        return Err(SettingError::of("field", message).with_hint(hint));
    };
    match field.kind {
        Kind::Number | Kind::Flag | Kind::Time | Kind::Ipv4 => {}
        Kind::Ipv6 | Kind::Mac | Kind::Bytes | Kind::Protocol => {
            return Err(SettingError::of("field", format!("{name} is not a number"))
                .with_hint("display_filter compares such fields"));
        }
    }
    Ok(each(move |packets, packet| {
        let found = field.of(&Packet::new(packets, packet));
        match found.iter().next()? {
            Value::Number(value) => u64::try_from(value).ok(),
            Value::Bytes(_) => None,
        }
    }))
}

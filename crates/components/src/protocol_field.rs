//! `protocol_field`: the value of a field of each packet.

use flowgauge_stack::{
    Component, ComponentInfo, Items, OptionInfo, OptionKind, Outlet, PacketValues, Parallel,
    ResultInfo, ResultValue, SettingError, Settings,
};

use crate::fields::{Field, Kind, Packet, Value};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "protocol_field",
    aliases: &["protinfo"],
    summary: "tells the value of a field of each packet",
    help: "Fields have Wireshark's names, as ip.ttl; docs/display-filter.md lists them. IPv4 addresses \
           are told as numbers, times in nanoseconds; of a field that occurs several times the first \
           counts. Packets without the field have no value.",
    is_end: true,
    options: &[OptionInfo::new("field", OptionKind::Text, "which field").required()],
    result: Some(ResultInfo::per_packet(
        "of the last packet that has the field",
        "",
    )),
    parallel: Parallel::Never("its result is that of the last packet"),
    make,
    ..crate::OF_PACKETS
};

struct ProtocolField {
    field: &'static Field,
    last: u64,
    values: PacketValues,
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
    let name = settings.text("field").unwrap_or_default();
    let Some(field) = Field::find(name) else {
        let (message, hint) = unknown(name);
        return Err(SettingError::of("field", message).with_hint(hint));
    };
    match field.kind {
        Kind::Number | Kind::Flag | Kind::Time | Kind::Ipv4 => {}
        Kind::Ipv6 | Kind::Mac | Kind::Bytes | Kind::Protocol => {
            return Err(SettingError::of("field", format!("{name} is no number"))
                .with_hint("display_filter compares such fields"));
        }
    }
    Ok(Box::new(ProtocolField {
        field,
        last: 0,
        values: PacketValues::default(),
    }))
}

impl Component for ProtocolField {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        self.values.begin(packets, out);
        for (index, decoded) in packets.iter() {
            let found = self.field.of(&Packet::new(packets, decoded));
            self.last = match found.iter().next() {
                Some(Value::Number(value)) => value,
                Some(Value::Time(time)) => time.0,
                Some(Value::Ipv4(address)) => u64::from(address),
                Some(Value::Ipv6(_) | Value::Bytes(_)) | None => continue,
            };
            self.values.set(index, self.last);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Last(self.last))
    }

    fn values(&self) -> Option<&PacketValues> {
        Some(&self.values)
    }

    fn reset(&mut self) {
        self.last = 0;
    }
}

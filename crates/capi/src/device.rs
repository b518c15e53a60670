//! The device argument of `scap_create`.

use std::path::Path;

use flowgauge_capture::live::{ANY, link_type_of, list_interfaces};
use flowgauge_capture::{Filter, PacketSource, filter::DEFAULT_SNAP_LEN};
use flowgauge_wire::LinkType;

use crate::failure::{Code, Failure};

/// A source that a thread of the capture can have.
pub(crate) type Source = Box<dyn PacketSource + Send>;

/// An opened file, or an interface that exists.
pub(crate) enum Device {
    File(Source),
    Interface { name: String, link: LinkType },
}

impl Device {
    /// Finds out what `device` names. `file:` means a file; else an interface of that name comes first, then a
    /// path.
    ///
    /// # Errors
    /// When there is neither, or the file is not a capture.
    pub(crate) fn open(device: &str) -> Result<Device, Failure> {
        if let Some(path) = device.strip_prefix("file:") {
            return open_file(path);
        }
        let interfaces = list_interfaces().unwrap_or_default();
        if device == ANY {
            return Ok(Device::Interface {
                name: device.to_owned(),
                link: LinkType::ETHERNET,
            });
        }
        if let Some(interface) = interfaces.iter().find(|one| one.name == device) {
            return Ok(Device::Interface {
                name: device.to_owned(),
                link: link_type_of(interface.hardware).unwrap_or(LinkType::RAW),
            });
        }
        if device == "-" || device.contains('/') || Path::new(device).exists() {
            return open_file(device);
        }
        let names: Vec<&str> = interfaces.iter().map(|one| one.name.as_str()).collect();
        Err(Failure::new(
            Code::Device,
            format_args!("there is no interface and no file {device:?}"),
            format_args!(
                "the interfaces are {}; a capture file is given as file:PATH",
                names.join(", ")
            ),
        ))
    }

    /// The link types its packets are known to have.
    pub(crate) fn links(&self) -> Vec<LinkType> {
        let mut links = match self {
            Device::Interface { link, .. } => vec![*link],
            Device::File(source) => source.interfaces().iter().map(|one| one.link).collect(),
        };
        if links.is_empty() {
            links.push(LinkType::ETHERNET);
        }
        links.dedup();
        links
    }

    /// Checks that a filter compiles for the packets of this device.
    ///
    /// # Errors
    /// libpcap's message.
    pub(crate) fn check_filter(&self, expression: &str) -> Result<(), Failure> {
        check_filter(&self.links(), expression)
    }
}

/// Checks a filter for packets of these link types.
///
/// # Errors
/// libpcap's message.
pub(crate) fn check_filter(links: &[LinkType], expression: &str) -> Result<(), Failure> {
    for &link in links {
        Filter::compile(expression, link, DEFAULT_SNAP_LEN)
            .map_err(|error| Failure::of_capture(&error))?;
    }
    Ok(())
}

fn open_file(path: &str) -> Result<Device, Failure> {
    flowgauge_capture::open(path)
        .map(Device::File)
        .map_err(|error| Failure::of_capture(&error))
}

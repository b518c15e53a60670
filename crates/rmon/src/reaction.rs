//! What is done at an alarm, beside telling managers.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Notification, Value};

/// Programs that run at once. Further alarms start none.
const MOST: usize = 8;

/// A program that is run at each alarm.
#[derive(Debug)]
pub struct Reaction {
    program: Option<PathBuf>,
    running: Vec<Child>,
}

impl Reaction {
    /// Runs this program; without one, nothing.
    pub fn new(program: Option<PathBuf>) -> Reaction {
        let running = Vec::new();
        Reaction { program, running }
    }

    /// Runs the program, and goes on without waiting for it. Returns why it is not run.
    pub fn to(&mut self, notification: &Notification) -> Option<String> {
        let program = self.program.as_ref()?;
        self.running
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let name = program.display();
        if self.running.len() >= MOST {
            let why =
                format!("{name} not started for another alarm: {MOST} instances are still running");
            return Some(why);
        }
        let mut command = Command::new(program);
        command.env("FLOWGAUGE_EVENT", event(notification));
        command.env("FLOWGAUGE_OBJECTS", objects(notification));
        command.stdin(Stdio::null());
        match command.spawn() {
            Ok(child) => {
                self.running.push(child);
                None
            }
            Err(error) => Some(format!("cannot run {name}: {error}")),
        }
    }
}

/// `rising` or `falling` (RFC 2819), otherwise the identifier of the notification.
fn event(notification: &Notification) -> String {
    match notification.kind.numbers() {
        [1, 3, 6, 1, 2, 1, 16, 0, 1] => "rising".to_owned(),
        [1, 3, 6, 1, 2, 1, 16, 0, 2] => "falling".to_owned(),
        _ => notification.kind.to_string(),
    }
}

/// `1.3.6.1.2.1.16.3.1.1.1.1=1`, one per line.
fn objects(notification: &Notification) -> String {
    let lines = notification.objects.iter().map(|(name, value)| {
        let value = match value {
            Value::Integer(number) => number.to_string(),
            Value::Octets(octets) | Value::Opaque(octets) => {
                String::from_utf8_lossy(octets).replace('\0', "")
            }
            Value::Null => String::new(),
            Value::Oid(oid) => oid.to_string(),
            Value::IpAddress([a, b, c, d]) => format!("{a}.{b}.{c}.{d}"),
            Value::Counter32(number) | Value::Gauge32(number) | Value::TimeTicks(number) => {
                number.to_string()
            }
            Value::Counter64(number) => number.to_string(),
        };
        format!("{name}={value}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Oid;

    #[test]
    fn objects_are_lines() {
        let notification = Notification {
            kind: Oid::new(&[1, 3, 6, 1, 2, 1, 16, 0, 2]),
            objects: vec![
                (Oid::new(&[1, 3, 1]), Value::Integer(-5)),
                (Oid::new(&[1, 3, 2]), Value::Octets(b"a\0b".to_vec())),
                (Oid::new(&[1, 3, 3]), Value::Oid(Oid::new(&[1, 3]))),
            ],
        };
        assert_eq!(event(&notification), "falling");
        assert_eq!(objects(&notification), "1.3.1=-5\n1.3.2=ab\n1.3.3=1.3");
    }
}

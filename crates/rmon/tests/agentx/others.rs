//! Objects of other agents in alarms and user histories, read from `snmpd`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_rmon::others::{self, User};
use flowgauge_rmon::{Probe, SetError, Tree, Value};
use flowgauge_wire::Nanos;
use parking_lot::Mutex;

use crate::net_snmp::{Snmpd, is_there};
use crate::session::root;

const UP_TIME: &str = "1.3.6.1.2.1.1.3.0";
/// alarmValue of the alarm of [`probe`].
const VALUE: [u32; 5] = [3, 1, 1, 5, 8];
/// When the tables' clock begins, in nanoseconds.
const START: u64 = 1_000_000_000_000;
/// Not in the view of the documented users.
const HIDDEN: &str = "1.3.6.1.2.1.11.1.0";

fn set(probe: &mut Probe, values: &[(&[u32], Value)]) -> Result<(), (usize, SetError)> {
    let named = values
        .iter()
        .map(|(name, value)| (root().child(name), value.clone()));
    let mut change = probe.test(&named.collect::<Vec<_>>())?;
    assert_eq!(probe.commit(&mut change), Ok(()));
    Ok(())
}

fn object(name: &str) -> Value {
    Value::Oid(name.parse().unwrap())
}

/// A user history of the uptime, what it grew by, and something hidden; and an alarm of the uptime.
fn probe() -> Probe {
    let mut probe = Probe::new();
    probe.add_interface(1, 0);
    probe.tick(Nanos(START));
    set(&mut probe, &[(&[3, 1, 1, 12, 8], Value::Integer(2))]).unwrap();
    set(
        &mut probe,
        &[
            (&[3, 1, 1, 3, 8], object(UP_TIME)),
            (&[3, 1, 1, 7, 8], Value::Integer(1)),
        ],
    )
    .unwrap();
    let valid: (&[u32], Value) = (&[3, 1, 1, 12, 8], Value::Integer(1));
    assert_eq!(
        set(&mut probe, core::slice::from_ref(&valid)),
        Err((0, SetError::InconsistentValue)),
        "nobody asks other agents"
    );
    probe.ask_others();
    set(&mut probe, &[valid]).unwrap();
    set(
        &mut probe,
        &[
            (&[18, 1, 1, 7, 2], Value::Integer(5)),
            (&[18, 1, 1, 2, 2], Value::Integer(3)),
            (&[18, 1, 1, 5, 2], Value::Integer(1)),
        ],
    )
    .unwrap();
    set(
        &mut probe,
        &[
            (&[18, 2, 1, 2, 2, 1], object(UP_TIME)),
            (&[18, 2, 1, 2, 2, 2], object(UP_TIME)),
            (&[18, 2, 1, 3, 2, 2], Value::Integer(2)),
            (&[18, 2, 1, 2, 2, 3], object(HIDDEN)),
            (&[18, 1, 1, 7, 2], Value::Integer(1)),
        ],
    )
    .unwrap();
    probe
}

type Told = Mutex<Vec<Option<String>>>;

/// Ends with the test, also where that fails.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has the agent at an address asked by an account while something is done. Returns what became of the tables, and what was told.
fn ask(
    address: &str,
    account: &str,
    act: impl FnOnce(&Mutex<Probe>, &Told),
) -> (Probe, Vec<Option<String>>) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("address = \"{address}\"\n{account}");
    let account = User::read(&secret(folder.path(), &text)).unwrap();
    let (tables, told) = (Mutex::new(probe()), Told::default());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| others::run(&account, &tables, &is_over, |why| told.lock().push(why)));
        let _ending = Ending(&is_over);
        act(&tables, &told);
    });
    (tables.into_inner(), told.into_inner())
}

fn secret(folder: &Path, text: &str) -> std::path::PathBuf {
    let path = folder.join("account");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Lets seconds pass until an object has a value that is wanted.
fn wait(tables: &Mutex<Probe>, time: &mut u64, name: &[u32], wanted: impl Fn(&Value) -> bool) {
    let name = root().child(name);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        *time += 1_000_000_000;
        let mut probe = tables.lock();
        probe.tick(Nanos(*time));
        let value = probe.get(&name);
        if value.as_ref().is_ok_and(&wanted) {
            return;
        }
        drop(probe);
        assert!(Instant::now() < end, "{name} is {value:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn objects_of_other_agents_are_sampled_as_the_users_view_allows() {
    if !is_there() {
        return;
    }
    let mut snmpd = Snmpd::start_as_documented();
    let address = snmpd.address();
    let account = "user = \"reader\"\nauthentication = \"SHA-256\"\npassword = \"reading password\"\n\
                   privacy = \"AES\"\nsecret = \"reading secret\"\n";
    let (_, told) = ask(&address, account, |tables, told| {
        let mut time = START;
        let mut wait = |name: &[u32], wanted: &dyn Fn(&Value) -> bool| {
            wait(tables, &mut time, name, wanted);
        };
        wait(&VALUE, &|value| matches!(value, Value::Integer(1..)));
        // Of the third bucket: uptime, its difference, and what the user does not see.
        let column = |column: u32, object: u32| [18, 3, 1, column, 2, 3, object];
        wait(&column(5, 1), &|status| *status == Value::Integer(2));
        wait(&column(5, 2), &|status| *status == Value::Integer(2));
        let value = |column: &[u32]| tables.lock().get(&root().child(column));
        let up_time = value(&column(4, 1)).unwrap();
        assert!(matches!(up_time, Value::Gauge32(1..)), "{up_time:?}");
        let grown = value(&column(4, 2)).unwrap();
        assert!(matches!(grown, Value::Gauge32(0..6_000)), "{grown:?}");
        assert_eq!(value(&column(5, 3)), Ok(Value::Integer(1)));
        assert_eq!(*told.lock(), []);
        // An agent that is away is told once, and is asked again when it is back, with its new clock.
        snmpd.kill();
        wait(&VALUE, &|_| told.lock().len() == 1);
        snmpd.restart();
        wait(&VALUE, &|_| told.lock().len() == 2);
    });
    let [Some(why), None] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(why.contains(&address), "{why}");
}

/// SNMPv2c: a community, and one that the agent does not know.
#[test]
fn a_community_reads_objects_of_other_agents() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let address = snmpd.address();
    for (community, is_known) in [("public", true), ("unknown", false)] {
        let account = format!("community = \"{community}\"\n");
        let (mut probe, told) = ask(&address, &account, |tables, told| {
            wait(tables, &mut { START }, &VALUE, |value| match is_known {
                true => matches!(value, Value::Integer(1..)),
                false => !told.lock().is_empty(),
            });
        });
        let silent = format!("no objects of the SNMP agent at {address}: it does not answer");
        let expected = if is_known { vec![] } else { vec![Some(silent)] };
        assert_eq!(told, expected);
        let value = probe.get(&root().child(&VALUE));
        assert_eq!(value != Ok(Value::Integer(0)), is_known, "{value:?}");
    }
}

#[test]
fn accounts_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("account");
    let user = "user = \"reader\"\nauthentication = \"SHA\"\n";
    for (text, what) in [
        (String::new(), "must name either a user"),
        (
            "user = \"a\"\ncommunity = \"b\"".to_owned(),
            "must name either a user or a community",
        ),
        (
            user.to_owned(),
            "authentication and password are set together",
        ),
        (format!("{user}password = \"short\""), "too short"),
        (
            format!("{user}password = \"long enough\"\nprivacy = \"ROT13\"\nsecret = \"12345678\""),
            "this privacy is unknown",
        ),
        ("nobody = 1".to_owned(), "line 1 is not as it should be"),
    ] {
        secret(folder.path(), &text);
        let error = User::read(&path).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(what), "{message}");
        assert!(
            message.contains("account: ") && !error.hint().is_empty(),
            "{message}"
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let message = User::read(&path).unwrap_err().to_string();
    assert!(message.contains("other users can read"), "{message}");
}

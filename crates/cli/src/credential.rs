//! `flowgauge credential`: what users may do with a sensor, signed.

use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use flowgauge_capture::filter::{DEFAULT_SNAP_LEN, Filter};
use flowgauge_credential::{
    Credential, Error, Holder, IssuerKey, IssuerName, Limits, Policy, Revoked, date_of, date_text,
};
use flowgauge_link::{KeyFolder, read_secret};
use flowgauge_record::text::harmless_lines;
use flowgauge_sensor::function;
use flowgauge_sys::files::{self, How};
use flowgauge_wire::LinkType;

use crate::failure::{self, Failure};
use crate::keys::{folder, of_link};
use crate::options::{
    AttenuateOptions, CredentialCommand, CredentialOptions, IssueOptions, IssuerOptions,
    LimitOptions, RevokeOptions, ShowCredentialOptions, VerifyOptions,
};
use crate::say::say;
use crate::sinks;

/// The environment's variable that names the file of a credential.
const VARIABLE: &str = "FLOWGAUGE_CREDENTIAL";

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &CredentialOptions) -> Result<(), Failure> {
    match &options.command {
        CredentialCommand::Key(options) => key(options),
        CredentialCommand::Issue(options) => issue(options),
        CredentialCommand::Attenuate(options) => attenuate(options),
        CredentialCommand::Show(options) => show(options),
        CredentialCommand::Verify(options) => verify(options),
        CredentialCommand::Revoke(options) => revoke(options),
    }
}

/// The credential that a user of a sensor brings, as text: of this file, else of the one that the environment names.
///
/// # Errors
/// It cannot be read, or is none.
pub(crate) fn brought(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
    let file = file.or(named.as_ref().map(Path::new));
    file.map(|file| read(file).map(|credential| credential.text()))
        .transpose()
}

fn key(options: &IssuerOptions) -> Result<(), Failure> {
    let folder = folder(options.folder.keys.as_deref());
    let key = IssuerKey::generate();
    let public = key.public().to_string();
    let line = |text: &str| format!("{text}\n");
    let kept = folder.add_issuer(&options.name, &line(&key.secret_text()), &line(&public));
    kept.map_err(|error| of_link(&error))?;
    let name = &options.name;
    print(&format!("[issuers.{name}]\nkey = \"{public}\"\n"))?;
    say!(
        "hint: add these lines to the configuration of sensors that should accept its credentials"
    );
    Ok(())
}

fn issue(options: &IssueOptions) -> Result<(), Failure> {
    let folder = folder(options.folder.keys.as_deref());
    let secret = folder.issuer_secret(&options.issuer);
    let secret = secret.map_err(|error| of_link(&error))?;
    let key = IssuerKey::parse(&secret).map_err(unusable)?;
    let mut limits = limits(&options.limits, &folder)?;
    if options.expires != "never" {
        limits.expires = Some(end(&options.expires)?);
    }
    let is_anybodys = limits.holders.is_empty();
    let credential = Credential::issue(&key, &limits).map_err(unusable)?;
    write(&credential, options.write.as_deref())?;
    if is_anybodys {
        say!(
            "hint: anyone who has this credential can use it; --holder binds it to a key, --user to a local user"
        );
    }
    Ok(())
}

fn attenuate(options: &AttenuateOptions) -> Result<(), Failure> {
    let folder = folder(options.folder.keys.as_deref());
    let mut limits = limits(&options.limits, &folder)?;
    limits.expires = options.expires.as_deref().map(end).transpose()?;
    let mut credential = read(&options.file)?;
    if !limits.is_empty() {
        credential = credential.attenuate(&limits).map_err(unusable)?;
    } else if !options.seal {
        let hint = "add a restriction: --device eth0, --expires 1h";
        return Err(Failure::usage("no restriction given", hint));
    }
    if options.seal {
        credential = credential.seal().map_err(unusable)?;
    }
    write(&credential, options.write.as_deref())
}

fn show(options: &ShowCredentialOptions) -> Result<(), Failure> {
    let credential = read(&options.file)?;
    let mut text = String::new();
    for (at, (block, id)) in credential.blocks().iter().zip(credential.ids()).enumerate() {
        let by = if at == 0 { ", of the issuer" } else { "" };
        text += &format!("block {at}{by}\n  identifier {id}\n");
        let lines = match options.datalog {
            true => block.to_string().lines().map(str::to_owned).collect(),
            false => block.words(),
        };
        for line in lines {
            text += &format!("  {line}\n");
        }
    }
    print(&text)
}

fn verify(options: &VerifyOptions) -> Result<(), Failure> {
    let credential = read(&options.file)?;
    let issuer = match IssuerName::parse(&options.issuer) {
        Ok(issuer) => issuer,
        Err(_) => {
            let folder = folder(options.folder.keys.as_deref());
            let text = folder.issuer_public(&options.issuer);
            let text = text.map_err(|error| of_link(&error))?;
            IssuerName::parse(&text).map_err(unusable)?
        }
    };
    let file = options.file.display();
    let bad = |what: String| Err(Failure::run(format!("{file}: {what}"), None));
    if !credential.is_of(&issuer) {
        return bad(format!("not issued by {}, or modified", options.issuer));
    }
    if let Some(path) = &options.revoked {
        let revoked = Revoked::read(path).map_err(|error| revoked_failure(path, &error))?;
        if let Some(at) = credential.ids().iter().position(|id| revoked.has(id)) {
            return bad(format!("block {at} was revoked"));
        }
    }
    let policy = Policy::new(credential.layers().collect());
    let until = match policy.expires() {
        Some(date) if date <= now() => return bad(format!("it expired at {}", date_text(date))),
        Some(date) => format!("until {}", date_text(date)),
        None => "without an end".to_owned(),
    };
    print(&format!("{file}: issued by {}, {until}\n", options.issuer))
}

fn revoke(options: &RevokeOptions) -> Result<(), Failure> {
    let id = match Revoked::is_id(&options.what) {
        true => options.what.clone(),
        false => {
            let credential = read(Path::new(&options.what))?;
            let ids = credential.ids();
            let at = options.block.unwrap_or(ids.len() - 1);
            let id = ids.get(at).cloned();
            id.ok_or_else(|| {
                let what = format!("the credential has no block {at}");
                Failure::usage(what, "flowgauge credential show lists its blocks")
            })?
        }
    };
    let path = &options.revoked;
    // A sensor takes no file with a line that it does not understand.
    let mut line = format!("{id}\n");
    if path.exists() {
        Revoked::read(path).map_err(|error| revoked_failure(path, &error))?;
        let text =
            std::fs::read(path).map_err(|error| revoked_failure(path, &error.to_string()))?;
        if text.last().is_some_and(|last| *last != b'\n') {
            line.insert(0, '\n');
        }
    }
    let appended = files::named().open(path, How::append().mode(0o644));
    let appended = appended.and_then(|mut file| {
        file.write_all(line.as_bytes())?;
        file.sync_all()
    });
    appended.map_err(|error| revoked_failure(path, &error.to_string()))?;
    say!("{id} was added to {}", path.display());
    Ok(())
}

fn revoked_failure(path: &Path, error: &str) -> Failure {
    let hint = "it has one identifier per line, as printed by flowgauge credential show";
    Failure::usage(format!("{}: {error}", path.display()), hint)
}

fn limits(options: &LimitOptions, folder: &KeyFolder) -> Result<Limits, Failure> {
    let keys = options.holder.iter().map(|text| {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(Holder::Key(match is_digest {
            true => text.to_ascii_lowercase(),
            false => {
                let found = folder.certificate_of(text);
                found.map_err(|error| of_link(&error))?.key
            }
        }))
    });
    let mut holders = keys.collect::<Result<Vec<_>, Failure>>()?;
    holders.extend(options.certificate.iter().cloned().map(Holder::Certificate));
    holders.extend(options.user.iter().cloned().map(Holder::User));
    let functions = options.function.iter().map(|text| {
        let found = function(text).or_else(|what| flowgauge_element::metric(text).map_err(|_| what));
        found.map_err(|what| {
            Failure::usage(
                what,
                "flowgauge stack list shows components, stack list NAME options; for elements, name metrics instead",
            )
        })
    });
    let functions = functions.collect::<Result<Vec<_>, _>>()?;
    options.filter.as_deref().map_or(Ok(()), check_filter)?;
    Ok(Limits {
        holders,
        devices: Some(options.device.clone()).filter(|devices| !devices.is_empty()),
        packets: options.packets,
        functions: Some(functions).filter(|functions| !functions.is_empty()),
        requests: (!options.request.is_empty()).then(|| {
            let requests = options.request.iter().map(<&str>::from);
            requests.map(str::to_owned).collect()
        }),
        filter: options.filter.clone(),
        anonymize: options.anonymize.clone(),
        most_flows: options.most_flows,
        packets_per_second: options.packets_per_second,
        times: options.times.concat(),
        expires: None,
        checks: options.check.clone(),
    })
}

/// A filter that packets of some interface can pass.
fn check_filter(expression: &str) -> Result<(), Failure> {
    let compile = |link| Filter::compile(expression, link, DEFAULT_SNAP_LEN);
    let wrong = compile(LinkType::ETHERNET).err();
    let wrong = wrong.filter(|_| compile(LinkType::IEEE802_11_RADIOTAP).is_err());
    wrong.map_or(Ok(()), |error| Err(Failure::opening(&error)))
}

/// When a credential or certificate expires.
pub(crate) fn end(text: &str) -> Result<u64, Failure> {
    let now = now();
    let date = date_of(text, Some(now)).map_err(unusable)?;
    if date <= now {
        let what = format!("--expires {text} has passed");
        return Err(Failure::usage(what, "use a future date, or 30d, 12h"));
    }
    Ok(date)
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn read(file: &Path) -> Result<Credential, Failure> {
    let text = read_secret(files::named(), file).map_err(|error| of_link(&error))?;
    Credential::parse(&text)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display()), error.hint()))
}

fn unusable(error: Error) -> Failure {
    Failure::usage(error.to_string(), error.hint())
}

/// Writes a credential, for its owner's eyes.
fn write(credential: &Credential, file: Option<&Path>) -> Result<(), Failure> {
    let text = credential.text() + "\n";
    let Some(path) = file else {
        return print(&text);
    };
    let file = files::named().open(path, How::new_file().mode(0o600));
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        Failure::usage(
            format!("{}: {error}", path.display()),
            "-w names a new file",
        )
    })
}

/// Writes text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut target = sinks::target(None)?;
    let written = target
        .write_all(harmless_lines(text).as_bytes())
        .and_then(|()| target.flush());
    let written = written.map_err(|error| failure::of_output(error.into()));
    written.or_else(|failure| failure.map_or(Ok(()), Err))
}

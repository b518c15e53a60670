//! `flowgauge stack admin`: asks an agent on another machine.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use flowgauge_link::{Conversation, Error};
use serde_json::{Value, json};

use super::{agent, print};
use crate::credential;
use crate::failure::Failure;
use crate::keys;
use crate::options::{AdminCommand, AdminOptions, DefinitionOptions, GivenStack};

/// How long an agent has to answer: a stack that is stopped has its time, too.
const WAIT: Duration = Duration::from_secs(30);

/// Runs the command.
///
/// # Errors
/// When the agent cannot be reached, or does not want to.
pub(super) fn run(options: &AdminOptions) -> Result<(), Failure> {
    let (mut request, is_list) = match &options.command {
        AdminCommand::Start(options) => (definition("start", options)?, false),
        AdminCommand::Configure(options) => (definition("configure", options)?, false),
        AdminCommand::List => (json!({"do": "list"}), true),
        AdminCommand::Show(options) => (json!({"do": "show", "name": options.name}), false),
        AdminCommand::Stop(options) => (json!({"do": "stop", "name": options.name}), false),
        AdminCommand::Restart(options) => (json!({"do": "restart", "name": options.name}), false),
        AdminCommand::Watch(options) => (
            json!({"do": "watch", "name": options.name, "every": options.every}),
            false,
        ),
    };
    request["credential"] = json!(credential::brought(options.credential.as_deref())?);
    let is_watch = matches!(options.command, AdminCommand::Watch(_));
    let identity = keys::identity(&options.identity)?;
    let peer = options.peer.as_deref();
    let conversation = Conversation::open(&identity, agent::SERVICE, &options.host, peer, WAIT);
    let mut conversation = conversation.map_err(|error| failed(&error))?;
    let sent = conversation.send(request.to_string().as_bytes());
    sent.map_err(|error| failed(&error))?;
    loop {
        let reply = conversation.receive().map_err(|error| failed(&error))?;
        let Some(reply) = reply else {
            return Err(Failure::run(
                format!("{}: the agent has closed the connection", options.host),
                Some("was it stopped?".to_owned()),
            ));
        };
        let reply: Value = serde_json::from_slice(&reply).unwrap_or_default();
        let word = |key: &str| reply.get(key).and_then(Value::as_str).unwrap_or_default();
        if reply.get("error").is_some() {
            return Err(Failure::run(
                format!("{}: {}", options.host, word("error")),
                reply.get("hint").and_then(Value::as_str).map(str::to_owned),
            ));
        }
        if is_list {
            let stacks = reply.get("stacks").and_then(Value::as_array);
            let mut text = String::new();
            for stack in stacks.into_iter().flatten() {
                text += &line(stack);
            }
            return output(&text);
        }
        if !is_watch {
            let mut text = line(&reply);
            for part in ["text", "said"] {
                let part = word(part);
                if !part.is_empty() {
                    text += &format!("\n{}\n", part.trim_end());
                }
            }
            return output(&text);
        }
        output(word("said"))?;
        if !reply
            .get("running")
            .and_then(Value::as_bool)
            .unwrap_or(false)
        {
            return output(&line(&reply));
        }
    }
}

fn failed(error: &Error) -> Failure {
    Failure::run(error.to_string(), error.hint())
}

/// A line about a stack.
fn line(stack: &Value) -> String {
    let word = |key: &str| stack.get(key).and_then(Value::as_str).unwrap_or_default();
    let number = |key: &str| stack.get(key).and_then(Value::as_u64).unwrap_or(0);
    let starts = match number("starts") {
        0 | 1 => String::new(),
        starts => format!(", {starts} starts"),
    };
    let seconds = number("seconds");
    let (name, state, by) = (word("name"), word("state"), word("by"));
    format!("{name}  {state}, started by {by} {seconds} s ago{starts}\n")
}

/// Prints what came from another machine.
fn output(text: &str) -> Result<(), Failure> {
    print(flowgauge_record::text::harmless_lines(text).as_bytes())
}

fn definition(action: &str, options: &DefinitionOptions) -> Result<Value, Failure> {
    let text = match (&options.stack.expression, &options.stack.file) {
        (Some(expression), _) => expression.clone(),
        (None, Some(file)) => text_of(file)?,
        (None, None) => return Err(GivenStack::missing()),
    };
    Ok(json!({
        "do": action,
        "name": options.name,
        "text": text,
        "bare": options.stack.expression.is_some(),
        "read": options.read,
        "interface": options.interface,
    }))
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let most = agent::MOST_MESSAGE as u64;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(most).read_to_string(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text))
    };
    match read {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::usage(
            format!("{}: {error}", path.display()),
            "a stack is a text file of components; flowgauge stack list lists them",
        )),
    }
}

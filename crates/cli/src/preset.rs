//! Commands as stacks: a file under `stacks/`, with the command's options in it.

use std::path::Path;

use flowgauge_registry::registry;
use flowgauge_stack::syntax::{
    Assignment, Comments, Document, Item, Name, Node, OptionSection, Shape, Value,
};
use flowgauge_stack::{Program, Settings, Sources, Span, format, parse};

use crate::failure::Failure;
use crate::memory;
use crate::options::{
    CommonOptions, DestinationOptions, EngineOptions, InputOptions, RecordFormat, SelectOptions,
};
use crate::sinks;
use crate::stack::execute::{Origin, Running};
use crate::stack::watch::Watched;
use crate::stack::{print, read, refuse_overwriting};

/// A command's stack.
pub(crate) struct Preset {
    /// What messages call it.
    name: &'static str,
    document: Document,
    /// Bound for all components together, if there is one.
    memory: Option<u64>,
    /// Whether what it writes shows the ledger.
    has_ledger: bool,
}

impl Preset {
    /// That of a command, from the text of its file.
    ///
    /// # Errors
    /// When it cannot be parsed, which a test rules out.
    pub(crate) fn new(name: &'static str, text: &str) -> Result<Preset, Failure> {
        let mut sources = Sources::default();
        let file = sources.add(name, text).unwrap_or_default();
        let document = parse(&sources, file);
        let document = document.map_err(|found| Failure::run(found.message.clone(), None))?;
        Ok(Preset {
            name,
            document,
            memory: None,
            has_ledger: false,
        })
    }

    /// Puts a component in front of another one of the outermost row.
    pub(crate) fn insert(&mut self, before: &str, component: &str) {
        for item in &mut self.document.items {
            let Item::Stack(section) = item else {
                continue;
            };
            let nodes = &mut section.body.nodes;
            if let Some(at) = nodes.iter().position(|node| node.name.text == before) {
                nodes.insert(at, node(component));
            }
        }
    }

    /// Takes a component out of the outermost row.
    pub(crate) fn remove(&mut self, component: &str) {
        for item in &mut self.document.items {
            if let Item::Stack(section) = item {
                let nodes = &mut section.body.nodes;
                nodes.retain(|node| node.name.text != component);
                if let Some(last) = nodes.last_mut() {
                    last.has_dash = false;
                }
            }
        }
    }

    /// Sets an option of a component; what the file says of it counts no more.
    pub(crate) fn set(&mut self, component: &str, option: &str, value: impl ToString) {
        let text = value.to_string();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-');
        let is_quoted = text.is_empty() || !text.chars().all(is_word);
        let assignment = Assignment {
            option: Some(name(option)),
            value: Value {
                is_quoted,
                text,
                span: Span::default(),
            },
            is_static: false,
            comments: Comments::default(),
        };
        let sections = self.document.items.iter_mut();
        let mut sections = sections.filter_map(|item| match item {
            Item::Options(section) if section.component.text == component => Some(section),
            _ => None,
        });
        if let Some(section) = sections.next() {
            let is_it = |it: &Assignment| it.option.as_ref().is_some_and(|it| it.text == option);
            section.assignments.retain(|it| !is_it(it));
            section.assignments.push(assignment);
            return;
        }
        self.document.items.push(Item::Options(OptionSection {
            component: name(component),
            instance: None,
            assignments: vec![assignment],
            span: Span::default(),
            comments: Comments::default(),
        }));
    }

    /// Takes out what the file says of an option.
    pub(crate) fn unset(&mut self, component: &str, option: &str) {
        let is_it = |it: &Assignment| it.option.as_ref().is_some_and(|it| it.text == option);
        self.document.items.retain_mut(|item| match item {
            Item::Options(section) if section.component.text == component => {
                section.assignments.retain(|it| !is_it(it));
                !section.assignments.is_empty()
            }
            _ => true,
        });
    }

    /// Sets an option that was given.
    pub(crate) fn set_some(&mut self, component: &str, option: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(component, option, value);
        }
    }

    /// Sets what was given of a component's options, as far as it has them.
    pub(crate) fn pass(&mut self, component: &str, given: &Settings) {
        let options = registry().find(component).map_or(&[][..], |it| it.options);
        for setting in given.iter() {
            if options.contains(setting.option) {
                self.set(component, setting.option.name, &setting.value);
            }
        }
    }

    /// Sets what all components around the flow table have.
    pub(crate) fn track(&mut self, component: &str, options: &EngineOptions) {
        self.memory = options.bounds.size("memory");
        self.pass(component, &options.tracking);
        if let Some(timeouts) = &options.idle_timeout {
            self.pass(component, timeouts);
        }
        self.pass(component, &options.bounds);
    }

    /// Leaves out records for which a condition does not hold, before anything else is done with them.
    pub(crate) fn select(&mut self, options: &SelectOptions) {
        if options.condition.iter().next().is_some() {
            self.insert("output", "where");
            self.pass("where", &options.condition);
        }
    }

    /// Writes some fields of records only.
    pub(crate) fn pick(&mut self, options: &SelectOptions) {
        if options.fields.iter().next().is_some() {
            self.insert("output", "brief");
            self.pass("brief", &options.fields);
        }
    }

    /// Sets where records go.
    pub(crate) fn write(&mut self, options: &DestinationOptions) -> Result<(), Failure> {
        self.set_file("output", options.write.as_deref())?;
        let format = sinks::given_format(options);
        self.set_some("output", "format", format.map(RecordFormat::in_stacks));
        self.color(options);
        Ok(())
    }

    /// Sets when tables have colours, where that is not left to the terminal.
    pub(crate) fn color(&mut self, options: &DestinationOptions) {
        if options.color != "auto" {
            self.set("output", "color", &options.color);
        }
    }

    /// What the stack writes shows the ledger, which is not said again.
    pub(crate) fn ledger_is_shown(&mut self) {
        self.has_ledger = true;
    }

    /// Sets the file that a component writes.
    ///
    /// # Errors
    /// A name that is no text.
    pub(crate) fn set_file(&mut self, component: &str, path: Option<&Path>) -> Result<(), Failure> {
        if let Some(path) = path {
            // In stacks a percent sign begins a field.
            let text = text_of(path)?.replace('%', "%%");
            self.set(component, "file", text);
        }
        Ok(())
    }

    fn program(&self) -> Result<Program, Failure> {
        read::checked(self.name, &self.document)
    }

    /// Shows the stack or runs it.
    ///
    /// # Errors
    /// What went wrong, for the user.
    pub(crate) fn run(
        &self,
        shows: bool,
        input: &InputOptions,
        common: &CommonOptions,
    ) -> Result<(), Failure> {
        if shows {
            return print(format(&self.document).as_bytes());
        }
        let running = self.finished(input, common)?;
        if self.has_ledger {
            running.conclude_after_ledger(common)
        } else {
            running.conclude(common)
        }
    }

    /// Runs the stack to the end of its input.
    ///
    /// # Errors
    /// When it cannot begin.
    pub(crate) fn finished(
        &self,
        input: &InputOptions,
        common: &CommonOptions,
    ) -> Result<Running, Failure> {
        self.watched(input, common, None)
    }

    /// The same with somebody who says how it goes.
    ///
    /// # Errors
    /// When it cannot begin.
    pub(crate) fn watched(
        &self,
        input: &InputOptions,
        common: &CommonOptions,
        watch: Option<Box<dyn Watched>>,
    ) -> Result<Running, Failure> {
        let workers = input.workers.map_or(1, u64::from);
        memory::check(self.memory, workers)?;
        if let Some(bytes) = self.memory {
            flowgauge_capture::bound_windows(bytes);
        }
        let program = self.program()?;
        refuse_overwriting(input, &program.stacks)?;
        let mut running = Running::begin(program, input, common, watch, Origin::Command)?;
        running.run(&mut |_| {});
        Ok(running)
    }
}

/// Options that components name between back quotes as those of the command line.
pub(crate) fn with_options(text: &str) -> String {
    with_words(text, |option| format!("--{}", option.replace('_', "-")))
}

/// The same as stacks have them.
pub(crate) fn with_stack_options(text: &str) -> String {
    with_words(text, str::to_owned)
}

fn with_words(text: &str, say: impl Fn(&str) -> String) -> String {
    let is_option = |word: &str| {
        !word.is_empty() && word.bytes().all(|it| it.is_ascii_lowercase() || it == b'_')
    };
    let mut said = String::with_capacity(text.len() + 2);
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('`') {
        said.push_str(before);
        match behind.split_once('`') {
            Some((word, behind)) if is_option(word) => {
                said.push_str(&say(word));
                rest = behind;
            }
            _ => {
                said.push('`');
                rest = behind;
            }
        }
    }
    said.push_str(rest);
    said
}

fn name(text: &str) -> Name {
    Name {
        text: text.to_owned(),
        span: Span::default(),
    }
}

fn node(component: &str) -> Node {
    Node {
        name: name(component),
        options: Vec::new(),
        option_comments: Vec::new(),
        shape: Shape::Simple,
        has_dash: true,
        span: Span::default(),
        comments: Comments::default(),
    }
}

/// A path as text, which stacks are.
fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::usage(
            format!("{}: is not UTF-8 text", path.display()),
            "rename the file",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_components_are_those_of_the_command_line() {
        for (text, said) in [
            (
                "raise `chunk`, or `max_flows`",
                "raise --chunk, or --max-flows",
            ),
            ("a `b c` `d", "a `b c` `d"),
            ("``", "``"),
            ("none", "none"),
        ] {
            assert_eq!(with_options(text), said);
        }
        assert_eq!(with_stack_options("(`max_flows`)"), "(max_flows)");
    }
}

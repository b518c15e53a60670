//! Stacks that run: their input, signals, what is said meanwhile and at the end.

use core::time::Duration;
use std::path::PathBuf;
use std::time::Instant;

use flowgauge_offload::Backends;
use flowgauge_record::results::{ResultRow, Value};
use flowgauge_record::text::TimeWriter;
use flowgauge_runtime::stacks::{
    Change, Runner, RunnerOptions, SetupError, Snapshot, StackFailure, StackState,
};
use flowgauge_stack::{
    Account, Cell, LastWord, Node, NodeId, Program, ResultValue, RunEnd, Stack, Table,
};
use flowgauge_sys::own;
use flowgauge_wire::{Ledger, Nanos, Place};

use super::read;
use super::run::refuse_overwriting;
use super::watch::{self, Watched};
use crate::anonymize;
use crate::control::{Control, Hangup};
use crate::engine;
use crate::failure::Failure;
use crate::input::{self, Opened, Source};
use crate::offload;
use crate::options::{CommonOptions, InputOptions, Offload};
use crate::preset::{with_options, with_stack_options};
use crate::progress::Progress;
use crate::say::{count, say};
use crate::summary::{self, Outcome};

/// Batches between two looks at progress and statistics.
const BATCHES_PER_LOOK: u64 = 256;

/// How often signals are looked at where no packets are read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Stacks that run, and what became of them.
pub(crate) struct Running {
    runner: Runner,
    control: Control,
    opened: Option<Opened>,
    /// Failures that are told at the end.
    failures: Vec<String>,
    hint: Option<String>,
    /// Stacks whose failure has been told.
    failed: usize,
    /// Stacks that were removed.
    ended: usize,
    started: Instant,
    watch: Option<Box<dyn Watched>>,
    offload: Offload,
    backends: Backends,
    quiet: bool,
    origin: Origin,
    /// Whether the user wrote the stack: who gave a command does not know its components.
    names_components: bool,
    /// Of each stack the packets and bytes that had come before it began.
    before: Vec<(u64, u64)>,
    outcome: Outcome,
}

/// Where stacks come from.
pub(crate) enum Origin {
    /// A command.
    Command,
    /// The user wrote them.
    Stack,
    /// A file of the user's, which is read again at SIGHUP; with the input that they run on.
    File(PathBuf, Box<InputOptions>),
}

impl Running {
    /// Makes the components, opens the input and gives up privileges.
    ///
    /// # Errors
    /// When a component cannot begin, or something cannot be opened.
    pub(crate) fn begin(
        program: Program,
        input: &InputOptions,
        common: &CommonOptions,
        mut watch: Option<Box<dyn Watched>>,
        origin: Origin,
    ) -> Result<Running, Failure> {
        let names_components = !matches!(origin, Origin::Command);
        // Before anything is made: sources begin at once.
        if program.stacks.iter().any(|stack| stack.has_source()) {
            anonymize::refuse_if_forced("a stack with a source of its own")?;
        }
        let control = Control::install_for(match origin {
            Origin::File(..) => Hangup::Reloads,
            _ if program.stacks.iter().any(writes_logs) => Hangup::IsIgnored,
            _ => Hangup::Stops,
        })?;
        super::agent::end_with_agent(&control);
        own::adopt_listeners();
        control.say_what_takes_long(common.quiet);
        if program.stacks.iter().any(|stack| stack.has_source()) {
            control.begin();
        }
        let (mut backends, verdicts) = offload::load(input)?;
        let options = RunnerOptions {
            workers: input.workers.map_or(1, usize::from),
            is_live: !input.interface.is_empty(),
            offload: verdicts,
            ..RunnerOptions::default()
        };
        // Who follows flows has a bound for their number.
        let follows = |node: &Node| {
            node.info
                .options
                .iter()
                .any(|option| option.name == "max_flows")
        };
        let mut stacks = program.stacks.iter();
        let follows_flows = stacks.any(|stack| stack.iter().any(|(_, node)| follows(node)));
        let mut runner = Runner::new(program, &options).map_err(|error| Failure::Usage {
            what: match &error {
                SetupError::Start(failure) if !names_components => {
                    failure.failure.failure.message.clone()
                }
                error => error.to_string(),
            },
            hint: error.hint().map(with_options_of(names_components)),
        })?;
        let opened = open(input, &mut runner, &control, &mut backends)?;
        offload::note(input.offload, &backends);
        if !common.quiet && own::changes() > 0 && leaves_own_out(input, runner.stacks()) {
            say!(
                "note: packets of this program's own links are excluded from captures (own in the ledger); hint: {} \
                keeps them",
                if runner.wants_packets() {
                    "--own-traffic"
                } else {
                    "pcap { own_traffic = yes }"
                }
            );
        }
        if let Some(opened) = &opened {
            opened.announce(common.quiet);
            if follows_flows {
                input::note_on_snap_length(input, &opened.sources, common.quiet);
            }
        }
        control.begin();
        let started = Instant::now();
        if let Some(watch) = &mut watch {
            watch.begin(started);
        }
        Ok(Running {
            before: vec![(0, 0); runner.stacks().len()],
            offload: input.offload,
            backends,
            origin,
            runner,
            control,
            opened,
            failures: Vec::new(),
            failed: 0,
            ended: 0,
            hint: None,
            started,
            watch,
            quiet: common.quiet,
            names_components,
            outcome: Outcome::default(),
        })
    }

    /// Runs to the end of the input, or until it is to stop. The results of stacks that are removed meanwhile are given
    /// then.
    pub(crate) fn run(&mut self, give: &mut dyn FnMut(&ResultRow<'_>)) {
        if let Some(opened) = self.opened.take() {
            self.read(opened, give);
        }
        // Interfaces end of their own accord when they are stopped, after the packets in their rings.
        while self.runner.is_reading() || (self.runner.has_sources() && !self.control.stopped()) {
            self.runner.wait(LOOK_EVERY);
            self.say_failures();
            self.say_watched(None);
            if !self.wants_anything() {
                self.control.stop();
            }
            if self.control.reload_wanted() {
                let source = self.outcome.ledger.clone();
                self.reload(source, give);
            }
            if self.control.statistics_wanted() {
                self.say_statistics();
            }
        }
        self.runner.finish();
        self.say_failures();
        let report = self.runner.sources();
        self.outcome.ledger.merge(&report.ledger);
        self.outcome.errors.extend(report.errors);
        self.outcome.notes.extend(report.notes);
        self.outcome.elapsed = self.started.elapsed();
        let snapshot = self.runner.snapshot();
        let source = core::mem::take(&mut self.outcome.ledger);
        self.outcome.ledger = self.accounted(&source, &snapshot);
        let has_failed = self.failed > 0 || !self.failures.is_empty();
        if !has_failed && !self.outcome.ledger.is_balanced() {
            let line = summary::ledger_line(&self.outcome.ledger);
            let what = format!("packets were lost inside flowgauge, which is a bug: {line}");
            self.failures.push(what);
        }
        let stacks = self.runner.stacks().to_vec();
        let mut written = Vec::new();
        for (index, (stack, state)) in stacks.iter().zip(&snapshot.stacks).enumerate() {
            self.write_last(stack, state, self.before[index], &source, &mut written);
        }
        let is_only = self.runner.stacks().len() == 1;
        for (stack, state) in self.runner.stacks().iter().zip(&snapshot.stacks) {
            for note in self.notes(stack, state, is_only) {
                if !self.outcome.notes.contains(&note) {
                    self.outcome.notes.push(note);
                }
            }
        }
        let mut summary = Vec::new();
        for account in self.accounts(&snapshot) {
            let said = with_options_of(self.names_components);
            summary.extend(account.summary.iter().map(|line| said(line)));
            if let Some(streams) = &account.streams {
                self.outcome.streams.get_or_insert_default().add(streams);
            }
        }
        summary.extend(offload::summary(self.offload, &self.backends));
        self.outcome.summary = summary;
        self.outcome.statistics = self.statistics(&snapshot);
    }

    /// Lets the components of a stack write what they write when all is known, as if it were the only one.
    fn write_last<'a>(
        &mut self,
        stack: &Stack,
        state: &'a StackState,
        before: (u64, u64),
        source: &Ledger,
        written: &mut Vec<&'a LastWord>,
    ) {
        for last in accounts(state).filter_map(|(_, account)| account.last.as_ref()) {
            if written.contains(&last) {
                continue;
            }
            written.push(last);
            let mut notes = self.outcome.notes.clone();
            notes.extend(self.notes(stack, state, true));
            let run = RunEnd {
                ledger: &self.accounted_by(stack, state, before, source),
                notes: &notes,
            };
            if let Err(failure) = last.0.write(&run) {
                if self.runner.stacks().len() > 1 {
                    say!("flowgauge: error: {}", failure.message);
                    self.failed += 1;
                    continue;
                }
                self.failures.push(failure.message);
                let hint = failure.hint.as_deref();
                self.hint = hint.map(with_options_of(self.names_components));
            }
        }
    }

    /// Reads the file of the stacks again, of whose input `source` tells so far: those that changed are replaced. One that
    /// cannot be used changes nothing.
    fn reload(&mut self, mut source: Ledger, give: &mut dyn FnMut(&ResultRow<'_>)) {
        let changed = self.read_again().and_then(|program| {
            let changed = self.runner.replace(program);
            changed.map_err(|error| Failure::Usage {
                what: error.to_string(),
                hint: error.hint().map(str::to_owned),
            })
        });
        let changed = match changed {
            Ok(changed) => changed,
            Err(failure) => {
                let _code = failure.report();
                say!("stacks not reloaded: running stacks continue");
                return;
            }
        };
        let report = self.runner.sources();
        source.merge(&report.ledger);
        self.outcome.errors.extend(report.errors);
        let now = (source.delivered(), source.delivered_bytes());
        let before = core::mem::take(&mut self.before);
        let was = changed.was.iter();
        self.before = was.map(|was| was.map_or(now, |was| before[was])).collect();
        let gone = |index: &usize| !changed.was.contains(&Some(*index));
        let before_gone = (0..before.len()).filter(gone).map(|index| before[index]);
        for (ended, before) in changed.ended.iter().zip(before_gone) {
            let mut written = Vec::new();
            self.write_last(&ended.stack, &ended.state, before, &source, &mut written);
            results(&ended.stack, &ended.state, give);
            let name = name_of(&ended.stack);
            for note in self.notes(&ended.stack, &ended.state, true) {
                if !self.quiet {
                    say!("note: stack {name}: {note}");
                }
            }
            if let Some(failure) = &ended.failure {
                say!("flowgauge: error: stack {name}: {failure}");
                self.failed += 1;
            }
        }
        self.ended += changed.ended.len();
        if !self.quiet {
            say!("{}", told(&changed, self.runner.stacks()));
        }
        self.say_failures();
    }

    /// The stacks as their file has them now, if they can run on.
    fn read_again(&self) -> Result<Program, Failure> {
        let Origin::File(file, input) = &self.origin else {
            return Err(Failure::usage(
                "the stacks do not come from a file",
                "use -f",
            ));
        };
        let program = read::program(read::text(Some(file), None)?)?;
        refuse_overwriting(input, &program.stacks)?;
        let (with_source, without): (Vec<_>, Vec<_>) =
            program.stacks.iter().partition(|stack| stack.has_source());
        if !with_source.is_empty() {
            anonymize::refuse_if_forced("a stack with a source of its own")?;
        }
        if !without.is_empty() && input.read.is_empty() && input.interface.is_empty() {
            return Err(Failure::usage(
                "a stack without a source was added, and the run has no input",
                "start a new run with -r or -i",
            ));
        }
        Ok(program)
    }

    fn wants_anything(&self) -> bool {
        self.runner.wants_packets() || self.runner.has_sources()
    }

    /// Takes the packets of the input through the stacks.
    fn read(&mut self, opened: Opened, give: &mut dyn FnMut(&ResultRow<'_>)) {
        let (live, file_bytes) = (opened.live, opened.file_bytes);
        let mut sources = opened.sources;
        if sources.len() > 1 {
            self.runner.fan_out(sources);
            return;
        }
        let Some(source) = sources.first_mut() else {
            return;
        };
        let progress = Progress::new(file_bytes.filter(|_| !self.quiet && !live));
        let mut batches: u64 = 0;
        while (live || !self.control.stopped()) && self.runner.wants_packets() {
            if self.control.reload_wanted() {
                self.settle(source, &progress);
                self.reload(source.ledger(), give);
            }
            match self.runner.step(source) {
                Ok(Some(step)) => progress.add_step(step.packets, step.captured_bytes),
                Ok(None) => break,
                Err(error) => self.outcome.errors.push(error),
            }
            self.say_failures();
            self.say_watched(Some(source));
            batches += 1;
            if batches.is_multiple_of(BATCHES_PER_LOOK) {
                progress.show();
            }
            if self.control.statistics_wanted() {
                self.outcome.ledger = source.ledger();
                self.say_statistics();
            }
        }
        self.settle(source, &progress);
        progress.finish();
        if !self.runner.has_sources() {
            // Engines learn last what was kept away.
            self.runner.finish();
        }
        self.outcome.ledger = source.ledger();
        self.outcome.notes.extend(source.notes());
    }

    /// Takes what other threads were let go on to.
    fn settle(&mut self, source: &mut Source, progress: &Progress) {
        loop {
            match self.runner.settle(source) {
                Ok(Some(step)) => progress.add_step(step.packets, step.captured_bytes),
                Ok(None) => return,
                Err(error) => self.outcome.errors.push(error),
            }
        }
    }

    /// Says how it goes, when it is time.
    fn say_watched(&mut self, source: Option<&mut Source>) {
        let Some(mut watch) = self.watch.take_if(|watch| watch.is_due()) else {
            return;
        };
        let ledger = match source {
            Some(source) => source.ledger(),
            None => {
                let report = self.runner.sources();
                self.outcome.errors.extend(report.errors);
                report.ledger
            }
        };
        if !watch.say(self.runner.stacks(), &self.runner.snapshot(), &ledger) {
            self.control.stop();
        }
        self.watch = Some(watch);
    }

    /// Says how it went, when all is known.
    pub(crate) fn say_last(&mut self) {
        if let Some(mut watch) = self.watch.take() {
            watch.end(
                self.runner.stacks(),
                &self.runner.snapshot(),
                &self.outcome.ledger,
            );
        }
    }

    /// Shows the graph of each stack with what went through its components.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn show(&self, on_error: bool) -> Result<(), Failure> {
        watch::total(self.runner.stacks(), &self.runner.snapshot(), on_error)
    }

    /// The results of all components that have one.
    pub(crate) fn results(&self, give: &mut dyn FnMut(&ResultRow<'_>)) {
        let snapshot = self.runner.snapshot();
        for (stack, state) in self.runner.stacks().iter().zip(&snapshot.stacks) {
            results(stack, state, give);
        }
    }

    /// What components tell beside their results; what several stacks have in common once.
    fn accounts<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Account> {
        let mut all: Vec<&Account> = Vec::new();
        for (_, account) in snapshot.stacks.iter().flat_map(accounts) {
            if !all.contains(&account) {
                all.push(account);
            }
        }
        all
    }

    /// A source's ledger, with what came of its packets in the only stack.
    fn accounted(&self, source: &Ledger, snapshot: &Snapshot) -> Ledger {
        match (self.runner.stacks(), snapshot.stacks.as_slice()) {
            ([stack], [state]) => self.accounted_by(stack, state, self.before[0], source),
            _ => source.clone(),
        }
    }

    /// A source's ledger with what came of its packets in the component of a stack that gets all of them.
    /// It began when `before` had come.
    fn accounted_by(
        &self,
        stack: &Stack,
        state: &StackState,
        before: (u64, u64),
        source: &Ledger,
    ) -> Ledger {
        let mut accounts = accounts(state);
        let counts = |account: &Account| account.ledger != Ledger::default();
        let first = accounts.find(|(id, account)| *id == stack.entry && counts(account));
        let Some((_, account)) = first else {
            return source.clone();
        };
        let mut taken = account.ledger.clone();
        taken.take(before.0, before.1);
        if !self.runner.wants_packets() {
            // It had enough: what was read beyond that is of no concern.
            let rest = source.delivered().saturating_sub(taken.received());
            let bytes = source.delivered_bytes();
            taken.take(rest, bytes.saturating_sub(taken.delivered_bytes()));
        }
        source.clone().through(&taken)
    }

    /// What a user should know of a stack, with the packets that its components refused; those of the first one are in
    /// its ledger, if it `has_ledger`.
    fn notes(&self, stack: &Stack, state: &StackState, has_ledger: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for (id, account) in accounts(state).filter(|(id, _)| !has_ledger || *id != stack.entry) {
            for &place in Place::ALL {
                if account.ledger.at(place) > 0 {
                    let packets = count(account.ledger.at(place), "packet").were();
                    let (name, label) = (place.name(), &stack.node(id).label);
                    notes.push(format!("{packets} not taken by {label} ({name})"));
                }
            }
        }
        // What a policy takes out of the output is not said beside it.
        let names_addresses = !stack.iter().any(|(_, node)| node.info.name == "anonymize");
        let said = with_options_of(self.names_components);
        for (_, account) in accounts(state) {
            notes.extend(engine::notes(&account.findings, names_addresses));
            notes.extend(account.notes.iter().map(|note| said(note)));
            let counted = account.counted.iter();
            notes.extend(counted.map(|counted| said(&counted.to_string())));
        }
        notes
    }

    /// What SIGUSR1 asks for.
    fn say_statistics(&mut self) {
        let snapshot = self.runner.snapshot();
        let mut ledger = self.outcome.ledger.clone();
        let report = self.runner.sources();
        ledger.merge(&report.ledger);
        self.outcome.errors.extend(report.errors);
        let ledger = self.accounted(&ledger, &snapshot);
        say!("{}", summary::ledger_line(&ledger));
        summary::print_statistics(&ledger, &self.statistics(&snapshot), self.started.elapsed());
        self.results(&mut |row| say!("{row}"));
    }

    /// What went through each component, and what was counted in it, for `--stats`.
    fn statistics(&self, snapshot: &Snapshot) -> Vec<String> {
        let mut lines = Vec::new();
        for account in self.accounts(snapshot) {
            for shard in &account.shards {
                lines.extend(engine::statistics(shard));
            }
            lines.extend(account.statistics.iter().cloned());
        }
        for (stack, state) in self.runner.stacks().iter().zip(&snapshot.stacks) {
            for ((_, node), state) in stack.iter().zip(&state.components) {
                lines.push(format!(
                    "{}: {} items in {} batches",
                    node.label, state.passed.items, state.passed.batches
                ));
            }
        }
        lines
    }

    /// Components that failed are said at once where other stacks go on.
    fn say_failures(&mut self) {
        let stacks = self.runner.stacks();
        for StackFailure { stack, failure } in self.runner.failures() {
            if stacks.len() == 1 {
                self.failures.push(if self.names_components {
                    failure.to_string()
                } else {
                    failure.failure.message
                });
                let hint = failure.failure.hint.as_deref();
                self.hint = hint.map(with_options_of(self.names_components));
                continue;
            }
            let name = stacks.get(stack).and_then(|stack| stack.name.as_ref());
            let name = name.map_or(String::new(), |name| format!("stack {name}: "));
            say!("flowgauge: error: {name}{failure}");
            if let Some(hint) = &failure.failure.hint {
                say!("hint: {hint}");
            }
            self.failed += 1;
        }
    }

    /// Prints the ledger, notes and errors, and decides whether the run was a success.
    ///
    /// # Errors
    /// The failure that the exit code is to tell.
    pub(crate) fn conclude(mut self, common: &CommonOptions) -> Result<(), Failure> {
        let outcome = core::mem::take(&mut self.outcome);
        outcome.conclude(common)?;
        self.conclude_stacks()
    }

    /// The same where the ledger has been shown.
    ///
    /// # Errors
    /// The failure that the exit code is to tell.
    pub(crate) fn conclude_after_ledger(mut self, common: &CommonOptions) -> Result<(), Failure> {
        let outcome = core::mem::take(&mut self.outcome);
        outcome.conclude_after_ledger(common)?;
        self.conclude_stacks()
    }

    /// Whether all stacks came to their end.
    fn conclude_stacks(&mut self) -> Result<(), Failure> {
        if !self.failures.is_empty() {
            let what = self.failures.swap_remove(0);
            return Err(Failure::run(what, self.hint.take()));
        }
        if self.failed == 0 {
            return Ok(());
        }
        let all = self.runner.stacks().len() + self.ended;
        let what = format!("{} of {all} stacks failed", self.failed);
        Err(Failure::run(what, None))
    }
}

fn name_of(stack: &Stack) -> &str {
    stack.name.as_deref().unwrap_or("(unnamed)")
}

/// Which stacks a change has ended, begun and replaced, and which continue.
fn told(change: &Change, stacks: &[Stack]) -> String {
    let mut ended: Vec<String> = (change.ended.iter())
        .map(|it| name_of(&it.stack).to_owned())
        .collect();
    let (mut started, mut replaced, mut unchanged) = (Vec::new(), Vec::new(), Vec::new());
    for (stack, was) in stacks.iter().zip(&change.was) {
        let name = name_of(stack).to_owned();
        match (was, ended.iter().position(|it| *it == name)) {
            (Some(_), _) => unchanged.push(name),
            (None, Some(at)) => replaced.push(ended.remove(at)),
            (None, None) => started.push(name),
        }
    }
    let all = [
        ("started", started),
        ("replaced", replaced),
        ("ended", ended),
        ("unchanged", unchanged),
    ];
    let some = all.iter().filter(|(_, names)| !names.is_empty());
    let told: Vec<String> = some
        .map(|(what, names)| format!("{what} {}", names.join(", ")))
        .collect();
    match told.is_empty() {
        true => "stacks reloaded: no stacks are left".to_owned(),
        false if change.at == Nanos(0) => format!("stacks reloaded: {}", told.join("; ")),
        false => {
            let at = TimeWriter::default().format(change.at);
            let at = String::from_utf8_lossy(&at);
            format!("stacks reloaded at {at}: {}", told.join("; "))
        }
    }
}

/// The results of the components of a stack that have one.
fn results(stack: &Stack, state: &StackState, give: &mut dyn FnMut(&ResultRow<'_>)) {
    for (id, node) in stack.iter() {
        let result = state.component(id).and_then(|state| state.result.as_ref());
        let (Some(info), Some(result)) = (node.info.result, result) else {
            continue;
        };
        let cell = result.cell();
        let row = ResultRow {
            stack: stack.name.as_deref(),
            component: &node.label,
            result: info.summary,
            value: Value(&cell),
            unit: info.unit,
            row: None,
        };
        match result {
            ResultValue::Table(table) => table.iter().for_each(|cells| {
                give(&ResultRow {
                    row: Some(cells),
                    ..row
                });
            }),
            _ => give(&row),
        }
        let by_key = state.component(id).and_then(|state| state.by_key.as_ref());
        let name = format!("{}, by key", info.summary);
        by_key.into_iter().flat_map(Table::iter).for_each(|cells| {
            give(&ResultRow {
                result: &name,
                value: Value(&Cell::None),
                row: Some(cells),
                ..row
            });
        });
    }
}

/// What the components of a stack tell beside their results.
fn accounts(state: &StackState) -> impl Iterator<Item = (NodeId, &Account)> {
    let components = (0..).map(NodeId).zip(&state.components);
    components.filter_map(|(id, state)| Some((id, state.account.as_deref()?)))
}

/// Opens what packets come from, if a stack wants any.
fn open(
    input: &InputOptions,
    runner: &mut Runner,
    control: &Control,
    backends: &mut Backends,
) -> Result<Option<Opened>, Failure> {
    if !runner.wants_packets() {
        if input.read.is_empty() && input.interface.is_empty() {
            input::give_up_privileges(input, runner.stacks().iter().any(Stack::captures))?;
            return Ok(None);
        }
        return Err(Failure::usage(
            "all stacks have their own source",
            "omit -r and -i",
        ));
    }
    // Of an interface that a stack cannot divide there is one reader.
    let mut input = input.clone();
    let twins = if input.workers.is_some() {
        runner.apart()
    } else {
        0
    };
    if input.interface.is_empty() || !runner.can_fan_out() {
        input.workers = None;
    }
    let mut opened = input::open_with(&input, control, twins, backends)?;
    runner.read_apart(core::mem::take(&mut opened.twins));
    Ok(Some(opened))
}

/// Whether something is captured on an interface without packets of this program's own connections.
fn leaves_own_out(input: &InputOptions, stacks: &[Stack]) -> bool {
    let leaves_out = |stack: &Stack| !stack.node(stack.entry).settings.flag("own_traffic");
    let captures = |stack: &Stack| stack.captures() && leaves_out(stack);
    !input.interface.is_empty() && !input.own_traffic || stacks.iter().any(captures)
}

/// How options are named: as in stacks, for who wrote one, or as on the command line.
fn with_options_of(stacks: bool) -> fn(&str) -> String {
    match stacks {
        true => with_stack_options,
        false => with_options,
    }
}

/// Whether a stack writes logs that are rotated from outside.
fn writes_logs(stack: &Stack) -> bool {
    stack.iter().any(|(_, node)| {
        let file = node.settings.text("file");
        node.info.name == "logs" && file.is_some_and(|file| file != "-")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use flowgauge_capture::{Error, Interface, PacketSource};
    use flowgauge_generate::{Config, Preset, generate};
    use flowgauge_wire::Batch;

    use super::*;
    use crate::input::Source;
    use crate::options::{Cli, Command};
    use crate::stack::read;

    /// Loses the last packet of its first batch.
    struct Losing {
        inner: Source,
        loses: bool,
    }

    impl PacketSource for Losing {
        fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
            let loses = core::mem::take(&mut self.loses);
            let mut batch = self.inner.next_batch()?;
            if let Some(batch) = &mut batch
                && loses
            {
                batch.packets = &batch.packets[..batch.packets.len() - 1];
            }
            Ok(batch)
        }

        fn interfaces(&self) -> &[Interface] {
            self.inner.interfaces()
        }

        fn ledger(&mut self) -> Ledger {
            self.inner.ledger()
        }
    }

    #[test]
    fn a_packet_that_gets_lost_on_its_way_is_a_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mix.pcap");
        let file = std::fs::File::create(&path).expect("a file");
        generate(&Config::new(Preset::Mix).with_flows(20), file).expect("a trace");
        let path = path.to_str().expect("a path in UTF-8");
        for (stack, loses) in [("flows", false), ("flows", true), ("streams", true)] {
            let cli = Cli::parse_from(["flowgauge", "flows", "-q", "-r", path]);
            let Command::Flows(options) = cli.command else {
                panic!("not flows");
            };
            let text = read::text(None, Some(&format!("{stack} - count"))).expect("a stack");
            let program = read::program(text).expect("a stack");
            let common = &options.output.common;
            let running = Running::begin(program, &options.input, common, None, Origin::Command);
            let mut running = running.expect("it begins");
            let opened = running.opened.as_mut().expect("a file");
            let inner = opened.sources.pop().expect("a source");
            opened.sources.push(Box::new(Losing { inner, loses }));
            running.run(&mut |_| {});
            match running.conclude(common) {
                Ok(()) => assert!(!loses, "{stack}"),
                Err(Failure::Run { what, .. }) => {
                    assert!(
                        loses && what.contains("were lost inside"),
                        "{stack}: {what}"
                    );
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

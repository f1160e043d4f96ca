//! Which kinds of events a recording has, and how many of each.

use corprof_async::ASYNC_EVENTS;
use corprof_nettrace::events::Provider;
use corprof_nettrace::events::recording::{self, MethodCode};
use corprof_nettrace::{Event, Metadata};
use rustc_hash::FxHashMap;

use super::lanes::Sign;
use super::measure::{Choice, Clock, Measure};
use super::perf;

/// A kind of event: a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) provider: String,
    pub(crate) id: u32,
    pub(crate) version: u32,
    /// Its name; that of the runtime's manifest if the definition has none. May be empty.
    pub(crate) name: String,
    pub(crate) events: u64,
    /// How many have a stack.
    pub(crate) stacks: u64,
    defined_name: String,
    pub(super) role: Role,
    /// What it says for the timeline.
    pub(super) sign: Option<Sign>,
}

/// What is done with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It is only counted.
    Other,
    /// It says what code or memory is where.
    Symbols,
    /// It says which async operations threads run.
    Operations,
    /// It says the name of a process.
    Process,
    /// A wait for a lock begins: the event of its end has no stack.
    WaitBegin,
    /// It is looked at, if no event with a lower rank is there.
    Sample { rank: usize, measure: Measure },
}

/// The kinds so far.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    kinds: Vec<Kind>,
    /// By the number of the definition, which may be given again.
    by_number: FxHashMap<u32, usize>,
    last: Option<(u32, usize)>,
}

impl Kinds {
    /// Counts an event. Answers with the number of its kind.
    pub(super) fn count(&mut self, event: &Event<'_>, choice: &Choice, clock: Clock) -> usize {
        let metadata = event.metadata();
        let known = match self.last {
            Some((id, index)) if id == metadata.id => Some(index),
            _ => self.by_number.get(&metadata.id).copied(),
        };
        let known = known.filter(|index| self.kinds.get(*index).is_some_and(|kind| kind.is_of(metadata)));
        let index = known.unwrap_or_else(|| self.add(event, choice, clock));
        self.last = Some((metadata.id, index));
        if let Some(kind) = self.kinds.get_mut(index) {
            kind.events += 1;
            kind.stacks += u64::from(event.stack_number() != 0 && !event.stack().is_empty());
        }
        index
    }

    fn add(&mut self, event: &Event<'_>, choice: &Choice, clock: Clock) -> usize {
        let metadata = event.metadata();
        let known = self.kinds.iter().position(|kind| kind.is_of(metadata));
        let index = known.unwrap_or_else(|| {
            self.kinds.push(Kind::new(event, choice, clock));
            self.kinds.len() - 1
        });
        self.by_number.insert(metadata.id, index);
        index
    }

    pub(super) fn role(&self, index: usize) -> Role {
        self.kinds.get(index).map_or(Role::Other, |kind| kind.role)
    }

    pub(super) fn sign(&self, index: usize) -> Option<Sign> {
        self.kinds.get(index).and_then(|kind| kind.sign)
    }

    pub(super) fn into_kinds(self) -> Vec<Kind> {
        self.kinds
    }
}

impl Kind {
    fn new(event: &Event<'_>, choice: &Choice, clock: Clock) -> Self {
        let metadata = event.metadata();
        let decoded = event.decoded();
        let name = decoded.name().to_string();
        let role = match (decoded.provider(), name.as_str()) {
            (Provider::UNIVERSAL_SYSTEM, "ExistingProcess" | "ProcessCreate") => Role::Process,
            (Provider::UNIVERSAL_SYSTEM, "ProcessMapping" | "ProcessSymbol") => Role::Symbols,
            (provider, MethodCode::NAME) if provider.name() == recording::PROVIDER => Role::Symbols,
            (
                Provider::RUNTIME | Provider::RUNDOWN,
                "MethodLoadVerbose"
                | "MethodUnloadVerbose"
                | "MethodDCEndVerbose"
                | "MethodDCEndILToNativeMap"
                | "MethodILToNativeMap"
                | "ModuleDCEnd"
                | "ModuleLoad",
            ) => Role::Symbols,
            _ if metadata.provider == corprof_async::PROVIDER && metadata.event_id == ASYNC_EVENTS => Role::Operations,
            (_, name) => match choice.rank(metadata, name) {
                Some(rank) => Role::Sample { rank, measure: Measure::of(&metadata.provider, name, clock) },
                None if decoded.provider() == Provider::RUNTIME && name == "ContentionStart" => Role::WaitBegin,
                None => Role::Other,
            },
        };
        Self {
            provider: metadata.provider.clone(),
            id: metadata.event_id,
            version: metadata.version,
            sign: Sign::of(decoded.provider(), &name),
            name,
            events: 0,
            stacks: 0,
            defined_name: metadata.name.clone(),
            role,
        }
    }

    /// An event of perf.
    pub(super) fn named(provider: &str, name: &str, choice: &Choice) -> Self {
        let role = match perf::measured(choice, name) {
            Some((rank, measure)) => Role::Sample { rank, measure },
            None => Role::Other,
        };
        Self {
            provider: provider.to_owned(),
            id: 0,
            version: 0,
            sign: None,
            name: name.to_owned(),
            events: 0,
            stacks: 0,
            defined_name: name.to_owned(),
            role,
        }
    }

    /// Its place among those that are looked at, and how it is weighed.
    pub(super) fn measured(&self) -> Option<(usize, Measure)> {
        match self.role {
            Role::Sample { rank, measure } => Some((rank, measure)),
            _ => None,
        }
    }

    fn is_of(&self, metadata: &Metadata) -> bool {
        self.id == metadata.event_id
            && self.version == metadata.version
            && self.provider == metadata.provider
            && self.defined_name == metadata.name
    }

    /// Its provider and name, or its number if it has no name.
    pub(crate) fn title(&self) -> String {
        match self.name.as_str() {
            "" => format!("{}/{}", self.provider, self.id),
            name => format!("{}/{name}", self.provider),
        }
    }
}

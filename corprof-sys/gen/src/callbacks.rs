//! `callbacks.toml`: the meaning of callbacks and the Rust types of their arguments. Its head explains the keys.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::contracts::{CallbackRow, Contracts, SyncInfo, Wrapper};
use crate::error::Error;
use crate::model::{Method, Model};

/// The table, by IDL name.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Callbacks(BTreeMap<String, CallbackFacts>);

/// A row of the table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of callbacks.toml says what each key means")]
pub struct CallbackFacts {
    pub doc: String,
    #[serde(default)]
    pub args: String,
    pub wire: Option<Vec<String>>,
    pub returns: Option<String>,
    pub default: Option<String>,
    pub out: Option<String>,
    pub prefer: Option<String>,
    pub context: Option<String>,
    pub why: Option<String>,
    #[serde(default)]
    pub book: bool,
    #[serde(default)]
    pub custom: bool,
    #[serde(default)]
    pub key: bool,
}

/// Everything that is known about one callback.
#[derive(Clone, Copy, Debug)]
pub struct Callback<'t> {
    /// The declaration in the IDL.
    pub method: &'t Method,
    /// The row of the contract table.
    pub row: &'t CallbackRow,
    /// Its row of `callbacks.toml`.
    pub facts: &'t CallbackFacts,
}

impl Callbacks {
    /// Reads the table.
    pub fn read(path: &Path) -> Result<Self, Error> {
        crate::tables::read_toml(path)
    }

    /// All callbacks, in the order of their slots; an error if the table and the IDL do not speak of the same ones.
    pub fn join<'t>(&'t self, model: &'t Model, contracts: &'t Contracts) -> Result<Vec<Callback<'t>>, Error> {
        let mut problems = Vec::new();
        let mut left: BTreeMap<&str, &CallbackFacts> =
            self.0.iter().map(|(name, facts)| (name.as_str(), facts)).collect();
        let mut callbacks = Vec::new();
        let interfaces = model.interfaces.iter().filter(|interface| interface.name.starts_with("ICorProfilerCallback"));
        for method in interfaces.flat_map(|interface| &interface.methods) {
            let row = contracts.callback.iter().find(|row| row.method == method.name);
            match (left.remove(method.name.as_str()), row) {
                (Some(facts), Some(row)) => callbacks.push(Callback { method, row, facts }),
                (None, _) => problems.push(format!("[{}]: missing", method.name)),
                (_, None) => problems.push(format!("[{}]: has no row in contracts.toml", method.name)),
            }
        }
        problems.extend(left.keys().map(|name| format!("[{name}]: the IDL has no such callback")));
        callbacks.sort_by_key(|callback| callback.method.slot);
        if problems.is_empty() { Ok(callbacks) } else { Err(Error::Facts { file: "callbacks.toml", problems }) }
    }
}

impl Callback<'_> {
    /// The name of its event: the IDL's, with acronyms written as words.
    pub fn event(&self) -> String {
        let words = [("ReJIT", "Rejit"), ("JIT", "Jit"), ("COM", "Com"), ("VTable", "Vtable"), ("CLR", "Clr")];
        let name = words.iter().fold(self.method.name.clone(), |name, (from, to)| name.replace(from, to));
        name.replace("OSHandler", "OsHandler").replace("OSThread", "OsThread")
    }

    /// Its name in Rust.
    pub fn name(&self) -> String {
        let mut name = String::new();
        for character in self.event().chars() {
            if character.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(character.to_ascii_lowercase());
        }
        name
    }

    /// The type of its context, without a lifetime; none where no Info call works.
    ///
    /// Callbacks that the runtime never makes get the cautious one. So do those with an `ObjectId`: a collection that
    /// they started could move the object under their hands.
    pub fn context(&self) -> Option<&str> {
        if let Some(context) = &self.facts.context {
            return Some(context);
        }
        match self.row.sync_info {
            SyncInfo::None if self.row.wrapper == Wrapper::Calls => None,
            SyncInfo::All if !self.facts.args.contains("ObjectId<") => Some("InCallback"),
            _ => Some("InNoGc"),
        }
    }

    /// The context as an argument, with its comma.
    pub fn context_argument(&self) -> String {
        match self.context() {
            Some("InCallback") => "cx: &mut InCallback<'_>, ".to_owned(),
            Some("Info") => "cx: &Info, ".to_owned(),
            Some(context) => format!("cx: &{context}<'_>, "),
            None => String::new(),
        }
    }

    /// The method as a user writes it, without a body.
    pub fn signature(&self) -> String {
        if let Some((_, signature, _)) = CUSTOM.iter().find(|(name, ..)| *name == self.method.name) {
            return (*signature).to_owned();
        }
        let args = format!("&self, {}{}", self.context_argument(), self.facts.args);
        let returns = self.facts.returns.as_ref().map(|returns| format!(" -> {returns}")).unwrap_or_default();
        format!("fn {}({}){returns}", self.name(), args.trim_end_matches(", "))
    }

    /// The names and types of its arguments behind the context.
    pub fn arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.facts.args.split(", ").filter_map(|argument| argument.split_once(": "))
    }

    /// Whether CoreCLR makes the callback.
    pub fn is_made(&self) -> bool {
        self.row.wrapper == Wrapper::Calls && self.row.fired_by_runtime
    }

    /// Whether `every` hears of it: it is an event that the runtime makes, where a context of a callback is allowed.
    pub fn is_in_every(&self) -> bool {
        let is_switched = self.row.enabled_by.first().is_some_and(|flags| flags.starts_with("COR_PRF_"));
        let has_context = matches!(self.context(), Some("InCallback" | "InNoGc"));
        // The two that hand something out to fill in are questions.
        let is_question =
            ["FunctionControl", "AssemblyReferenceProvider"].iter().any(|ty| self.facts.args.contains(ty));
        self.is_made() && is_switched && has_context && !is_question
    }

    /// The default result of the method.
    pub fn default_answer(&self) -> &str {
        match CUSTOM.iter().find(|(name, ..)| *name == self.method.name) {
            Some((.., answer)) => answer,
            None => self.facts.default.as_deref().unwrap_or_default(),
        }
    }
}

/// The callbacks of a profiler's beginning and end: signature and default answer.
const CUSTOM: &[(&str, &str, &str)] = &[
    ("Initialize", "fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError>", "Err(NotImplemented.into())"),
    ("Shutdown", "fn shutdown(&self, cx: &mut InCallback<'_>)", ""),
    (
        "InitializeForAttach",
        "fn initialize_for_attach(cx: &mut InAttach<'_>, client_data: &[u8]) -> Result<Self, BoxError>",
        "Err(NotImplemented.into())",
    ),
];

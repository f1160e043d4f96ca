//! `contracts.toml`: the rules of the runtime. Its head explains the keys.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::error::Error;
use crate::model::{Interface, Model};

/// The table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contracts {
    /// Version of the table's form.
    pub schema: u32,
    /// The sources that were read.
    pub generated_from: String,
    /// `ICorProfilerInfo` and its successors.
    pub info: Vec<InfoRow>,
    /// `ICorProfilerCallback` and its successors.
    pub callback: Vec<CallbackRow>,
    /// The flags of the event mask.
    pub flag: Vec<FlagRow>,
}

/// How an Info method is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// Only inside a callback, on a managed thread.
    Sync,
    /// Anywhere.
    Async,
    /// Only in `Initialize`.
    InitOnly,
    /// No check is made.
    None,
}

/// A context: the type that has a method of corprof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[allow(missing_docs, reason = "the names of the types in corprof")]
pub enum Context {
    Info,
    InNoGc,
    InCallback,
    InInitialize,
    ProfilerThread,
}

/// Whether a call may start a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gc {
    /// It may.
    Triggers,
    /// It does not.
    NoTrigger,
    /// Nothing is said.
    Unspecified,
}

/// The mode of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A collection need not wait for it.
    Preemptive,
    /// A collection waits for it.
    Cooperative,
    /// Either.
    Any,
    /// It depends.
    Conditional,
    /// Nothing is said.
    Unspecified,
}

/// Whether locks may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lock {
    /// They may.
    Can,
    /// They may not.
    Cannot,
    /// Nothing is said.
    Unspecified,
}

/// Whether a managed thread is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thread {
    /// None is.
    NotRequired,
    /// Nothing is said.
    Unspecified,
}

/// Which sync Info calls work in a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncInfo {
    /// All.
    All,
    /// Those that start no collection.
    NoTrigger,
    /// None.
    None,
}

/// The behaviour of the runtime's own wrapper of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrapper {
    /// It calls the profiler.
    Calls,
    /// It is there, and never does.
    Stub,
    /// There is none.
    None,
}

/// Which word of the event mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// `COR_PRF_MONITOR`
    Low,
    /// `COR_PRF_HIGH_MONITOR`
    High,
}

/// A flag, or several in one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlagKind {
    /// One.
    Flag,
    /// None or several.
    Mask,
}

/// A method of `ICorProfilerInfo` or a successor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of contracts.toml says what each key means")]
pub struct InfoRow {
    pub interface: String,
    pub method: String,
    pub slot: usize,
    pub since: Option<String>,
    pub entry: Entry,
    #[serde(rename = "macro")]
    pub entry_macro: Option<String>,
    pub attach: bool,
    pub attach_effective: bool,
    pub triggers: bool,
    pub lets_gc_in: Option<bool>,
    pub lets_gc_in_source: Option<String>,
    pub gc: Gc,
    pub mode: Mode,
    pub thread: Thread,
    pub lock: Lock,
    pub lock_retake: Option<bool>,
    pub throws: bool,
    pub obsolete: bool,
    pub errors: Vec<String>,
    pub macro_errors: Vec<String>,
    #[serde(default)]
    pub success_codes: Vec<String>,
    #[serde(default)]
    pub fatal_errors: Vec<String>,
    #[serde(default)]
    pub main_profiler_only: bool,
    #[serde(default)]
    pub blocks_detach: bool,
    #[serde(default)]
    pub gc_contract_disabled: bool,
    pub requires: Option<String>,
    pub returns: Option<String>,
    #[serde(default)]
    pub versions: Vec<InfoVersion>,
    pub platform: String,
    pub note: Option<String>,
    #[serde(default)]
    pub offered: Vec<String>,
    pub context: Option<Context>,
    pub context_reason: Option<String>,
    pub step_of: Option<String>,
    pub replaced_by: Option<String>,
    pub never: Option<String>,
    pub source: String,
}

impl InfoRow {
    /// The context that offers the call.
    pub fn context(&self) -> Context {
        let by_rule = match self.entry {
            // Older runtimes count: if one of them takes the call for a triggering one, it is one on all.
            _ if self.may_move_objects() => Context::InCallback,
            Entry::Async | Entry::None => Context::Info,
            Entry::Sync => Context::InNoGc,
            Entry::InitOnly => Context::InInitialize,
        };
        self.context.unwrap_or(by_rule)
    }

    /// Whether a collection may move objects during the call, on some runtime: it starts one, or lets one in.
    pub fn may_move_objects(&self) -> bool {
        self.ever_triggers() || self.lets_gc_in == Some(true)
    }

    /// Whether any runtime takes the call for one that may start a collection.
    pub fn ever_triggers(&self) -> bool {
        self.triggers || self.versions.iter().any(|version| version.triggers == Some(true))
    }

    /// The mistake in the keys that say how corprof offers the call, if there is one.
    fn wrong_offer(&self) -> Option<&'static str> {
        let ways = [!self.offered.is_empty(), self.step_of.is_some(), self.replaced_by.is_some(), self.never.is_some()];
        if ways.into_iter().filter(|&is_there| is_there).count() != 1 {
            return Some("needs one of offered, step_of, replaced_by, never");
        }
        if self.context.is_some() != self.context_reason.is_some() {
            return Some("has a context without a context_reason, or the reverse");
        }
        None
    }
}

/// A difference up to a release.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of contracts.toml says what each key means")]
pub struct InfoVersion {
    pub max: u32,
    pub entry: Option<Entry>,
    pub triggers: Option<bool>,
    pub gc: Option<Gc>,
    pub lock: Option<Lock>,
}

/// A method of `ICorProfilerCallback` or a successor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of contracts.toml says what each key means")]
pub struct CallbackRow {
    pub interface: String,
    pub method: String,
    pub slot: usize,
    pub entrypoint: String,
    pub gc: Gc,
    pub mode: Mode,
    pub mode_when: Option<String>,
    pub lock: Lock,
    pub throws: bool,
    pub sync_info_allowed: bool,
    pub sync_info: SyncInfo,
    pub allowed_for_attach: bool,
    pub enabled_by: Vec<String>,
    pub fired_by_runtime: bool,
    pub wrapper: Wrapper,
    pub during_gc: bool,
    #[serde(default)]
    pub main_profiler_only: bool,
    pub blocking: Option<String>,
    pub platform: Option<String>,
    pub note: Option<String>,
    pub source: String,
}

/// An enumerator of the event mask.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of contracts.toml says what each key means")]
pub struct FlagRow {
    pub name: String,
    pub value: u32,
    pub mask: Mask,
    pub kind: FlagKind,
    pub in_idl: bool,
    pub since: Option<String>,
    pub immutable: Option<bool>,
    pub allowed_after_attach: Option<bool>,
    pub requires_profile_image: Option<bool>,
    pub allowable_notification_profiler: Option<bool>,
    pub prevents_detach: Option<bool>,
    #[serde(default)]
    pub versions: Vec<FlagVersion>,
    pub note: Option<String>,
}

/// A difference from a release on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of contracts.toml says what each key means")]
pub struct FlagVersion {
    pub min: u32,
    pub immutable: Option<bool>,
    pub allowed_after_attach: Option<bool>,
    pub prevents_detach: Option<bool>,
}

/// The enumeration behind each word of the event mask.
const MASKS: [(Mask, &str); 2] = [(Mask::Low, "COR_PRF_MONITOR"), (Mask::High, "COR_PRF_HIGH_MONITOR")];

impl Contracts {
    /// Reads the table.
    pub fn read(path: &Path) -> Result<Self, Error> {
        crate::tables::read_toml(path)
    }

    /// The table and the model must speak of the same methods, slots and flags.
    pub fn check(&self, model: &Model) -> Result<(), Error> {
        let mut problems = Vec::new();
        let info = self.info.iter().map(|row| (row.interface.as_str(), row.method.as_str(), row.slot));
        methods("info", "ICorProfilerInfo", info, model, &mut problems);
        let callback = self.callback.iter().map(|row| (row.interface.as_str(), row.method.as_str(), row.slot));
        methods("callback", "ICorProfilerCallback", callback, model, &mut problems);
        self.flags(model, &mut problems);
        self.enablers(&mut problems);
        for row in &self.info {
            if !row.triggers && (row.lets_gc_in.is_none() || row.lets_gc_in_source.is_none()) {
                problems.push(format!(
                    "[[info]] {}: says not whether it lets a collection in, or not who says so",
                    row.method
                ));
            }
            if let Some(problem) = row.wrong_offer() {
                problems.push(format!("[[info]] {}: {problem}", row.method));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Error::Facts { file: "contracts.toml", problems }) }
    }

    fn flags(&self, model: &Model, problems: &mut Vec<String>) {
        for (mask, name) in MASKS {
            let Some(enumeration) = model.enumeration(name) else {
                problems.push(format!("[[flag]]: the IDL has no {name}"));
                continue;
            };
            let mut rows: BTreeMap<&str, &FlagRow> = BTreeMap::new();
            for row in self.flag.iter().filter(|row| row.mask == mask) {
                if rows.insert(&row.name, row).is_some() {
                    problems.push(format!("[[flag]] {}: there twice", row.name));
                }
            }
            for (flag, value) in &enumeration.enumerators {
                match rows.remove(flag.as_str()) {
                    None => problems.push(format!("[[flag]] {flag}: missing")),
                    Some(row) if i64::from(row.value) != *value => {
                        problems.push(format!("[[flag]] {flag}: {:#x}, but the IDL has {value:#x}", row.value));
                    }
                    Some(row) if !row.in_idl => problems.push(format!("[[flag]] {flag}: the IDL does have it")),
                    Some(_) => {}
                }
            }
            let unknown = rows.values().filter(|row| row.in_idl);
            problems.extend(unknown.map(|row| format!("[[flag]] {}: {name} has no such flag", row.name)));
        }
    }

    fn enablers(&self, problems: &mut Vec<String>) {
        for row in &self.callback {
            for name in row.enabled_by.iter().flat_map(|alternative| alternative.split('+')) {
                // A callback may also be turned on by a call, as event pipe sessions are.
                let is_flag = self.flag.iter().any(|flag| flag.name == name);
                let is_call = self.info.iter().any(|info| info.method == name);
                if name != "always" && !is_flag && !is_call {
                    let what = "which is neither flag nor Info method";
                    problems.push(format!("[[callback]] {}: enabled_by names {name}, {what}", row.method));
                }
            }
        }
    }
}

/// Rows and methods of one family must match one to one.
fn methods<'r>(
    part: &str,
    family: &str,
    rows: impl Iterator<Item = (&'r str, &'r str, usize)>,
    model: &Model,
    problems: &mut Vec<String>,
) {
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (interface, method, slot) in rows {
        if seen.insert((interface, method), slot).is_some() {
            problems.push(format!("[[{part}]] {interface}::{method}: there twice"));
        }
    }
    let ours = |interface: &&Interface| interface.name.starts_with(family);
    for interface in model.interfaces.iter().filter(ours) {
        for method in &interface.methods {
            let name = format!("[[{part}]] {}::{}", interface.name, method.name);
            match seen.remove(&(interface.name.as_str(), method.name.as_str())) {
                None => problems.push(format!("{name}: missing")),
                Some(slot) if slot != method.slot => {
                    problems.push(format!("{name}: slot {slot}, but the IDL has {}", method.slot));
                }
                Some(_) => {}
            }
        }
    }
    problems.extend(seen.keys().map(|(interface, method)| format!("[[{part}]] {interface}::{method}: not in the IDL")));
}

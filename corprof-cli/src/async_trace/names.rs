//! The names of chains of methods.

use std::collections::HashMap;
use std::path::Path;

use corprof_async::Chain;
use corprof_export::{Frame, FrameKind, SourceLines};
use corprof_launch::processes;
use serde::Serialize;

use crate::trace_methods::Methods;

/// Stands for code that no method has.
const UNKNOWN: &str = "[unknown code]";

/// What an operation ran, or where it waited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    /// The innermost method of the application; of the frameworks if there is none.
    pub(crate) method: String,
    /// Where that method begins.
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    /// The innermost method, if it is another one.
    pub(crate) inner: Option<String>,
    /// Whether a method of the application is in the chain.
    pub(crate) is_mine: bool,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.method)?;
        if let Some(inner) = &self.inner {
            write!(f, ", in {inner}")?;
        }
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
            write!(f, "  {name}:{line}")?;
        }
        Ok(())
    }
}

/// Finds names, and where methods begin.
pub(crate) struct Names<'m> {
    methods: &'m Methods,
    lines: SourceLines,
    /// The process whose files the modules are.
    pid: Option<u32>,
    known: HashMap<Chain, Place>,
}

impl<'m> Names<'m> {
    pub(crate) fn new(methods: &'m Methods, pid: Option<u32>) -> Self {
        Self { methods, lines: SourceLines::new(), pid, known: HashMap::new() }
    }

    /// The place that a chain is.
    pub(crate) fn place(&mut self, chain: Option<&Chain>) -> Place {
        let Some(chain) = chain else { return self.find(&[]) };
        if let Some(known) = self.known.get(chain) {
            return known.clone();
        }
        let place = self.find(chain);
        self.known.insert(chain.clone(), place.clone());
        place
    }

    fn find(&mut self, chain: &[corprof_async::Frame]) -> Place {
        let addresses = || chain.iter().map(|frame| frame.address).filter(|address| *address != 0);
        let innermost = addresses().next();
        let mine = addresses().find(|address| self.is_mine(*address));
        let shown = mine.or(innermost);
        let inner = innermost.filter(|_| innermost != shown).map(|address| self.label(address));
        let method = shown.map_or_else(|| "[not told]".to_owned(), |address| self.label(address));
        let (file, line) = shown.and_then(|address| self.begin(address)).unzip();
        Place { inner: inner.filter(|inner| *inner != method), method, file, line, is_mine: mine.is_some() }
    }

    /// The full name of the method with this code.
    pub(crate) fn full(&self, address: u64) -> (&str, Option<&Path>) {
        match self.methods.at(address, u64::MAX) {
            Some(method) => (method.name, method.definition.map(|(module, _)| module)),
            None => (UNKNOWN, None),
        }
    }

    /// The file and line at which the method with this code begins.
    pub(crate) fn begin(&mut self, address: u64) -> Option<(String, u32)> {
        let (module, token) = self.methods.at(address, u64::MAX)?.definition?;
        let module = self.pid.map_or_else(|| module.to_owned(), |pid| processes::file_of(pid, module));
        let (file, line) = self.lines.of_method(&module, token)?;
        Some((file.to_owned(), line))
    }

    fn is_mine(&self, address: u64) -> bool {
        let (name, module) = self.full(address);
        let module = module.map(|module| module.to_string_lossy().into_owned());
        let frame = Frame::managed(name);
        let frame = module.as_deref().map_or(frame, |module| frame.in_module(module));
        name != UNKNOWN && frame.kind_found() == FrameKind::User
    }

    /// Short, as [`label`] has it.
    pub(crate) fn label(&self, address: u64) -> String {
        label(self.full(address).0)
    }
}

/// The short name of a method, without the mark of async methods: where this is used, all are async.
pub(crate) fn label(name: &str) -> String {
    let label = Frame::managed(name).label();
    label.strip_suffix(" (async)").map(str::to_owned).unwrap_or(label)
}

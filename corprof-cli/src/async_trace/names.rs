//! The names of chains of methods.

use std::collections::HashMap;
use std::path::Path;

use corprof_async::Chain;
use corprof_export::{Frame, FrameKind};
use corprof_launch::processes;
use serde::Serialize;

use super::Traced;
use super::awaits::{Await, Awaits};
use crate::options;
use crate::trace_methods::Methods;

/// Stands for code that no method has.
const UNKNOWN: &str = "[unknown code]";

/// What an operation ran, or where it waited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    /// The innermost method of the application; of the frameworks if there is none.
    pub(crate) method: String,
    /// Of its await, if the PDB tells.
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

/// Finds names and lines.
pub(crate) struct Names<'m> {
    methods: &'m Methods,
    awaits: Awaits,
    /// The process whose files the modules are.
    pid: Option<u32>,
    spelling: options::Names,
    known: HashMap<Chain, Place>,
}

impl<'m> Names<'m> {
    /// Those of a trace, in this spelling.
    pub(crate) fn new(traced: &'m Traced, spelling: options::Names) -> Self {
        let methods = &traced.methods;
        Self { methods, awaits: Awaits::default(), pid: traced.pid, spelling, known: HashMap::new() }
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

    /// The place of several operations at once: of the one that counts.
    pub(crate) fn place_of(&mut self, chains: &[Chain]) -> Place {
        let chain = self.counting(chains);
        self.place(chain)
    }

    /// Which of several operations at once counts: the first that has a method of the application, or else the first.
    pub(crate) fn counting<'c>(&mut self, chains: &'c [Chain]) -> Option<&'c Chain> {
        chains.iter().find(|chain| self.place(Some(chain)).is_mine).or(chains.first())
    }

    /// The place of several operations at once, in the names of pictures.
    pub(crate) fn label_of_place(&mut self, chains: &[Chain]) -> String {
        let place = self.place_of(chains);
        let (innermost, mine) = self.counting(chains).map_or((None, None), |chain| self.innermost(chain));
        match mine.or(innermost) {
            Some(frame) => Place { method: self.label(frame.address), inner: None, ..place }.to_string(),
            None => place.to_string(),
        }
    }

    /// The innermost method of a chain, and that of the application.
    fn innermost(
        &self,
        chain: &[corprof_async::Frame],
    ) -> (Option<corprof_async::Frame>, Option<corprof_async::Frame>) {
        let mut frames = chain.iter().copied().filter(|frame| frame.address != 0);
        let innermost = frames.clone().next();
        (innermost, frames.find(|frame| self.is_mine(frame.address)))
    }

    fn find(&mut self, chain: &[corprof_async::Frame]) -> Place {
        let (innermost, mine) = self.innermost(chain);
        let shown = mine.or(innermost);
        let inner = innermost.filter(|_| innermost != shown).map(|frame| self.name(frame.address));
        let method = shown.map_or_else(|| "[not told]".to_owned(), |frame| self.name(frame.address));
        let (file, line) = shown.and_then(|frame| self.line(frame)).unzip();
        Place { inner: inner.filter(|inner| *inner != method), method, file, line, is_mine: mine.is_some() }
    }

    /// The outermost method of the application in a chain, or else of the frameworks: the operation's own.
    pub(crate) fn outermost(&self, chain: &Chain) -> Option<String> {
        let addresses = || chain.iter().rev().map(|frame| frame.address).filter(|address| *address != 0);
        let mine = addresses().find(|address| self.is_mine(*address));
        mine.or_else(|| addresses().next()).map(|address| self.label(address))
    }

    /// The runtime's name of the method with this code, and its module.
    pub(crate) fn full(&self, address: u64) -> (&str, Option<&Path>) {
        match self.methods.at(address, u64::MAX) {
            Some(method) => (method.name, method.definition.map(|(module, _)| module)),
            None => (UNKNOWN, None),
        }
    }

    /// The file and line at which the method with this code begins.
    pub(crate) fn begin(&mut self, address: u64) -> Option<(String, u32)> {
        let (module, token) = self.methods.at(address, u64::MAX)?.definition?;
        self.awaits.begin(&file(self.pid, module), token)
    }

    /// The file and line at which a method awaits.
    fn line(&mut self, frame: corprof_async::Frame) -> Option<(String, u32)> {
        let method = self.methods.at(frame.address, u64::MAX)?;
        let (module, token) = method.definition?;
        let module = file(self.pid, module);
        // Only of a state machine it is the beginning.
        if method.offset == 0 {
            return self.awaits.line(&module, token, Await::State(frame.state));
        }
        let offsets = self.methods.il_offsets(frame.address, u64::MAX);
        let mut found = offsets.iter().map(|offset| self.awaits.line(&module, token, Await::Offset(*offset)));
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)?
    }

    /// Whether the method with this code is the application's.
    pub(crate) fn is_mine(&self, address: u64) -> bool {
        let (name, module) = self.full(address);
        let module = module.map(|module| module.to_string_lossy().into_owned());
        let frame = Frame::managed(name);
        let frame = module.as_deref().map_or(frame, |module| frame.in_module(module));
        name != UNKNOWN && frame.kind_found() == FrameKind::User
    }

    /// The name of the method with this code, as tables and files of data have it.
    pub(crate) fn name(&self, address: u64) -> String {
        self.spelling.async_method(self.full(address).0)
    }

    /// The same as pictures have it.
    pub(crate) fn label(&self, address: u64) -> String {
        self.spelling.async_label(self.full(address).0)
    }
}

/// The file that a module has for this process.
pub(crate) fn file(pid: Option<u32>, module: &Path) -> std::path::PathBuf {
    pid.map_or_else(|| module.to_owned(), |pid| processes::file_of(pid, module))
}

//! Frames: one function on a stack.

use crate::label;

/// The kind of a frame's code; viewers colour by it, and "only my code" is [`User`](Self::User).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FrameKind {
    /// Compiled from IL. The profile finds out which of the kinds below it is, when it is written: by the rule of
    /// [`Profile::with_kinds`](crate::Profile::with_kinds), else by module and namespace.
    #[default]
    Managed,
    /// Code of the application: managed, and of no framework.
    User,
    /// .NET's libraries, ASP.NET among them: `System.*`, `Microsoft.*`, and modules in a shared framework's folder.
    Framework,
    /// A library of the system or of the application that is not managed.
    Native,
    /// The runtime itself: garbage collection, JIT, stubs.
    Runtime,
    /// A function that waits: for a lock, a signal, a timer, a socket.
    Wait,
    /// Code without a source file: dynamic methods, stubs, helpers that a compiler adds.
    Generated,
}

/// One function on a stack, as the profiler describes it.
///
/// Names may hold anything. Folded stacks and flame graphs cannot show every character: there, `;` becomes `:`, and
/// control characters become U+FFFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub(crate) name: &'a str,
    pub(crate) module: Option<&'a str>,
    pub(crate) file: Option<&'a str>,
    pub(crate) line: u32,
    pub(crate) kind: FrameKind,
}

impl<'a> Frame<'a> {
    /// A function of any kind.
    pub const fn new(kind: FrameKind, name: &'a str) -> Self {
        Self { name, module: None, file: None, line: 0, kind }
    }

    /// A managed method: its full name, with namespace and parameters. Pictures shorten it.
    pub const fn managed(name: &'a str) -> Self {
        Self::new(FrameKind::Managed, name)
    }

    /// A native function.
    pub const fn native(name: &'a str) -> Self {
        Self::new(FrameKind::Native, name)
    }

    /// A function of the runtime.
    pub const fn runtime(name: &'a str) -> Self {
        Self::new(FrameKind::Runtime, name)
    }

    /// The module it is in: an assembly or a shared library, by its path or its file name. The HTML page, pprof and
    /// Firefox files show it. It decides whether code counts as the user's.
    #[must_use]
    pub const fn in_module(self, module: &'a str) -> Self {
        Self { module: Some(module), ..self }
    }

    /// The source file and line, counted from 1; line 0 means unknown. The HTML page, pprof and speedscope
    /// files show it.
    #[must_use]
    pub const fn at(self, file: &'a str, line: u32) -> Self {
        Self { file: Some(file), line, ..self }
    }

    /// Its name, as it was given.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Its module, if that was given.
    pub const fn module(&self) -> Option<&'a str> {
        self.module
    }

    /// Its name as pictures show it: the last part, in C#, with what a compiler has generated turned back into the
    /// source's names. `Shop.Truth.<BurnAsync>d__5.MoveNext()` is `Truth.BurnAsync (async)`.
    pub fn label(&self) -> String {
        match self.kind {
            FrameKind::Native | FrameKind::Runtime => label::native(self.name),
            _ => label::managed(self.name, label::Machine::Async),
        }
    }

    /// Its kind, as it was given.
    pub const fn kind(&self) -> FrameKind {
        self.kind
    }
}

/// A frame of one [`Profile`](crate::Profile).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(crate) u32);

/// A frame as a profile keeps it: texts by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FrameData {
    pub(crate) name: u32,
    pub(crate) module: Option<u32>,
    pub(crate) file: Option<u32>,
    pub(crate) line: u32,
    pub(crate) kind: FrameKind,
}

//! Names for the runtime's identifiers.
//!
//! [`Names`] turns an identifier into text, from the module's metadata: `Namespace.Outer+Inner<T>.Method<U>(int32,
//! string[])`. A name is made once and kept until the thing that it names is unloaded, so asking again is cheap. No
//! look-up fails: unknown parts appear in the name, in angle brackets. `spell` puts names together in one of the two
//! ways of `spelling`; `source` asks the runtime. Names are kept in `corprof/src/session/names/`. A look-up calls the
//! runtime with no lock held.

mod generics;
mod source;
mod spell;
mod spelling;
#[cfg(test)]
mod tests;

pub use crate::session::names::Name;

use crate::context::InNoGc;
use crate::error::Result;
use crate::id::{AssemblyId, ClassId, FunctionId, ModuleId, ObjectId};
use crate::metadata::MethodDef;
use crate::session::names::{NameStore, Named, Ticket};
use source::Live;
use spell::{Speller, code_name};
use spelling::Spelling;

/// The names of functions, classes, modules and assemblies, each made once: see
/// [`InNoGc::names`](crate::InNoGc::names).
///
/// Types inside a name are spelt as in IL assembly: `int32`, `string`, `native int`, `T&`, `T*`, `T[]`, `T[,]`, `method
/// void *(int32)`; all others by their full name, nested ones with a `+`. Generic types and methods show their actual
/// arguments, or the names of their parameters if the runtime does not give the arguments; instantiations that share
/// their code show `System.__Canon`, as the runtime does. Return types and custom modifiers are not shown.
///
/// [`csharp`](Self::csharp) spells the same names in C#: `int`, `ref T`, `int?`, `delegate*<int, void>`, nested types
/// with a dot.
///
/// An unknown class reads `<unknown class 0x7f…: CORPROF_E_DATAINCOMPLETE>`; the runtime is asked again the next time.
/// The classes that .NET 11 makes for methods that it suspends itself have no metadata: they read
/// `System.Runtime.CompilerServices.Continuation`.
///
/// A known name costs well under 100 ns, and no allocation. Look up no name while threads are suspended: it takes a
/// lock, and a name that is not known yet allocates.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    cx: &'a InNoGc<'a>,
    kept: &'a NameStore,
    spelling: Spelling,
}

impl InNoGc<'_> {
    /// The names of functions, classes, modules and assemblies: `cx.names().function(id)`.
    ///
    /// Call class: **sync**, allowed after attach, never starts a GC.
    pub fn names(&self) -> Names<'_> {
        Names::new(self, self.info().known_names())
    }
}

impl<'a> Names<'a> {
    pub(crate) fn new(cx: &'a InNoGc<'a>, kept: &'a NameStore) -> Self {
        Self { cx, kept, spelling: Spelling::Il }
    }

    /// The same names in the spelling of C#: `Namespace.Outer<int>.Inner<string>.Method<T>(ref int, string[], int?)`.
    ///
    /// Keywords stand for the core library's types inside a name only: the class itself is `System.Int32`. Constructors
    /// and accessors keep their metadata names (`.ctor`, `get_Item`), and every by-ref parameter reads `ref`.
    ///
    /// ```
    /// # use corprof::prelude::*;
    /// fn tell(cx: &InNoGc<'_>, function: FunctionId) {
    ///     eprintln!("{} is {} in IL", cx.names().csharp().function(function), cx.names().function(function));
    /// }
    /// ```
    pub fn csharp(self) -> Self {
        Self { spelling: Spelling::CSharp, ..self }
    }

    /// The name of a function: `Namespace.Type<int32>.Method<string>(int32, string[])`.
    ///
    /// A function without metadata reads `<dynamic method NAME>` or `<stub NAME>`; the runtime is asked each time,
    /// because its identifier may soon belong to another function.
    pub fn function(self, function: FunctionId) -> Name {
        match self.spelling.names(self.kept).get(&Named::Function(function)) {
            Ok(name) => name,
            Err(ticket) => Speller::new(&self.live(ticket), self.spelling).function(function),
        }
    }

    /// The name of a class: `Namespace.Outer<int32>+Inner<string>`, or `string[]` for an array.
    pub fn class(self, class: ClassId) -> Name {
        match self.spelling.names(self.kept).get(&Named::Class(class)) {
            Ok(name) => name,
            Err(ticket) => Speller::new(&self.live(ticket), self.spelling).new_class(class),
        }
    }

    /// The name of the class of an object, as [`class`](Self::class) has it; `<unknown object 0x7f…: CODE>` where the
    /// runtime does not say its class.
    pub fn class_of(self, object: ObjectId<'_>) -> Name {
        match self.cx.class_of(object) {
            Ok(class) => self.class(class),
            Err(error) => known_or(Err(error), "object", object.as_raw()).0,
        }
    }

    /// The name of a method as its module defines it, generic parameters by their own names:
    /// `Namespace.Type<T>.Method<U>(T, U[])`.
    ///
    /// Made anew each time: for a running method use its [`FunctionId`] with [`function`](Self::function).
    pub fn method_def(self, module: ModuleId, method: MethodDef) -> Name {
        let ticket = self.spelling.names(self.kept).ticket();
        Speller::new(&self.live(ticket), self.spelling).method_def(module, method)
    }

    /// The name of a module: its file name without the directory, or else the name in its metadata.
    pub fn module(self, module: ModuleId) -> Name {
        self.remember(Named::Module(module), |ticket| match self.cx.module_info(module) {
            // A module emitted in memory has no file, but a name in its metadata.
            Ok(info) if file_name(&info.path).is_empty() => {
                let name = self.live(ticket).metadata(module).and_then(|metadata| metadata.module_name());
                known_or(name, "module", module.as_raw())
            }
            Ok(info) => (file_name(&info.path).into(), true),
            Err(error) => known_or(Err(error), "module", module.as_raw()),
        })
    }

    /// The name of an assembly, without version and culture.
    pub fn assembly(self, assembly: AssemblyId) -> Name {
        self.remember(Named::Assembly(assembly), |_| {
            known_or(self.cx.assembly_info(assembly).map(|info| info.name), "assembly", assembly.as_raw())
        })
    }

    fn live(self, ticket: Ticket) -> Live<'a, 'a> {
        Live::new(self.cx, self.kept, ticket, self.spelling)
    }

    /// The known name; otherwise makes it now, and keeps it if it will stay valid.
    fn remember(self, of: Named, work_out: impl FnOnce(Ticket) -> (Name, bool)) -> Name {
        let ticket = match self.kept.il.get(&of) {
            Ok(name) => return name,
            Err(ticket) => ticket,
        };
        let (name, lasting) = work_out(ticket);
        if lasting {
            self.kept.il.insert(ticket, of, name.clone());
        }
        name
    }
}

/// A simple name, or a replacement; and whether it may be kept.
fn known_or(name: Result<String>, what: &str, id: usize) -> (Name, bool) {
    match name {
        Ok(name) if !name.is_empty() => (name.into(), true),
        // The runtime has answered that there is no name: that will not change.
        Ok(_) => (format!("<nameless {what} {id:#x}>").into(), true),
        Err(error) => (format!("<unknown {what} {id:#x}: {}>", code_name(&error)).into(), false),
    }
}

/// The part of a path behind the last separator of either system: a profiler's report may be read elsewhere.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

//! [`Selector`]: methods by their names, in modules that are loaded now or later.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::context::InCallback;
use crate::error::Result;
use crate::id::ModuleId;
use crate::lock::unpoisoned;
use crate::metadata::{MetadataImport, MethodDef, TypeDef};
use crate::profiler_thread::ProfilerThread;

use super::outcome::{Preparation, Rewrite};
use super::queue::{Command, Leave};
use super::shared_state::Shared;

/// Methods by their names.
///
/// A type's name includes its namespace; a nested type follows its outer one after `+`, and a generic one has its
/// number of parameters: ``Shop.Cart`1+Line``. All overloads of a method have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    assembly: Option<String>,
    class: Option<String>,
    method: Option<String>,
}

impl Selector {
    /// The methods of this name of this type.
    pub fn method(class: &str, method: &str) -> Self {
        Self { assembly: None, class: Some(class.to_owned()), method: Some(method.to_owned()) }
    }

    /// All methods of this type, without those of its nested types.
    pub fn class(class: &str) -> Self {
        Self { assembly: None, class: Some(class.to_owned()), method: None }
    }

    /// All methods of this assembly.
    pub fn assembly(assembly: &str) -> Self {
        Self { assembly: Some(assembly.to_owned()), class: None, method: None }
    }

    /// All methods of all assemblies.
    pub const fn all() -> Self {
        Self { assembly: None, class: None, method: None }
    }

    /// Only those in the assembly with this simple name, such as `System.Private.CoreLib`.
    #[must_use]
    pub fn in_assembly(self, assembly: &str) -> Self {
        Self { assembly: Some(assembly.to_owned()), ..self }
    }

    /// The methods of one module.
    pub(super) fn find(&self, cx: &InCallback<'_>, module: ModuleId) -> Result<Vec<MethodDef>> {
        let metadata = cx.metadata(module)?;
        if let Some(wanted) = &self.assembly {
            let assembly = metadata.assembly()?.map(|assembly| metadata.assembly_identity(assembly)).transpose()?;
            if assembly.is_none_or(|assembly| assembly.name != *wanted) {
                return Ok(Vec::new());
            }
        }
        let classes = match &self.class {
            Some(name) => class_named(&metadata, name)?.into_iter().collect(),
            None => {
                let mut classes = metadata.type_defs()?;
                classes.push(TypeDef::NIL);
                classes
            }
        };
        let mut methods = Vec::new();
        for class in classes {
            methods.extend(match &self.method {
                Some(name) => metadata.methods_named(class, name)?,
                None => metadata.methods(class)?,
            });
        }
        Ok(methods)
    }
}

fn class_named(metadata: &MetadataImport<'_>, name: &str) -> Result<Option<TypeDef>> {
    let mut class = None;
    for part in name.split('+') {
        class = metadata.find_type_def(part, class)?;
        if class.is_none() {
            break;
        }
    }
    Ok(class)
}

/// The rewrites of a [`Selector`], which become more as modules are loaded. A clone is another handle to the same.
#[derive(Clone)]
pub struct Selection {
    shared: Arc<Shared>,
    rewrites: Arc<Mutex<Vec<Rewrite>>>,
}

impl Selection {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, rewrites: Arc::default() }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Rewrite>> {
        unpoisoned(self.rewrites.lock())
    }

    /// The methods that were found so far. There are none before the thread of the instrumentation has looked for them:
    /// see [`wait_until_prepared`](Self::wait_until_prepared).
    pub fn rewrites(&self) -> Vec<Rewrite> {
        self.list().clone()
    }

    /// Waits until the methods of all modules that are loaded now are found, and each is requested or refused; for
    /// `longest` at most. It is [`Instrumentation::wait_until_prepared`](super::Instrumentation::wait_until_prepared),
    /// and waits for what was asked for before as well.
    pub fn wait_until_prepared(&self, _cx: &mut ProfilerThread<'_>, longest: Duration) -> Preparation {
        self.shared.wait_until_done(longest)
    }

    /// Takes all edits back, as [`Rewrite::revert`] does, and looks for no more methods.
    pub fn revert(&self) {
        self.shared.push([Command::LeaveAll(self.clone(), Leave::Revert)]);
    }

    /// Takes all edits back, as [`Rewrite::restore`] does, and looks for no more methods.
    pub fn restore(&self) {
        self.shared.push([Command::LeaveAll(self.clone(), Leave::Restore)]);
    }

    pub(super) fn add(&self, rewrite: Rewrite) {
        self.list().push(rewrite);
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rewrites, &other.rewrites)
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection").field("rewrites", &self.list().len()).finish_non_exhaustive()
    }
}

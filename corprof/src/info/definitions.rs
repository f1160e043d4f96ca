//! Where the types that metadata name are defined, among the loaded assemblies.
//!
//! Metadata name a type of another assembly by the assembly's name; the API asks for the module that defines it. If two
//! loaded assemblies have the name, the type is ambiguous. It becomes so if the second is loaded later, in another load
//! context.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{InCallback, InNoGc};
use crate::error::{Error, Result};
use crate::id::ModuleId;
use crate::metadata::{AssemblyRef, CORE_LIBRARY, Table, Token, TypeDef, TypeDefOrRef, TypeRef};

use super::loaded_assemblies::{ByName, SoleAssembly};

/// The most times that a type is followed to another assembly or an enclosing type: more than real code has.
const MOST_STEPS: usize = 16;

/// Why the definition of a type was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// Modules have been loaded since the assemblies were listed: list them, and ask again.
    NotListed,
    /// Its assembly is not loaded, or loaded several times, or does not have it.
    Ambiguous,
    /// It is a type that only a signature spells.
    NoName,
    /// It was moved too often, or is nested too deep.
    TooDeep,
    /// The runtime's error about the metadata.
    Runtime(Error),
}

impl From<Error> for NotFound {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}

impl InCallback<'_> {
    /// Lists the loaded assemblies, unless nothing was loaded since that was done.
    pub(crate) fn list_assemblies(&mut self) -> Result<()> {
        let changes = self.liveness().changes();
        if self.loaded_assemblies().lock().changes == Some(changes) {
            return Ok(());
        }
        let mut modules = HashMap::new();
        for module in self.enum_modules()? {
            // Compiled code never depends on modules that are only partly loaded or already being unloaded.
            let Ok(Some(assembly)) = self.module_info(module).map(|info| info.assembly) else { continue };
            let Ok(info) = self.assembly_info(assembly) else { continue };
            if info.module == Some(module) {
                modules.entry(info.name).and_modify(|one| *one = None).or_insert(Some(module));
            }
        }
        *self.loaded_assemblies().lock() = ByName { changes: Some(changes), modules };
        Ok(())
    }
}

/// A search for definitions, and the assemblies that it relies on.
pub(crate) struct Definitions<'a, 'cb> {
    cx: &'a InNoGc<'cb>,
    relied_on: RefCell<Vec<Arc<SoleAssembly>>>,
}

/// One step in the search for the definition of a type.
enum Step {
    Found(ModuleId, TypeDef),
    /// The type is in the assembly of this name.
    Elsewhere(String),
}

impl<'a, 'cb> Definitions<'a, 'cb> {
    pub(crate) fn new(cx: &'a InNoGc<'cb>) -> Self {
        Self { cx, relied_on: RefCell::default() }
    }

    /// The assemblies that types were found in by name: what was found is right as long as they have no namesake.
    pub(crate) fn into_relied_on(self) -> Vec<Arc<SoleAssembly>> {
        self.relied_on.into_inner()
    }

    /// The definition of a type that `module` names.
    pub(crate) fn resolve(&self, module: ModuleId, token: TypeDefOrRef) -> Result<(ModuleId, TypeDef), NotFound> {
        match token {
            TypeDefOrRef::Def(definition) => Ok((module, definition)),
            TypeDefOrRef::Ref(reference) => self.resolve_reference(module, reference, 0),
            TypeDefOrRef::Spec(_) => Err(NotFound::NoName),
        }
    }

    fn resolve_reference(
        &self,
        module: ModuleId,
        reference: TypeRef,
        steps: usize,
    ) -> Result<(ModuleId, TypeDef), NotFound> {
        if steps > MOST_STEPS {
            return Err(NotFound::TooDeep);
        }
        let props = self.cx.metadata(module)?.type_ref(reference)?;
        if let Ok(outer) = TypeRef::try_from(props.scope) {
            let (home, outer) = self.resolve_reference(module, outer, steps + 1)?;
            let nested = self.cx.metadata(home)?.find_type_def(&props.name, Some(outer))?;
            return Ok((home, nested.ok_or(NotFound::Ambiguous)?));
        }
        if props.scope.table() == Some(Table::Module) {
            return self.find(module, &props.name);
        }
        let home = self.assembly(&self.assembly_name(module, props.scope)?)?;
        self.find(home, &props.name)
    }

    /// The type of this name that a module defines, or that was moved from it to another.
    pub(crate) fn find(&self, module: ModuleId, name: &str) -> Result<(ModuleId, TypeDef), NotFound> {
        let mut module = module;
        for _ in 0..MOST_STEPS {
            match self.step(module, name)? {
                Step::Found(module, definition) => return Ok((module, definition)),
                Step::Elsewhere(assembly) => module = self.assembly(&assembly)?,
            }
        }
        Err(NotFound::TooDeep)
    }

    fn step(&self, module: ModuleId, name: &str) -> Result<Step, NotFound> {
        let metadata = self.cx.metadata(module)?;
        if let Some(definition) = metadata.find_type_def(name, None)? {
            return Ok(Step::Found(module, definition));
        }
        let moved = metadata.find_exported_type(name, None)?.ok_or(NotFound::Ambiguous)?;
        let to = metadata.exported_type(moved)?.implementation;
        Ok(Step::Elsewhere(self.assembly_name(module, to)?))
    }

    fn assembly_name(&self, module: ModuleId, scope: Token) -> Result<String, NotFound> {
        // The type is in another file of a multi-file assembly: .NET Core has none.
        let reference = AssemblyRef::try_from(scope).map_err(|_| NotFound::Ambiguous)?;
        Ok(self.cx.metadata(module)?.assembly_ref(reference)?.name)
    }

    /// The module of the assembly with this name, if only one has it. That is so as long as the assembly has no
    /// namesake.
    pub(crate) fn assembly(&self, name: &str) -> Result<ModuleId, NotFound> {
        // The runtime has one core library.
        if name == CORE_LIBRARY {
            return self.listed(name);
        }
        let (module, sole) = self.cx.loaded_assemblies().rely_on(name, || self.listed(name))?;
        let mut relied_on = self.relied_on.borrow_mut();
        if !relied_on.iter().any(|known| Arc::ptr_eq(known, &sole)) {
            relied_on.push(sole);
        }
        Ok(module)
    }

    fn listed(&self, name: &str) -> Result<ModuleId, NotFound> {
        let known = self.cx.loaded_assemblies().lock();
        if known.changes != Some(self.cx.liveness().changes()) {
            return Err(NotFound::NotListed);
        }
        known.modules.get(name).copied().flatten().ok_or(NotFound::Ambiguous)
    }
}

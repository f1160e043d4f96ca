//! The things of the fake runtime that its answers are about, found by identifier, with the codes of those that are not
//! there.

use corprof_sys as sys;

use crate::error::E_INVALIDARG;
use crate::metadata::Table;

use super::com::InfoFace;
use super::metadata::row;
use super::out::Answer;
use super::world::{Class, Function, Object};

impl InfoFace {
    pub(super) fn class(&self, class: usize) -> Answer<Class> {
        let found = self.runtime.world().classes.get(&class).cloned().ok_or(E_INVALIDARG)?;
        if found.alive { Ok(found) } else { Err(sys::CORPROF_E_DATAINCOMPLETE) }
    }

    /// A class that has metadata.
    pub(super) fn plain_class(&self, class: usize) -> Answer<Class> {
        let found = self.class(class)?;
        if found.array.is_some() {
            return Err(sys::CORPROF_E_CLASSID_IS_ARRAY);
        }
        if found.is_bare { Err(sys::CORPROF_E_DATAINCOMPLETE) } else { Ok(found) }
    }

    pub(super) fn function(&self, function: usize) -> Answer<Function> {
        self.runtime.world().functions.get(&function).cloned().ok_or(E_INVALIDARG)
    }

    pub(super) fn object(&self, address: usize) -> Answer<Object> {
        self.runtime.world().object_at(address).copied().ok_or(E_INVALIDARG)
    }

    /// A module's base, path and assembly.
    pub(super) fn module(&self, module: usize) -> Answer<(usize, String, usize)> {
        let world = self.runtime.world();
        let found = world.modules.get(&module).ok_or(E_INVALIDARG)?;
        match (found.alive, found.assembly) {
            (true, assembly) => Ok((found.base, found.path.clone(), assembly)),
            (false, 0) if world.assemblies.values().any(|one| one.module == module && !one.alive) => {
                Err(sys::CORPROF_E_DATAINCOMPLETE)
            }
            _ => Err(E_INVALIDARG),
        }
    }

    /// The class with this definition and these arguments, if it is loaded.
    pub(super) fn class_by_token(&self, module: usize, token: u32, args: &[usize]) -> Answer<usize> {
        let world = self.runtime.world();
        let home = world.modules.get(&module).ok_or(E_INVALIDARG)?;
        row(&home.metadata.types, Table::TypeDef, token).ok_or(E_INVALIDARG)?;
        match world.find_class(module, token, args, None) {
            class if world.classes.get(&class).is_some_and(|class| class.alive) => Ok(class),
            _ => Err(sys::CORPROF_E_DATAINCOMPLETE),
        }
    }
}

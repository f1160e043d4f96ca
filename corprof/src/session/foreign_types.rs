//! What edits have found out about types and members that a module uses and another module defines.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use corprof_il::signature::MethodSignature;
use corprof_il::token::TypeDef;
use corprof_il::verify::TypeInfo;

use super::SoleAssembly;
use crate::id::ModuleId;
use crate::lock::unpoisoned;
use crate::suspension;

/// A type that another module defines.
#[derive(Debug)]
pub(crate) struct ForeignType {
    pub(crate) module: ModuleId,
    pub(crate) definition: TypeDef,
    pub(crate) info: TypeInfo,
    pub(crate) is_interface: bool,
    pub(crate) is_abstract: bool,
    pub(crate) is_by_ref_like: bool,
    pub(crate) is_generic: bool,
    /// `Invoke` of a delegate. A named type in its signature is nil.
    pub(crate) delegate: Option<MethodSignature>,
    /// The assemblies by whose names it was found.
    pub(crate) relied_on: Vec<Arc<SoleAssembly>>,
}

impl ForeignType {
    /// Whether no other assembly has been loaded that the name may mean.
    pub(crate) fn is_certain(&self) -> bool {
        !self.relied_on.iter().any(|assembly| assembly.has_namesake())
    }
}

/// A member of such a type, as far as it matters who calls it. Overloads are taken to be alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForeignMember {
    pub(crate) is_static: bool,
    pub(crate) is_virtual: bool,
    pub(crate) is_abstract: bool,
}

/// By module and token; what is known of a module's references is dropped with it.
#[derive(Default)]
pub(crate) struct ForeignTypes(Mutex<BTreeMap<usize, Known>>);

#[derive(Default)]
struct Known {
    types: HashMap<u32, Arc<ForeignType>>,
    members: HashMap<u32, ForeignMember>,
}

impl ForeignTypes {
    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, Known>> {
        suspension::forbid("the lock of the foreign types");
        unpoisoned(self.0.lock())
    }

    pub(crate) fn ty(&self, module: ModuleId, token: u32) -> Option<Arc<ForeignType>> {
        self.known().get(&module.as_raw())?.types.get(&token).cloned()
    }

    pub(crate) fn keep_type(&self, module: ModuleId, token: u32, ty: Arc<ForeignType>) {
        self.known().entry(module.as_raw()).or_default().types.insert(token, ty);
    }

    pub(crate) fn member(&self, module: ModuleId, token: u32) -> Option<ForeignMember> {
        self.known().get(&module.as_raw())?.members.get(&token).copied()
    }

    pub(crate) fn keep_member(&self, module: ModuleId, token: u32, member: ForeignMember) {
        self.known().entry(module.as_raw()).or_default().members.insert(token, member);
    }

    /// The next module with this id is another module.
    pub(crate) fn module_gone(&self, module: usize) {
        self.known().remove(&module);
    }
}

//! What edits have found out about types and members that a module uses and another module defines.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use corprof_il::signature::MethodSignature;
use corprof_il::token::TypeDef;
use corprof_il::verify::TypeInfo;

use crate::id::ModuleId;
use crate::info::{Info, SoleAssembly};
use crate::lock::unpoisoned;
use crate::session::{Interests, Observer};
use crate::suspension;

/// A type that another module defines.
#[derive(Debug)]
pub(super) struct ForeignType {
    pub(super) module: ModuleId,
    pub(super) definition: TypeDef,
    pub(super) info: TypeInfo,
    pub(super) is_interface: bool,
    pub(super) is_abstract: bool,
    pub(super) is_by_ref_like: bool,
    pub(super) is_generic: bool,
    /// `Invoke` of a delegate. A named type in its signature is nil.
    pub(super) delegate: Option<MethodSignature>,
    /// The assemblies by whose names it was found.
    pub(super) relied_on: Vec<Arc<SoleAssembly>>,
}

impl ForeignType {
    /// Whether no other assembly has been loaded that the name may mean.
    pub(super) fn is_certain(&self) -> bool {
        !self.relied_on.iter().any(|assembly| assembly.has_namesake())
    }
}

/// A member of such a type, as far as it matters who calls it. Overloads are taken to be alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForeignMember {
    pub(super) is_static: bool,
    pub(super) is_virtual: bool,
    pub(super) is_abstract: bool,
}

/// By module and token; what is known of a module's references is dropped with it.
#[derive(Default)]
pub(super) struct ForeignTypes(Mutex<BTreeMap<usize, Known>>);

#[derive(Default)]
struct Known {
    types: HashMap<u32, Arc<ForeignType>>,
    members: HashMap<u32, ForeignMember>,
}

impl Info {
    /// What edits have found out about types that other modules define.
    pub(super) fn foreign_types(&self) -> &ForeignTypes {
        self.extension()
    }
}

impl ForeignTypes {
    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, Known>> {
        suspension::forbid("the lock of the foreign types");
        unpoisoned(self.0.lock())
    }

    pub(super) fn ty(&self, module: ModuleId, token: u32) -> Option<Arc<ForeignType>> {
        self.known().get(&module.as_raw())?.types.get(&token).cloned()
    }

    pub(super) fn keep_type(&self, module: ModuleId, token: u32, ty: Arc<ForeignType>) {
        self.known().entry(module.as_raw()).or_default().types.insert(token, ty);
    }

    pub(super) fn member(&self, module: ModuleId, token: u32) -> Option<ForeignMember> {
        self.known().get(&module.as_raw())?.members.get(&token).copied()
    }

    pub(super) fn keep_member(&self, module: ModuleId, token: u32, member: ForeignMember) {
        self.known().entry(module.as_raw()).or_default().members.insert(token, member);
    }
}

impl Observer for ForeignTypes {
    fn interests(&self) -> Interests {
        Interests::MODULES
    }

    fn module_gone(&self, module: usize) {
        self.known().remove(&module);
    }
}

//! The source of the parts of a name: the runtime and its metadata, or a test's made-up world.

use std::sync::Arc;

use super::Name;
use super::spelling::Spelling;
use crate::context::InNoGc;
use crate::error::Result;
use crate::ffi::buffer::Units;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{ArrayClass, ClassInfo, FunctionInfo};
use crate::metadata::{MetadataImport, MethodDef, Token, TypeDef, TypeRef, TypeSpec, is_nested};
use crate::session::names::{CachedImport, NameStore, Named, Ticket};

/// The questions for the parts of a name. Each may fail, and the name then says so.
///
/// Names of types are written to an empty `name`, so that the text of a whole name is allocated once.
pub(super) trait Source {
    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo>;
    fn dynamic_function_name(&self, function: FunctionId) -> Result<String>;
    fn class_info(&self, class: ClassId) -> Result<ClassInfo>;
    fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>>;

    /// Reads a method in place: the type that declares it, its name and its signature.
    fn method<R>(
        &self,
        module: ModuleId,
        method: MethodDef,
        read: impl FnOnce(TypeDef, &Units, &[u8]) -> R,
    ) -> Result<R>;
    /// Whether the type is nested.
    fn type_def(&self, module: ModuleId, definition: TypeDef, name: &mut Units) -> Result<bool>;
    fn enclosing_class(&self, module: ModuleId, nested: TypeDef) -> Result<Option<TypeDef>>;
    /// The scope of the reference.
    fn type_ref(&self, module: ModuleId, reference: TypeRef, name: &mut Units) -> Result<Token>;
    fn type_spec(&self, module: ModuleId, spec: TypeSpec) -> Result<Vec<u8>>;
    /// The names of the generic parameters of a type or method, in order.
    fn generic_params(&self, module: ModuleId, owner: Token) -> Result<Vec<String>>;

    /// The class's name, if it is known already.
    fn known_class(&self, class: ClassId) -> Option<Name>;
    /// Keeps a complete name.
    fn learn(&self, of: Named, name: &Name);
}

/// The running runtime, for the length of one look-up.
pub(super) struct Live<'a, 'cb> {
    cx: &'a InNoGc<'cb>,
    kept: &'a NameStore,
    /// From the beginning of the look-up.
    ticket: Ticket,
    spelling: Spelling,
}

impl<'a, 'cb> Live<'a, 'cb> {
    pub(super) fn new(cx: &'a InNoGc<'cb>, kept: &'a NameStore, ticket: Ticket, spelling: Spelling) -> Self {
        Self { cx, kept, ticket, spelling }
    }

    pub(super) fn metadata(&self, module: ModuleId) -> Result<Arc<MetadataImport<'static>>> {
        let ticket = match self.kept.imports.get(&module).map(CachedImport::downcast) {
            Ok(Ok(import)) => return Ok(import),
            // Only this file keeps values there.
            Ok(Err(_)) => None,
            Err(ticket) => Some(ticket),
        };
        let import = Arc::new(self.cx.kept_metadata(module)?);
        if let Some(ticket) = ticket {
            self.kept.imports.insert(ticket, module, import.clone());
        }
        Ok(import)
    }
}

impl Source for Live<'_, '_> {
    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo> {
        self.cx.function_info(function)
    }

    fn dynamic_function_name(&self, function: FunctionId) -> Result<String> {
        self.cx.dynamic_function_name(function)
    }

    fn class_info(&self, class: ClassId) -> Result<ClassInfo> {
        self.cx.class_info(class)
    }

    fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        self.cx.array_class(class)
    }

    fn method<R>(
        &self,
        module: ModuleId,
        method: MethodDef,
        read: impl FnOnce(TypeDef, &Units, &[u8]) -> R,
    ) -> Result<R> {
        self.metadata(module)?.read_method(method, |row| read(row.class, row.name, row.signature))
    }

    fn type_def(&self, module: ModuleId, definition: TypeDef, name: &mut Units) -> Result<bool> {
        Ok(is_nested(self.metadata(module)?.read_type_def(definition, name)?.0))
    }

    fn enclosing_class(&self, module: ModuleId, nested: TypeDef) -> Result<Option<TypeDef>> {
        self.metadata(module)?.enclosing_class(nested)
    }

    fn type_ref(&self, module: ModuleId, reference: TypeRef, name: &mut Units) -> Result<Token> {
        self.metadata(module)?.read_type_ref(reference, name)
    }

    fn type_spec(&self, module: ModuleId, spec: TypeSpec) -> Result<Vec<u8>> {
        self.metadata(module)?.type_spec(spec)
    }

    fn generic_params(&self, module: ModuleId, owner: Token) -> Result<Vec<String>> {
        let params = self.metadata(module)?.generic_params(owner)?;
        Ok(params.into_iter().map(|param| param.name).collect())
    }

    fn known_class(&self, class: ClassId) -> Option<Name> {
        self.spelling.names(self.kept).get(&Named::Class(class)).ok()
    }

    fn learn(&self, of: Named, name: &Name) {
        self.spelling.names(self.kept).insert(self.ticket, of, name.clone());
    }
}

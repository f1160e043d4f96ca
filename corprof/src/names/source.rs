//! Where the parts of a name come from: the runtime and its metadata, or a test's own world.

use std::cell::Cell;
use std::sync::Arc;

use super::cache::Ticket;
use super::spelling::Spelling;
use super::{Name, NameCache};
use crate::context::InCallback;
use crate::error::Result;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{ArrayClass, ClassInfo, FunctionInfo};
use crate::metadata::{
    MetadataImport, MethodDef, MethodProps, Token, TypeDef, TypeDefProps, TypeRef, TypeRefProps, TypeSpec,
};

/// The questions whose answers make up a name. Each may fail, and the name then says so.
pub(super) trait Source {
    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo>;
    fn dynamic_function_name(&self, function: FunctionId) -> Result<String>;
    fn class_info(&self, class: ClassId) -> Result<ClassInfo>;
    fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>>;

    fn method(&self, module: ModuleId, method: MethodDef) -> Result<MethodProps>;
    fn type_def(&self, module: ModuleId, definition: TypeDef) -> Result<TypeDefProps>;
    fn enclosing_class(&self, module: ModuleId, nested: TypeDef) -> Result<Option<TypeDef>>;
    fn type_ref(&self, module: ModuleId, reference: TypeRef) -> Result<TypeRefProps>;
    fn type_spec(&self, module: ModuleId, spec: TypeSpec) -> Result<Vec<u8>>;
    /// The names of the generic parameters of a type or method, in order.
    fn generic_params(&self, module: ModuleId, owner: Token) -> Result<Vec<String>>;

    /// The class's name if it is known already.
    fn known_class(&self, class: ClassId) -> Option<Name>;
    /// Takes note of a class's name, found in full.
    fn learn_class(&self, class: ClassId, name: &Name);
}

/// The running runtime, for the length of one look-up.
pub(super) struct Live<'a, 'cb> {
    cx: &'a InCallback<'cb>,
    names: &'a NameCache,
    spelling: Spelling,
    ticket: Ticket,
    /// The metadata asked last: most of a name comes from one module.
    last: Cell<Option<(ModuleId, Arc<MetadataImport<'static>>)>>,
}

impl<'a, 'cb> Live<'a, 'cb> {
    /// Must be made before anything that goes into the name is asked.
    pub(super) fn new(cx: &'a InCallback<'cb>, names: &'a NameCache, spelling: Spelling) -> Self {
        Self { cx, names, spelling, ticket: names.spelt(spelling).classes.ticket(), last: Cell::new(None) }
    }

    pub(super) fn metadata(&self, module: ModuleId) -> Result<Arc<MetadataImport<'static>>> {
        if let Some((of, import)) = self.last.take()
            && of == module
        {
            self.last.set(Some((of, Arc::clone(&import))));
            return Ok(import);
        }
        let import = match self.names.imports.get(&module) {
            Ok(import) => import,
            Err(ticket) => {
                let import = Arc::new(self.cx.kept_metadata(module)?);
                self.names.imports.insert(ticket, module, Arc::clone(&import));
                import
            }
        };
        self.last.set(Some((module, Arc::clone(&import))));
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

    fn method(&self, module: ModuleId, method: MethodDef) -> Result<MethodProps> {
        self.metadata(module)?.method(method)
    }

    fn type_def(&self, module: ModuleId, definition: TypeDef) -> Result<TypeDefProps> {
        self.metadata(module)?.type_def(definition)
    }

    fn enclosing_class(&self, module: ModuleId, nested: TypeDef) -> Result<Option<TypeDef>> {
        self.metadata(module)?.enclosing_class(nested)
    }

    fn type_ref(&self, module: ModuleId, reference: TypeRef) -> Result<TypeRefProps> {
        self.metadata(module)?.type_ref(reference)
    }

    fn type_spec(&self, module: ModuleId, spec: TypeSpec) -> Result<Vec<u8>> {
        self.metadata(module)?.type_spec(spec)
    }

    fn generic_params(&self, module: ModuleId, owner: Token) -> Result<Vec<String>> {
        let params = self.metadata(module)?.generic_params(owner)?;
        Ok(params.into_iter().map(|param| param.name).collect())
    }

    fn known_class(&self, class: ClassId) -> Option<Name> {
        self.names.spelt(self.spelling).classes.get(&class).ok()
    }

    fn learn_class(&self, class: ClassId, name: &Name) {
        self.names.spelt(self.spelling).classes.insert(self.ticket, class, name.clone());
    }
}

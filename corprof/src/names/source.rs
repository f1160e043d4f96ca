//! The source of the parts of a name: the runtime and its metadata, or a test's made-up world.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use super::Name;
use super::spelling::Spelling;
use crate::context::InCallback;
use crate::error::Result;
use crate::ffi::buffer::Units;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{ArrayClass, ClassInfo, FunctionInfo};
use crate::metadata::{MetadataImport, MethodDef, Token, TypeDef, TypeRef, TypeSpec, is_nested};
use crate::session::names::{CachedImport, CachedName, Known, UnloadableImports};

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
    fn known_class(&self, class: ClassId) -> Option<impl Deref<Target = str>>;
    /// Keeps a complete name: the function's, and the class's, which is its beginning up to the given end.
    fn learn(&self, name: &Name, function: Option<FunctionId>, class: Option<(ClassId, usize)>);
}

/// The running runtime, for the length of one look-up.
pub(super) struct Live<'a, 'cb> {
    cx: &'a InCallback<'cb>,
    passing: &'a UnloadableImports,
    /// The known names as of the beginning of the look-up; new ones are inserted here.
    known: &'a Known,
    spelling: Spelling,
    /// The last metadata used: most of a name comes from one module.
    last: Cell<Option<(ModuleId, &'a MetadataImport<'static>)>>,
}

/// Metadata for the length of a look-up.
pub(super) enum Lent<'a> {
    Known(&'a MetadataImport<'static>),
    Passing(Arc<MetadataImport<'static>>),
}

impl Deref for Lent<'_> {
    type Target = MetadataImport<'static>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Known(import) => import,
            Self::Passing(import) => import,
        }
    }
}

impl<'a, 'cb> Live<'a, 'cb> {
    pub(super) fn new(
        cx: &'a InCallback<'cb>,
        passing: &'a UnloadableImports,
        known: &'a Known,
        spelling: Spelling,
    ) -> Self {
        Self { cx, passing, known, spelling, last: Cell::new(None) }
    }

    #[inline]
    pub(super) fn metadata(&self, module: ModuleId) -> Result<Lent<'_>> {
        if let Some((last, import)) = self.last.get()
            && last == module
        {
            return Ok(Lent::Known(import));
        }
        match self.known.imports.get(module).and_then(|kept| kept.downcast_ref()) {
            Some(import) => {
                self.last.set(Some((module, import)));
                Ok(Lent::Known(import))
            }
            None => self.other_metadata(module).map(Lent::Passing),
        }
    }

    #[cold]
    fn other_metadata(&self, module: ModuleId) -> Result<Arc<MetadataImport<'static>>> {
        let ticket = match self.passing.get(&module).map(CachedImport::downcast) {
            Ok(Ok(import)) => return Ok(import),
            // Only this file keeps values there.
            Ok(Err(_)) => None,
            Err(ticket) => Some(ticket),
        };
        let import = Arc::new(self.cx.kept_metadata(module)?);
        let kept: CachedImport = import.clone();
        if import.is_sure_to_stay() {
            if let Some(mut writer) = self.known.imports.writer() {
                writer.insert(module, kept);
            }
        } else if let Some(ticket) = ticket {
            self.passing.insert(ticket, module, kept);
        }
        Ok(import)
    }
}

impl Source for Live<'_, '_> {
    #[inline]
    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo> {
        self.cx.function_info(function)
    }

    fn dynamic_function_name(&self, function: FunctionId) -> Result<String> {
        self.cx.dynamic_function_name(function)
    }

    #[inline]
    fn class_info(&self, class: ClassId) -> Result<ClassInfo> {
        self.cx.class_info(class)
    }

    fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        self.cx.array_class(class)
    }

    #[inline]
    fn method<R>(
        &self,
        module: ModuleId,
        method: MethodDef,
        read: impl FnOnce(TypeDef, &Units, &[u8]) -> R,
    ) -> Result<R> {
        self.metadata(module)?.read_method(method, |row| read(row.class, row.name, row.signature))
    }

    #[inline]
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

    #[inline]
    fn known_class(&self, class: ClassId) -> Option<impl Deref<Target = str>> {
        self.spelling.table(self.known).get(class).map(CachedName::class_name)
    }

    #[inline]
    fn learn(&self, name: &Name, function: Option<FunctionId>, class: Option<(ClassId, usize)>) {
        if function.is_none() && class.is_none() {
            return;
        }
        let Some(mut writer) = self.spelling.table(self.known).writer() else { return };
        let kept = CachedName { name: name.clone(), end_of_class: class.map_or(0, |(_, end)| end) };
        match (function, class) {
            (Some(function), Some((class, _))) => writer.insert_for_both(function, class, kept),
            (Some(function), None) => writer.insert(function, kept),
            (None, Some((class, _))) => writer.insert(class, kept),
            (None, None) => {}
        }
    }
}

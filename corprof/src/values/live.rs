//! The [`Source`] of a plan in a running application.
//!
//! Signatures name types of other assemblies; the API asks for the module that defines a type. This finds a module by the name
//! of its assembly among the loaded ones. If two loaded assemblies have the name, the type is ambiguous; so is it if the second is
//! loaded later, in another load context, since a method may be compiled before its types are loaded
//! (`RuntimeHelpers.PrepareMethod`).

use std::collections::HashMap;
use std::sync::Arc;

use corprof_sys as sys;

use crate::context::InTriggers;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::metadata::signature::{MethodSignature, Primitive, Type};
use crate::metadata::{
    AssemblyRef, CORE_LIBRARY, ExportedType, MethodDef, Table, Token, TypeDef, TypeDefOrRef, TypeRef, awaited,
    is_suspended_by_the_runtime,
};

use crate::session::{ByName, SoleAssembly};

use super::Unreadable;
use super::plan::{Plan, size_of_number};
use super::planner::{self, Kind, Owner, Scope, Shape, ShapeField, Source};

/// The most times that a type is followed to another assembly or an enclosing type: more than real code has.
const MOST_STEPS: usize = 16;

/// Whether the types in the signature of a method are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Types {
    /// The method is being compiled: its types are loaded, or will be before it is called.
    AreLoaded,
    /// A type of another assembly than the core library may yet come from one of the same name, in another context.
    MayLoad,
}

/// Looks up the types that the signature of a function names.
pub(crate) struct Lookup<'a, 'cb> {
    cx: &'a mut InTriggers<'cb>,
    /// The only module, besides the core library, whose types are known to be those meant; none if all types are loaded.
    only: Option<ModuleId>,
    /// The assemblies that types were found in by name.
    assemblies: Vec<Arc<SoleAssembly>>,
}

/// One step in the search for the definition of a type.
enum Step {
    Found(ModuleId, TypeDef),
    /// The type is in the assembly of this name.
    Elsewhere(String),
}

impl<'a, 'cb> Lookup<'a, 'cb> {
    pub(crate) fn new(cx: &'a mut InTriggers<'cb>) -> Self {
        Self { cx, only: None, assemblies: Vec::new() }
    }

    /// The plan of a function that is being compiled.
    pub(crate) fn plan(&mut self, function: FunctionId) -> Plan {
        self.try_plan(function).unwrap_or_else(Plan::unreadable)
    }

    fn try_plan(&mut self, function: FunctionId) -> Result<Plan, Unreadable> {
        let info = self.cx.function_info(function).map_err(Unreadable::NotTold)?;
        let method = self.cx.metadata(info.module).and_then(|of| of.method(info.token)).map_err(Unreadable::NotTold)?;
        let signature = MethodSignature::decode(&method.signature)?;
        let class_args = match info.class {
            Some(class) => self.cx.class_info(class).map_or_else(|_| Vec::new(), |info| info.type_args),
            None => Vec::new(),
        };
        let this = match info.class {
            Some(class) => Owner::Class(class),
            None => Owner::Shared { is_value_type: self.is_value_type(info.module, method.class)? },
        };
        let method = planner::Method {
            scope: Scope { module: info.module, class_args: &class_args, method_args: &info.type_args },
            signature: &signature,
            this,
            names: self.parameter_names(info.module, info.token).unwrap_or_default(),
        };
        Ok(self.planned(method))
    }

    /// The plan for all instantiations of a method, which need not have been called. `this` of a class is an object. The result is
    /// what the body returns: of a method that the runtime suspends, what its task is for.
    pub(crate) fn plan_of_method(&mut self, module: ModuleId, method: MethodDef, types: Types) -> Plan {
        self.only = (types == Types::MayLoad).then_some(module);
        self.try_plan_of_method(module, method).unwrap_or_else(Plan::unreadable)
    }

    fn try_plan_of_method(&mut self, module: ModuleId, method: MethodDef) -> Result<Plan, Unreadable> {
        let (props, name, is_generic) = {
            let metadata = self.cx.metadata(module).map_err(Unreadable::NotTold)?;
            let props = metadata.method(method).map_err(Unreadable::NotTold)?;
            let name = metadata.type_def(props.class).map_err(Unreadable::NotTold)?.name;
            let is_generic = !metadata.generic_params(props.class).map_err(Unreadable::NotTold)?.is_empty();
            (props, name, is_generic)
        };
        let mut signature = MethodSignature::decode(&props.signature)?;
        if is_suspended_by_the_runtime(&props) {
            let metadata = self.cx.metadata(module).map_err(Unreadable::NotTold)?;
            signature.return_type = awaited(&metadata, &signature.return_type).unwrap_or(signature.return_type);
        }
        let is_value_type = name != "System.Enum" && self.is_value_type(module, props.class)?;
        let shared = Owner::Shared { is_value_type };
        let this = if signature.has_this && is_value_type && !is_generic {
            self.cx.class_from_token(module, props.class, &[]).map_or(shared, Owner::Class)
        } else {
            shared
        };
        let method = planner::Method {
            scope: Scope { module, class_args: &[], method_args: &[] },
            signature: &signature,
            this,
            names: self.parameter_names(module, method).unwrap_or_default(),
        };
        Ok(self.planned(method))
    }

    fn planned(&mut self, method: planner::Method<'_>) -> Plan {
        let plan = planner::plan(self, method);
        Plan { assemblies: std::mem::take(&mut self.assemblies).into(), ..plan }
    }

    /// Whether the core library defines a type; none if that library is not loaded yet.
    pub(crate) fn core_library_has(&mut self, name: &str) -> Option<bool> {
        let core = self.assembly(CORE_LIBRARY).ok()?;
        self.cx.metadata(core).and_then(|of| of.find_type_def(name, None)).ok().map(|found| found.is_some())
    }

    /// Whether the core library defines a type in another one; none if that library is not loaded yet.
    pub(crate) fn core_library_has_nested(&mut self, outer: &str, name: &str) -> Option<bool> {
        let core = self.assembly(CORE_LIBRARY).ok()?;
        let metadata = self.cx.metadata(core).ok()?;
        let Some(outer) = metadata.find_type_def(outer, None).ok()? else { return Some(false) };
        Some(metadata.find_type_def(name, Some(outer)).ok()?.is_some())
    }

    fn parameter_names(&self, module: ModuleId, method: MethodDef) -> Result<Vec<(u32, String)>> {
        let metadata = self.cx.metadata(module)?;
        let name = |param| metadata.param(param).map(|param| (param.sequence, param.name));
        metadata.params(method)?.into_iter().map(name).collect()
    }

    /// Whether a type is a value type, by the base type in its metadata.
    fn is_value_type(&self, module: ModuleId, definition: TypeDef) -> Result<bool, Unreadable> {
        let base = || -> Result<Option<String>> {
            let metadata = self.cx.metadata(module)?;
            Ok(match metadata.type_def(definition)?.extends {
                Some(TypeDefOrRef::Def(base)) => Some(metadata.type_def(base)?.name),
                Some(TypeDefOrRef::Ref(base)) => Some(metadata.type_ref(base)?.name),
                _ => None,
            })
        };
        let base = base().map_err(Unreadable::Layout)?;
        Ok(base.is_some_and(|base| base == "System.ValueType" || base == "System.Enum"))
    }

    /// The module of the assembly with this name, if only one has it. The plan is good as long as that is so.
    fn assembly(&mut self, name: &str) -> Result<ModuleId, Unreadable> {
        if name == CORE_LIBRARY {
            return self.loaded_by_name(name);
        }
        let info = self.cx.clone();
        let (module, sole) = info.loaded_assemblies().rely_on(name, || self.loaded_by_name(name))?;
        if !self.assemblies.iter().any(|known| Arc::ptr_eq(known, &sole)) {
            self.assemblies.push(sole);
        }
        Ok(module)
    }

    fn loaded_by_name(&mut self, name: &str) -> Result<ModuleId, Unreadable> {
        let changes = self.cx.liveness().changes();
        {
            let known = self.cx.loaded_assemblies().lock();
            if known.changes == changes
                && let Some(module) = known.modules.get(name)
            {
                return module.ok_or(Unreadable::AmbiguousType);
            }
        }
        let modules = self.loaded().map_err(Unreadable::Layout)?;
        let found = modules.get(name).copied().flatten().ok_or(Unreadable::AmbiguousType);
        *self.cx.loaded_assemblies().lock() = ByName { changes, modules };
        found
    }

    fn loaded(&mut self) -> Result<HashMap<String, Option<ModuleId>>> {
        let mut modules = HashMap::new();
        for module in self.cx.enum_modules()? {
            // Compiled code never depends on modules that are only partly loaded or already being unloaded.
            let Ok(Some(assembly)) = self.cx.module_info(module).map(|info| info.assembly) else { continue };
            let Ok(info) = self.cx.assembly_info(assembly) else { continue };
            if info.module == Some(module) {
                modules.entry(info.name).and_modify(|one| *one = None).or_insert(Some(module));
            }
        }
        Ok(modules)
    }

    /// The definition of a type.
    fn resolve(&mut self, module: ModuleId, token: TypeDefOrRef) -> Result<(ModuleId, TypeDef), Unreadable> {
        match token {
            TypeDefOrRef::Def(definition) => Ok((module, definition)),
            TypeDefOrRef::Ref(reference) => self.resolve_reference(module, reference, 0),
            TypeDefOrRef::Spec(_) => Err(Unreadable::InternalType),
        }
    }

    fn resolve_reference(
        &mut self,
        module: ModuleId,
        reference: TypeRef,
        steps: usize,
    ) -> Result<(ModuleId, TypeDef), Unreadable> {
        if steps > MOST_STEPS {
            return Err(Unreadable::TooComplex);
        }
        let props = self.cx.metadata(module).and_then(|of| of.type_ref(reference)).map_err(Unreadable::Layout)?;
        if let Ok(outer) = TypeRef::try_from(props.scope) {
            let (home, outer) = self.resolve_reference(module, outer, steps + 1)?;
            let nested = self.cx.metadata(home).and_then(|of| of.find_type_def(&props.name, Some(outer)));
            let nested = nested.map_err(Unreadable::Layout)?.ok_or(Unreadable::AmbiguousType)?;
            return Ok((home, nested));
        }
        if props.scope.table() == Some(Table::Module) {
            return self.find(module, &props.name);
        }
        let assembly = self.assembly_name(module, props.scope)?;
        let home = self.assembly(&assembly)?;
        self.find(home, &props.name)
    }

    fn assembly_name(&self, module: ModuleId, scope: Token) -> Result<String, Unreadable> {
        // The type is in another file of a multi-file assembly: .NET Core has none.
        let reference = AssemblyRef::try_from(scope).map_err(|_| Unreadable::AmbiguousType)?;
        let identity = self.cx.metadata(module).and_then(|of| of.assembly_ref(reference));
        Ok(identity.map_err(Unreadable::Layout)?.name)
    }

    /// The type of this name that a module defines, or that was moved from it to another.
    fn find(&mut self, module: ModuleId, name: &str) -> Result<(ModuleId, TypeDef), Unreadable> {
        let mut module = module;
        for _ in 0..MOST_STEPS {
            match self.step(module, name)? {
                Step::Found(module, definition) => return Ok((module, definition)),
                Step::Elsewhere(assembly) => module = self.assembly(&assembly)?,
            }
        }
        Err(Unreadable::TooComplex)
    }

    fn step(&self, module: ModuleId, name: &str) -> Result<Step, Unreadable> {
        let moved = || -> Result<Option<Token>> {
            let metadata = self.cx.metadata(module)?;
            let exported: Option<ExportedType> = metadata.find_exported_type(name, None)?;
            exported.map(|exported| Ok(metadata.exported_type(exported)?.implementation)).transpose()
        };
        let defined =
            self.cx.metadata(module).and_then(|of| of.find_type_def(name, None)).map_err(Unreadable::Layout)?;
        if let Some(definition) = defined {
            return Ok(Step::Found(module, definition));
        }
        let moved = moved().map_err(Unreadable::Layout)?.ok_or(Unreadable::AmbiguousType)?;
        Ok(Step::Elsewhere(self.assembly_name(module, moved)?))
    }

    /// The name of a class of the core library; none for other classes.
    fn core_name(&mut self, class: ClassId) -> Result<Option<String>> {
        let info = self.cx.class_info(class)?;
        if self.assembly(CORE_LIBRARY) != Ok(info.module) {
            return Ok(None);
        }
        Ok(Some(self.cx.metadata(info.module)?.type_def(info.token)?.name))
    }

    /// The underlying type of an enumeration.
    fn underlying(&self, class: ClassId) -> Result<Option<Primitive>> {
        let info = self.cx.class_info(class)?;
        let metadata = self.cx.metadata(info.module)?;
        for field in metadata.fields(info.token)? {
            let field = metadata.field(field)?;
            if field.flags.contains(sys::fdStatic) {
                continue;
            }
            let number = match Type::decode_field(&field.signature) {
                Ok(Type::Primitive(number)) => Some(number),
                _ => None,
            };
            return Ok(number.filter(|&number| size_of_number(number).is_some()));
        }
        Ok(None)
    }
}

/// The primitive types, by their names in the core library.
const PRIMITIVES: [(&str, Primitive); 16] = [
    ("System.Boolean", Primitive::Bool),
    ("System.Char", Primitive::Char),
    ("System.SByte", Primitive::Int8),
    ("System.Byte", Primitive::UInt8),
    ("System.Int16", Primitive::Int16),
    ("System.UInt16", Primitive::UInt16),
    ("System.Int32", Primitive::Int32),
    ("System.UInt32", Primitive::UInt32),
    ("System.Int64", Primitive::Int64),
    ("System.UInt64", Primitive::UInt64),
    ("System.Single", Primitive::Float32),
    ("System.Double", Primitive::Float64),
    ("System.IntPtr", Primitive::NativeInt),
    ("System.UIntPtr", Primitive::NativeUInt),
    ("System.String", Primitive::String),
    ("System.Object", Primitive::Object),
];

impl Source for Lookup<'_, '_> {
    fn kind(&mut self, class: ClassId) -> Result<Kind> {
        if self.cx.array_class(class)?.is_some() {
            return Ok(Kind::Reference);
        }
        let Some(parent) = self.cx.class_info(class)?.parent else { return Ok(Kind::Reference) };
        let own = self.core_name(class)?;
        match self.core_name(parent)?.as_deref() {
            Some("System.ValueType") => match own.as_deref() {
                // `System.Enum` itself is a class.
                Some("System.Enum") => Ok(Kind::Reference),
                Some(name) => {
                    let primitive = PRIMITIVES.iter().find(|(of, _)| *of == name);
                    Ok(primitive.map_or(Kind::Struct, |&(_, primitive)| Kind::Primitive(primitive)))
                }
                None => Ok(Kind::Struct),
            },
            Some("System.Enum") => {
                let underlying = self.underlying(class)?;
                underlying.map(Kind::Enum).ok_or(Error::new(E_INVALIDARG, "GetFieldProps"))
            }
            _ if own.as_deref() == Some("System.String") => Ok(Kind::String),
            _ => Ok(Kind::Reference),
        }
    }

    fn class(&mut self, module: ModuleId, token: TypeDefOrRef, type_args: &[ClassId]) -> Result<ClassId, Unreadable> {
        let (module, definition) = self.resolve(module, token)?;
        if self.only.is_some_and(|only| module != only) && self.assembly(CORE_LIBRARY) != Ok(module) {
            return Err(Unreadable::AmbiguousType);
        }
        self.cx.class_from_token(module, definition, type_args).map_err(Unreadable::Layout)
    }

    fn core_class(&mut self, primitive: Primitive) -> Result<ClassId, Unreadable> {
        let (name, _) = PRIMITIVES.iter().find(|(_, of)| *of == primitive).ok_or(Unreadable::TypedReference)?;
        let core = self.assembly(CORE_LIBRARY)?;
        let (core, definition) = self.find(core, name)?;
        self.cx.class_from_token(core, definition, &[]).map_err(Unreadable::Layout)
    }

    fn shape(&mut self, class: ClassId) -> Result<Shape> {
        let layout = self.cx.class_layout(class)?;
        let info = self.cx.class_info(class)?;
        let metadata = self.cx.metadata(info.module)?;
        let field = |field: &crate::info::FieldOffset| {
            let props = metadata.field(field.field)?;
            let of = Type::decode_field(&props.signature).ok();
            Ok(ShapeField { token: field.field, name: props.name, offset: field.offset as usize, of })
        };
        let fields = layout.fields.iter().map(field).collect::<Result<_>>()?;
        Ok(Shape { size: layout.size as usize, module: info.module, type_args: info.type_args, fields })
    }
}

//! The [`Source`] of a plan in a running application.
//!
//! Signatures name types of other assemblies, which are found by name among the loaded ones. A plan is given up when an
//! assembly of the same name is loaded later, in another load context: a method may be compiled before its types are
//! loaded (`RuntimeHelpers.PrepareMethod`).

use std::sync::Arc;

use corprof_sys as sys;

use crate::context::{InCallback, InNoGc};
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::SoleAssembly;
use crate::info::{Definitions, NotFound};
use crate::metadata::signature::{MethodSignature, Primitive, Type};
use crate::metadata::{CORE_LIBRARY, MethodDef, TypeDef, TypeDefOrRef, awaited, is_suspended_by_the_runtime};

use super::Unreadable;
use super::plan::{Plan, StringClass, size_of_number};
use super::planner::{self, Kind, Owner, Scope, Shape, ShapeField, Source};

/// How often the assemblies are listed again because another was loaded meanwhile.
const MOST_TRIES: usize = 16;

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
    cx: &'a mut InCallback<'cb>,
    /// The only module, besides the core library, whose types are known to be those meant; none if all types are
    /// loaded.
    only: Option<ModuleId>,
    /// The assemblies that types were found in by name.
    assemblies: Vec<Arc<SoleAssembly>>,
}

impl From<NotFound> for Unreadable {
    fn from(why: NotFound) -> Self {
        match why {
            NotFound::NotListed | NotFound::Ambiguous => Self::AmbiguousType,
            NotFound::NoName => Self::InternalType,
            NotFound::TooDeep => Self::TooComplex,
            NotFound::Runtime(error) => Self::Layout(error),
        }
    }
}

impl<'a, 'cb> Lookup<'a, 'cb> {
    pub(crate) fn new(cx: &'a mut InCallback<'cb>) -> Self {
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

    /// The plan for all instantiations of a method, which need not have been called. `this` of a class is an object.
    /// The result is what the body returns: of a method that the runtime suspends, what its task is for.
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
        let base = self.cx.metadata(module).and_then(|metadata| metadata.base_name(definition));
        let base = base.map_err(Unreadable::Layout)?;
        Ok(base.is_some_and(|base| base == "System.ValueType" || base == "System.Enum"))
    }

    /// The answer about definitions. It lists the assemblies first if modules have been loaded.
    fn ask<R>(&mut self, ask: impl Fn(&Definitions<'_, '_>) -> Result<R, NotFound>) -> Result<R, Unreadable> {
        for _ in 0..MOST_TRIES {
            self.cx.list_assemblies().map_err(Unreadable::Layout)?;
            let definitions = Definitions::new(self.cx);
            let answer = ask(&definitions);
            if answer.as_ref().is_err_and(|why| *why == NotFound::NotListed) {
                continue;
            }
            for sole in definitions.into_relied_on() {
                if !self.assemblies.iter().any(|known| Arc::ptr_eq(known, &sole)) {
                    self.assemblies.push(sole);
                }
            }
            return answer.map_err(Unreadable::from);
        }
        Err(Unreadable::AmbiguousType)
    }

    /// The module of the assembly with this name, if only one has it. The plan is good as long as that is so.
    fn assembly(&mut self, name: &str) -> Result<ModuleId, Unreadable> {
        self.ask(|definitions| definitions.assembly(name))
    }

    /// The name of a class of the core library; none for other classes.
    fn core_name(&mut self, class: ClassId) -> Result<Option<String>> {
        let info = self.cx.class_info(class)?;
        if self.assembly(CORE_LIBRARY) != Ok(info.module) {
            return Ok(None);
        }
        type_name(self.cx, info.module, info.token).map(Some)
    }
}

/// The full name of a type.
pub(super) fn type_name(cx: &InNoGc<'_>, module: ModuleId, definition: TypeDef) -> Result<String> {
    Ok(cx.metadata(module)?.type_def(definition)?.name)
}

/// Whether a type is an enumeration, by the base type in its metadata.
pub(super) fn is_enum(cx: &InNoGc<'_>, module: ModuleId, definition: TypeDef) -> Result<bool> {
    Ok(cx.metadata(module)?.base_name(definition)?.is_some_and(|base| base == "System.Enum"))
}

/// The underlying type of an enumeration.
pub(super) fn number_of_enum(cx: &InNoGc<'_>, module: ModuleId, definition: TypeDef) -> Result<Option<Primitive>> {
    let metadata = cx.metadata(module)?;
    for field in metadata.fields(definition)? {
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

/// The kind of a class that is not an array, by its own name and its base's, if they are of the core library.
pub(super) fn kind_by_names(
    own: Option<&str>,
    base: Option<&str>,
    number: impl FnOnce() -> Result<Option<Primitive>>,
) -> Result<Kind> {
    match base {
        Some("System.ValueType") => match own {
            // `System.Enum` itself is a class.
            Some("System.Enum") => Ok(Kind::Reference),
            Some(name) => {
                let primitive = PRIMITIVES.iter().find(|(of, _)| *of == name);
                Ok(primitive.map_or(Kind::Struct, |&(_, primitive)| Kind::Primitive(primitive)))
            }
            None => Ok(Kind::Struct),
        },
        Some("System.Enum") => number()?.map(Kind::Enum).ok_or(Error::new(E_INVALIDARG, "GetFieldProps")),
        _ if own == Some("System.String") => Ok(Kind::String),
        _ => Ok(Kind::Reference),
    }
}

/// The layout of the instance fields that a class declares itself.
pub(super) fn layout_of(cx: &InNoGc<'_>, class: ClassId) -> Result<Shape> {
    let layout = cx.class_layout(class)?;
    let info = cx.class_info(class)?;
    let metadata = cx.metadata(info.module)?;
    let field = |field: &crate::info::FieldOffset| {
        let props = metadata.field(field.field)?;
        let of = Type::decode_field(&props.signature).ok();
        Ok(ShapeField { token: field.field, name: props.name, offset: field.offset as usize, of })
    };
    let fields = layout.fields.iter().map(field).collect::<Result<_>>()?;
    Ok(Shape { size: layout.size as usize, module: info.module, type_args: info.type_args, fields })
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
        let base = self.core_name(parent)?;
        let info = self.cx.class_info(class)?;
        kind_by_names(own.as_deref(), base.as_deref(), || number_of_enum(self.cx, info.module, info.token))
    }

    fn class(&mut self, module: ModuleId, token: TypeDefOrRef, type_args: &[ClassId]) -> Result<ClassId, Unreadable> {
        let (module, definition) = self.ask(|definitions| definitions.resolve(module, token))?;
        if self.only.is_some_and(|only| module != only) && self.assembly(CORE_LIBRARY) != Ok(module) {
            return Err(Unreadable::AmbiguousType);
        }
        self.cx.class_from_token(module, definition, type_args).map_err(Unreadable::Layout)
    }

    fn core_class(&mut self, primitive: Primitive) -> Result<ClassId, Unreadable> {
        let (name, _) = PRIMITIVES.iter().find(|(_, of)| *of == primitive).ok_or(Unreadable::TypedReference)?;
        let core = self.assembly(CORE_LIBRARY)?;
        let (core, definition) = self.ask(|definitions| definitions.find(core, name))?;
        self.cx.class_from_token(core, definition, &[]).map_err(Unreadable::Layout)
    }

    fn string_class(&mut self) -> StringClass {
        let known = StringClass::of(self.cx);
        if known.get().is_none()
            && let Ok(core) = self.assembly(CORE_LIBRARY)
        {
            known.find(self.cx, core);
        }
        known
    }

    fn shape(&mut self, class: ClassId) -> Result<Shape> {
        layout_of(self.cx, class)
    }
}

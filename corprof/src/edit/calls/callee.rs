//! What can be said of a called method by its declaration: whether inserted code can call it, and with what.

use corprof_il::signature::{CallingConvention, MethodSignature, Primitive, Type};
use corprof_il::verify::Resolve;
use corprof_sys as sys;

use super::super::MethodEdit;
use super::super::live::LiveMetadata;
use super::argument::{Passed, is_reference, type_of};
use super::{CallArgument, CallProblem};
use crate::metadata::{
    MetadataImport, MethodDef, MethodProps, Table, TypeDef, TypeDefOrRef, is_suspended_by_the_runtime,
};

const UNMANAGED_CALLERS_ONLY: &str = "System.Runtime.InteropServices.UnmanagedCallersOnlyAttribute";

/// How deep types can be nested before they are given up.
const MOST_HOPS: usize = 64;

impl MethodEdit<'_> {
    /// The signature of a method that inserted code may call, as far as its declaration says.
    pub(super) fn declared(&self, method: MethodDef) -> Result<MethodSignature, CallProblem> {
        let import = self.metadata();
        let live = self.live();
        if method.token().table() != Some(Table::MethodDef) || !import.is_valid_token(method) {
            return Err(CallProblem::NotFound);
        }
        let props = import.method(method).map_err(|_| CallProblem::NotFound)?;
        let signature = MethodSignature::decode(&props.signature).map_err(|_| CallProblem::NotFound)?;
        if live.is_core(props.class) {
            return Err(CallProblem::CoreLibrary);
        }
        if !props.flags.contains(sys::mdStatic) || props.flags.contains(sys::mdVirtual) || signature.has_this {
            return Err(CallProblem::NotStatic);
        }
        if signature.generic_parameters != 0 || live.is_generic(props.class.into()) {
            return Err(CallProblem::Generic);
        }
        if props.name == ".cctor" {
            return Err(CallProblem::ClassConstructor);
        }
        if !has_il(&props) {
            return Err(CallProblem::NoIl);
        }
        if import.custom_attribute_named(method, UNMANAGED_CALLERS_ONLY) != Ok(None) {
            return Err(CallProblem::UnmanagedCallersOnly);
        }
        if signature.convention != CallingConvention::Default {
            return Err(CallProblem::CallingConvention);
        }
        if is_suspended_by_the_runtime(&props) {
            return Err(CallProblem::RuntimeAsync);
        }
        for (number, parameter) in signature.parameters.iter().enumerate() {
            if !is_plain(&live, parameter) {
                return Err(CallProblem::Parameter { number, ty: parameter.to_string() });
            }
        }
        let result = &signature.return_type;
        if !result.is_void() && !is_plain(&live, result) && !is_reference(result) {
            return Err(CallProblem::Result(result.to_string()));
        }
        let caller = import.method(self.method()).map_err(|_| CallProblem::NotFound)?.class;
        if !may_access(import, caller, &props) {
            return Err(CallProblem::Inaccessible);
        }
        Ok(signature)
    }

    /// Compares the arguments of a call with the parameters.
    pub(super) fn check_arguments(
        &self,
        signature: &MethodSignature,
        arguments: &[CallArgument],
    ) -> Result<(), CallProblem> {
        let parameters = signature.parameters.len();
        let given = arguments.len();
        if parameters != given {
            return Err(CallProblem::ArgumentCount { parameters, arguments: given });
        }
        for (number, (parameter, argument)) in signature.parameters.iter().zip(arguments).enumerate() {
            let passed = self.type_passed(number, argument)?;
            if passed.fits(parameter) {
                continue;
            }
            let argument = match passed {
                Passed::Null => "null".to_owned(),
                Passed::Of(ty) => ty.to_string(),
            };
            let parameter = parameter.to_string();
            return Err(CallProblem::ArgumentType { number, argument, parameter });
        }
        Ok(())
    }

    fn type_passed(&self, number: usize, argument: &CallArgument) -> Result<Passed, CallProblem> {
        let ty = match argument {
            CallArgument::Constant(constant) => {
                return type_of(constant).ok_or(CallProblem::UnreadableConstant);
            }
            CallArgument::Local(local) => self.locals().get(usize::from(*local)).cloned(),
            CallArgument::Argument(argument) => self.type_of_argument(usize::from(*argument)),
        };
        Ok(Passed::Of(ty.ok_or(CallProblem::NoVariable(number))?.unmodified().clone()))
    }

    /// The type of an argument of the edited method; `None` if there is none.
    fn type_of_argument(&self, number: usize) -> Option<Type> {
        let signature = self.signature_of_method();
        if !signature.has_this {
            return signature.parameters.get(number).cloned();
        }
        if let Some(parameter) = number.checked_sub(1) {
            return signature.parameters.get(parameter).cloned();
        }
        let class = self.metadata().method(self.method()).ok()?.class;
        let this = Type::Class(TypeDefOrRef::Def(class));
        // In a struct `this` is an address, and in a generic class it is an instantiation: neither is what a method can
        // take.
        let live = self.live();
        let is_class = live.is_reference(class) && !live.is_generic(class.into());
        Some(if is_class { this } else { Type::ByRef(Box::new(this)) })
    }
}

/// Whether a method has IL that managed code may call.
pub(super) fn has_il(method: &MethodProps) -> bool {
    let native = sys::mdPinvokeImpl | sys::mdAbstract;
    let not_il = sys::miCodeTypeMask | sys::miManagedMask | sys::miInternalCall;
    !method.flags.intersects(native) && !method.impl_flags.intersects(not_il)
}

/// Whether values of a type are passed: none that has an address of its own, and none of an unknown type. Arrays, and
/// objects whose class is of another module, can be changed by whoever has them.
fn is_plain(live: &LiveMetadata<'_>, ty: &Type) -> bool {
    let is_struct =
        |token: &TypeDefOrRef| !matches!(token, TypeDefOrRef::Spec(_)) && !live.is_by_ref_like(token.token());
    match ty {
        Type::Primitive(primitive) => {
            !matches!(primitive, Primitive::Void | Primitive::TypedRef | Primitive::NativeInt | Primitive::NativeUInt)
        }
        Type::Class(TypeDefOrRef::Def(class)) => !live.is_generic((*class).into()),
        Type::ValueType(token) => is_struct(token) && !live.is_generic(token.token()),
        Type::Generic { value_type: true, definition, arguments } => {
            is_struct(definition) && arguments.iter().all(|argument| is_plain(live, argument))
        }
        _ => false,
    }
}

/// Whether a method of `caller` may call a method of the same module.
fn may_access(import: &MetadataImport<'_>, caller: TypeDef, method: &MethodProps) -> bool {
    // The caller's type, and those that enclose it: they may access what is private in each.
    let mut around = vec![caller];
    while let Some(outer) = around.last().and_then(|inner| import.enclosing_class(*inner).ok().flatten()) {
        if around.len() >= MOST_HOPS {
            return false;
        }
        around.push(outer);
    }
    let access = method.flags & sys::mdMemberAccessMask;
    let is_open = [sys::mdAssem, sys::mdFamORAssem, sys::mdPublic].contains(&access);
    if !is_open && !around.contains(&method.class) {
        return false;
    }
    let mut class = method.class;
    for _ in 0..MOST_HOPS {
        if around.contains(&class) {
            return true;
        }
        let Ok(props) = import.type_def(class) else { return class.is_nil() };
        if !props.is_nested() {
            return true;
        }
        let Ok(Some(outer)) = import.enclosing_class(class) else { return false };
        let visibility = props.flags & sys::tdVisibilityMask;
        let is_open = [sys::tdNestedPublic, sys::tdNestedAssembly, sys::tdNestedFamORAssem].contains(&visibility);
        if !is_open && !around.contains(&outer) {
            return false;
        }
        class = outer;
    }
    false
}

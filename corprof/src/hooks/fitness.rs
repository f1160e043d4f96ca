//! Functions that are never hooked, whatever the profiler says.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corprof_sys as sys;

use super::suspensions::Form;
use crate::context::{InCallback, InNoGc};
use crate::error::{Error, Result};
use crate::id::FunctionId;
use crate::metadata::signature::{MethodSignature, Type};
use crate::metadata::{MetadataImport, MethodProps, NATIVE, TASKS, TypeDefOrRef, is_suspended_by_the_runtime};
use crate::session::{FunctionInfo, ReleaseFact};

/// Functions that the wrapper around slow hooks is not made for.
#[derive(Default)]
pub(super) struct SlowPath {
    /// Whether a runtime-async method was compiled.
    has_suspended: AtomicBool,
}

impl SlowPath {
    /// Records a function that is being compiled, whether the profiler hooks it or not.
    pub(super) fn note(&self, cx: &InNoGc<'_>, function: FunctionId) {
        if method(cx, function).is_ok_and(|(_, method)| is_suspended_by_the_runtime(&method)) {
            self.has_suspended.store(true, Relaxed);
        }
    }

    /// The runtime may compile functions without asking the profiler: assumes that one of them is runtime-async.
    pub(super) fn note_unasked(&self) {
        self.has_suspended.store(true, Relaxed);
    }

    /// Which of a method's forms a function is.
    pub(super) fn form(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Form {
        let Ok((metadata, method)) = self::method(cx, function) else { return Form::Ordinary };
        let is_suspended = is_suspended_by_the_runtime(&method);
        let may_have_two =
            is_suspended || self.has_suspended.load(Relaxed) && returns_a_task(&metadata, &method).unwrap_or_default();
        drop(metadata);
        if may_have_two { Form::of(cx, function, is_suspended) } else { Form::Ordinary }
    }

    /// Whether a function can have slow hooks; if in doubt, a reason why not.
    ///
    /// A function that native code calls (`UnmanagedCallersOnly`) calls the wrapper before it enters cooperative mode,
    /// and after it has left that: the mode changes in the method's code, which comes after the prolog
    /// (`fgAddReversePInvokeEnterExit` and `genProfilingEnterCallback` in the compiler). On such a thread the wrapper
    /// changes the mode around the hook by itself (`ProfileEnter` in vm/proftoeeinterfaceimpl.cpp), so the hook is in
    /// cooperative mode all the same: the live test
    /// `unmanaged::functions_that_native_code_calls_are_hooked_in_cooperative_mode` fails where a collection runs
    /// beside it. But a thread that the runtime has never seen kills .NET 8 there. And a method with a calling
    /// convention of its own passes values where the wrapper does not look.
    ///
    /// A runtime-async method cannot have slow hooks: on x86-64 it returns its continuation in rcx, which the wrapper
    /// around Leave overwrites (`ProfileLeaveNaked` in vm/amd64/asmhelpers.S and AsmHelpers.asm), so that the
    /// application would crash; and on no processor does it return what its signature says. A method that returns a
    /// task may have a second, runtime-async form with the same metadata, once a runtime-async method was compiled: a
    /// caller of such a form is compiled before the form. From then on the runtime is [asked](is_named_by_its_token)
    /// which form a function is.
    pub(super) fn check(&self, cx: &mut InCallback<'_>, function: FunctionId) -> std::result::Result<(), Unfit> {
        let info = cx.function_info(function)?;
        {
            let metadata = cx.metadata(info.module)?;
            let method = metadata.method(info.token)?;
            if let Some(native) = metadata.custom_attribute_named(info.token, NATIVE)? {
                let takes_threads = cx.runtime_info()?.has(ReleaseFact::TakesHooksOfForeignThreads);
                if !takes_threads || !is_of_platform(&native) {
                    return Err(Unfit::CalledByNativeCode);
                }
            }
            if is_suspended_by_the_runtime(&method) {
                return Err(Unfit::RuntimeAsync);
            }
            if !self.has_suspended.load(Relaxed) || !returns_a_task(&metadata, &method)? {
                return Ok(());
            }
        }
        if is_named_by_its_token(cx, function, &info)? { Ok(()) } else { Err(Unfit::AsyncForm) }
    }
}

/// Why a function has no slow hooks.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error("native code calls it, and this runtime's wrapper around hooks with values is not made for that")]
    CalledByNativeCode,
    #[error(
        "the runtime itself suspends it (runtime-async), and the runtime's wrapper would overwrite what it returns"
    )]
    RuntimeAsync,
    #[error(
        "it is a method's form for runtime-async callers, and the runtime's wrapper would overwrite what it returns"
    )]
    AsyncForm,
    #[error(transparent)]
    Runtime(#[from] Error),
}

/// Whether a function is what its token and type arguments stand for: of a method that returns a task this is the form
/// that returns the task, and the form for runtime-async callers has an identifier of its own (.NET 10 and 11, live
/// test `runtime_async::values_of_methods_that_return_tasks_are_told_in_every_program`).
pub(super) fn is_named_by_its_token(
    cx: &mut InCallback<'_>,
    function: FunctionId,
    info: &FunctionInfo,
) -> Result<bool> {
    let named = match cx.function_from_token(info.module, info.token) {
        Err(error) if error.code() == sys::CORPROF_E_FUNCTION_IS_PARAMETERIZED => {
            let Some(class) = info.class else { return Ok(false) };
            cx.function_from_token_and_type_args(class, info.token, &info.type_args)?
        }
        answer => answer?,
    };
    Ok(named == function)
}

/// Whether an attribute's value names no calling convention but those that are the platform's own in 64-bit processes.
///
/// A named one stands in it as the name of its type: `System.Runtime.CompilerServices.CallConvCdecl`; the property is
/// `CallConvs`.
fn is_of_platform(attribute: &[u8]) -> bool {
    const START: &[u8] = b"CallConv";
    const KNOWN: [&[u8]; 3] = [b"s", b"Cdecl", b"Stdcall"];
    let ends = attribute.windows(START.len()).enumerate().filter(|(_, found)| *found == START);
    ends.map(|(at, _)| attribute.get(at + START.len()..).unwrap_or_default())
        .all(|rest| KNOWN.iter().any(|known| rest.starts_with(known)))
}

/// What the metadata says of a function, and that itself.
pub(super) fn method<'cx>(cx: &'cx InNoGc<'_>, function: FunctionId) -> Result<(MetadataImport<'cx>, MethodProps)> {
    let info = cx.function_info(function)?;
    let metadata = cx.metadata(info.module)?;
    let method = metadata.method(info.token)?;
    Ok((metadata, method))
}

/// Whether a method has a body of IL. .NET 11 reports its own code for a native method (P/Invoke) as that method's, and
/// has a frame of it; older runtimes report none. The live test
/// `shadow::the_shadow_stack_of_inserted_hooks_is_the_stack` fails without this.
pub(super) fn has_il(method: &MethodProps) -> bool {
    let without = sys::CorMethodAttr::mdPinvokeImpl.bits() | sys::CorMethodAttr::mdAbstract.bits();
    let not_il = sys::CorMethodImpl::miCodeTypeMask.bits() | sys::CorMethodImpl::miInternalCall.bits();
    method.flags.bits() & without == 0 && method.impl_flags.bits() & not_il == 0
}

/// Whether a method returns a task; if in doubt, `true`.
fn returns_a_task(metadata: &MetadataImport<'_>, method: &MethodProps) -> Result<bool> {
    let Ok(signature) = MethodSignature::decode(&method.signature) else { return Ok(true) };
    let class = match signature.return_type.unmodified() {
        Type::Class(class) | Type::ValueType(class) => *class,
        Type::Generic { definition, .. } => *definition,
        _ => return Ok(false),
    };
    let name = match class {
        TypeDefOrRef::Def(class) => metadata.type_def(class)?.name,
        TypeDefOrRef::Ref(class) => metadata.type_ref(class)?.name,
        TypeDefOrRef::Spec(_) => return Ok(true),
    };
    Ok(TASKS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calling_convention_of_its_own_is_seen() {
        let named = |convention: &str| {
            format!("\u{1}\0\u{1}\0SP\u{9}CallConvs\u{1}\0\0\0System.Runtime.CompilerServices.{convention}")
        };
        assert!(is_of_platform(b"\x01\0\0\0"));
        assert!(is_of_platform(named("CallConvCdecl").as_bytes()));
        assert!(is_of_platform(named("CallConvStdcall").as_bytes()));
        for other in
            ["CallConvMemberFunction", "CallConvSwift", "CallConvThiscall", "CallConvSuppressGCTransition", "CallConv"]
        {
            assert!(!is_of_platform(named(other).as_bytes()), "{other}");
        }
        let both = named("CallConvCdecl") + "System.Runtime.CompilerServices.CallConvMemberFunction";
        assert!(!is_of_platform(both.as_bytes()));
    }
}

//! Redirects calls to another method that takes and returns the same.

use corprof_il::body::InsnId;
use corprof_il::signature::{MethodSignature, Type};
use corprof_il::verify::{MethodInfo, Resolve};
use corprof_il::{Instruction, Opcode, Operand};

use super::{EditError, MethodEdit, Refusal};
use crate::metadata::Token;

impl MethodEdit<'_> {
    /// Makes the body call `to` wherever it calls `from`; returns how many calls that are.
    ///
    /// Both are a `MethodDef` or a `MemberRef` of this module. They must take and return the same by their signatures:
    /// two static methods, or two methods of the same type. So arguments and result fit. References by `ldftn`, to
    /// delegates for instance, stay; so do calls with a prefix. A method that the caller may not access, or that does
    /// not exist, throws when the body is compiled.
    ///
    /// # Safety
    /// `to` can be called with whatever the body passes to `from`. A signature does not tell what a method does with
    /// it: one that takes an `IntPtr` may free that address, and a class constructor must not run twice.
    ///
    /// # Errors
    /// [`Refusal::OtherSignature`]; [`Refusal::NoMethod`] if one of the tokens is no such method, or is a constructor,
    /// an abstract or a generic one.
    pub unsafe fn redirect(&mut self, from: impl Into<Token>, to: impl Into<Token>) -> Result<usize, EditError> {
        let from = from.into();
        let to = to.into();
        {
            let live = self.live();
            let known = |token| live.method(token).filter(is_plain).ok_or(Refusal::NoMethod);
            if !are_alike(&known(from)?, &known(to)?) {
                return Err(Refusal::OtherSignature.into());
            }
        }
        let is_call = |insn: &Instruction| {
            let is_call = matches!(insn.opcode(), Opcode::Call | Opcode::Callvirt);
            is_call && insn.prefixes().is_empty() && insn.token() == Some(from)
        };
        let calls: Vec<InsnId> = self.body().iter().filter(|(_, insn)| is_call(insn)).map(|(id, _)| id).collect();
        for call in &calls {
            // A virtual call stays one: it finds a null `this`.
            let Some(opcode) = self.body().get(*call).map(Instruction::opcode) else { continue };
            let insn = Instruction::with(opcode, Operand::Token(to))?;
            self.code_mut().replace(*call, insn)?;
        }
        Ok(calls.len())
    }
}

/// Whether a method is called by its token alone, and may be called by `call`.
fn is_plain(method: &MethodInfo) -> bool {
    !method.is_constructor && !method.is_abstract && method.signature.generic_parameters == 0
}

fn are_alike(from: &MethodInfo, to: &MethodInfo) -> bool {
    let needs_owner = |signature: &MethodSignature| {
        let mut types = signature.parameters.iter().chain([&signature.return_type]);
        signature.has_this || signature.explicit_this || types.any(mentions_parameter)
    };
    from.signature == to.signature && (from.owner == to.owner && from.owner.is_some() || !needs_owner(&from.signature))
}

/// Whether a type depends on the type arguments of its method's class; if in doubt, it does.
fn mentions_parameter(ty: &Type) -> bool {
    match ty {
        Type::Primitive(_) | Type::Class(_) | Type::ValueType(_) => false,
        Type::ByRef(inner) | Type::Pointer(inner) | Type::SzArray(inner) => mentions_parameter(inner),
        Type::Generic { arguments, .. } => arguments.iter().any(mentions_parameter),
        _ => true,
    }
}

//! Functions that pass vectors to tail calls: they get no hooks with values by the runtime, and are not inlined into
//! functions that have such hooks.
//!
//! Around the hook of a tail call the compiler keeps values in the registers for results, as it takes them to survive
//! (`RBM_PROFILER_TAILCALL_TRASH` in jit/targetamd64.h): an argument of the call, computed before, may be in ymm0. But
//! the runtime's wrapper around hooks with values keeps 64 bits of such a register: the application would go on with a
//! part of a vector (.NET 8, 10 and 11, live test `attacks::code::vectors_that_tail_calls_pass_stay_whole`). The stubs
//! for hooks without values keep all of it. Inserted code ends no function before its hook.
//!
//! The same is true of vectors in structs; other structs are copied from memory, after the hook. A struct of another
//! module is found by name among the loaded assemblies. If it is not there yet, or several times, it may have a vector.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use corprof_il::body::Operand;
use corprof_il::signature::{MethodSignature, Type};
use corprof_il::{Body, Instruction, Opcode, Prefix};
use corprof_sys as sys;

use crate::context::{InCallback, InNoGc};
use crate::error::Result;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{Definitions, NotFound};
use crate::lock::unpoisoned;
use crate::metadata::{
    MemberRef, MetadataImport, MethodDef, MethodSpec, StandAloneSignature, Table, Token, TypeDef, TypeDefOrRef,
    TypeSpec,
};
use crate::suspension;

/// The functions with hooks for values, and those that were inlined into them. Their tail calls have hooks around them.
#[derive(Default)]
pub(super) struct TailHooks(Mutex<HashSet<usize>>);

impl TailHooks {
    /// No user code and no call of the runtime runs under this lock.
    fn functions(&self) -> MutexGuard<'_, HashSet<usize>> {
        suspension::forbid("the functions with hooks for values");
        unpoisoned(self.0.lock())
    }

    /// A function gets hooks.
    pub(super) fn note(&self, function: FunctionId) {
        self.functions().insert(function.as_raw());
    }

    /// Whether the tail calls of a function have hooks, wherever it was inlined.
    pub(super) fn has(&self, function: usize) -> bool {
        self.functions().contains(&function)
    }

    /// Whether a caller may inline a function. `passes_vectors`: whether the function may pass a vector to a tail call.
    pub(super) fn may_inline(
        &self,
        caller: usize,
        function: FunctionId,
        passes_vectors: impl FnOnce() -> bool,
    ) -> bool {
        if !self.has(caller) {
            return true;
        }
        if passes_vectors() {
            return false;
        }
        self.note(function);
        true
    }
}

/// The beginnings of the names of vectors that may be wider than 64 bits.
const VECTORS: [&str; 4] = [
    "System.Runtime.Intrinsics.Vector",
    "System.Numerics.Vector",
    "System.Numerics.Plane",
    "System.Numerics.Quaternion",
];

/// A vector of 64 bits.
const TWO_FLOATS: &str = "System.Numerics.Vector2";

/// How many structs are looked into for a function. Real code has fewer.
const MOST_STRUCTS: u32 = 500;

/// How often the assemblies are listed again because another was loaded meanwhile.
const MOST_TRIES: usize = 16;

/// Whether a function may pass a vector to a tail call. If in doubt, it may.
pub(super) fn passes_vectors(cx: &mut InCallback<'_>, function: FunctionId) -> bool {
    for _ in 0..MOST_TRIES {
        match find(cx, function) {
            Err(NotFound::NotListed) if cx.list_assemblies().is_ok() => {}
            found => return found.unwrap_or(true),
        }
    }
    true
}

fn find(cx: &InNoGc<'_>, function: FunctionId) -> Result<bool, NotFound> {
    let info = cx.function_info(function)?;
    let Ok(body) = Body::parse(&cx.il_function_body(info.module, info.token)?) else { return Ok(true) };
    let instructions: Vec<&Instruction> = body.iter().map(|(_, insn)| insn).collect();
    let is_last = |at: usize| instructions.get(at + 1).is_some_and(|next| next.opcode() == Opcode::Ret);
    let may_be_tail = |at: usize, insn: &Instruction| {
        let is_call = matches!(insn.opcode(), Opcode::Call | Opcode::Callvirt | Opcode::Calli);
        is_call && (is_last(at) || insn.prefixes().contains(&Prefix::Tail))
    };
    let calls: Vec<_> =
        instructions.iter().enumerate().filter(|(at, insn)| may_be_tail(*at, insn)).map(|(_, insn)| *insn).collect();
    if calls.is_empty() {
        return Ok(false);
    }
    let structs = Structs { cx, definitions: Definitions::new(cx), left: Cell::new(MOST_STRUCTS) };
    let of_class = match info.class {
        Some(class) => cx.class_info(class)?.type_args,
        None => Vec::new(),
    };
    let arguments = info.type_args.into_iter().chain(of_class);
    let is_over_vectors = any(arguments, |class| structs.has_vectors_as_argument(class))?;
    let metadata = cx.metadata(info.module)?;
    let types = Types { module: info.module, metadata: &metadata, is_over_vectors, structs: &structs };
    any(calls, |call| types.takes_vectors(call))
}

fn any<T>(all: impl IntoIterator<Item = T>, is: impl Fn(T) -> Result<bool, NotFound>) -> Result<bool, NotFound> {
    for one in all {
        if is(one)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_vector(name: &str) -> bool {
    name != TWO_FLOATS && VECTORS.iter().any(|vector| name.starts_with(vector))
}

/// Whether a method is an operator. For those of vectors the compiler has instructions.
fn is_operator(name: &str) -> bool {
    name.starts_with("op_")
}

/// Looks for vectors in structs.
struct Structs<'a, 'cb> {
    cx: &'a InNoGc<'cb>,
    definitions: Definitions<'a, 'cb>,
    /// How many more are looked into.
    left: Cell<u32>,
}

impl Structs<'_, '_> {
    /// Whether values of a type argument have vectors. Code is shared by classes, so theirs is not looked into.
    fn has_vectors_as_argument(&self, class: ClassId) -> Result<bool, NotFound> {
        if self.cx.array_class(class)?.is_some() {
            return Ok(false);
        }
        let info = self.cx.class_info(class)?;
        if !self.is_struct(info.module, info.token)? {
            return Ok(false);
        }
        Ok(self.has_vectors(info.module, info.token)?
            || any(info.type_args, |argument| self.has_vectors_as_argument(argument))?)
    }

    fn is_struct(&self, module: ModuleId, class: TypeDef) -> Result<bool, NotFound> {
        let base = self.cx.metadata(module)?.base_name(class)?;
        Ok(base.is_some_and(|base| base == "System.ValueType"))
    }

    /// Whether a struct is a vector or has some, but for what stands for its type parameters.
    fn has_vectors(&self, module: ModuleId, class: TypeDef) -> Result<bool, NotFound> {
        let metadata = self.cx.metadata(module)?;
        let Some(left) = self.left.get().checked_sub(1) else { return Ok(true) };
        self.left.set(left);
        if is_vector(&metadata.type_def(class)?.name) {
            return Ok(true);
        }
        let types = Types { module, metadata: &metadata, is_over_vectors: false, structs: self };
        any(metadata.fields(class)?, |field| {
            let props = metadata.field(field)?;
            if props.flags.contains(sys::fdStatic) {
                return Ok(false);
            }
            Type::decode_field(&props.signature).map_or(Ok(true), |ty| types.has_vectors(&ty))
        })
    }
}

/// The types that a module names.
struct Types<'a, 'cb> {
    module: ModuleId,
    metadata: &'a MetadataImport<'a>,
    /// Whether values with vectors stand for a type parameter.
    is_over_vectors: bool,
    structs: &'a Structs<'a, 'cb>,
}

impl Types<'_, '_> {
    /// Whether a call takes a vector by value.
    fn takes_vectors(&self, call: &Instruction) -> Result<bool, NotFound> {
        let Operand::Token(token) = call.operand() else { return Ok(true) };
        let (callee, arguments) = self.callee(*token)?;
        if any(&arguments, |ty| self.has_vectors(ty))? {
            return Ok(true);
        }
        let blob = match callee.table() {
            Some(Table::MethodDef) => {
                let method = self.metadata.method(MethodDef::from_raw(callee.as_raw()))?;
                if is_operator(&method.name) && self.is_vector_type(method.class.into())? {
                    return Ok(false);
                }
                method.signature
            }
            Some(Table::MemberRef) => {
                let member = self.metadata.member_ref(MemberRef::from_raw(callee.as_raw()))?;
                if is_operator(&member.name) && self.is_vector_type(member.parent)? {
                    return Ok(false);
                }
                if self.is_of_vectors(member.parent)? {
                    return Ok(true);
                }
                member.signature
            }
            Some(Table::StandAloneSignature) => {
                self.metadata.signature(StandAloneSignature::from_raw(callee.as_raw()))?
            }
            _ => return Ok(true),
        };
        let Ok(signature) = MethodSignature::decode(&blob) else { return Ok(true) };
        any(&signature.parameters, |ty| self.has_vectors(ty))
    }

    /// The method that a token names, and its type arguments.
    fn callee(&self, token: Token) -> Result<(Token, Vec<Type>)> {
        if token.table() != Some(Table::MethodSpec) {
            return Ok((token, Vec::new()));
        }
        let props = self.metadata.method_spec(MethodSpec::from_raw(token.as_raw()))?;
        Ok((props.parent, Type::decode_method_spec(&props.signature).unwrap_or_default()))
    }

    /// Whether a type is itself a vector.
    fn is_vector_type(&self, token: Token) -> Result<bool> {
        let Some(definition) = self.metadata.named_class(token) else { return Ok(false) };
        Ok(match definition {
            TypeDefOrRef::Def(class) => is_vector(&self.metadata.type_def(class)?.name),
            TypeDefOrRef::Ref(class) => is_vector(&self.metadata.type_ref(class)?.name),
            TypeDefOrRef::Spec(_) => false,
        })
    }

    /// Whether a type is an instantiation over vectors.
    fn is_of_vectors(&self, parent: Token) -> Result<bool, NotFound> {
        if parent.table() != Some(Table::TypeSpec) {
            return Ok(false);
        }
        let blob = self.metadata.type_spec(TypeSpec::from_raw(parent.as_raw()))?;
        let arguments = match Type::decode(&blob) {
            Ok(Type::Generic { arguments, .. }) => arguments,
            _ => return Ok(false),
        };
        any(&arguments, |ty| self.has_vectors(ty))
    }

    /// Whether a value of this type has vectors.
    fn has_vectors(&self, ty: &Type) -> Result<bool, NotFound> {
        match ty.unmodified() {
            Type::TypeParameter(_) | Type::MethodParameter(_) => Ok(self.is_over_vectors),
            Type::ValueType(definition) => self.is_or_has_vectors(*definition),
            Type::Generic { value_type: true, definition, arguments } => {
                Ok(any(arguments, |ty| self.has_vectors(ty))? || self.is_or_has_vectors(*definition)?)
            }
            _ => Ok(false),
        }
    }

    fn is_or_has_vectors(&self, definition: TypeDefOrRef) -> Result<bool, NotFound> {
        // Those of the core library need not be found.
        if let TypeDefOrRef::Ref(class) = definition
            && is_vector(&self.metadata.type_ref(class)?.name)
        {
            return Ok(true);
        }
        let (module, class) = self.structs.definitions.resolve(self.module, definition)?;
        self.structs.has_vectors(module, class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inlined_into_a_function_with_hooks_counts_with_it() {
        let [hooked, inlined, passing] = [8, 16, 24].map(|id| FunctionId::from_raw(id).unwrap());
        let hooks = TailHooks::default();
        assert!(hooks.may_inline(hooked.as_raw(), passing, || unreachable!("it has no hooks yet")));
        hooks.note(hooked);
        assert!(hooks.may_inline(hooked.as_raw(), inlined, || false));
        assert!(!hooks.may_inline(hooked.as_raw(), passing, || true));
        assert!(!hooks.may_inline(inlined.as_raw(), passing, || true));
        assert!(!hooks.has(passing.as_raw()));
    }
}

//! Inserts calls of static methods, whose arguments fit and whose code is proven to be harmless.
//!
//! `callee` judges a method by its declaration, `proof` by its code and that of the methods that it calls, with
//! `framework` for those of other modules; `argument` says what can be passed, and `problem` why not.

mod argument;
mod callee;
mod code;
mod framework;
mod problem;
mod proof;

use std::cell::RefCell;
use std::collections::BTreeMap;

use corprof_il::body::{InsnId, Part, RegionId};
use corprof_il::signature::{Primitive, Type};
use corprof_il::{Flow, Instruction, Opcode, Prefix};

pub use argument::CallArgument;
pub use problem::CallProblem;

use super::{EditError, MethodEdit, Refusal};
use crate::metadata::{MethodDef, is_suspended_by_the_runtime};
use argument::is_reference;

/// What was found out about methods that were to be called.
pub(super) type Proofs = RefCell<BTreeMap<MethodDef, Result<(), CallProblem>>>;

/// # Inserted calls
///
/// ```
/// # use corprof::edit::{CallArgument, EditError, MethodEdit};
/// # use corprof::prelude::*;
/// /// `Log.Note("Add returns", <the first argument>)` before each return.
/// fn note(edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
///     let note = edit.static_method("Shop.Log", "Note")?;
///     edit.call_before_returns(note, &["Add returns".into(), CallArgument::Argument(1)])?;
///     Ok(())
/// }
/// ```
///
/// The called method is one of the same module: static, not generic, accessible, with IL. Its arguments are constants,
/// and values of the edited method's arguments and local variables, of exactly the types of its parameters; a parameter
/// of type `object` takes any reference. Parameters are numbers, `bool`, `char`, `string`, `object`, structs and
/// classes of the module. A result is dropped. What is on the stack stays there.
///
/// What the method does is proven from its IL and from that of all methods of the module that it calls, class
/// constructors and finalizers included:
///
/// - They have no address that is not one of a field, a variable or an element: no pointer, no native int, no
///   function's address, no `stackalloc`, no P/Invoke.
/// - They call methods of the framework that do no harm to memory whatever they are passed: `Console.WriteLine`,
///   strings, numbers, collections, `Interlocked`, `Monitor` and others, no delegate, nothing of `InteropServices`.
///   They call no other library, and no virtual or generic method of the module.
/// - They write only to private fields, and use fields only of types in which no code works with addresses: such code
///   may trust its fields.
///
/// For the same reason the edited method itself may not work with addresses: it may not expect an exception where the
/// call is. The proof takes the module for what a compiler makes of a language that is type-safe but for such code; it
/// does not find out IL that uses an object as one of another class.
///
/// All else is refused with the method, the place and the reason ([`EditError::Call`]). A call that you know to be
/// harmless can be written by [`body_mut`](Self::body_mut), which is `unsafe`.
///
/// What remains yours:
///
/// - **What the program does with it.** The method may change data and print. `ToString`, `Equals` and `GetHashCode` of
///   objects may run, and what the application has set as `Console.Out`.
/// - **Exceptions** of the method are thrown in the edited one, and those of its class constructor as well.
/// - **Time.** It may wait for a lock or loop. It runs whenever the place is reached, and under the locks that are held
///   there.
/// - **Recursion.** A method that calls the edited one is refused, and so is one that takes objects, in an edited
///   `ToString`, `Equals` or `GetHashCode`. One that comes back on another way, or because of an edit of its own, is
///   not known: it calls without end.
/// - **The last error.** Between a P/Invoke and `Marshal.GetLastWin32Error` a call may overwrite the error.
///
/// Of several calls at a place the one that was inserted last is next to the instruction.
impl MethodEdit<'_> {
    /// The one static method of this name of a type of this module. `type_name` includes the namespace; nested types
    /// are found by [`metadata`](Self::metadata).
    ///
    /// # Errors
    /// [`CallProblem::NotFound`] if there is no such type, [`CallProblem::NotOne`] if it has no such method or several.
    pub fn static_method(&self, type_name: &str, method: &str) -> Result<MethodDef, EditError> {
        let import = self.metadata();
        let refuse = |problem| EditError::Call { method: format!("{type_name}.{method}"), problem };
        let class = import.find_type_def(type_name, None)?.ok_or_else(|| refuse(CallProblem::NotFound))?;
        let mut found = Vec::new();
        for candidate in import.methods_named(class, method)? {
            if import.method(candidate)?.flags.contains(corprof_sys::mdStatic) {
                found.push(candidate);
            }
        }
        match found[..] {
            [one] => Ok(one),
            _ => Err(refuse(CallProblem::NotOne(found.len()))),
        }
    }

    /// Calls `method` before an instruction. Branches to the instruction run the call, and the regions that cover the
    /// instruction cover it. Prefixes are part of an instruction, so the call comes before them.
    ///
    /// # Errors
    /// [`EditError::Call`] with the [problem](CallProblem). [`EditError::Edit`] if the instruction is not in the body.
    /// [`Refusal::RuntimeAsync`] and [`Refusal::CallingConvention`], if the edited method is such a one. Otherwise the
    /// runtime's errors about new rows of metadata. The body is as it was.
    pub fn call_before(
        &mut self,
        instruction: InsnId,
        method: MethodDef,
        arguments: &[CallArgument],
    ) -> Result<(), EditError> {
        let code = self.proven_call(method, arguments)?;
        self.check_before(instruction, method)?;
        self.insert_before(&[instruction], &code, arguments)
    }

    /// Calls `method` after an instruction: only a path that ran the instruction and goes on to the next one runs the
    /// call. After a conditional branch that is the path that does not branch.
    ///
    /// # Errors
    /// As [`call_before`](Self::call_before); [`CallProblem::NeverGoesOn`] after a `ret`, `br`, `leave`, `throw` and
    /// others.
    pub fn call_after(
        &mut self,
        instruction: InsnId,
        method: MethodDef,
        arguments: &[CallArgument],
    ) -> Result<(), EditError> {
        let code = self.proven_call(method, arguments)?;
        self.check_after(instruction, method)?;
        let mut insert = self.code_mut().after(instruction)?;
        for insn in code {
            insert = insert.push(insn);
        }
        self.zero_locals_for(arguments);
        Ok(())
    }

    /// Calls `method` before each `ret`, also if it is come to by a branch; returns how many there are. A result stays
    /// on the stack meanwhile. A method that only loops or throws has none.
    ///
    /// # Errors
    /// As [`call_before`](Self::call_before); [`Refusal::TailCall`] and [`Refusal::Jmp`] for a method that may end by
    /// such an instruction, after which nothing of it runs: see [`drop_tail_calls`](Self::drop_tail_calls).
    pub fn call_before_returns(&mut self, method: MethodDef, arguments: &[CallArgument]) -> Result<usize, EditError> {
        let code = self.proven_call(method, arguments)?;
        for (_, insn) in self.body().iter() {
            if insn.opcode() == Opcode::Jmp {
                return Err(Refusal::Jmp.into());
            }
            if insn.prefixes().contains(&Prefix::Tail) {
                return Err(Refusal::TailCall.into());
            }
        }
        let returns = self.body().returns();
        self.insert_before(&returns, &code, arguments)?;
        Ok(returns.len())
    }

    /// Calls `method` at the end of a part of a region, in it: before each of its [exits](corprof_il::Body::exits),
    /// also if it is come to by a branch; returns how many there are. Where a `leave` in a region inside goes out of
    /// the part, the `finally` blocks that it runs come after the call. A part that is left by exceptions only has no
    /// exit.
    ///
    /// # Errors
    /// As [`call_before`](Self::call_before); [`EditError::Edit`] if there is no such part.
    pub fn call_before_exits(
        &mut self,
        region: RegionId,
        part: Part,
        method: MethodDef,
        arguments: &[CallArgument],
    ) -> Result<usize, EditError> {
        let code = self.proven_call(method, arguments)?;
        let exits = self.body().exits(region, part)?;
        self.insert_before(&exits, &code, arguments)?;
        Ok(exits.len())
    }

    /// The code of a call that fits and is proven to be harmless.
    fn proven_call(&self, method: MethodDef, arguments: &[CallArgument]) -> Result<Vec<Instruction>, EditError> {
        let named = |problem| EditError::Call { method: self.name_of(method), problem };
        let own = self.metadata().method(self.method())?;
        if is_suspended_by_the_runtime(&own) {
            return Err(Refusal::RuntimeAsync.into());
        }
        let signature = self.signature_of_method();
        if signature.explicit_this || signature.convention != corprof_il::signature::CallingConvention::Default {
            return Err(Refusal::CallingConvention.into());
        }
        let signature = self.declared(method).map_err(named)?;
        self.check_arguments(&signature, arguments).map_err(named)?;
        // The called method may ask an object for its text, and so come back here.
        let is_asked = ["ToString", "Equals", "GetHashCode"].contains(&&*own.name);
        let is_object = |ty: &Type| is_reference(ty) && *ty != Type::Primitive(Primitive::String);
        if is_asked && signature.parameters.iter().any(is_object) {
            return Err(named(CallProblem::Recursive));
        }
        self.prove(method).map_err(named)?;
        let mut code = Vec::with_capacity(arguments.len() + 2);
        for argument in arguments {
            code.push(self.load(argument)?);
        }
        code.push(Instruction::call(method));
        if !signature.return_type.is_void() {
            code.push(Instruction::new(Opcode::Pop)?);
        }
        Ok(code)
    }

    fn insert_before(
        &mut self,
        places: &[InsnId],
        code: &[Instruction],
        arguments: &[CallArgument],
    ) -> Result<(), EditError> {
        for place in places {
            let mut insert = self.code_mut().before(*place)?;
            for insn in code {
                insert = insert.push(insn.clone());
            }
        }
        self.zero_locals_for(arguments);
        Ok(())
    }

    /// A local variable that is passed may not have been written yet. References are null then; others are anything,
    /// unless the method asks for zeroes.
    fn zero_locals_for(&mut self, arguments: &[CallArgument]) {
        let is_any = |argument: &CallArgument| match argument {
            CallArgument::Local(local) => {
                !self.locals().get(usize::from(*local)).is_some_and(|ty| is_reference(ty.unmodified()))
            }
            _ => false,
        };
        if arguments.iter().any(is_any) {
            self.code_mut().set_init_locals(true);
        }
    }

    fn check_before(&self, id: InsnId, method: MethodDef) -> Result<(), EditError> {
        match self.body().prev(id) {
            Some(before) => self.check_between(before, method),
            None => Ok(()),
        }
    }

    fn check_after(&self, id: InsnId, method: MethodDef) -> Result<(), EditError> {
        let missing = corprof_il::body::EditError::NoSuchInstruction(id);
        let insn = self.body().get(id).ok_or(missing)?;
        if matches!(insn.opcode().flow(), Flow::Branch | Flow::End) {
            let problem = CallProblem::NeverGoesOn(id, insn.opcode());
            return Err(EditError::Call { method: self.name_of(method), problem });
        }
        self.check_between(id, method)
    }

    /// Refuses a place after an instruction that belongs together with the next one.
    fn check_between(&self, before: InsnId, method: MethodDef) -> Result<(), EditError> {
        let Some(insn) = self.body().get(before) else { return Ok(()) };
        let opcode = insn.opcode();
        let problem = match opcode {
            _ if insn.prefixes().contains(&Prefix::Tail) => CallProblem::AfterTailCall(before),
            Opcode::Ldftn | Opcode::Ldvirtftn => CallProblem::FunctionAddress(before, opcode),
            _ => return Ok(()),
        };
        Err(EditError::Call { method: self.name_of(method), problem })
    }
}

//! [`MethodEdit`]: a body together with the metadata of its module.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use corprof_il::body::Encoded;
use corprof_il::body::Operand;
use corprof_il::verify::{MethodContext, Verifier};
use corprof_il::{Body, Instruction, Opcode};
use corprof_sys as sys;

use super::calls::Proofs;
use super::foreign::Others;
use super::live::LiveMetadata;
use super::probe::Values;
use super::{EditError, Refusal};
use crate::context::InCallback;
use crate::id::ModuleId;
use crate::info::Row;
use crate::metadata::signature::{MethodSignature, Primitive, Signature, Type};
use crate::metadata::{MetadataEmit, MetadataImport, MethodDef, StandAloneSignature, Table, dispatches_tail_calls};
use crate::session::liveness::Lifeline;

/// How many local variables edits add to a method at most: each frame of it has room for all of them, and a thread's
/// stack ends.
const MOST_ADDED_LOCALS: usize = 1024;

/// A body that is being edited, in its module. [`InCallback::edit_method`] lends it to a closure.
pub struct MethodEdit<'cb> {
    cx: &'cb InCallback<'cb>,
    lifeline: Lifeline,
    emit: MetadataEmit<'cb>,
    import: MetadataImport<'cb>,
    module: ModuleId,
    method: MethodDef,
    context: MethodContext,
    body: Body,
    locals: Vec<Type>,
    /// How many of them the method has by itself.
    own_locals: usize,
    has_new_rows: Cell<bool>,
    /// Whether the body names rows that another edit may have added.
    uses_rows: Cell<bool>,
    sites: Vec<&'static Values>,
    proofs: Proofs,
}

/// A finished edit.
pub(super) struct Finished {
    pub(super) body: Encoded,
    /// Whether the runtime may not know yet all rows that the body names.
    pub(super) has_new_rows: bool,
    /// The probes that need a plan of the method's values.
    pub(super) sites: Vec<&'static Values>,
}

/// A local variable that an edit has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Local(u16);

impl Local {
    /// Its number, for `ldloc` and `stloc`.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl<'cb> MethodEdit<'cb> {
    pub(super) fn open(
        cx: &'cb InCallback<'cb>,
        lifeline: Lifeline,
        module: ModuleId,
        method: MethodDef,
    ) -> Result<Self, EditError> {
        if method.as_raw() & 0x00ff_ffff == 0 {
            return Err(Refusal::DynamicMethod.into());
        }
        if cx.module_info(module)?.flags.contains(sys::COR_PRF_MODULE_DYNAMIC) {
            return Err(Refusal::DynamicModule.into());
        }
        let body = Body::parse(&cx.il_function_body(module, method)?)?;
        let emit = cx.metadata_emit(module)?;
        let import = emit.import()?;
        if dispatches_tail_calls(&import, &import.method(method)?) {
            return Err(Refusal::TailCallDispatch.into());
        }
        let live = LiveMetadata::with(&import, Others::new(cx, module, &lifeline));
        let context = live.context(method).ok_or(Refusal::BadSignature)?;
        Verifier::new(&live).verify(&body, &context).map_err(EditError::Original)?;
        let locals = match body.locals().filter(|token| token.table() == Some(Table::StandAloneSignature)) {
            Some(token) => {
                let blob = import.signature(StandAloneSignature::from_raw(token.as_raw()))?;
                let Ok(Signature::Locals(locals)) = Signature::decode(&blob) else {
                    return Err(Refusal::BadSignature.into());
                };
                locals
            }
            None => Vec::new(),
        };
        Ok(Self {
            cx,
            lifeline,
            emit,
            import,
            module,
            method,
            context,
            body,
            own_locals: locals.len(),
            locals,
            has_new_rows: Cell::new(false),
            uses_rows: Cell::new(false),
            sites: Vec::new(),
            proofs: Proofs::default(),
        })
    }

    /// The body as it is now.
    pub const fn body(&self) -> &Body {
        &self.body
    }

    /// The body, to be changed by hand-written instructions.
    ///
    /// The result is verified all the same: the flow of control, and how many values of which kinds are on the stack.
    ///
    /// # Safety
    /// What the verifier does not prove must hold: each object is of the class that the instruction expects that takes
    /// it, each address is one that may be read or written so, and each token that was made for this body means what
    /// its code takes it for. Code that breaks this corrupts the process. An address that the code contains must stay
    /// valid as long as the process runs.
    pub const unsafe fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Adds a local variable; returns its number for `ldloc` and `stloc`.
    ///
    /// It holds references and structs with references at null until it is written; others may begin with any value, if
    /// the method does not ask for zeroes ([`Body::init_locals`]). One that no instruction names takes no room.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocals`].
    pub fn add_local(&mut self, ty: Type) -> Result<Local, EditError> {
        if self.locals.len() - self.own_locals == MOST_ADDED_LOCALS {
            return Err(Refusal::TooManyLocals.into());
        }
        // 65,535 is not an index.
        let number = u16::try_from(self.locals.len()).ok().filter(|number| *number < u16::MAX);
        let number = number.ok_or(Refusal::TooManyLocals)?;
        self.locals.push(ty);
        Ok(Local(number))
    }

    /// Gives the body a signature of all local variables.
    fn declare_locals(&mut self) -> Result<(), EditError> {
        let token = self.signature_blob(Type::encode_locals(&self.locals)?)?;
        self.body.set_locals(Some(token.into()));
        Ok(())
    }

    /// Leaves out the added local variables that no instruction names, or makes them small where a later one is named.
    /// Returns whether there are any.
    fn shrink_locals(&mut self) -> bool {
        let named: HashSet<usize> = self.body.iter().filter_map(|(_, insn)| local_of(insn)).map(usize::from).collect();
        let added = self.own_locals..self.locals.len();
        let last = added.clone().rev().find(|number| named.contains(number));
        self.locals.truncate(last.map_or(self.own_locals, |last| last + 1));
        let mut has_unnamed = false;
        for number in added.filter(|number| !named.contains(number)) {
            has_unnamed = true;
            if let Some(unnamed) = self.locals.get_mut(number) {
                *unnamed = Type::Primitive(Primitive::UInt8);
            }
        }
        has_unnamed
    }

    /// The metadata as the verifier asks for them.
    pub(super) const fn live(&self) -> LiveMetadata<'_> {
        LiveMetadata::with(&self.import, Others::new(self.cx, self.module, &self.lifeline))
    }

    /// The module that the method belongs to.
    pub const fn module(&self) -> ModuleId {
        self.module
    }

    /// The method.
    pub const fn method(&self) -> MethodDef {
        self.method
    }

    /// The metadata of the module, including rows that were added.
    pub const fn metadata(&self) -> &MetadataImport<'cb> {
        &self.import
    }

    /// Adds to the metadata of the module what the other methods do not: rows are not looked for, and so defined each
    /// time.
    ///
    /// [`apply_meta_data`](InCallback::apply_meta_data) is called before the body is used; where that is refused, so is
    /// the edit. The other methods do without.
    pub fn emit(&self) -> &MetadataEmit<'cb> {
        self.has_new_rows.set(true);
        // The rows of the next module at this address are others.
        if let Ok(_loaded) = self.lifeline.pin("edit_method") {
            self.cx.defined_rows().begin(self.module.as_raw());
        }
        &self.emit
    }

    /// Adds references, literals and signatures: the runtime looks these up in the metadata when it compiles a body
    /// that names them, and needs no `ApplyMetaData` (the live tests of edits and probes, which make none). A reference
    /// to another assembly does need it.
    pub(super) const fn references(&self) -> &MetadataEmit<'cb> {
        &self.emit
    }

    /// The types of the local variables, added ones included.
    pub(super) fn locals(&self) -> &[Type] {
        &self.locals
    }

    pub(super) const fn proofs(&self) -> &Proofs {
        &self.proofs
    }

    pub(super) const fn context(&self) -> &'cb InCallback<'cb> {
        self.cx
    }

    pub(super) const fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }

    pub(super) const fn signature_of_method(&self) -> &MethodSignature {
        &self.context.signature
    }

    /// The type that the body returns: of a method that the runtime suspends, `T` of `Task<T>`.
    pub(super) fn type_of_result(&self) -> Type {
        self.context.returns.as_ref().unwrap_or(&self.context.signature.return_type).unmodified().clone()
    }

    pub(super) fn add_site(&mut self, site: &'static Values) {
        self.sites.push(site);
    }

    pub(super) fn note_use(&self, row: &Row) {
        // A string names nothing.
        if !matches!(row, Row::String(_)) {
            self.uses_rows.set(true);
        }
    }

    pub(super) const fn code_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Verifies and writes the edited body.
    pub(super) fn finish(mut self) -> Result<Finished, EditError> {
        let own_signature = self.body.locals();
        let has_added = self.locals.len() > self.own_locals;
        if has_added {
            self.declare_locals()?;
        }
        let live = LiveMetadata::with(&self.import, Others::new(self.cx, self.module, &self.lifeline));
        Verifier::new(&live).finish(&mut self.body, &self.context).map_err(EditError::Rejected)?;
        if has_added && self.shrink_locals() {
            match self.locals.len() > self.own_locals {
                true => self.declare_locals()?,
                false => self.body.set_locals(own_signature),
            }
        }
        let body = self.body.encode_mapped()?;
        let may_use_pending = self.uses_rows.get() && self.cx.defined_rows().is_pending(self.module.as_raw());
        let has_new_rows = self.has_new_rows.get() || may_use_pending;
        Ok(Finished { body, has_new_rows, sites: self.sites })
    }
}

/// The local variable that an instruction names.
fn local_of(insn: &Instruction) -> Option<u16> {
    let loaded_or_stored = insn.as_ldloc().or_else(|| insn.as_stloc());
    let address = match (insn.opcode(), insn.operand()) {
        (Opcode::Ldloca | Opcode::Ldloca_S, Operand::Variable(number)) => Some(*number),
        _ => None,
    };
    loaded_or_stored.or(address)
}

impl fmt::Debug for MethodEdit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodEdit").field("module", &self.module).field("method", &self.method).finish_non_exhaustive()
    }
}

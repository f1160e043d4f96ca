//! Adds the calls of a probe to a body.
//!
//! Calls at the beginning and at the return stand outside of the regions, where the compiler makes no stub for them.
//! Values are passed by the addresses of copies: the address of an argument would keep the argument itself out of
//! registers.

use corprof_il::body::{Body, InsnId};
use corprof_il::signature::{CallingConvention, Primitive, Type};
use corprof_il::{Instruction, Opcode, Prefix};

use super::super::counter::entry;
use super::super::{EditError, MethodEdit, Refusal};
use super::copies::{Copies, is_readable};
use super::entries::address_of_entry;
use super::site::Site;
use super::{Probe, ProbeKinds};
use crate::metadata::{StandAloneSignature, is_of_the_runtime};

/// The local variables that a probe adds to a method.
struct ProbeLocals {
    /// Of the arguments.
    copies: Copies,
    /// Holds the result on the way to the return; none if there is nothing to hold.
    result: Option<u16>,
    /// The same, if the probe receives the result.
    shown_result: Option<u16>,
    /// Holds an exception that leaves the method.
    exception: Option<u16>,
}

impl MethodEdit<'_> {
    pub(super) fn weave<P: Probe>(&mut self, probe: P) -> Result<(), EditError> {
        self.refuse(P::KINDS)?;
        let locals = self.add_probe_locals(P::KINDS)?;
        let without_address = self.probe_signature(0)?;
        let with_one_address = self.probe_signature(1)?;
        let with_all_addresses = self.probe_signature(locals.copies.len())?;

        let module = self.module();
        let method = self.method();
        let layout = self.context().string_layout()?;
        let site = Site::leak((***self.context()).clone(), module, method, layout, probe);
        self.add_site(site.values());
        let site = site.number();

        let wants = |kind| P::KINDS.contains(kind);
        let mut enter = Vec::new();
        if wants(ProbeKinds::ENTER)
            && let Some(function) = address_of_entry::<Site<P>>(locals.copies.len())
        {
            enter.extend(locals.copies.store());
            enter.extend(call(site, &locals.copies.places(), function, with_all_addresses)?);
            enter.extend(locals.copies.forget()?);
        }
        let leave = call(site, &[locals.shown_result], Site::<P>::address_of_leave(), with_one_address)?;
        let body = self.code_mut();
        if is_wrapped(P::KINDS) {
            let mut wrap = body.wrap_all(locals.result)?;
            if wants(ProbeKinds::UNWOUND) {
                wrap.with_fault(call(site, &[], Site::<P>::address_of_unwound(), without_address)?)?;
            }
            if let Some(local) = locals.exception {
                let function = Site::<P>::address_of_exception();
                let code = call(site, &[Some(local)], function, with_one_address)?;
                wrap.with_observer([Instruction::stloc(local)].into_iter().chain(code))?;
            }
            wrap.finish(if wants(ProbeKinds::LEAVE) { leave } else { Vec::new() })?;
        } else if wants(ProbeKinds::LEAVE) {
            insert_at_returns(body, locals.result, &leave)?;
        }
        insert_at_entry(body, enter)
    }

    fn add_probe_locals(&mut self, kinds: ProbeKinds) -> Result<ProbeLocals, EditError> {
        let wants = |kind| kinds.contains(kind);
        let copies = if wants(ProbeKinds::ARGUMENTS) { self.copy_arguments()? } else { Copies::default() };
        let returned = self.type_of_result();
        let is_void = returned == Type::Primitive(Primitive::Void);
        let is_shown = wants(ProbeKinds::RESULT) && is_readable(&returned);
        let is_held = !is_void && (is_wrapped(kinds) || wants(ProbeKinds::LEAVE));
        let result = if is_held { Some(self.add_local(returned)?.number()) } else { None };
        let object = Type::Primitive(Primitive::Object);
        let exception = if wants(ProbeKinds::EXCEPTION) { Some(self.add_local(object)?.number()) } else { None };
        Ok(ProbeLocals { copies, result, shown_result: result.filter(|_| is_shown), exception })
    }

    /// Refuses methods in which a probe would be wrong.
    pub(super) fn refuse(&self, kinds: ProbeKinds) -> Result<(), Refusal> {
        let signature = self.signature_of_method();
        if size_of::<usize>() != 8 {
            return Err(Refusal::Not64Bit);
        }
        if signature.convention != CallingConvention::Default || signature.explicit_this {
            return Err(Refusal::CallingConvention);
        }
        let props = self.metadata().method(self.method()).map_err(|_| Refusal::BadSignature)?;
        if is_of_the_runtime(self.metadata(), &props) {
            return Err(Refusal::OfTheRuntime);
        }
        let ends = ProbeKinds::LEAVE | ProbeKinds::EXCEPTION | ProbeKinds::UNWOUND;
        for (_, insn) in self.body().iter().filter(|_| kinds.intersects(ends)) {
            if insn.opcode() == Opcode::Jmp {
                return Err(Refusal::Jmp);
            }
            if insn.prefixes().contains(&Prefix::Tail) {
                return Err(Refusal::TailCall);
            }
        }
        Ok(())
    }
}

/// Whether the whole body is put into a region, whose handlers call the probe.
fn is_wrapped(kinds: ProbeKinds) -> bool {
    kinds.intersects(ProbeKinds::EXCEPTION | ProbeKinds::UNWOUND)
}

/// Inserts `code` before each return, with the result in `result` meanwhile.
fn insert_at_returns(body: &mut Body, result: Option<u16>, code: &[Instruction]) -> Result<(), EditError> {
    let returns = body.iter().filter(|(_, insn)| insn.opcode() == Opcode::Ret).map(|(id, _)| id);
    let returns: Vec<InsnId> = returns.collect();
    for at in returns {
        let mut place = body.before(at)?;
        let store = result.map(Instruction::stloc);
        let load = result.map(Instruction::ldloc);
        for insn in store.into_iter().chain(code.iter().cloned()).chain(load) {
            place = place.push(insn);
        }
    }
    Ok(())
}

/// Inserts `code` where the method begins, and not where loops jump back to.
fn insert_at_entry(body: &mut Body, code: Vec<Instruction>) -> Result<(), EditError> {
    if code.is_empty() {
        return Ok(());
    }
    let first = entry(body)?;
    let mut place = body.before(first)?.without_retargeting();
    for insn in code {
        place = place.push(insn);
    }
    Ok(())
}

pub(super) fn plain(opcode: Opcode) -> Result<Instruction, EditError> {
    Ok(Instruction::new(opcode)?)
}

/// Calls a function with the site and the addresses of local variables; 0 for those that are none.
pub(super) fn call(
    site: i64,
    places: &[Option<u16>],
    function: i64,
    signature: StandAloneSignature,
) -> Result<Vec<Instruction>, EditError> {
    let mut code = vec![Instruction::ldc_i8(site)];
    for place in places {
        code.push(place.map_or_else(|| Instruction::ldc_i4(0), Instruction::ldloca));
        code.push(plain(Opcode::Conv_U)?);
    }
    code.extend([Instruction::ldc_i8(function), plain(Opcode::Conv_U)?, Instruction::calli(signature)]);
    Ok(code)
}

//! Adds the calls of a probe to a body.
//!
//! Calls at the beginning and at the return stand outside of the regions, where the compiler makes no stub for them.
//! Values are passed by the addresses of copies: the address of an argument would keep the argument itself out of
//! registers.

use corprof_il::body::InsnId;
use corprof_il::signature::{CallingConvention, Primitive, Type};
use corprof_il::{Instruction, Opcode, Prefix};

use super::super::counter::entry;
use super::super::{EditError, MethodEdit, Refusal};
use super::copies::{Copies, is_readable};
use super::entries::address_of_entry;
use super::site::Site;
use super::{Probe, ProbeKinds};
use crate::metadata::{StandAloneSignature, is_of_the_runtime};

impl MethodEdit<'_> {
    pub(super) fn weave<P: Probe>(&mut self, probe: P) -> Result<(), EditError> {
        self.refuse(P::KINDS)?;
        let wants = |kind| P::KINDS.contains(kind);
        let copies = if wants(ProbeKinds::ARGUMENTS) { self.copy_arguments()? } else { Copies::default() };
        let returns = self.type_of_result();
        let is_wrapped = P::KINDS.intersects(ProbeKinds::EXCEPTION | ProbeKinds::UNWOUND);
        let has_result = returns != Type::Primitive(Primitive::Void) && (is_wrapped || wants(ProbeKinds::LEAVE));
        let is_shown = wants(ProbeKinds::RESULT) && is_readable(&returns);
        let result = if has_result { Some(self.add_local(returns)?.number()) } else { None };
        let object = Type::Primitive(Primitive::Object);
        let exception = if wants(ProbeKinds::EXCEPTION) { Some(self.add_local(object)?.number()) } else { None };
        let [none, one] = [0, 1].map(|addresses| self.probe_signature(addresses));
        let none = none?;
        let one = one?;
        let all = self.probe_signature(copies.len())?;

        let module = self.module();
        let method = self.method();
        let layout = self.context().string_layout()?;
        let site = Site::leak((***self.context()).clone(), module, method, layout, probe);
        self.add_site(site.values());

        let mut enter = Vec::new();
        if let Some(function) = address_of_entry::<Site<P>>(copies.len()).filter(|_| wants(ProbeKinds::ENTER)) {
            enter.extend(copies.store());
            enter.extend(call(site.number(), &copies.places(), function, all)?);
            enter.extend(copies.forget()?);
        }
        let leave = call(site.number(), &[result.filter(|_| is_shown)], Site::<P>::address_of_leave(), one)?;
        let body = self.code_mut();
        if is_wrapped {
            let mut wrap = body.wrap_all(result)?;
            if wants(ProbeKinds::UNWOUND) {
                wrap.with_fault(call(site.number(), &[], Site::<P>::address_of_unwound(), none)?)?;
            }
            if let Some(local) = exception {
                let code = call(site.number(), &[Some(local)], Site::<P>::address_of_exception(), one)?;
                wrap.with_observer([Instruction::stloc(local)].into_iter().chain(code))?;
            }
            wrap.finish(if wants(ProbeKinds::LEAVE) { leave } else { Vec::new() })?;
        } else if wants(ProbeKinds::LEAVE) {
            let rets = body.iter().filter(|(_, insn)| insn.opcode() == Opcode::Ret).map(|(id, _)| id);
            for ret in rets.collect::<Vec<InsnId>>() {
                let mut code = body.before(ret)?;
                let store = result.map(Instruction::stloc);
                let load = result.map(Instruction::ldloc);
                for insn in store.into_iter().chain(leave.iter().cloned()).chain(load) {
                    code = code.push(insn);
                }
            }
        }
        if !enter.is_empty() {
            let first = entry(body)?;
            let mut code = body.before(first)?.without_retargeting();
            for insn in enter {
                code = code.push(insn);
            }
        }
        Ok(())
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

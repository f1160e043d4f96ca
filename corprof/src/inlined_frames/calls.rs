//! The calls in the IL of methods, and the methods that they mean.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use corprof_il::{Body, Flow, InsnId, Instruction, Opcode, Prefix};
use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::Result;
use crate::id::ModuleId;
use crate::info::{Definitions, NotFound};
use crate::metadata::signature::{MethodSignature, Type};
use crate::metadata::{
    MemberRef, MemberRefProps, MetadataImport, MethodDef, MethodProps, MethodSpec, Token, TypeDef, TypeDefOrRef,
};

use super::chain::{Bodies, Call, MethodCalls, Target};

/// How many methods are remembered.
const MOST_METHODS: usize = 20_000;
/// The compiler inlines no greater body unless it is asked to (`JitExtDefaultPolicyMaxILProf` in jit/jitconfigvalues.h
/// is 1024), in bytes of IL.
const LARGEST_INLINED: usize = 2048;

/// A method by its definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Definition {
    pub(super) module: ModuleId,
    pub(super) method: MethodDef,
}

/// The calls of methods that were read, as long as no module comes or goes.
#[derive(Default)]
pub(super) struct KnownCalls {
    changes: u64,
    methods: HashMap<Definition, Arc<MethodCalls<Definition>>>,
}

impl KnownCalls {
    /// Reads the calls of methods, with what is known already.
    pub(super) fn reader<'a, 'cb>(&'a mut self, cx: &'a InNoGc<'cb>, changes: u64) -> CallReader<'a, 'cb> {
        if self.changes != changes || self.methods.len() > MOST_METHODS {
            self.methods.clear();
        }
        self.changes = changes;
        CallReader { cx, definitions: Definitions::new(cx), known: &mut self.methods }
    }
}

/// Reads the calls of methods.
pub(super) struct CallReader<'a, 'cb> {
    cx: &'a InNoGc<'cb>,
    definitions: Definitions<'a, 'cb>,
    known: &'a mut HashMap<Definition, Arc<MethodCalls<Definition>>>,
}

impl Bodies<Definition> for CallReader<'_, '_> {
    fn calls(&mut self, method: Definition) -> Arc<MethodCalls<Definition>> {
        if let Some(known) = self.known.get(&method) {
            return Arc::clone(known);
        }
        // A method that cannot be read may call anything.
        let calls = Arc::new(self.read(method).unwrap_or_else(|_| unknown()));
        self.known.insert(method, Arc::clone(&calls));
        calls
    }
}

impl CallReader<'_, '_> {
    fn read(&self, definition: Definition) -> Result<MethodCalls<Definition>> {
        let metadata = self.cx.metadata(definition.module)?;
        let method = metadata.method(definition.method)?;
        if !has_il(&method) {
            return Ok(MethodCalls::default());
        }
        let bytes = self.cx.current_il_function_body(definition.module, definition.method)?;
        let Ok(body) = Body::parse(&bytes) else { return Ok(unknown()) };
        let blocks = blocks(&body);
        let mut calls = Vec::new();
        let mut after_stores = Vec::new();
        for (id, insn) in body.iter() {
            let offset = body.origin(id).unwrap_or_default();
            let is_behind_store = after_stores.last() == Some(&offset) && insn.opcode() == Opcode::Nop;
            if is_store(insn.opcode()) || is_behind_store {
                after_stores.extend(body.next(id).and_then(|next| body.origin(next)));
            }
            let Block { number: block, is_of_loop } = blocks.get(&id).copied().unwrap_or_default();
            if let Some(target) = self.target(&metadata, definition.module, insn) {
                calls.push(Call { offset, block, is_of_loop, target, is_tail: is_tail(&body, id, insn) });
            }
        }
        let may_be_inlined = may_be_inlined(&method, bytes.len(), &body);
        Ok(MethodCalls { calls, may_be_inlined, is_virtual: method.flags.contains(sys::mdVirtual), after_stores })
    }

    /// What an instruction calls, if it is a call that may lead to managed code.
    fn target(
        &self,
        metadata: &MetadataImport<'_>,
        module: ModuleId,
        insn: &Instruction,
    ) -> Option<Target<Definition>> {
        match insn.opcode() {
            Opcode::Call | Opcode::Callvirt | Opcode::Newobj => {}
            Opcode::Calli | Opcode::Jmp => return Some(Target::Unknown),
            _ => return None,
        }
        let Some(token) = insn.token() else { return Some(Target::Unknown) };
        let Ok(definition) = self.definition(metadata, module, token) else { return Some(Target::Unknown) };
        self.called(definition, insn).unwrap_or(Some(Target::Unknown))
    }

    /// What a call of this method calls.
    fn called(&self, definition: Definition, insn: &Instruction) -> Result<Option<Target<Definition>>> {
        let metadata = self.cx.metadata(definition.module)?;
        let method = metadata.method(definition.method)?;
        let is_constructor = method.name == ".ctor";
        if method.impl_flags & sys::miCodeTypeMask == sys::miRuntime {
            // The constructor of a delegate only stores; the others call what it holds.
            return Ok((!is_constructor).then_some(Target::Unknown));
        }
        if method.impl_flags.contains(sys::miInternalCall) {
            // Those of strings stand for managed methods.
            return Ok(is_constructor.then_some(Target::Unknown));
        }
        if method.flags.intersects(sys::mdPinvokeImpl | sys::mdAbstract) {
            return Ok(Some(Target::Unknown));
        }
        let is_virtual = method.flags.contains(sys::mdVirtual);
        let is_constrained = insn.prefixes().iter().any(|prefix| matches!(prefix, Prefix::Constrained(_)));
        if is_constrained && (is_virtual || insn.opcode() == Opcode::Call) {
            return Ok(Some(Target::Unknown));
        }
        if insn.opcode() == Opcode::Callvirt && is_virtual && !method.flags.contains(sys::mdFinal) {
            let is_sealed = metadata.type_def(method.class)?.flags.contains(sys::tdSealed);
            if !is_sealed {
                return Ok(Some(Target::Unknown));
            }
        }
        Ok(Some(Target::Method(definition)))
    }

    /// The method that a token means.
    fn definition(
        &self,
        metadata: &MetadataImport<'_>,
        module: ModuleId,
        token: Token,
    ) -> Result<Definition, NotFound> {
        if let Ok(method) = MethodDef::try_from(token) {
            return Ok(Definition { module, method });
        }
        if let Ok(spec) = MethodSpec::try_from(token) {
            let parent = metadata.method_spec(spec)?.parent;
            // The parent of a spec is no spec.
            return match MethodSpec::try_from(parent) {
                Ok(_) => Err(NotFound::NoName),
                Err(_) => self.definition(metadata, module, parent),
            };
        }
        let reference = MemberRef::try_from(token).map_err(|_| NotFound::NoName)?;
        let member = metadata.member_ref(reference)?;
        let class = metadata.named_class(member.parent).ok_or(NotFound::NoName)?;
        let (home, class) = self.definitions.resolve(module, class)?;
        let method = self.member(metadata, &member, home, class)?.ok_or(NotFound::Ambiguous)?;
        Ok(Definition { module: home, method })
    }

    /// The method of a class that a reference means; none if the class does not declare it itself.
    fn member(
        &self,
        metadata: &MetadataImport<'_>,
        member: &MemberRefProps,
        home: ModuleId,
        class: TypeDef,
    ) -> Result<Option<MethodDef>> {
        let Ok(wanted) = MethodSignature::decode(&member.signature) else { return Ok(None) };
        let declaring = self.cx.metadata(home)?;
        let mut candidates = Vec::new();
        for method in declaring.methods_named(class, &member.name)? {
            let Ok(signature) = MethodSignature::decode(&declaring.method(method)?.signature) else { continue };
            if has_same_form(&wanted, &signature) {
                candidates.push((method, signature));
            }
        }
        if let [(method, _)] = candidates.as_slice() {
            return Ok(Some(*method));
        }
        let mut equal = candidates.iter().filter(|(_, signature)| {
            let types = std::iter::once((&wanted.return_type, &signature.return_type));
            let mut types = types.chain(wanted.parameters.iter().zip(&signature.parameters));
            types.all(|(one, other)| is_same_type(metadata, one, &declaring, other))
        });
        Ok(equal.next().map(|(method, _)| *method).filter(|_| equal.next().is_none()))
    }
}

/// The calls of a method of which nothing is known.
fn unknown() -> MethodCalls<Definition> {
    let call = Call { offset: 0, block: 0, is_of_loop: true, target: Target::Unknown, is_tail: true };
    MethodCalls { calls: vec![call], may_be_inlined: true, is_virtual: true, after_stores: Vec::new() }
}

fn has_il(method: &MethodProps) -> bool {
    let is_elsewhere = method.flags.intersects(sys::mdPinvokeImpl | sys::mdAbstract);
    let is_il = !method.impl_flags.intersects(sys::miCodeTypeMask | sys::miInternalCall);
    !is_elsewhere && is_il
}

/// Whether the compiler may inline a method. If in doubt, it may.
fn may_be_inlined(method: &MethodProps, size: usize, body: &Body) -> bool {
    let how = method.impl_flags;
    if how.intersects(sys::miNoInlining | sys::miNoOptimization | sys::miSynchronized) {
        return false;
    }
    if how.contains(sys::miAggressiveInlining) {
        return true;
    }
    // A method that only throws: the compiler keeps it out of its callers.
    let mut instructions = body.iter().map(|(_, insn)| insn);
    let only_throws = instructions.all(|insn| insn.opcode() != Opcode::Ret && insn.targets().is_empty());
    size <= LARGEST_INLINED && !only_throws
}

/// A part of a method without a branch into or out of its middle.
#[derive(Clone, Copy, Default)]
struct Block {
    number: u32,
    /// Whether a loop begins or ends with it.
    is_of_loop: bool,
}

/// The block of each instruction.
fn blocks(body: &Body) -> HashMap<InsnId, Block> {
    let places: HashMap<InsnId, usize> = body.iter().enumerate().map(|(place, (id, _))| (id, place)).collect();
    let targets_of =
        |insn: &Instruction| -> Vec<InsnId> { insn.targets().iter().filter_map(|label| body.target(*label)).collect() };
    let mut targets: HashSet<InsnId> = HashSet::new();
    let mut loops: HashSet<InsnId> = HashSet::new();
    for (id, insn) in body.iter() {
        for target in targets_of(insn) {
            targets.insert(target);
            if places.get(&target) <= places.get(&id) {
                loops.extend([id, target]);
            }
        }
    }
    let mut number = 0;
    let mut begins = false;
    let mut blocks = HashMap::new();
    for (id, insn) in body.iter() {
        if begins || targets.contains(&id) {
            number += 1;
        }
        begins = !matches!(insn.opcode().flow(), Flow::Next | Flow::Prefix);
        blocks.insert(id, number);
    }
    let of_loops: HashSet<u32> = loops.iter().filter_map(|id| blocks.get(id).copied()).collect();
    let block = |number: u32| Block { number, is_of_loop: of_loops.contains(&number) };
    blocks.into_iter().map(|(id, number)| (id, block(number))).collect()
}

/// Whether the method may end with this call.
fn is_tail(body: &Body, id: InsnId, insn: &Instruction) -> bool {
    if insn.prefixes().contains(&Prefix::Tail) {
        return true;
    }
    let mut next = body.next(id);
    while let Some(insn) = next.and_then(|id| body.get(id)) {
        match insn.opcode() {
            Opcode::Nop => next = next.and_then(|id| body.next(id)),
            // Where a branch goes, the method may end.
            Opcode::Ret | Opcode::Br | Opcode::Br_S => return true,
            _ => return false,
        }
    }
    false
}

const fn is_store(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Stloc
            | Opcode::Stloc_S
            | Opcode::Stloc_0
            | Opcode::Stloc_1
            | Opcode::Stloc_2
            | Opcode::Stloc_3
            | Opcode::Starg
            | Opcode::Starg_S
    )
}

fn has_same_form(one: &MethodSignature, other: &MethodSignature) -> bool {
    one.convention == other.convention
        && one.has_this == other.has_this
        && one.generic_parameters == other.generic_parameters
        && one.parameters.len() == other.parameters.len()
}

/// Whether two types of signatures are the same, as far as names tell.
fn is_same_type(metadata: &MetadataImport<'_>, one: &Type, others: &MetadataImport<'_>, other: &Type) -> bool {
    let is_same = |one: &Type, other: &Type| is_same_type(metadata, one, others, other);
    match (one.unmodified(), other.unmodified()) {
        (Type::Class(one), Type::Class(other)) | (Type::ValueType(one), Type::ValueType(other)) => {
            has_same_name(metadata, *one, others, *other)
        }
        (Type::Pointer(one), Type::Pointer(other))
        | (Type::ByRef(one), Type::ByRef(other))
        | (Type::SzArray(one), Type::SzArray(other)) => is_same(one, other),
        (Type::Array(one, shape), Type::Array(other, of_other)) => shape == of_other && is_same(one, other),
        (
            Type::Generic { definition: one, arguments: of_one, .. },
            Type::Generic { definition: other, arguments: of_other, .. },
        ) => {
            of_one.len() == of_other.len()
                && has_same_name(metadata, *one, others, *other)
                && of_one.iter().zip(of_other).all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other,
    }
}

fn has_same_name(
    metadata: &MetadataImport<'_>,
    one: TypeDefOrRef,
    others: &MetadataImport<'_>,
    other: TypeDefOrRef,
) -> bool {
    let name = class_name(metadata, one);
    name.is_some() && name == class_name(others, other)
}

/// The name of a class with those of the classes around it, the innermost first.
fn class_name(metadata: &MetadataImport<'_>, class: TypeDefOrRef) -> Option<Vec<String>> {
    match class {
        TypeDefOrRef::Def(class) => {
            let mut names = vec![metadata.type_def(class).ok()?.name];
            let mut inner = class;
            while let Some(outer) = metadata.enclosing_class(inner).ok()? {
                names.push(metadata.type_def(outer).ok()?.name);
                inner = outer;
            }
            Some(names)
        }
        TypeDefOrRef::Ref(reference) => {
            let mut reference = metadata.type_ref(reference).ok()?;
            let mut names = vec![reference.name];
            while let Ok(outer) = crate::metadata::TypeRef::try_from(reference.scope) {
                reference = metadata.type_ref(outer).ok()?;
                names.push(reference.name);
            }
            Some(names)
        }
        TypeDefOrRef::Spec(_) => None,
    }
}

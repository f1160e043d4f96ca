//! Proves that a method does no harm to memory, whatever it is passed and whenever it is called: from its IL, and from
//! that of all methods of the module that it calls.
//!
//! It takes the module's code for what compilers make of code that is not `unsafe`: objects are of the classes that
//! instructions expect.

use std::collections::BTreeSet;

use corprof_il::body::InsnId;
use corprof_il::signature::{MethodSignature, Signature, Type};
use corprof_il::verify::{Category, Resolve, StackText, Verifier};
use corprof_il::{Body, Instruction, Opcode, OperandKind, Prefix};
use corprof_sys as sys;

use super::super::MethodEdit;
use super::super::live::LiveMetadata;
use super::CallProblem;
use super::callee::has_il;
use super::code::{casts, has_address, is_address, is_arithmetic, takes_function, uses_addresses};
use super::framework::{is_for_unsafe, is_framework, may_pass, may_use};
use crate::metadata::{
    AssemblyRef, FieldDef, MemberRef, MetadataImport, MethodDef, MethodProps, Table, Token, TypeDef, TypeDefOrRef,
    TypeRef, is_suspended_by_the_runtime,
};

/// The most methods that are looked at for one call.
const MOST_METHODS: usize = 500;

/// How deep types can be nested before they are given up.
const MOST_HOPS: usize = 16;

/// What is wrong with an instruction or a method, for human readers.
type Why = String;

/// A type of the framework by the name of its outermost type.
struct OfFramework(String);

impl MethodEdit<'_> {
    /// Proves that the code of a method is harmless, once for an edit.
    pub(super) fn prove(&self, method: MethodDef) -> Result<(), CallProblem> {
        if let Some(known) = self.proofs().borrow().get(&method) {
            return known.clone();
        }
        let proof = self.prove_anew(method);
        self.proofs().borrow_mut().insert(method, proof.clone());
        proof
    }

    fn prove_anew(&self, method: MethodDef) -> Result<(), CallProblem> {
        let live = self.live();
        let mut proof = Proof {
            edit: self,
            import: self.metadata(),
            live: &live,
            seen: BTreeSet::new(),
            waiting: Vec::new(),
            used: BTreeSet::new(),
        };
        proof.no_addresses(self.method()).map_err(CallProblem::UnsafeCaller)?;
        proof.add(method);
        while let Some(next) = proof.waiting.pop() {
            if next == self.method() {
                return Err(CallProblem::Recursive);
            }
            proof.method(next)?;
        }
        proof.fields()
    }

    /// `Type.Method`, for messages; the token if it has no name.
    pub(super) fn name_of(&self, method: MethodDef) -> String {
        let Ok(props) = self.metadata().method(method) else { return method.token().to_string() };
        match self.metadata().type_def(props.class) {
            Ok(class) => format!("{}.{}", class.name, props.name),
            Err(_) => props.name,
        }
    }
}

struct Proof<'a> {
    edit: &'a MethodEdit<'a>,
    import: &'a MetadataImport<'a>,
    live: &'a LiveMetadata<'a>,
    seen: BTreeSet<MethodDef>,
    waiting: Vec<MethodDef>,
    /// The types whose fields are used.
    used: BTreeSet<TypeDef>,
}

impl Proof<'_> {
    fn add(&mut self, method: MethodDef) {
        if self.seen.insert(method) {
            self.waiting.push(method);
        }
    }

    /// A static member of a type runs its class constructor, if that has not run yet.
    fn add_class_constructor(&mut self, class: TypeDef) -> Result<(), Why> {
        self.add_named(class, ".cctor")
    }

    /// The methods of this name of a type, as the runtime may run them.
    fn add_named(&mut self, class: TypeDef, name: &str) -> Result<(), Why> {
        for method in self.import.methods_named(class, name).map_err(|_| "belongs to a type that cannot be read")? {
            self.add(method);
        }
        Ok(())
    }

    fn unproven(&self, method: MethodDef, offset: Option<u32>, why: impl Into<Why>) -> CallProblem {
        CallProblem::Unproven { method: self.edit.name_of(method), offset, why: why.into() }
    }

    fn body(&self, method: MethodDef) -> Option<(Body, Vec<Type>)> {
        let bytes = self.edit.context().il_function_body(self.edit.module(), method).ok()?;
        let body = Body::parse(&bytes).ok()?;
        let locals = match body.locals() {
            None => Vec::new(),
            Some(token) => match self.live.signature(token)? {
                Signature::Locals(locals) => locals,
                _ => return None,
            },
        };
        Some((body, locals))
    }

    fn method(&mut self, method: MethodDef) -> Result<(), CallProblem> {
        if self.seen.len() > MOST_METHODS {
            return Err(self.unproven(
                method,
                None,
                format!("is one of more than {MOST_METHODS} methods that are called"),
            ));
        }
        let props = self.import.method(method).map_err(|_| self.unproven(method, None, "cannot be read"))?;
        if !has_il(&props) {
            return Err(self.unproven(method, None, "is native, abstract or provided by the runtime"));
        }
        if is_suspended_by_the_runtime(&props) {
            return Err(self.unproven(method, None, "is suspended by the runtime (runtime-async)"));
        }
        let signature = MethodSignature::decode(&props.signature);
        if !signature.is_ok_and(|signature| !has_address(&signature)) {
            return Err(self.unproven(method, None, "takes or returns an address"));
        }
        let Some((body, locals)) = self.body(method) else {
            return Err(self.unproven(method, None, "has no body that can be read"));
        };
        if locals.iter().any(is_address) {
            return Err(self.unproven(method, None, "has an address in a local variable"));
        }
        let context = self.live.context(method).ok_or_else(|| self.unproven(method, None, "cannot be read"))?;
        let mut verifier = Verifier::new(self.live);
        if verifier.verify(&body, &context).is_err() {
            return Err(self.unproven(method, None, "breaks rules of IL"));
        }
        for (id, insn) in body.iter() {
            let checked = self.instruction(insn, next(&body, id));
            checked.map_err(|why| self.unproven(method, body.origin(id), why))?;
        }
        if let Some(id) = computed_address(&body, &verifier.stacks(&body, &context), true) {
            return Err(self.unproven(method, body.origin(id), "computes an address"));
        }
        self.add_class_constructor(props.class).map_err(|why| self.unproven(method, None, why))?;
        if props.name == ".ctor" {
            // The runtime runs it for the new object, when it likes.
            self.add_named(props.class, "Finalize").map_err(|why| self.unproven(method, None, why))?;
        }
        Ok(())
    }

    fn instruction(&mut self, insn: &Instruction, next: Option<&Instruction>) -> Result<(), Why> {
        let opcode = insn.opcode();
        if uses_addresses(insn, next) {
            return Err(format!("works with addresses by `{opcode}`"));
        }
        if opcode == Opcode::Jmp {
            return Err("goes to another method by `jmp`".to_owned());
        }
        if takes_function(opcode) {
            return Err(format!("makes a delegate by `{opcode}`"));
        }
        let Some(token) = insn.token() else { return Ok(()) };
        match opcode.operand() {
            OperandKind::Type if casts(opcode) && self.is_container(token) => {
                Err("casts to an array or a generic class, which other code may trust".to_owned())
            }
            OperandKind::Type if self.is_address_type(token) => Err("has an address for a value".to_owned()),
            OperandKind::Method => self.call(insn, token),
            OperandKind::Field => self.field(opcode, token),
            OperandKind::Signature => Err(format!("works with addresses by `{opcode}`")),
            _ => Ok(()),
        }
    }

    /// Whether a type by its token is a native int, or one whose signature has an address.
    fn is_address_type(&self, token: Token) -> bool {
        match token.table() {
            Some(Table::TypeSpec) => self.live.type_spec(token).is_none_or(|ty| is_address(&ty)),
            Some(Table::TypeRef) => match self.framework_type(token) {
                Some(OfFramework(name)) => ["System.IntPtr", "System.UIntPtr"].contains(&&*name),
                None => false,
            },
            Some(Table::TypeDef) => false,
            _ => true,
        }
    }

    /// Whether a type is an array or a generic class.
    fn is_container(&self, token: Token) -> bool {
        let is_value = |ty| matches!(ty, Type::Generic { value_type: true, .. });
        token.table() == Some(Table::TypeSpec) && !self.live.type_spec(token).is_some_and(is_value)
    }

    fn call(&mut self, insn: &Instruction, token: Token) -> Result<(), Why> {
        match token.table() {
            Some(Table::MethodDef) => self.own_call(insn.opcode(), MethodDef::from_raw(token.as_raw())),
            Some(Table::MemberRef) => self.foreign_call(insn, MemberRef::from_raw(token.as_raw())),
            Some(Table::MethodSpec) => {
                let (method, arguments) = self.live.method_spec(token).ok_or("calls an unknown method")?;
                if method.table() != Some(Table::MemberRef) {
                    return Err("calls a generic method of the module".to_owned());
                }
                if arguments.iter().any(is_address) {
                    return Err("calls a generic method with an address".to_owned());
                }
                self.foreign_call(insn, MemberRef::from_raw(method.as_raw()))
            }
            _ => Err("calls an unknown method".to_owned()),
        }
    }

    /// A call of a method of the module, whose body is looked at as well.
    fn own_call(&mut self, opcode: Opcode, method: MethodDef) -> Result<(), Why> {
        let props = self.import.method(method).map_err(|_| "calls an unknown method")?;
        let name = self.edit.name_of(method);
        let signature = MethodSignature::decode(&props.signature).map_err(|_| "calls an unknown method")?;
        if signature.generic_parameters != 0 || self.live.is_generic(props.class.into()) {
            return Err(format!("calls {name}, which is generic"));
        }
        if opcode == Opcode::Callvirt && props.flags.contains(sys::mdVirtual) && !self.is_final(&props) {
            return Err(format!("calls {name} virtually: another method may run"));
        }
        self.add(method);
        Ok(())
    }

    fn is_final(&self, method: &MethodProps) -> bool {
        let is_sealed = || self.import.type_def(method.class).is_ok_and(|class| class.flags.contains(sys::tdSealed));
        method.flags.contains(sys::mdFinal) || is_sealed()
    }

    /// A call of a method of another module, or of an array or an instantiation.
    fn foreign_call(&self, insn: &Instruction, method: MemberRef) -> Result<(), Why> {
        let props = self.import.member_ref(method).map_err(|_| "calls an unknown method")?;
        let signature = MethodSignature::decode(&props.signature).map_err(|_| "calls an unknown method")?;
        if has_address(&signature) || matches!(signature.return_type.unmodified(), Type::ByRef(_)) {
            return Err(format!("calls {}, which takes or returns an address", props.name));
        }
        if self.is_array(props.parent) {
            return Ok(());
        }
        let Some(OfFramework(owner)) = self.framework_type(props.parent) else {
            return Err(format!("calls {}, a method of another library", props.name));
        };
        let constrained = insn.prefixes().iter().find_map(|prefix| match prefix {
            Prefix::Constrained(ty) => Some(*ty),
            _ => None,
        });
        let on_struct = constrained.and_then(|ty| self.framework_type(ty));
        let on_struct = on_struct.is_some_and(|OfFramework(name)| may_use(&name, &props.name, false));
        if !may_use(&owner, &props.name, on_struct) {
            return Err(format!("calls {owner}.{}, which is not known to be harmless", props.name));
        }
        let mut is_known = true;
        for parameter in &signature.parameters {
            parameter.for_each_named(&mut |token, _| {
                is_known &= self.framework_type(token.token()).is_some_and(|OfFramework(name)| may_pass(&name));
            });
        }
        if !is_known {
            return Err(format!("calls {owner}.{}, which may call what it is passed", props.name));
        }
        Ok(())
    }

    fn is_array(&self, parent: Token) -> bool {
        matches!(self.live.type_spec(parent), Some(Type::SzArray(_) | Type::Array(..)))
    }

    /// The type of the framework that a token names, by itself or with arguments; `None` if it is no such.
    fn framework_type(&self, token: Token) -> Option<OfFramework> {
        let mut reference = match token.table()? {
            Table::TypeRef => TypeRef::from_raw(token.as_raw()),
            Table::TypeSpec => match self.live.type_spec(token)? {
                Type::Generic { definition: TypeDefOrRef::Ref(definition), .. } => definition,
                _ => return None,
            },
            _ => return None,
        };
        for _ in 0..MOST_HOPS {
            let props = self.import.type_ref(reference).ok()?;
            match props.scope.table()? {
                Table::TypeRef => reference = TypeRef::from_raw(props.scope.as_raw()),
                Table::AssemblyRef => {
                    let assembly = self.import.assembly_ref(AssemblyRef::from_raw(props.scope.as_raw())).ok()?;
                    return is_framework(&assembly.name, &assembly.public_key).then_some(OfFramework(props.name));
                }
                _ => return None,
            }
        }
        None
    }

    fn field(&mut self, opcode: Opcode, token: Token) -> Result<(), Why> {
        let writes = matches!(opcode, Opcode::Stfld | Opcode::Stsfld | Opcode::Ldflda | Opcode::Ldsflda);
        if token.table() == Some(Table::MemberRef) {
            let props =
                self.import.member_ref(MemberRef::from_raw(token.as_raw())).map_err(|_| "uses an unknown field")?;
            let is_address = Type::decode_field(&props.signature).map_or(true, |ty| is_address(&ty));
            return match self.framework_type(props.parent) {
                Some(OfFramework(owner)) if !is_address && may_use(&owner, &props.name, false) => Ok(()),
                _ => Err(format!("uses {}, a field of another library", props.name)),
            };
        }
        if token.table() != Some(Table::FieldDef) {
            return Err("uses an unknown field".to_owned());
        }
        let props = self.import.field(FieldDef::from_raw(token.as_raw())).map_err(|_| "uses an unknown field")?;
        if Type::decode_field(&props.signature).map_or(true, |ty| is_address(&ty)) {
            return Err(format!("uses the field {}, which has an address", props.name));
        }
        if props.class.is_nil() || self.live.is_generic(props.class.into()) {
            return Err(format!("uses the field {} of a generic type or of none", props.name));
        }
        let class = self.import.type_def(props.class).map_err(|_| "uses an unknown field")?;
        if (class.flags & sys::tdLayoutMask) == sys::tdExplicitLayout {
            return Err(format!("uses the field {}, which may lie over another", props.name));
        }
        if props.flags.contains(sys::fdStatic) {
            self.add_class_constructor(props.class)?;
        }
        if writes && (props.flags & sys::fdFieldAccessMask) != sys::fdPrivate {
            return Err(format!(
                "writes to the field {}, which is not private: code with addresses may trust it",
                props.name
            ));
        }
        // A field that is only read may lead to an array that is written to.
        self.used.insert(props.class);
        Ok(())
    }

    /// Checks that no code which works with addresses has the fields that are used.
    fn fields(&self) -> Result<(), CallProblem> {
        if self.used.is_empty() {
            return Ok(());
        }
        let unread = |_| CallProblem::NotFound;
        for class in self.import.type_defs().map_err(unread)? {
            if !self.is_within_used(class) {
                continue;
            }
            for method in self.import.methods(class).map_err(unread)? {
                self.no_addresses(method).map_err(|why| {
                    self.unproven(method, None, format!("{why}, and may trust a field that the call uses"))
                })?;
            }
        }
        Ok(())
    }

    /// Whether code of a type sees private fields that are used.
    fn is_within_used(&self, class: TypeDef) -> bool {
        let mut at = class;
        for _ in 0..MOST_HOPS {
            if self.used.contains(&at) {
                return true;
            }
            match self.import.enclosing_class(at) {
                Ok(Some(outer)) => at = outer,
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
        true
    }

    fn no_addresses(&self, method: MethodDef) -> Result<(), Why> {
        let props = self.import.method(method).map_err(|_| "cannot be read")?;
        if !has_il(&props) {
            // The code of others does not know the fields.
            return Ok(());
        }
        let (body, locals) = self.body(method).ok_or("has no body that can be read")?;
        let signature = MethodSignature::decode(&props.signature).map_err(|_| "cannot be read")?;
        if has_address(&signature) || locals.iter().any(is_address) {
            return Err("has an address".to_owned());
        }
        let context = self.live.context(method).ok_or("cannot be read")?;
        if computed_address(&body, &Verifier::new(self.live).stacks(&body, &context), false).is_some() {
            return Err("computes an address".to_owned());
        }
        for (id, insn) in body.iter() {
            if uses_addresses(insn, next(&body, id)) {
                return Err("works with addresses".to_owned());
            }
            let called = insn.token().filter(|_| insn.opcode().operand() == OperandKind::Method);
            if called.is_some_and(|called| self.passes_addresses(called)) {
                return Err("calls a method that works with addresses".to_owned());
            }
        }
        Ok(())
    }

    /// Whether a called method takes addresses, is native, or is made for `unsafe` code.
    fn passes_addresses(&self, called: Token) -> bool {
        let called = match called.table() {
            Some(Table::MethodSpec) => self.live.method_spec(called).map_or(called, |(method, _)| method),
            _ => called,
        };
        if called.table() == Some(Table::MethodDef) {
            let Ok(props) = self.import.method(MethodDef::from_raw(called.as_raw())) else { return true };
            let takes = MethodSignature::decode(&props.signature).is_ok_and(|signature| has_address(&signature));
            return takes || props.flags.contains(sys::mdPinvokeImpl);
        }
        let Ok(props) = self.import.member_ref(MemberRef::from_raw(called.as_raw())) else { return true };
        let Ok(signature) = MethodSignature::decode(&props.signature) else { return true };
        // A delegate's constructor takes the address of a function.
        let is_constructor = props.name == ".ctor" && self.is_delegate_shaped(&signature);
        let is_unsafe = self.framework_type(props.parent).is_some_and(|OfFramework(name)| is_for_unsafe(&name));
        is_unsafe || has_address(&signature) && !is_constructor
    }

    fn is_delegate_shaped(&self, signature: &MethodSignature) -> bool {
        use corprof_il::signature::Primitive::{NativeInt, Object};
        let _ = self;
        signature.parameters == [Type::Primitive(Object), Type::Primitive(NativeInt)]
    }
}

/// The first instruction that computes with an address; or, if `any`, that has a native int on the stack, other than
/// the length of an array.
fn computed_address(body: &Body, stacks: &[(InsnId, StackText)], any: bool) -> Option<InsnId> {
    let is = |of: &str, kind: &String| kind == of;
    let computes = |(id, stack): &&(InsnId, StackText)| {
        let operands = &stack.top[stack.top.len().saturating_sub(2)..];
        let is_length = || is_after_length(body, *id);
        let is_arithmetic = body.get(*id).is_some_and(|insn| is_arithmetic(insn.opcode()));
        is_arithmetic && operands.iter().any(|kind| is("managed pointer", kind))
            || any && stack.top.iter().any(|kind| is("native int", kind)) && !is_length()
    };
    stacks.iter().find(computes).map(|(id, _)| *id)
}

/// Whether the length of an array was loaded right before, or before the 0 that it is compared with.
fn is_after_length(body: &Body, id: InsnId) -> bool {
    let before = |id: InsnId| body.prev(id).and_then(|before| body.get(before).map(|insn| (before, insn.opcode())));
    match before(id) {
        Some((_, Opcode::Ldlen)) => true,
        Some((zero, Opcode::Ldc_I4_0)) => before(zero).is_some_and(|(_, opcode)| opcode == Opcode::Ldlen),
        _ => false,
    }
}

fn next(body: &Body, id: InsnId) -> Option<&Instruction> {
    body.next(id).and_then(|next| body.get(next))
}

impl LiveMetadata<'_> {
    /// Whether a type of the module is a class or an interface.
    pub(super) fn is_reference(&self, class: TypeDef) -> bool {
        self.type_info(class.into()).is_some_and(|info| info.category == Category::Reference)
    }
}

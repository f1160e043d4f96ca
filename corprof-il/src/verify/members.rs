//! The stack effect of instructions with a method or a field.

use std::rc::Rc;

use super::facts::{Method, Needs};
use super::kind::Kind;
use super::resolve::{Dispatch, Resolve, WellKnown};
use super::stack::Flowing;
use super::{GENERIC_PARAMETER, NO_VOID, Rule};
use crate::body::{Instruction, Prefix};
use crate::opcode::Opcode as O;
use crate::signature::Type;
use crate::token::{Table, Token};

impl<R: Resolve + ?Sized> Flowing<'_, '_, '_, R> {
    /// A member of a generic type without arguments, or of one with generic parameters that the method and its type do
    /// not have, or with `void` where a value must be.
    fn member(&mut self, is_of_open: bool, has_misplaced_void: bool, needs: Needs) {
        if is_of_open {
            self.breach(Rule::BadType, "a member of a generic type without arguments", "of one with arguments");
        }
        if has_misplaced_void {
            self.breach(Rule::BadSignature, "void in the member's signature", NO_VOID);
        }
        self.needs(needs);
    }

    /// A method that is called, or whose address is taken.
    pub(super) fn method(&mut self, method: &Method) {
        self.member(method.is_of_open, method.has_misplaced_void, method.needs);
        if method.is_open {
            self.breach(Rule::BadType, "a generic method without arguments", "one with arguments, by a method spec");
        }
        if method.is_vararg && !self.facts.resolve.has_varargs() {
            self.breach(Rule::VarArgUnsupported, "a method with a variable number of arguments", "Windows");
        }
    }

    /// Generic parameters that the method and its type do not have.
    pub(super) fn needs(&mut self, needs: Needs) {
        if let Some(missing) = self.frame.missing(needs) {
            self.breach(Rule::GenericParameter, missing, GENERIC_PARAMETER);
        }
    }

    pub(super) fn ldtoken(&mut self, token: Token) {
        let of = match token.table() {
            Some(Table::TypeDef | Table::TypeRef | Table::TypeSpec) => {
                // Any type will do, `void` and by-refs as well.
                let needs = self.facts.needs(token);
                self.needs(needs);
                let is_type = self.facts.types.operand(self.facts.resolve, token).is_some();
                is_type.then_some(WellKnown::TypeHandle)
            }
            Some(Table::FieldDef) => self.facts.field(token).map(|_| WellKnown::FieldHandle),
            Some(Table::MethodDef | Table::MethodSpec) => self.facts.method(token).map(|_| WellKnown::MethodHandle),
            Some(Table::MemberRef) => match self.facts.method(token) {
                Some(_) => Some(WellKnown::MethodHandle),
                None => self.facts.field(token).map(|_| WellKnown::FieldHandle),
            },
            _ => None,
        };
        let kind = match of {
            Some(of) => self.facts.types.well_known(of),
            None => {
                self.bad_token(Some(token), "a type, method or field");
                Kind::Unknown
            }
        };
        self.push(kind);
    }

    pub(super) fn field(&mut self, insn: &Instruction) {
        let opcode = insn.opcode();
        let is_static = matches!(opcode, O::Ldsfld | O::Ldsflda | O::Stsfld);
        let Some(field) = insn.token().and_then(|token| self.facts.field(token)) else {
            self.bad_token(insn.token(), "a field");
            if matches!(opcode, O::Stfld | O::Stsfld) {
                self.pop();
            }
            if !is_static {
                self.pop();
            }
            if !matches!(opcode, O::Stfld | O::Stsfld) {
                self.push(Kind::Unknown);
            }
            return;
        };
        self.member(field.is_of_open, field.has_misplaced_void, field.needs);
        if field.is_static.is_some_and(|found| found != is_static) {
            let kinds = ["an instance field", "a static field"];
            let name = |is: bool| kinds.get(usize::from(is)).copied().unwrap_or_default();
            self.breach(Rule::FieldStatic, name(!is_static), name(is_static));
        }
        if matches!(opcode, O::Stfld | O::Stsfld) {
            self.pop_into(field.kind, "the field");
        }
        if !is_static {
            self.reads(field.holder);
            let object = self.pop();
            let fits = match (object, field.owner.plain()) {
                (Kind::Unknown, _) => true,
                (Kind::Ref | Kind::Native, owner) => owner != Kind::Object,
                (Kind::Object, owner) => matches!(owner, Kind::Object | Kind::Unknown),
                (Kind::Named(_), owner) | (_, owner @ Kind::Named(_)) => opcode == O::Ldfld && object.fits(owner),
                (_, owner) => opcode == O::Ldfld && (object == owner || owner == Kind::Unknown),
            };
            if !fits {
                let found = self.name(object);
                let owner = self.name(field.owner);
                self.breach(Rule::StackUnexpected, found, format!("where a field of {owner} is"));
            }
        }
        match opcode {
            O::Ldfld | O::Ldsfld => self.push(field.kind),
            O::Ldflda | O::Ldsflda => self.push(field.kind.address()),
            _ => {}
        }
    }

    /// The type of a `constrained.` prefix, and its kind.
    pub(super) fn constrained(&mut self, insn: &Instruction) -> Option<(Token, Kind)> {
        let token = insn.prefixes().iter().find_map(|prefix| match prefix {
            Prefix::Constrained(token) => Some(*token),
            _ => None,
        })?;
        Some((token, self.type_of_token(Some(token))))
    }

    pub(super) fn call(&mut self, insn: &Instruction) {
        let opcode = insn.opcode();
        let is_calli = opcode == O::Calli;
        let token = insn.token().unwrap_or_default();
        let fits = (token.table() == Some(Table::StandAloneSignature)) == is_calli;
        let Some(method) = self.facts.method(token).filter(|_| fits) else {
            self.bad_token(Some(token), if is_calli { "a signature of a method" } else { "a method" });
            // Its effect on the stack is unknown, so the code after it cannot be verified.
            self.stack.clear();
            if opcode == O::Newobj {
                self.push(Kind::Unknown);
            }
            return;
        };
        self.method(&method);
        if is_calli {
            self.pop_where(|kind| matches!(kind, Kind::Native | Kind::Unknown), "a pointer to a function");
        }
        if opcode == O::Jmp {
            return self.jmp(&method);
        }
        if opcode == O::Newobj {
            self.delegate(token, &method);
        }
        for kind in method.parameters.iter().rev() {
            let exact = self.stack.last().copied();
            self.pop_into(*kind, "the parameter");
            // ECMA-335 III.1.6 would allow it, but the compiler of .NET refuses it.
            if (exact, *kind) == (Some(Kind::Small), Kind::Native) {
                let found = "an integer smaller than int32";
                self.breach(Rule::Assignment, found, "native int for the parameter, or conv.i before the call");
            }
            if (exact, kind.plain()) == (Some(Kind::Mixed), Kind::Ref) {
                let found = "native int or, on another path, int32";
                self.breach(Rule::Assignment, found, "managed pointer for the parameter");
            }
        }
        let constrained = self.constrained(insn);
        let is_constrained = constrained.is_some();
        match constrained {
            Some((ty, kind)) if opcode == O::Callvirt => self.constrained_callvirt(ty, kind, token),
            Some(_) => self.constrained_call(&method),
            None => {}
        }
        match opcode {
            O::Newobj => {
                if !method.is_constructor || !method.has_this {
                    self.breach(Rule::CtorExpected, "another method", "a constructor");
                }
                if method.is_of_abstract {
                    self.breach(Rule::NewobjAbstract, "an abstract class", "one that objects can be made of");
                }
                return self.push(method.owner);
            }
            O::Callvirt if !method.has_this => {
                self.breach(Rule::CallVirtOnStatic, "a static method", "an instance method");
            }
            O::Call if method.is_abstract && !is_constrained => {
                self.breach(Rule::CallAbstract, "an abstract method", "one with a body, or callvirt");
            }
            _ => {}
        }
        if method.has_this {
            self.pop_this(&method, is_constrained);
        }
        if insn.prefixes().contains(&Prefix::Tail) {
            self.must_be_empty(Rule::TailCallStack, "the arguments of the tail call only");
        }
        if let Some(kind) = method.returns {
            self.push(kind.widened());
        }
    }

    /// A value type is asked for methods of its own, of interfaces, or of its bases. Of others the compiler makes a
    /// call of something else, or it dies.
    fn constrained_callvirt(&mut self, ty: Token, kind: Kind, method: Token) {
        let held = if kind == Kind::Unknown { self.facts.types.holder(self.facts.resolve, ty) } else { kind };
        self.reads(held);
        if self.frame.is_reference(kind) {
            return;
        }
        let definition = self.facts.definition(ty);
        let is_parameter = self.facts.is_type_parameter(ty);
        if definition.is_none() && !is_parameter {
            if kind == Kind::Native {
                self.breach(Rule::ConstrainedCall, "a pointer", "a type that has methods");
            }
            return;
        }
        match self.facts.resolve.dispatch(definition, method) {
            Dispatch::Unrelated => {
                let expected = "one of the value type, of an interface, or of Object, ValueType or Enum";
                self.breach(Rule::ConstrainedCall, "a method of another type", expected);
            }
            Dispatch::Boxed if definition.is_some_and(|ty| self.facts.is_by_ref_like(ty)) => {
                self.breach(Rule::ByRefLikeBoxed, "a method that a ref struct inherits", "one that it has itself");
            }
            _ => {}
        }
    }

    /// A static virtual method is chosen by the type; other methods are not called so, and runtimes die of some. So it
    /// must be known to be one.
    pub(super) fn constrained_call(&mut self, method: &Rc<Method>) {
        let found = match method.is_virtual {
            _ if method.has_this => "an instance method",
            Some(true) => return,
            Some(false) => "a static method that is not virtual",
            None => "a method of a module that is not at hand",
        };
        self.breach(Rule::ConstrainedCall, found, "a static virtual method of an interface");
    }

    fn pop_this(&mut self, method: &Rc<Method>, is_constrained: bool) {
        if !is_constrained {
            self.reads(method.holder);
        }
        let this = self.pop();
        let fits = match (is_constrained, method.owner) {
            (true, _) => this.is_address(),
            (false, Kind::Object) => matches!(this, Kind::Object | Kind::Unknown),
            (false, Kind::Unknown) => matches!(this, Kind::Object) || this.is_address(),
            (false, _) => this.is_address(),
        };
        if !fits {
            let found = self.name(this);
            let expected = match (is_constrained, method.owner) {
                (false, Kind::Object) => "an object for `this`",
                (false, Kind::Unknown) => "an object or its address for `this`",
                _ => "an address for `this`",
            };
            self.breach(Rule::StackUnexpected, found, expected);
        }
    }

    fn jmp(&mut self, method: &Rc<Method>) {
        self.must_be_empty(Rule::BadJmp, "nothing on the stack at jmp");
        let own = self.frame.arguments.get(usize::from(method.has_this)..).unwrap_or_default();
        let this = self.frame.arguments.first().filter(|_| method.has_this);
        let is_same_this = self.frame.has_this == method.has_this
            && this.is_none_or(|this| match method.owner {
                Kind::Object => *this == Kind::Object,
                Kind::Unknown => false,
                _ => *this == Kind::Ref,
            });
        if !self.frame.has_jmp {
            self.breach(Rule::BadJmp, "jmp in a generic or synchronized method", "it in another one");
        }
        if method.is_generic {
            self.breach(Rule::BadJmp, "a generic method, or one of a generic type", "another one");
        }
        // Runtimes compare what is returned, and not by the kind on the stack.
        let is_same_result = match (self.frame.return_type.unmodified(), method.return_type.unmodified()) {
            (Type::Class(_), Type::Class(_)) => true,
            (own, other) => own == other,
        };
        if !is_same_this || own != &*method.parameters || !is_same_result {
            self.breach(Rule::BadJmp, "a method of another signature", "one of the same signature");
        }
    }

    pub(super) fn ret(&mut self) {
        if let Some(kind) = self.frame.returns {
            self.pop_into(kind, "the result");
        }
        self.must_be_empty(Rule::ReturnStack, "the return value only");
    }
}

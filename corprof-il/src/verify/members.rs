//! The stack effect of instructions with a method or a field.

use std::rc::Rc;

use super::facts::{Method, Needs};
use super::kind::Kind;
use super::resolve::{Resolve, WellKnown};
use super::stack::Flowing;
use super::{GENERIC_PARAMETER, Rule};
use crate::body::{Instruction, Prefix};
use crate::opcode::Opcode as O;
use crate::token::{Table, Token};

impl<R: Resolve + ?Sized> Flowing<'_, '_, '_, R> {
    /// A member of a generic type without arguments, or of one with generic parameters that the method and its type do not
    /// have.
    pub(super) fn member(&mut self, is_of_open: bool, needs: Needs) {
        if is_of_open {
            self.breach(Rule::BadType, "a member of a generic type without arguments", "of one with arguments");
        }
        self.needs(needs);
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
        self.member(field.is_of_open, field.needs);
        if field.is_static.is_some_and(|found| found != is_static) {
            let kinds = ["an instance field", "a static field"];
            let name = |is: bool| kinds.get(usize::from(is)).copied().unwrap_or_default();
            self.breach(Rule::FieldStatic, name(!is_static), name(is_static));
        }
        if matches!(opcode, O::Stfld | O::Stsfld) {
            self.pop_into(field.kind, "the field");
        }
        if !is_static {
            let object = self.pop();
            let fits = match (object, field.owner) {
                (Kind::Unknown, _) => true,
                (Kind::Ref | Kind::Native, owner) => owner != Kind::Object,
                (Kind::Object, owner) => matches!(owner, Kind::Object | Kind::Unknown),
                (_, owner) => opcode == O::Ldfld && (object == owner || owner == Kind::Unknown),
            };
            if !fits {
                let (found, owner) = (self.name(object), self.name(field.owner));
                self.breach(Rule::StackUnexpected, found, format!("where a field of {owner} is"));
            }
        }
        match opcode {
            O::Ldfld | O::Ldsfld => self.push(field.kind),
            O::Ldflda | O::Ldsflda => self.push(Kind::Ref),
            _ => {}
        }
    }

    pub(super) fn constrained(&mut self, insn: &Instruction) -> bool {
        let token = insn.prefixes().iter().find_map(|prefix| match prefix {
            Prefix::Constrained(token) => Some(*token),
            _ => None,
        });
        if token.is_some() {
            self.type_of_token(token);
        }
        token.is_some()
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
        self.member(method.is_of_open, method.needs);
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
            let found = self.pop_into(*kind, "the parameter");
            // ECMA-335 III.1.6 would allow it; compilers of runtimes take some such values and refuse others.
            if (found, *kind) == (Kind::Int32, Kind::Native) {
                self.breach(Rule::Assignment, "int32", "native int for the parameter");
            }
        }
        let is_constrained = self.constrained(insn);
        if is_constrained && opcode != O::Callvirt {
            self.constrained_call(&method);
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
            self.push(kind);
        }
    }

    /// A static virtual method is chosen by the type; other methods are not called so, and runtimes die of some.
    pub(super) fn constrained_call(&mut self, method: &Rc<Method>) {
        if method.has_this || method.is_virtual == Some(false) {
            let found = if method.has_this { "an instance method" } else { "a static method that is not virtual" };
            self.breach(Rule::ConstrainedCall, found, "a static virtual method of an interface");
        }
    }

    fn pop_this(&mut self, method: &Rc<Method>, is_constrained: bool) {
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
        if !is_same_this || own != &*method.parameters || self.frame.returns != method.returns {
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

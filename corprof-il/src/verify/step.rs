//! The stack effect of each instruction (ECMA-335 III, tables 2 to 7).

use super::Rule;
use super::kind::Kind;
use super::resolve::{Resolve, WellKnown};
use super::stack::Flowing;
use crate::body::{Instruction, Operand};
use crate::opcode::Opcode as O;
use crate::token::{Table, Token};

impl<R: Resolve + ?Sized> Flowing<'_, '_, '_, R> {
    pub(super) fn step(&mut self, insn: &Instruction) {
        match insn.opcode() {
            O::Nop | O::Break | O::Br | O::Br_S | O::Leave | O::Leave_S => {}
            O::Ldarg_0 | O::Ldarg_1 | O::Ldarg_2 | O::Ldarg_3 | O::Ldarg_S | O::Ldarg => {
                let kind = insn.as_ldarg().and_then(|n| self.frame.arguments.get(usize::from(n)).copied());
                self.push(kind.unwrap_or(Kind::Unknown));
            }
            O::Ldloc_0 | O::Ldloc_1 | O::Ldloc_2 | O::Ldloc_3 | O::Ldloc_S | O::Ldloc => {
                let kind = insn.as_ldloc().and_then(|n| self.frame.locals.get(usize::from(n)).copied());
                self.push(kind.unwrap_or(Kind::Unknown));
            }
            O::Stloc_0 | O::Stloc_1 | O::Stloc_2 | O::Stloc_3 | O::Stloc_S | O::Stloc => {
                let kind = insn.as_stloc().and_then(|n| self.frame.locals.get(usize::from(n)).copied());
                self.pop_into(kind.unwrap_or(Kind::Unknown), "the local variable");
            }
            O::Starg_S | O::Starg => {
                let kind = variable(insn).and_then(|n| self.frame.arguments.get(usize::from(n)).copied());
                self.pop_into(kind.unwrap_or(Kind::Unknown), "the argument");
            }
            O::Ldarga_S | O::Ldarga => {
                let kind = variable(insn).and_then(|n| self.frame.arguments.get(usize::from(n)).copied());
                self.push(kind.unwrap_or(Kind::Unknown).address());
            }
            O::Ldloca_S | O::Ldloca => {
                let kind = variable(insn).and_then(|n| self.frame.locals.get(usize::from(n)).copied());
                self.push(kind.unwrap_or(Kind::Unknown).address());
            }
            O::Ldnull => self.push(Kind::Object),
            O::Ldc_I4_M1
            | O::Ldc_I4_0
            | O::Ldc_I4_1
            | O::Ldc_I4_2
            | O::Ldc_I4_3
            | O::Ldc_I4_4
            | O::Ldc_I4_5
            | O::Ldc_I4_6
            | O::Ldc_I4_7
            | O::Ldc_I4_8
            | O::Ldc_I4_S
            | O::Ldc_I4 => self.push(Kind::Int32),
            O::Ldc_I8 => self.push(Kind::Int64),
            O::Ldc_R4 | O::Ldc_R8 => self.push(Kind::Float),
            O::Dup => {
                let kind = self.pop_exact();
                self.push(kind);
                self.push(kind);
            }
            O::Pop => _ = self.pop(),
            O::Call | O::Callvirt | O::Calli | O::Newobj | O::Jmp => self.call(insn),
            O::Ret => self.ret(),
            O::Throw => self.pop_kind(Kind::Object),
            O::Rethrow | O::Endfinally => {}
            O::Endfilter => {
                self.pop_kind(Kind::Int32);
                self.must_be_empty(Rule::EndfilterStack, "the filter's answer only");
            }
            O::Switch => self.pop_where(Kind::is_index, "int32"),
            O::Brfalse_S | O::Brtrue_S | O::Brfalse | O::Brtrue => {
                self.pop_where(
                    |kind| !matches!(kind, Kind::Value(_) | Kind::Float),
                    "an integer, a pointer or an object",
                );
            }
            O::Beq_S
            | O::Beq
            | O::Bne_Un_S
            | O::Bne_Un
            | O::Ceq
            | O::Cgt_Un
            | O::Bge_S
            | O::Bgt_S
            | O::Ble_S
            | O::Blt_S
            | O::Bge_Un_S
            | O::Bgt_Un_S
            | O::Ble_Un_S
            | O::Blt_Un_S
            | O::Bge
            | O::Bgt
            | O::Ble
            | O::Blt
            | O::Bge_Un
            | O::Bgt_Un
            | O::Ble_Un
            | O::Blt_Un
            | O::Cgt
            | O::Clt
            | O::Clt_Un => self.compare(insn),
            O::Add
            | O::Sub
            | O::Mul
            | O::Div
            | O::Rem
            | O::Div_Un
            | O::Rem_Un
            | O::And
            | O::Or
            | O::Xor
            | O::Add_Ovf
            | O::Add_Ovf_Un
            | O::Mul_Ovf
            | O::Mul_Ovf_Un
            | O::Sub_Ovf
            | O::Sub_Ovf_Un => {
                self.binary(insn.opcode());
            }
            O::Shl | O::Shr | O::Shr_Un => {
                self.pop_where(Kind::is_index, "int32 or native int");
                let is_small = self.stack.last() == Some(&Kind::Small);
                let value = self.pop_operand(Kind::is_integer, "an integer");
                self.push(if is_small { Kind::Small } else { value });
            }
            O::Neg => {
                let value = self.pop_operand(Kind::is_number, "a number");
                self.push(value);
            }
            O::Not => {
                let value = self.pop_operand(Kind::is_integer, "an integer");
                self.push(value);
            }
            O::Ckfinite => {
                self.pop_kind(Kind::Float);
                self.push(Kind::Float);
            }
            O::Localloc => {
                self.pop_where(Kind::is_index, "int32 or native int");
                self.must_be_empty(Rule::LocallocStack, "the size only");
                self.push(Kind::Native);
            }
            O::Cpblk => {
                self.pop_kind(Kind::Int32);
                self.pop_address();
                self.pop_address();
            }
            O::Initblk => {
                self.pop_kind(Kind::Int32);
                self.pop_kind(Kind::Int32);
                self.pop_address();
            }
            O::Arglist => {
                let kind = self.facts.types.well_known(WellKnown::ArgumentHandle);
                self.push(kind);
            }
            O::Ldstr => {
                let token = insn.token();
                if !token.is_some_and(|token| self.facts.resolve.has_string(token)) {
                    self.bad_token(token, "a literal string");
                }
                self.push(Kind::Object);
            }
            O::Ldftn | O::Ldvirtftn => {
                let token = insn.token().unwrap_or_default();
                let is_method = !matches!(token.table(), Some(Table::StandAloneSignature));
                let method = self.facts.method(token).filter(|_| is_method);
                match &method {
                    Some(method) => self.method(method),
                    None => self.bad_token(Some(token), "a method"),
                }
                if insn.opcode() == O::Ldvirtftn {
                    self.pop_kind(Kind::Object);
                }
                let is_constrained = self.constrained(insn).is_some();
                match &method {
                    Some(method) if is_constrained => self.constrained_call(method),
                    Some(method) if method.is_abstract && insn.opcode() == O::Ldftn => {
                        self.breach(Rule::CallAbstract, "an abstract method", "one with a body, or ldvirtftn");
                    }
                    _ => {}
                }
                self.push(if method.is_some() { Kind::Function(token) } else { Kind::Unknown });
            }
            O::Ldtoken => self.ldtoken(insn.token().unwrap_or_default()),
            O::Refanytype => {
                self.pop_well_known(WellKnown::Primitive(crate::signature::Primitive::TypedRef));
                let kind = self.facts.types.well_known(WellKnown::TypeHandle);
                self.push(kind);
            }
            O::Ldfld | O::Ldflda | O::Stfld | O::Ldsfld | O::Ldsflda | O::Stsfld => self.field(insn),
            _ => self.typed(insn),
        }
    }

    /// Instructions with an element or a type: indirect access, arrays, boxes, conversions.
    fn typed(&mut self, insn: &Instruction) {
        match insn.opcode() {
            O::Ldind_I1 | O::Ldind_U1 | O::Ldind_I2 | O::Ldind_U2 => self.load(Kind::Small),
            O::Ldind_I4 | O::Ldind_U4 => self.load(Kind::Int32),
            O::Ldind_I8 => self.load(Kind::Int64),
            O::Ldind_I => self.load(Kind::Native),
            O::Ldind_R4 | O::Ldind_R8 => self.load(Kind::Float),
            O::Ldind_Ref => self.load(Kind::Object),
            O::Stind_I1 | O::Stind_I2 | O::Stind_I4 => self.store(Kind::Int32),
            O::Stind_I8 => self.store(Kind::Int64),
            O::Stind_I => self.store(Kind::Native),
            O::Stind_R4 | O::Stind_R8 => self.store(Kind::Float),
            O::Stind_Ref => self.store(Kind::Object),
            O::Ldlen => {
                self.pop_kind(Kind::Object);
                self.push(Kind::Mixed);
            }
            O::Ldelem_I1 | O::Ldelem_U1 | O::Ldelem_I2 | O::Ldelem_U2 => self.element(Kind::Small),
            O::Ldelem_I4 | O::Ldelem_U4 => self.element(Kind::Int32),
            O::Ldelem_I8 => self.element(Kind::Int64),
            O::Ldelem_I => self.element(Kind::Native),
            O::Ldelem_R4 | O::Ldelem_R8 => self.element(Kind::Float),
            O::Ldelem_Ref => self.element(Kind::Object),
            O::Stelem_I1 | O::Stelem_I2 | O::Stelem_I4 => self.set_element(Kind::Int32),
            O::Stelem_I8 => self.set_element(Kind::Int64),
            O::Stelem_I => self.set_element(Kind::Native),
            O::Stelem_R4 | O::Stelem_R8 => self.set_element(Kind::Float),
            O::Stelem_Ref => self.set_element(Kind::Object),
            O::Ldelem => {
                let kind = self.of_type(insn);
                self.element(kind);
            }
            O::Stelem => {
                let kind = self.of_type(insn);
                self.set_element(kind);
            }
            O::Ldelema => {
                let kind = self.of_type(insn);
                self.element(kind.address());
            }
            O::Newarr => {
                let kind = self.of_type(insn);
                self.pop_where(Kind::is_index, "int32 or native int");
                let is_reference = self.frame.is_same_reference(kind, Kind::Object);
                self.push(if is_reference { Kind::Object } else { kind.array() });
            }
            O::Ldobj => {
                let kind = self.of_type(insn);
                self.load(kind);
            }
            O::Stobj => {
                let kind = self.of_type(insn);
                self.store(kind);
            }
            O::Cpobj => {
                let kind = self.of_type(insn);
                self.reads(kind);
                self.pop_address();
                self.pop_address();
            }
            O::Initobj => {
                self.of_type(insn);
                self.pop_address();
            }
            O::Box => {
                let kind = self.of_type(insn);
                let definition = insn.token().and_then(|token| self.facts.definition(token));
                if definition.is_some_and(|ty| self.facts.is_by_ref_like(ty)) {
                    self.breach(Rule::ByRefLikeBoxed, "a ref struct", "a type that can be on the heap");
                }
                if self.frame.may_be_ref_struct(kind) && !self.is_tested_at_once() {
                    let expected = "a branch, or `isinst` or `unbox.any`, right behind";
                    self.breach(Rule::ByRefLikeBoxed, "a type that a ref struct can stand for", expected);
                }
                self.pop_into(kind, "the boxed type");
                self.push(Kind::Object);
            }
            O::Unbox => {
                let kind = self.of_type(insn);
                if kind.plain() == Kind::Object {
                    self.breach(Rule::BadType, "a reference type", "a value type");
                }
                self.pop_kind(Kind::Object);
                self.push(kind.address());
            }
            O::Unbox_Any => {
                let kind = self.of_type(insn);
                self.pop_kind(Kind::Object);
                self.push(kind);
            }
            O::Castclass | O::Isinst => {
                self.of_type(insn);
                self.pop_kind(Kind::Object);
                self.push(Kind::Object);
            }
            O::Sizeof => {
                self.of_type(insn);
                self.push(Kind::Int32);
            }
            O::Mkrefany => {
                let kind = self.of_type(insn);
                self.reads(kind);
                self.pop_address();
                let kind = self.facts.types.well_known(WellKnown::Primitive(crate::signature::Primitive::TypedRef));
                self.push(kind);
            }
            O::Refanyval => {
                let kind = self.of_type(insn);
                self.pop_well_known(WellKnown::Primitive(crate::signature::Primitive::TypedRef));
                self.push(kind.address());
            }
            other => self.convert(other),
        }
    }

    /// Whether the value that is boxed here is only tested, by instructions that the compiler takes together with
    /// `box`, so that nothing is boxed (`impBoxPatternMatch` in the compiler).
    fn is_tested_at_once(&self) -> bool {
        let is_end =
            |opcode| matches!(opcode, Some(O::Brtrue | O::Brtrue_S | O::Brfalse | O::Brfalse_S | O::Unbox_Any));
        match (self.following(1), self.following(2)) {
            (Some(O::Isinst), Some(O::Ldnull)) => matches!(self.following(3), Some(O::Cgt_Un | O::Ceq)),
            (Some(O::Isinst), second) => is_end(second),
            (first, _) => is_end(first),
        }
    }

    /// The opcode of the instruction so far behind this one, unless other paths come to it.
    fn following(&self, distance: u32) -> Option<O> {
        let id = *self.report.order.get((self.place + distance) as usize)?;
        let body = self.report.body;
        if body.is_join(id) {
            return None;
        }
        Some(body.get(id)?.opcode())
    }

    fn convert(&mut self, opcode: O) {
        let is_source = |kind: Kind| kind.is_number() || kind == Kind::Ref;
        match opcode {
            O::Conv_R4 | O::Conv_R8 | O::Conv_R_Un => {
                self.pop_where(Kind::is_number, "a number");
                self.push(Kind::Float);
            }
            O::Conv_I8 | O::Conv_U8 | O::Conv_Ovf_I8 | O::Conv_Ovf_U8 | O::Conv_Ovf_I8_Un | O::Conv_Ovf_U8_Un => {
                self.pop_where(is_source, "a number or a managed pointer");
                self.push(Kind::Int64);
            }
            O::Conv_I | O::Conv_U | O::Conv_Ovf_I | O::Conv_Ovf_U | O::Conv_Ovf_I_Un | O::Conv_Ovf_U_Un => {
                // Objects too: compilers pin strings so.
                self.pop_where(
                    |kind| is_source(kind) || kind == Kind::Object,
                    "a number, a managed pointer or an object",
                );
                self.push(Kind::Native);
            }
            // All others convert to an int32 on the stack.
            _ => {
                self.pop_where(is_source, "a number or a managed pointer");
                self.push(Kind::Int32);
            }
        }
    }

    fn compare(&mut self, insn: &Instruction) {
        let right = self.pop_exact();
        let left = self.pop_exact();
        let is_function = |kind| matches!(kind, Kind::Function(_));
        let is_with_ref =
            is_function(left) && right.plain() == Kind::Ref || is_function(right) && left.plain() == Kind::Ref;
        // .NET 11 takes the result of such an order for something else than an int32.
        if is_with_ref && !is_equality(insn.opcode()) {
            self.operands(left, right);
        }
        let left = left.plain();
        let right = right.plain();
        let fits = match (left, right) {
            (Kind::Value(_), _) | (_, Kind::Value(_)) => false,
            (Kind::Unknown, _) | (_, Kind::Unknown) => true,
            (Kind::Named(_), other) | (other, Kind::Named(_)) => !matches!(other, Kind::Object | Kind::Ref),
            (Kind::Int32 | Kind::Native, Kind::Int32 | Kind::Native) => true,
            (Kind::Ref, Kind::Native) | (Kind::Native, Kind::Ref) => true,
            (Kind::Object, Kind::Object) => is_equality(insn.opcode()) || insn.opcode() == O::Cgt_Un,
            _ => left == right,
        };
        if !fits {
            self.operands(left, right);
        }
        if insn.targets().is_empty() {
            self.push(Kind::Int32);
        }
    }

    #[cold]
    fn operands(&mut self, left: Kind, right: Kind) {
        let found = format!("{} and {}", self.name(left), self.name(right));
        self.breach(Rule::BinaryOperands, found, "two that go together");
    }

    /// The operand of an operation, and the kind of its result.
    fn pop_operand(&mut self, fits: impl Fn(Kind) -> bool, expected: &str) -> Kind {
        let is_mixed = self.stack.last() == Some(&Kind::Mixed);
        let value = self.pop_of(fits, expected);
        if is_mixed { Kind::Mixed } else { value.computed() }
    }

    fn binary(&mut self, opcode: O) {
        let right = self.pop_exact();
        let left = self.pop_exact();
        // An operation with a constant may leave the other operand as it is.
        let is_small = left == Kind::Small || right == Kind::Small;
        let may_be_int32 = |kind| matches!(kind, Kind::Int32 | Kind::Small | Kind::Mixed);
        let is_mixed = may_be_int32(left) && may_be_int32(right);
        let address = if left.plain() == Kind::Ref { left } else { right };
        let right = right.plain().computed();
        let left = left.plain().computed();
        let is_sum = matches!(opcode, O::Add | O::Add_Ovf_Un | O::Add_Ovf);
        let is_difference = matches!(opcode, O::Sub | O::Sub_Ovf_Un | O::Sub_Ovf);
        let takes_float = matches!(opcode, O::Add | O::Sub | O::Mul | O::Div | O::Rem);
        let result = match (left, right) {
            (Kind::Unknown, other) | (other, Kind::Unknown) => match other {
                Kind::Object | Kind::Value(_) => None,
                _ => Some(Kind::Unknown),
            },
            (Kind::Int32, Kind::Int32) if is_small => Some(Kind::Small),
            (Kind::Int32, Kind::Int32) => Some(Kind::Int32),
            (Kind::Int64, Kind::Int64) => Some(Kind::Int64),
            (Kind::Float, Kind::Float) if takes_float => Some(Kind::Float),
            (Kind::Int32 | Kind::Native, Kind::Int32 | Kind::Native) if is_mixed => Some(Kind::Mixed),
            (Kind::Int32 | Kind::Native, Kind::Int32 | Kind::Native) => Some(Kind::Native),
            (Kind::Ref, Kind::Int32 | Kind::Native) if is_sum || is_difference => Some(address),
            (Kind::Int32 | Kind::Native, Kind::Ref) if is_sum => Some(address),
            (Kind::Ref | Kind::Int32 | Kind::Native, Kind::Ref) if is_difference => Some(Kind::Native),
            _ => None,
        };
        if result.is_none() {
            self.operands(left, right);
        }
        self.push(result.unwrap_or(Kind::Unknown));
    }

    fn load(&mut self, kind: Kind) {
        self.reads(kind);
        self.pop_address();
        self.push(kind);
    }

    fn store(&mut self, kind: Kind) {
        self.pop_into(kind, "where it is stored");
        self.pop_address();
    }

    fn element(&mut self, kind: Kind) {
        self.pop_where(Kind::is_index, "an index");
        self.pop_array(kind);
        self.push(kind);
    }

    /// An array with elements of this kind, as far as that is known.
    fn pop_array(&mut self, of: Kind) {
        let array = self.pop_exact();
        let has_values = match array {
            Kind::Values => true,
            Kind::Elements(parameter) => !self.frame.is_reference(Kind::Value(parameter)),
            _ => false,
        };
        if has_values && of.plain() == Kind::Object {
            self.breach(Rule::StackUnexpected, "array of values", "an array of references");
        } else if !matches!(array.plain(), Kind::Object | Kind::Unknown) {
            let array = self.name(array);
            self.breach(Rule::StackUnexpected, array, "an array");
        }
    }

    fn set_element(&mut self, kind: Kind) {
        self.pop_into(kind, "the element");
        self.pop_where(Kind::is_index, "an index");
        self.pop_array(kind);
    }

    /// The kind of the type that the instruction names.
    fn of_type(&mut self, insn: &Instruction) -> Kind {
        self.type_of_token(insn.token())
    }

    pub(super) fn type_of_token(&mut self, token: Option<Token>) -> Kind {
        let Some(found) = token.and_then(|token| self.facts.types.operand(self.facts.resolve, token)) else {
            self.bad_token(token, "a type");
            return Kind::Unknown;
        };
        if let Some(token) = token {
            let needs = self.facts.needs(token);
            self.needs(needs);
            if self.facts.types.is_open(self.facts.resolve, token) {
                self.breach(Rule::BadType, "a generic type without arguments", "one with arguments");
            }
        }
        if found.is_void || found.is_by_ref {
            self.breach(Rule::BadType, if found.is_void { "void" } else { "a by-ref type" }, "another type");
        }
        found.kind
    }

    #[cold]
    pub(super) fn bad_token(&mut self, token: Option<Token>, expected: &str) {
        self.breach(Rule::BadToken, token.map(|token| token.to_string()).unwrap_or_default(), expected);
    }

    pub(super) fn must_be_empty(&mut self, rule: Rule, expected: &str) {
        if !self.stack.is_empty() {
            let found = format!("{} more values on the stack", self.stack.len());
            self.breach(rule, found, expected);
        }
    }
}

fn variable(insn: &Instruction) -> Option<u16> {
    match insn.operand() {
        Operand::Variable(number) => Some(*number),
        _ => None,
    }
}

/// Whether a comparison is for being equal, or not.
const fn is_equality(opcode: O) -> bool {
    matches!(opcode, O::Beq | O::Beq_S | O::Bne_Un | O::Bne_Un_S | O::Ceq)
}

//! Functions that pass vectors to tail calls: they get no hooks with values by the runtime.
//!
//! Around the hook of a tail call the compiler keeps values in the registers for results, as it takes them to survive
//! (`RBM_PROFILER_TAILCALL_TRASH` in jit/targetamd64.h): an argument of the call, computed before, may be in ymm0. But
//! the runtime's wrapper around hooks with values keeps 64 bits of such a register: the application would go on with a
//! part of a vector (.NET 10 and 11, live test `attacks::code::vectors_that_tail_calls_pass_stay_whole`). The stubs for
//! hooks without values keep all of it. Inserted code ends no function before its hook.
//!
//! Not seen are vectors in structs of other modules, and tail calls of functions that the compiler inlines.

use corprof_il::body::Operand;
use corprof_il::signature::{MethodSignature, Type};
use corprof_il::{Body, Instruction, Opcode, Prefix};
use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::Result;
use crate::id::{ClassId, FunctionId};
use crate::metadata::{
    FieldDef, MemberRef, MetadataImport, MethodDef, MethodSpec, StandAloneSignature, Table, Token, TypeDef,
    TypeDefOrRef, TypeSpec,
};

/// The beginnings of the names of vectors that may be wider than 64 bits.
const VECTORS: [&str; 4] = [
    "System.Runtime.Intrinsics.Vector",
    "System.Numerics.Vector",
    "System.Numerics.Plane",
    "System.Numerics.Quaternion",
];

/// A vector of 64 bits.
const TWO_FLOATS: &str = "System.Numerics.Vector2";

/// How deep structs in structs are looked into.
const MOST_NESTED: u32 = 4;

/// Whether a function may pass a vector to a tail call. False if its code cannot be read.
pub(super) fn passes_vectors(cx: &InNoGc<'_>, function: FunctionId) -> bool {
    find(cx, function).unwrap_or_default()
}

fn find(cx: &InNoGc<'_>, function: FunctionId) -> Result<bool> {
    let info = cx.function_info(function)?;
    let Ok(body) = Body::parse(&cx.il_function_body(info.module, info.token)?) else { return Ok(false) };
    let metadata = cx.metadata(info.module)?;
    let of_class = match info.class {
        Some(class) => cx.class_info(class)?.type_args,
        None => Vec::new(),
    };
    let arguments = info.type_args.into_iter().chain(of_class);
    let is_over_vectors = arguments.into_iter().any(|class| is_vector_class(cx, class).unwrap_or_default());
    let types = Types { metadata: &metadata, is_over_vectors };
    let instructions: Vec<&Instruction> = body.iter().map(|(_, insn)| insn).collect();
    let is_last = |at: usize| instructions.get(at + 1).is_some_and(|next| next.opcode() == Opcode::Ret);
    let found = instructions.iter().enumerate().any(|(at, insn)| {
        let is_call = matches!(insn.opcode(), Opcode::Call | Opcode::Callvirt | Opcode::Calli);
        let may_be_tail = is_call && (is_last(at) || insn.prefixes().contains(&Prefix::Tail));
        may_be_tail && types.takes_vectors(insn).unwrap_or_default()
    });
    Ok(found)
}

fn is_vector(name: &str) -> bool {
    name != TWO_FLOATS && VECTORS.iter().any(|vector| name.starts_with(vector))
}

/// Whether a method is an operator. For those of vectors the compiler has instructions.
fn is_operator(name: &str) -> bool {
    name.starts_with("op_")
}

fn is_vector_class(cx: &InNoGc<'_>, class: ClassId) -> Result<bool> {
    let info = cx.class_info(class)?;
    Ok(is_vector(&cx.metadata(info.module)?.type_def(info.token)?.name))
}

/// The types of a function's code.
struct Types<'a> {
    metadata: &'a MetadataImport<'a>,
    /// Whether a vector stands for a type parameter.
    is_over_vectors: bool,
}

impl Types<'_> {
    /// Whether a call takes a vector by value.
    fn takes_vectors(&self, call: &Instruction) -> Result<bool> {
        let Some(Operand::Token(token)) = Some(call.operand()) else { return Ok(false) };
        let (callee, arguments) = self.callee(*token)?;
        if arguments.iter().any(|ty| self.has_vectors(ty, 0)) {
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
            _ => return Ok(false),
        };
        let Ok(signature) = MethodSignature::decode(&blob) else { return Ok(false) };
        Ok(signature.parameters.iter().any(|ty| self.has_vectors(ty, 0)))
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
    fn is_of_vectors(&self, parent: Token) -> Result<bool> {
        if parent.table() != Some(Table::TypeSpec) {
            return Ok(false);
        }
        let blob = self.metadata.type_spec(TypeSpec::from_raw(parent.as_raw()))?;
        let arguments = match Type::decode(&blob) {
            Ok(Type::Generic { arguments, .. }) => arguments,
            _ => return Ok(false),
        };
        Ok(arguments.iter().any(|ty| self.has_vectors(ty, 0)))
    }

    fn has_vectors(&self, ty: &Type, depth: u32) -> bool {
        match ty.unmodified() {
            Type::TypeParameter(_) | Type::MethodParameter(_) => self.is_over_vectors,
            Type::ValueType(definition) => self.is_or_has_vectors(*definition, depth),
            Type::Generic { value_type: true, definition, arguments } => {
                arguments.iter().any(|ty| self.has_vectors(ty, depth)) || self.is_or_has_vectors(*definition, depth)
            }
            _ => false,
        }
    }

    fn is_or_has_vectors(&self, definition: TypeDefOrRef, depth: u32) -> bool {
        let find = || match definition {
            TypeDefOrRef::Def(class) => self.has_vector_fields(class, depth),
            TypeDefOrRef::Ref(class) => Ok(is_vector(&self.metadata.type_ref(class)?.name)),
            TypeDefOrRef::Spec(_) => Ok(false),
        };
        find().unwrap_or_default()
    }

    fn has_vector_fields(&self, class: TypeDef, depth: u32) -> Result<bool> {
        if is_vector(&self.metadata.type_def(class)?.name) {
            return Ok(true);
        }
        if depth == MOST_NESTED {
            return Ok(false);
        }
        let fields: Vec<FieldDef> = self.metadata.fields(class)?;
        Ok(fields.into_iter().any(|field| {
            let Ok(props) = self.metadata.field(field) else { return false };
            let is_static = props.flags.contains(sys::fdStatic);
            let ty = Type::decode_field(&props.signature);
            !is_static && ty.is_ok_and(|ty| self.has_vectors(&ty, depth + 1))
        }))
    }
}

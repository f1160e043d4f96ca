//! Copies of a method's arguments, whose addresses are passed.
//!
//! The address of an argument itself would keep it out of registers.

use corprof_il::signature::{Primitive, Type};
use corprof_il::verify::{Category, Resolve};
use corprof_il::{Instruction, Opcode};

use super::super::{EditError, Local, MethodEdit, Refusal};
use super::weave::plain;

/// The most arguments that are passed, `this` included.
pub(super) const MOST_ARGUMENTS: usize = 16;

/// The copies of the first arguments.
#[derive(Default)]
pub(super) struct Copies(Vec<Option<Copied>>);

/// The copy of one argument; arguments that cannot be read have none.
struct Copied {
    local: Local,
    is_reference: bool,
}

impl MethodEdit<'_> {
    /// Adds local variables for the arguments, as many as are passed.
    pub(super) fn copy_arguments(&mut self) -> Result<Copies, EditError> {
        let mut copies = Vec::new();
        for ty in self.arguments()? {
            let Some(ty) = ty else {
                copies.push(None);
                continue;
            };
            let is_reference = is_reference(&ty);
            copies.push(Some(Copied { local: self.add_local(ty)?, is_reference }));
        }
        Ok(Copies(copies))
    }

    /// The types of the copies; none for an argument that cannot be read.
    fn arguments(&self) -> Result<Vec<Option<Type>>, Refusal> {
        let signature = self.signature_of_method();
        let this = if signature.has_this { Some(Some(self.this()?)) } else { None };
        let parameter = |ty: &Type| Some(ty.unmodified().clone()).filter(is_readable);
        Ok(this.into_iter().chain(signature.parameters.iter().map(parameter)).take(MOST_ARGUMENTS).collect())
    }

    /// The type of a copy of `this`: an object, or the address of a struct, which a collection may move.
    fn this(&self) -> Result<Type, Refusal> {
        let class = self.metadata().method(self.method()).map_err(|_| Refusal::BadSignature)?.class;
        match self.live().type_info(class.into()).map(|info| info.category) {
            Some(Category::Reference) => Ok(Type::Primitive(Primitive::Object)),
            Some(Category::Value | Category::Enum(_)) => Ok(Type::ByRef(Box::new(Type::Primitive(Primitive::UInt8)))),
            _ => Err(Refusal::BadSignature),
        }
    }
}

impl Copies {
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Makes the copies.
    pub(super) fn store(&self) -> Vec<Instruction> {
        let store = |(number, copy): (u16, &Option<Copied>)| {
            let copy = copy.as_ref()?;
            Some([Instruction::ldarg(number), Instruction::stloc(copy.local.number())])
        };
        (0..).zip(&self.0).filter_map(store).flatten().collect()
    }

    /// The numbers of the local variables, in the order of the arguments.
    pub(super) fn places(&self) -> Vec<Option<u16>> {
        self.0.iter().map(|copy| copy.as_ref().map(|copy| copy.local.number())).collect()
    }

    /// Lets go of copied references: objects are to live no longer than without the call.
    pub(super) fn forget(&self) -> Result<Vec<Instruction>, EditError> {
        let mut code = Vec::new();
        for copy in self.0.iter().flatten().filter(|copy| copy.is_reference) {
            code.extend([plain(Opcode::Ldnull)?, Instruction::stloc(copy.local.number())]);
        }
        Ok(code)
    }
}

/// Whether the values of a type can be read in code that instantiations share.
pub(super) fn is_readable(ty: &Type) -> bool {
    match ty.unmodified() {
        Type::TypeParameter(_) | Type::MethodParameter(_) | Type::Primitive(Primitive::TypedRef) => false,
        Type::Generic { value_type: true, arguments, .. } => {
            arguments.iter().all(|of| is_reference(of) || is_readable(of))
        }
        Type::Internal(_) | Type::InternalModified { .. } => false,
        _ => true,
    }
}

fn is_reference(ty: &Type) -> bool {
    matches!(
        ty.unmodified(),
        Type::Primitive(Primitive::String | Primitive::Object)
            | Type::Class(_)
            | Type::SzArray(_)
            | Type::Array(..)
            | Type::Generic { value_type: false, .. }
    )
}

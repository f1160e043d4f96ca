//! The facts about a method that the verifier needs.

use super::assembly::Method;
use super::resolve::{INTERFACE, InAssembly};
use super::schema::TYPE_DEF_OR_REF;
use crate::signature::{MethodSignature, Primitive, Type};
use crate::token::{Table, Token, TypeDef, TypeDefOrRef};
use crate::verify::MethodContext;

/// MethodImplAttributes: the runtime suspends it.
const IMPL_ASYNC: u32 = 0x2000;
/// MethodImplAttributes: its calls exclude each other.
const IMPL_SYNCHRONIZED: u32 = 0x20;
/// GenericParamAttributes: only reference types can stand for it.
const REFERENCE_TYPE: u32 = 0x4;
/// GenericParamAttributes: ref structs can stand for it.
const ALLOWS_REF_STRUCT: u32 = 0x20;

/// So many generic parameters of a type or method are looked at.
const MOST_PARAMETERS: usize = 1 << 8;

/// A generic parameter can be constrained by another, and that by a third; so often.
const MOST_HOPS: usize = 16;

impl InAssembly<'_> {
    /// The facts about a method that the verifier needs; `None` if its signature cannot be read.
    pub fn context(&self, method: Method) -> Option<MethodContext> {
        let assembly = self.assembly();
        let row = method.token.token().row();
        let signature = MethodSignature::decode(assembly.blob(0x06, row, 4)?).ok()?;
        let flags = assembly.cell(0x06, row, 1)?;
        let is_suspended = flags & IMPL_ASYNC != 0;
        let returns = is_suspended.then(|| self.awaited(&signature.return_type)).flatten();
        let owner = assembly.owner_of(5, row).map(|row| TypeDef::from_raw(TypeDef::NIL.as_raw() | row));
        let mut parameters = self.parameters(method.token.token(), Type::MethodParameter);
        if let Some(owner) = owner {
            parameters.extend(self.parameters(owner.token(), Type::TypeParameter));
        }
        let references = self.references(&parameters);
        let ref_structs = self.flagged(&parameters, ALLOWS_REF_STRUCT);
        let type_parameters =
            owner.map_or(0, |owner| assembly.generic_parameters.get(&owner.token()).map_or(0, Vec::len));
        let type_parameters = u32::try_from(type_parameters).ok();
        Some(MethodContext {
            owner: owner.map(TypeDefOrRef::Def),
            signature,
            returns,
            references,
            ref_structs,
            type_parameters,
            is_synchronized: flags & IMPL_SYNCHRONIZED != 0,
        })
    }

    /// The type that a method which the runtime suspends returns in its body: `T` for `Task<T>`, nothing for `Task`.
    /// The runtime's own methods that await declare this type.
    fn awaited(&self, signature: &Type) -> Option<Type> {
        let (token, argument) = match signature.unmodified() {
            Type::Generic { definition, arguments, .. } => (definition.token(), arguments.first().cloned()),
            Type::Class(token) | Type::ValueType(token) => (token.token(), None),
            _ => return None,
        };
        let (space, name) = self.name_of(token)?;
        let is_task = ["Task", "Task`1", "ValueTask", "ValueTask`1"].contains(&name.as_str());
        let is_task = is_task && space == "System.Threading.Tasks";
        is_task.then(|| argument.unwrap_or(Type::Primitive(Primitive::Void)))
    }

    /// The generic parameters of a type or method, with their rows.
    fn parameters(&self, owner: Token, parameter: fn(u32) -> Type) -> Vec<(Type, u32)> {
        let assembly = self.assembly();
        let rows = assembly.generic_parameters.get(&owner).map(Vec::as_slice).unwrap_or_default();
        let number = |row: &u32| assembly.cell(0x2a, *row, 0).map(|number| (parameter(number), *row));
        rows.iter().take(MOST_PARAMETERS).filter_map(number).collect()
    }

    /// Those with a flag.
    fn flagged(&self, parameters: &[(Type, u32)], flag: u32) -> Vec<Type> {
        let has = |row: u32| self.assembly().cell(0x2a, row, 1).unwrap_or_default() & flag != 0;
        parameters.iter().filter(|(_, row)| has(*row)).map(|(parameter, _)| parameter.clone()).collect()
    }

    /// Those that only reference types can stand for.
    fn references(&self, parameters: &[(Type, u32)]) -> Vec<Type> {
        let assembly = self.assembly();
        let mut found: Vec<Type> = Vec::new();
        // Each round finds those that are constrained to be of one that is known.
        for _ in 0..MOST_HOPS {
            let before = found.len();
            for (parameter, row) in parameters {
                let flags = assembly.cell(0x2a, *row, 1).unwrap_or_default();
                let constraints = assembly.constraints.get(row).map(Vec::as_slice).unwrap_or_default();
                let is_reference =
                    flags & REFERENCE_TYPE != 0 || constraints.iter().any(|row| self.is_class_constraint(*row, &found));
                if is_reference && !found.contains(parameter) {
                    found.push(parameter.clone());
                }
            }
            if found.len() == before {
                break;
            }
        }
        found
    }

    /// Whether a constraint is a class that value types cannot extend, or one of these generic parameters.
    fn is_class_constraint(&self, row: u32, references: &[Type]) -> bool {
        let assembly = self.assembly();
        let token = assembly.metadata.coded(&assembly.bytes, 0x2c, row, 1, TYPE_DEF_OR_REF).unwrap_or_default();
        let named = match token.table() {
            Some(Table::TypeSpec) => match assembly.blob(0x1b, token.row(), 0).map(Type::decode) {
                Some(Ok(Type::Generic { value_type: false, definition, .. })) => definition.token(),
                Some(Ok(ty)) => return references.contains(&ty),
                _ => return false,
            },
            _ => token,
        };
        let (there, row) = match named.table() {
            Some(Table::TypeDef) => (*self, named.row()),
            Some(Table::TypeRef) => match self.definition_of(named.row()) {
                Some(found) => found,
                None => return false,
            },
            _ => return false,
        };
        let flags = there.assembly().cell(0x02, row, 0).unwrap_or(INTERFACE);
        let is_base = matches!(there.assembly().string(0x02, row, 1), Some("Object" | "ValueType" | "Enum"));
        flags & INTERFACE == 0 && !is_base
    }
}

//! How virtual calls are carried out on values of value types.

use std::collections::HashSet;

use super::resolve::{ABSTRACT_METHOD, INTERFACE, InAssembly};
use crate::signature::{MethodSignature, Type};
use crate::token::{Table, Token, TypeDefOrRef};
use crate::verify::{Dispatch, Resolve};

/// Interfaces of interfaces are followed to so many.
const MOST_INTERFACES: usize = 1 << 10;

/// A method as a call names it.
struct Callee<'a> {
    name: &'a str,
    parameters: usize,
}

impl InAssembly<'_> {
    /// As [`Resolve::dispatch`]; `None` if it could not be found out.
    pub(super) fn dispatch_on(&self, value_type: Option<Token>, method: Token) -> Option<Dispatch> {
        let method = if method.table() == Some(Table::MethodSpec) { self.method_spec(method)?.0 } else { method };
        let info = self.method(method)?;
        let name = match method.table()? {
            Table::MethodDef => self.assembly().string(0x06, method.row(), 3)?,
            _ => self.assembly().string(0x0a, method.row(), 1)?,
        };
        let callee = Callee { name, parameters: info.signature.parameters.len() };
        let (owner, row) = self.definition_of_owner(info.owner?)?;
        let receiver = value_type.and_then(|ty| self.named(ty));
        if owner.assembly().cell(0x02, row, 0)? & INTERFACE != 0 {
            let (there, receiver) = receiver?;
            return there.dispatch_by_interface(receiver, &owner, row, &callee);
        }
        if owner.is_base_of_values(row) {
            let (there, receiver) = receiver?;
            let is_own = there.has_method(receiver, |name| name == callee.name, callee.parameters);
            return Some(if is_own { Dispatch::Own } else { Dispatch::Boxed });
        }
        let is_own = receiver.is_some_and(|(there, receiver)| there.is_same(&owner) && receiver == row);
        Some(match (is_own, info.is_virtual) {
            (true, Some(false)) => Dispatch::Boxed,
            (true, _) => Dispatch::Own,
            (false, _) => Dispatch::Unrelated,
        })
    }

    /// The definition of a member's owner, without the arguments of a generic one.
    pub(super) fn definition_of_owner(&self, owner: TypeDefOrRef) -> Option<(Self, u32)> {
        match owner {
            TypeDefOrRef::Spec(spec) => match self.type_spec(spec.token())?.unmodified() {
                Type::Generic { definition, .. } => self.named(definition.token()),
                _ => None,
            },
            named => self.named(named.token()),
        }
    }

    fn is_base_of_values(&self, row: u32) -> bool {
        let assembly = self.assembly();
        assembly.string(0x02, row, 2) == Some("System")
            && matches!(assembly.string(0x02, row, 1), Some("Object" | "ValueType" | "Enum"))
    }

    /// A method of an interface, on the value type with this row here.
    fn dispatch_by_interface(
        &self,
        receiver: u32,
        owner: &Self,
        interface: u32,
        callee: &Callee<'_>,
    ) -> Option<Dispatch> {
        let mut open = vec![(*self, receiver)];
        let mut seen = HashSet::new();
        let mut is_whole = true;
        while let Some((there, row)) = open.pop() {
            if there.is_same(owner) && row == interface {
                let has_it = |name: &str| name == callee.name || name.ends_with(&format!(".{}", callee.name));
                let is_own =
                    owner.is_abstract_method(interface, callee) || self.has_method(receiver, has_it, callee.parameters);
                return Some(if is_own { Dispatch::Own } else { Dispatch::Boxed });
            }
            if seen.len() > MOST_INTERFACES || !seen.insert((there.number(), row)) {
                continue;
            }
            for token in there.assembly().interfaces.get(&row).into_iter().flatten() {
                match TypeDefOrRef::from_token(*token).and_then(|token| there.definition_of_owner(token)) {
                    Some(found) => open.push(found),
                    None => is_whole = false,
                }
            }
        }
        is_whole.then_some(Dispatch::Boxed)
    }

    /// Whether a method of an interface must be implemented by each type that declares the interface.
    fn is_abstract_method(&self, row: u32, callee: &Callee<'_>) -> bool {
        let flags = |method| self.assembly().cell(0x06, method, 2).unwrap_or_default();
        let mut methods = self.methods_named(row, |name| name == callee.name, callee.parameters);
        methods.any(|method| flags(method) & ABSTRACT_METHOD != 0)
    }

    fn has_method(&self, row: u32, is_it: impl Fn(&str) -> bool, parameters: usize) -> bool {
        self.methods_named(row, is_it, parameters).next().is_some()
    }

    /// The methods of a type with such a name and so many parameters.
    fn methods_named(&self, row: u32, is_it: impl Fn(&str) -> bool, parameters: usize) -> impl Iterator<Item = u32> {
        let assembly = self.assembly();
        let first = assembly.cell(0x02, row, 5).unwrap_or_default();
        let end = assembly.cell(0x02, row + 1, 5).unwrap_or(assembly.metadata.rows(Table::MethodDef) + 1);
        (first..end).take(1 << 16).filter(move |method| {
            let count = || {
                let signature = MethodSignature::decode(assembly.blob(0x06, *method, 4)?).ok()?;
                Some(signature.parameters.len())
            };
            assembly.string(0x06, *method, 3).is_some_and(&is_it) && count() == Some(parameters)
        })
    }
}

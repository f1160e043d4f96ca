//! The signatures of delegates, in the tokens of the module that uses them.

use super::resolve::InAssembly;
use crate::signature::MethodSignature;
use crate::token::{Table, Token, TypeDef, TypeDefOrRef, TypeRef};
use crate::verify::Resolve;

impl InAssembly<'_> {
    /// `Invoke` of a type that is named here, if it is a delegate that the set has.
    pub(super) fn invoke_of(&self, token: Token) -> Option<MethodSignature> {
        let (there, row) = match token.table()? {
            Table::TypeDef => (*self, token.row()),
            Table::TypeRef => self.definition_of(token.row())?,
            _ => return None,
        };
        let base = there.assembly().base(row).and_then(|base| there.name_of(base))?;
        if base != ("System".to_owned(), "MulticastDelegate".to_owned()) {
            return None;
        }
        let assembly = there.assembly();
        let first = assembly.cell(0x02, row, 5)?;
        let end = assembly.cell(0x02, row + 1, 5).unwrap_or(assembly.metadata.rows(Table::MethodDef) + 1);
        let invoke = (first..end).take(1 << 16).find(|method| assembly.string(0x06, *method, 3) == Some("Invoke"))?;
        let mut signature = MethodSignature::decode(assembly.blob(0x06, invoke, 4)?).ok()?;
        if !self.is_same(&there) {
            signature.rename(&mut |token| self.named_here(&there, token));
        }
        Some(signature)
    }

    /// The token that means here what another assembly's means there.
    fn named_here(&self, from: &Self, token: TypeDefOrRef) -> TypeDefOrRef {
        let unknown = TypeDefOrRef::Ref(TypeRef::NIL);
        let Some(identity) = from.type_info(token.token()).map(|info| info.identity) else { return unknown };
        let is_it = |token: &Token| self.type_info(*token).is_some_and(|info| info.identity == identity);
        let rows = 1..=self.assembly().metadata.rows(Table::TypeRef);
        let mut references = rows.map(|row| Token::from_raw(TypeRef::NIL.as_raw() | row));
        references
            .find(is_it)
            .or_else(|| Some(Token::from_raw(TypeDef::NIL.as_raw() | identity as u32 & 0x00ff_ffff)).filter(is_it))
            .and_then(TypeDefOrRef::from_token)
            .unwrap_or(unknown)
    }
}

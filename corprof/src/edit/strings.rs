//! Replaces literal strings.

use corprof_il::body::InsnId;
use corprof_il::{Instruction, Opcode};

use super::{EditError, MethodEdit, Refusal};
use crate::metadata::{Table, UserString};

impl MethodEdit<'_> {
    /// The literal strings that the body loads, in order, with the instructions that load them. An unpaired surrogate
    /// becomes U+FFFD.
    ///
    /// # Errors
    /// The runtime's error about broken metadata (`CLDB_E_…`).
    pub fn strings(&self) -> Result<Vec<(InsnId, String)>, EditError> {
        let mut found = Vec::new();
        for (id, insn) in self.body().iter().filter(|(_, insn)| insn.opcode() == Opcode::Ldstr) {
            let token = insn.token().filter(|token| token.table() == Some(Table::UserString));
            if let Some(token) = token {
                found.push((id, self.metadata().user_string(UserString::from_raw(token.as_raw()))?));
            }
        }
        Ok(found)
    }

    /// Makes an instruction that loads a literal string load another one.
    ///
    /// # Errors
    /// [`Refusal::NoString`] if the instruction is not an `ldstr`; as [`string`](Self::string).
    pub fn replace_string(&mut self, instruction: InsnId, text: &str) -> Result<(), EditError> {
        let is_string = |insn: &Instruction| insn.opcode() == Opcode::Ldstr;
        if !self.body().get(instruction).is_some_and(is_string) {
            return Err(Refusal::NoString.into());
        }
        let token = self.string(text)?;
        self.code_mut().replace(instruction, Instruction::ldstr(token))?;
        Ok(())
    }

    /// Replaces each literal string `old` by `new`; returns how many instructions load it.
    ///
    /// # Errors
    /// As [`strings`](Self::strings) and [`string`](Self::string).
    pub fn replace_strings(&mut self, old: &str, new: &str) -> Result<usize, EditError> {
        let found = self.strings()?.into_iter().filter(|(_, text)| text == old);
        let found: Vec<InsnId> = found.map(|(id, _)| id).collect();
        for id in &found {
            self.replace_string(*id, new)?;
        }
        Ok(found.len())
    }
}

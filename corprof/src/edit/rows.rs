//! References that edited code needs: found in the metadata of the module, or defined once.

use corprof_il::signature::{MethodSignature, Type};

use super::{EditError, MethodEdit, Refusal};
use crate::error::Result;
use crate::info::{DefinedRows, Row};
use crate::metadata::{MemberRef, MethodSpec, StandAloneSignature, Token, TypeRef, TypeSpec, UserString};

impl MethodEdit<'_> {
    /// The row that an earlier edit has defined, or a new one. No lock is held over the calls to the runtime; if two
    /// threads define the same row, one of the two remains unused.
    pub(super) fn row(&self, row: Row, define: impl FnOnce() -> Result<Token>) -> Result<Token> {
        self.note_use(&row);
        let rows: &DefinedRows = self.context().defined_rows();
        // The rows of the next module at this address are others.
        let _loaded = self.lifeline().pin("edit_method")?;
        let module = self.module().as_raw();
        if let Some(known) = rows.of(module, &row) {
            return Ok(Token::from_raw(known));
        }
        let token = define()?;
        Ok(Token::from_raw(rows.keep(module, row, token.as_raw())))
    }

    /// As [`row`](Self::row), where the module may have the row itself. It is looked for once: the runtime compares it
    /// with all rows of the table, and each method of the module may ask.
    pub(super) fn found_row(
        &self,
        row: Row,
        find: impl FnOnce() -> Result<Option<Token>>,
        define: impl FnOnce() -> Result<Token>,
    ) -> Result<Token> {
        self.note_use(&row);
        let rows: &DefinedRows = self.context().defined_rows();
        let loaded = self.lifeline().pin("edit_method")?;
        let module = self.module().as_raw();
        if let Some(known) = rows.of(module, &row) {
            return Ok(Token::from_raw(known));
        }
        if let Some(found) = find()? {
            return Ok(Token::from_raw(rows.keep(module, row, found.as_raw())));
        }
        drop(loaded);
        self.row(row, define)
    }

    /// A literal string, for `ldstr`; defined once for each text.
    ///
    /// # Errors
    /// `E_OUTOFMEMORY`; also if the module's strings take more than 16 MiB.
    pub fn string(&self, text: &str) -> Result<UserString> {
        let token =
            self.row(Row::String(text.into()), || self.references().define_user_string(text).map(Into::into))?;
        Ok(UserString::from_raw(token.as_raw()))
    }

    /// A signature, for `calli`.
    ///
    /// # Errors
    /// [`EditError::Signature`] if the signature cannot be written, `E_OUTOFMEMORY`.
    pub fn signature(&self, signature: &MethodSignature) -> Result<StandAloneSignature, EditError> {
        self.signature_blob(signature.encode()?)
    }

    pub(super) fn signature_blob(&self, blob: Vec<u8>) -> Result<StandAloneSignature, EditError> {
        let row = Row::Signature(blob.as_slice().into());
        let token = self.row(row, || self.references().define_signature(&blob).map(Into::into))?;
        Ok(StandAloneSignature::from_raw(token.as_raw()))
    }

    /// A type that only a signature can spell: an instantiation, an array, a generic parameter.
    ///
    /// # Errors
    /// [`EditError::Signature`] if the type cannot be written, `E_OUTOFMEMORY`.
    pub fn type_spec(&self, ty: &Type) -> Result<TypeSpec, EditError> {
        let blob = ty.encode()?;
        let row = Row::TypeSpec(blob.as_slice().into());
        let token = self.row(row, || self.references().define_type_spec(&blob).map(Into::into))?;
        Ok(TypeSpec::from_raw(token.as_raw()))
    }

    /// A type of another assembly, which the module already refers to: found, or defined.
    ///
    /// `name` includes the namespace. A reference that cannot be resolved throws a `TypeLoadException` when the code is
    /// compiled.
    ///
    /// # Errors
    /// [`Refusal::NoAssembly`] if the module does not refer to `assembly`; `E_INVALIDARG` for a name that contains a
    /// NUL or is too long.
    pub fn type_ref(&self, assembly: &str, name: &str) -> Result<TypeRef, EditError> {
        let import = self.metadata();
        for reference in import.assembly_refs()? {
            if import.assembly_ref(reference)?.name != assembly {
                continue;
            }
            let token = self.found_row(
                Row::TypeRef(reference.as_raw(), name.into()),
                || Ok(import.find_type_ref(reference, name)?.map(Into::into)),
                || self.references().define_type_ref(reference, name).map(Into::into),
            )?;
            return Ok(TypeRef::from_raw(token.as_raw()));
        }
        Err(Refusal::NoAssembly.into())
    }

    /// A method of a type of another assembly, or of an instantiation: found, or defined.
    ///
    /// `parent` is the type: a `TypeRef`, `TypeDef` or `TypeSpec`. A reference that cannot be resolved throws a
    /// `MissingMethodException` when the code is compiled.
    ///
    /// # Errors
    /// [`EditError::Signature`] if the signature cannot be written; `E_INVALIDARG` for a name that contains a NUL or is
    /// too long.
    pub fn method_ref(
        &self,
        parent: impl Into<Token>,
        name: &str,
        signature: &MethodSignature,
    ) -> Result<MemberRef, EditError> {
        let parent = parent.into();
        let blob = signature.encode()?;
        let find = || {
            for found in self.metadata().member_refs(parent)? {
                let props = self.metadata().member_ref(found)?;
                if props.name == name && props.signature == blob {
                    return Ok(Some(found.into()));
                }
            }
            Ok(None)
        };
        let row = Row::MemberRef(parent.as_raw(), name.into(), blob.as_slice().into());
        let token =
            self.found_row(row, find, || self.references().define_member_ref(parent, name, &blob).map(Into::into))?;
        Ok(MemberRef::from_raw(token.as_raw()))
    }

    /// A generic method with its arguments.
    ///
    /// # Errors
    /// [`EditError::Signature`] if a type cannot be written, `E_OUTOFMEMORY`.
    pub fn method_spec(&self, method: impl Into<Token>, arguments: &[Type]) -> Result<MethodSpec, EditError> {
        let method = method.into();
        let blob = Type::encode_method_spec(arguments)?;
        let row = Row::MethodSpec(method.as_raw(), blob.as_slice().into());
        let token = self.row(row, || self.references().define_method_spec(method, &blob).map(Into::into))?;
        Ok(MethodSpec::from_raw(token.as_raw()))
    }
}

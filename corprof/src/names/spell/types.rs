//! Spells the types of signatures, read in place.

use std::fmt::Write;

use super::{Arguments, ELLIPSIS, Rest, Scope, Speller, Spelt};
use crate::id::{ClassId, ModuleId};
use crate::metadata::signature::cursor::{MethodHead, Reader, element};
use crate::metadata::signature::{CallingConvention, Primitive};
use crate::metadata::{MethodDef, TypeDefOrRef};
use crate::names::source::Source;
use crate::names::spelling::Spelling;

impl<S: Source> Speller<'_, S> {
    /// `<string>(int32, string[])`
    pub(super) fn method_signature(
        &mut self,
        module: ModuleId,
        token: MethodDef,
        signature: &[u8],
        type_arguments: &Arguments,
        type_args: &[ClassId],
    ) {
        let mut arguments = Arguments::Known(type_args.to_vec());
        let mut reader = Reader::new(signature);
        let head = MethodHead::read(&mut reader).and_then(|head| reader.skip().map(|()| head));
        if head.is_ok_and(|head| head.generic_parameters as usize != type_args.len()) {
            arguments = self.parameter_names(module, token.token());
        }
        self.push_all_arguments(&arguments);
        let start = self.text.len();
        self.text.push('(');
        let scope = Scope { module, type_arguments, method_arguments: &arguments };
        if let Err(error) = head.and_then(|head| self.parameters(&mut reader, head, &scope)) {
            self.missing = true;
            self.text.truncate(start);
            // Writing to a string cannot fail.
            let _ = write!(self.text, "(<{error}>");
        }
        self.text.push(')');
    }

    /// `int32, string[]`: the part of a signature after the return type.
    pub(super) fn parameters(&mut self, reader: &mut Reader<'_>, head: MethodHead, scope: &Scope<'_>) -> Spelt {
        let is_variable = head.convention == CallingConvention::VarArg;
        let mut had_sentinel = false;
        for at in 0..head.parameters {
            if at > 0 {
                self.text.push_str(", ");
            }
            if self.cut {
                self.text.push_str(ELLIPSIS);
                return Ok(());
            }
            if !had_sentinel && reader.peek() == Some(element::SENTINEL) {
                reader.byte()?;
                had_sentinel = true;
                if is_variable {
                    self.text.push_str(self.spelling.variable_arguments());
                    self.text.push_str(", ");
                }
            }
            self.spelt(reader, scope)?;
        }
        if is_variable && !had_sentinel {
            self.text.push_str(if head.parameters > 0 { ", " } else { "" });
            self.text.push_str(self.spelling.variable_arguments());
        }
        Ok(())
    }

    /// A type of a signature. Custom modifiers are left out.
    ///
    /// Once the name is cut, the position of the reader is undefined.
    #[inline]
    pub(super) fn spelt(&mut self, reader: &mut Reader<'_>, scope: &Scope<'_>) -> Spelt {
        if let Some(primitive) = reader.next_if(Primitive::from_element) {
            self.push(self.spelling.primitive(primitive));
            return Ok(());
        }
        let mut spelt = Ok(());
        self.nested(|this| spelt = this.element(reader, scope));
        spelt
    }

    fn element(&mut self, reader: &mut Reader<'_>, scope: &Scope<'_>) -> Spelt {
        let mut at = reader.offset();
        let mut byte = reader.byte()?;
        while reader.skip_modifier(byte)? {
            at = reader.offset();
            byte = reader.byte()?;
        }
        if let Some(primitive) = Primitive::from_element(byte) {
            self.push(self.spelling.primitive(primitive));
            return Ok(());
        }
        let start = self.text.len();
        match byte {
            element::CLASS | element::VALUETYPE => {
                let token = reader.type_token()?;
                self.named(token, scope, Rest::Known(&[]))?;
            }
            element::GENERICINST => {
                reader.kind_of_generic()?;
                let token = reader.type_token()?;
                let count = reader.count()?;
                self.named(token, scope, Rest::Spelt(reader, count, scope))?;
            }
            element::PTR => {
                self.spelt(reader, scope)?;
                self.text.push('*');
            }
            element::BYREF => {
                let (before, behind) = self.spelling.by_ref();
                self.text.push_str(before);
                self.spelt(reader, scope)?;
                self.text.push_str(behind);
            }
            element::SZARRAY => {
                self.spelt(reader, scope)?;
                self.spelling.array(&mut self.text, start, 1);
            }
            element::ARRAY => {
                self.spelt(reader, scope)?;
                let rank = if self.cut { 1 } else { reader.rank()? };
                self.spelling.array(&mut self.text, start, rank);
            }
            element::VAR => self.parameter(scope.type_arguments, reader.unsigned()?, "!"),
            element::MVAR => self.parameter(scope.method_arguments, reader.unsigned()?, "!!"),
            element::FNPTR => self.function_pointer(reader, scope)?,
            // The handle may come from a broken file as well as from the runtime, so the runtime cannot be asked about
            // it.
            element::INTERNAL => {
                let handle = reader.pointer()?;
                self.push(&format!("<type handle {handle:#x}>"));
            }
            other => return Err(Reader::bad_element(at, other)),
        }
        Ok(())
    }

    fn parameter(&mut self, arguments: &Arguments, at: u32, mark: &str) {
        let at_usize = at as usize;
        match arguments {
            Arguments::Known(classes) if at_usize < classes.len() => {
                if let Some(&class) = classes.get(at_usize) {
                    self.argument(class);
                }
            }
            Arguments::Named(names) if at_usize < names.len() => {
                if let Some(name) = names.get(at_usize) {
                    self.push(name);
                }
            }
            _ => self.push(&format!("{mark}{at}")),
        }
    }

    fn named(&mut self, token: TypeDefOrRef, scope: &Scope<'_>, mut arguments: Rest<'_, '_>) -> Spelt {
        let module = scope.module;
        let start = self.text.len();
        match token {
            TypeDefOrRef::Def(token) => {
                self.type_levels(token, &mut arguments, |this, token| this.type_def_level(module, token))?;
            }
            TypeDefOrRef::Ref(token) => {
                self.type_levels(token, &mut arguments, |this, token| this.type_ref_level(module, token))?;
            }
            TypeDefOrRef::Spec(token) => {
                match self.source.type_spec(module, token) {
                    Ok(blob) => {
                        if let Err(error) = self.spelt(&mut Reader::new(&blob), scope) {
                            self.text.truncate(start);
                            self.unknown_because("type", &token, &error);
                        }
                    }
                    Err(error) => self.unknown("type", token, &error),
                }
                // An instantiation of a type that cannot be generic, which no compiler makes: the arguments are
                // skipped.
                if let Rest::Spelt(reader, count, _) = arguments
                    && !self.cut
                {
                    for _ in 0..count {
                        reader.skip()?;
                    }
                }
                return Ok(());
            }
        }
        self.spelling.named(&mut self.text, start);
        Ok(())
    }

    /// `method int32 *(string)`, `delegate*<string, int>`
    fn function_pointer(&mut self, reader: &mut Reader<'_>, scope: &Scope<'_>) -> Spelt {
        let head = MethodHead::read(reader)?;
        let (keyword, convention) = self.spelling.function_pointer(head.convention);
        self.text.push_str(keyword);
        self.text.push_str(convention);
        match self.spelling {
            Spelling::Il => {
                self.spelt(reader, scope)?;
                self.text.push_str(" *(");
                self.parameters(reader, head, scope)?;
                self.text.push(')');
            }
            Spelling::CSharp => {
                self.text.push('<');
                let start = self.text.len();
                self.spelt(reader, scope)?;
                // It comes first in the signature and last in the name.
                let returns = self.text.split_off(start);
                self.parameters(reader, head, scope)?;
                if self.text.len() > start {
                    self.text.push_str(", ");
                }
                self.text.push_str(&returns);
                self.text.push('>');
            }
        }
        Ok(())
    }
}

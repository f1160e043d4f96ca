//! Puts a name together from its parts.
//!
//! A part that cannot be had is replaced by text in angle brackets that says why, and the speller remembers that something
//! is missing: such a name is not worth keeping. Names may be endless (metadata and type arguments are the profiled
//! program's, and nest as they like), so both depth and the work spent on one name are limited; what does not fit becomes
//! an ellipsis.

use std::fmt::Display;

use super::Name;
use super::generics::{chain, push_arguments};
use super::source::Source;
use super::spelling::Spelling;
use crate::error::Error;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{ArrayClass, ClassInfo};
use crate::metadata::signature::{CallingConvention, MethodSignature, Primitive, Type};
use crate::metadata::{MethodDef, MethodProps, Table, Token, TypeDef, TypeDefOrRef, TypeRef};

/// How deeply types may be nested in one name: type arguments, arrays, specs within specs.
const MAX_DEPTH: usize = 48;
/// How many types may enclose one another. A longer chain is a circle in broken metadata.
const MAX_LEVELS: usize = 32;
/// How many bytes of text may be written for one name, intermediate ones included.
const MAX_WORK: usize = 64 * 1024;

/// The class of global methods, which metadata calls nil as often as by its name.
const GLOBAL: &str = "<Module>";
const ELLIPSIS: &str = "\u{2026}";

/// What generic parameters stand for, within one module's metadata.
struct Scope<'a> {
    module: ModuleId,
    type_arguments: &'a [String],
    method_arguments: &'a [String],
}

pub(super) struct Speller<'s, S> {
    source: &'s S,
    spelling: Spelling,
    /// Something could not be found out.
    missing: bool,
    /// The identifier may name something else before anybody is told.
    passing: bool,
    /// A limit was reached; from then on nothing more is spelt.
    cut: bool,
    depth: usize,
    work: usize,
}

impl<'s, S: Source> Speller<'s, S> {
    pub(super) fn new(source: &'s S, spelling: Spelling) -> Self {
        Self { source, spelling, missing: false, passing: false, cut: false, depth: 0, work: 0 }
    }

    /// Whether the name is worth keeping: it says all there is to say, or all that will ever fit, and stays true.
    pub(super) fn is_lasting(&self) -> bool {
        !self.missing && !self.passing
    }

    /// `Namespace.Outer+Inner<T>.Method<U>(int32, string[])`
    pub(super) fn function(&mut self, function: FunctionId) -> String {
        let info = match self.source.function_info(function) {
            Ok(info) => info,
            Err(error) => return self.unknown_id("function", function.as_raw(), &error),
        };
        if info.token.is_nil() {
            return self.dynamic_function(function);
        }
        let method = match self.source.method(info.module, info.token) {
            Ok(method) => method,
            Err(error) => {
                let class = info.class.map(|class| self.class(class));
                return join_member(class.as_deref().unwrap_or_default(), &self.unknown("method", info.token, &error));
            }
        };
        self.method(info.class, info.module, info.token, method, &info.type_args)
    }

    /// A method as its module defines it: generic parameters by their own names.
    pub(super) fn method_def(&mut self, module: ModuleId, token: MethodDef) -> String {
        let method = match self.source.method(module, token) {
            Ok(method) => method,
            Err(error) => return self.unknown("method", token, &error),
        };
        self.method(None, module, token, method, &[])
    }

    /// `Namespace.Outer<int32>+Inner<string>`, `System.String[]` as `string[]`
    pub(super) fn class(&mut self, class: ClassId) -> String {
        self.class_that_is(class, None)
    }

    /// The same of a class about which the runtime has been asked already.
    fn class_that_is(&mut self, class: ClassId, info: Option<&ClassInfo>) -> String {
        self.nested(|this| {
            if let Some(name) = this.source.known_class(class) {
                return this.text(name.as_str());
            }
            // The outer name's gaps are no reason not to keep this one.
            let outer_missing = std::mem::take(&mut this.missing);
            let name = match info {
                Some(info) => this.defined_class(info),
                None => this.new_class(class),
            };
            if !this.missing && !this.cut {
                this.source.learn_class(class, &Name::from(name.as_str()));
            }
            this.missing |= outer_missing;
            name
        })
    }

    fn new_class(&mut self, class: ClassId) -> String {
        match self.source.class_info(class) {
            Ok(info) => self.defined_class(&info),
            Err(error) if error.code() == corprof_sys::CORPROF_E_CLASSID_IS_ARRAY => {
                match self.source.array_class(class) {
                    Ok(Some(array)) => self.array(class, &array),
                    Ok(None) => self.unknown_id("class", class.as_raw(), &error),
                    Err(error) => self.unknown_id("class", class.as_raw(), &error),
                }
            }
            Err(error) => self.unknown_id("class", class.as_raw(), &error),
        }
    }

    fn defined_class(&mut self, info: &ClassInfo) -> String {
        let levels = self.type_def(info.module, info.token);
        chain(self.spelling, &levels, &self.arguments(&info.type_args))
    }

    fn array(&mut self, class: ClassId, array: &ArrayClass) -> String {
        let text = match (array.element, element_name(array)) {
            (Some(element), _) => self.argument(element),
            (None, Some(primitive)) => self.spelling.primitive(primitive).to_owned(),
            (None, None) => {
                self.missing = true;
                format!("<unknown element of array class {class:#x}>")
            }
        };
        self.spelling.array(text, array.rank)
    }

    /// A class inside another name: the core library's types by their keywords.
    fn argument(&mut self, class: ClassId) -> String {
        let full = self.class(class);
        self.spelling.argument(full)
    }

    fn arguments(&mut self, classes: &[ClassId]) -> Vec<String> {
        let mut texts = Vec::new();
        for &class in classes {
            if self.cut {
                // One for the place that it takes, and for the reader.
                texts.push(ELLIPSIS.to_owned());
                break;
            }
            texts.push(self.argument(class));
        }
        texts
    }

    /// The declaring class of a method, and its arguments or, where they are unknown, its parameters' names.
    fn declaring_class(&mut self, class: Option<ClassId>, module: ModuleId, token: TypeDef) -> (String, Vec<String>) {
        if let Some(class) = class {
            match self.source.class_info(class) {
                Ok(info) => return (self.class_that_is(class, Some(&info)), self.arguments(&info.type_args)),
                // The metadata still knows what it is called.
                Err(_) => self.missing = true,
            }
        }
        if token.is_nil() {
            return (self.text(GLOBAL), Vec::new());
        }
        let levels = self.type_def(module, token);
        let arguments = self.parameter_names(module, token.token());
        (chain(self.spelling, &levels, &arguments), arguments)
    }

    fn parameter_names(&mut self, module: ModuleId, owner: Token) -> Vec<String> {
        self.source.generic_params(module, owner).unwrap_or_else(|_| {
            self.missing = true;
            Vec::new()
        })
    }

    fn method(
        &mut self,
        class: Option<ClassId>,
        module: ModuleId,
        token: MethodDef,
        method: MethodProps,
        type_args: &[ClassId],
    ) -> String {
        // Before what may be long, so that it is in the name whatever else does not fit.
        let name = self.text(method.name);
        let (class, type_arguments) = self.declaring_class(class, module, method.class);
        let mut text = join_member(&class, &name);
        let mut method_arguments = self.arguments(type_args);
        let signature = match MethodSignature::decode(&method.signature) {
            Ok(signature) => signature,
            Err(error) => {
                self.missing = true;
                push_arguments(&mut text, &method_arguments);
                text.push_str(&format!("(<{error}>)"));
                return text;
            }
        };
        if signature.generic_parameters as usize != type_args.len() {
            method_arguments = self.parameter_names(module, token.token());
        }
        push_arguments(&mut text, &method_arguments);
        let scope = Scope { module, type_arguments: &type_arguments, method_arguments: &method_arguments };
        text.push('(');
        text.push_str(&self.parameters(&signature, &scope).join(", "));
        text.push(')');
        text
    }

    /// `int32` and `string[]`
    fn parameters(&mut self, signature: &MethodSignature, scope: &Scope<'_>) -> Vec<String> {
        let variable = signature.convention == CallingConvention::VarArg;
        let fixed = signature.sentinel.unwrap_or(signature.parameters.len());
        let mut parts = Vec::new();
        for (at, parameter) in signature.parameters.iter().enumerate() {
            if self.cut {
                parts.push(ELLIPSIS.to_owned());
                break;
            }
            if variable && at == fixed {
                parts.push(self.spelling.variable_arguments().to_owned());
            }
            parts.push(self.spelt(parameter, scope));
        }
        if variable && fixed >= signature.parameters.len() {
            parts.push(self.spelling.variable_arguments().to_owned());
        }
        parts
    }

    /// A type as a signature spells it. Custom modifiers are left out.
    fn spelt(&mut self, spelling: &Type, scope: &Scope<'_>) -> String {
        self.nested(|this| match spelling.unmodified() {
            Type::Primitive(primitive) => this.text(this.spelling.primitive(*primitive)),
            Type::Class(token) | Type::ValueType(token) => this.named(*token, scope, &[]),
            Type::Pointer(inner) => this.spelt(inner, scope) + "*",
            Type::ByRef(inner) => {
                let text = this.spelt(inner, scope);
                this.spelling.by_ref(&text)
            }
            Type::SzArray(inner) => {
                let text = this.spelt(inner, scope);
                this.spelling.array(text, 1)
            }
            Type::Array(inner, shape) => {
                let text = this.spelt(inner, scope);
                this.spelling.array(text, shape.rank)
            }
            Type::Generic { definition, arguments, .. } => this.named(*definition, scope, arguments),
            Type::TypeParameter(at) => this.parameter(scope.type_arguments, *at, "!"),
            Type::MethodParameter(at) => this.parameter(scope.method_arguments, *at, "!!"),
            Type::FunctionPointer(signature) => {
                let returns = this.spelt(&signature.return_type, scope);
                let parameters = this.parameters(signature, scope);
                this.spelling.function_pointer(signature.convention, parameters, returns)
            }
            // The handle may come from a broken file as well as from the runtime, so nobody may be asked about it.
            Type::Internal(handle) => this.text(format!("<type handle {handle:#x}>")),
            // `unmodified` leaves none of these.
            Type::Modified { .. } | Type::InternalModified { .. } | Type::Pinned(_) => String::new(),
        })
    }

    fn all_spelt(&mut self, types: &[Type], scope: &Scope<'_>) -> Vec<String> {
        let mut texts = Vec::new();
        for one in types {
            if self.cut {
                texts.push(ELLIPSIS.to_owned());
                break;
            }
            texts.push(self.spelt(one, scope));
        }
        texts
    }

    fn parameter(&mut self, arguments: &[String], at: u32, mark: &str) -> String {
        match arguments.get(at as usize) {
            Some(argument) => self.text(argument),
            None => self.text(format!("{mark}{at}")),
        }
    }

    fn named(&mut self, token: TypeDefOrRef, scope: &Scope<'_>, arguments: &[Type]) -> String {
        let levels = match token {
            TypeDefOrRef::Def(token) => self.type_def(scope.module, token),
            TypeDefOrRef::Ref(token) => self.type_ref(scope.module, token),
            TypeDefOrRef::Spec(token) => {
                let blob = match self.source.type_spec(scope.module, token) {
                    Ok(blob) => blob,
                    Err(error) => return self.unknown("type", token, &error),
                };
                return match Type::decode(&blob) {
                    Ok(spec) => self.spelt(&spec, scope),
                    Err(error) => self.unknown_because("type", &token, &error),
                };
            }
        };
        let arguments = self.all_spelt(arguments, scope);
        self.spelling.named(chain(self.spelling, &levels, &arguments))
    }

    /// The names of a type and of those that enclose it, the outermost first.
    fn type_def(&mut self, module: ModuleId, token: TypeDef) -> Vec<String> {
        let mut levels = Vec::new();
        let mut next = Some(token);
        while let Some(token) = next {
            next = None;
            match self.source.type_def(module, token) {
                Ok(props) => {
                    let is_nested = props.is_nested();
                    levels.push(self.text(props.name));
                    if is_nested {
                        match self.source.enclosing_class(module, token) {
                            Ok(enclosing) => next = enclosing,
                            Err(error) => levels.push(self.unknown("enclosing type of", token, &error)),
                        }
                    }
                }
                Err(error) => levels.push(self.unknown("type", token, &error)),
            }
            next = next.filter(|_| self.goes_on(&mut levels));
        }
        levels.reverse();
        levels
    }

    fn type_ref(&mut self, module: ModuleId, token: TypeRef) -> Vec<String> {
        let mut levels = Vec::new();
        let mut next = Some(token);
        while let Some(token) = next {
            next = None;
            match self.source.type_ref(module, token) {
                Ok(props) => {
                    levels.push(self.text(props.name));
                    // A nested type's reference hangs on that of its enclosing type; any other scope is a module.
                    if props.scope.table() == Some(Table::TypeRef) && !props.scope.is_nil() {
                        next = TypeRef::try_from(props.scope).ok();
                    }
                }
                Err(error) => levels.push(self.unknown("type", token, &error)),
            }
            next = next.filter(|_| self.goes_on(&mut levels));
        }
        levels.reverse();
        levels
    }

    /// Whether one more enclosing type may be looked at.
    fn goes_on(&mut self, levels: &mut Vec<String>) -> bool {
        if levels.len() < MAX_LEVELS && !self.cut {
            return true;
        }
        self.cut = true;
        levels.push(ELLIPSIS.to_owned());
        false
    }

    fn dynamic_function(&mut self, function: FunctionId) -> String {
        // The runtime uses the identifiers of dead dynamic methods again, so their names are not kept.
        self.passing = true;
        match self.source.dynamic_function_name(function) {
            Ok(name) if name.starts_with("IL_STUB") => format!("<stub {}>", self.text(name)),
            Ok(name) if !name.is_empty() => format!("<dynamic method {}>", self.text(name)),
            _ => "<dynamic method>".to_owned(),
        }
    }

    /// One level down, unless that is too deep.
    fn nested(&mut self, spell: impl FnOnce(&mut Self) -> String) -> String {
        if self.cut || self.depth >= MAX_DEPTH {
            self.cut = true;
            return ELLIPSIS.to_owned();
        }
        self.depth += 1;
        let text = spell(self);
        self.depth -= 1;
        // What was built out of parts costs again: each level of nesting copies them.
        self.work = self.work.saturating_add(text.len());
        text
    }

    /// A piece of text, unless the name is too long already.
    fn text(&mut self, piece: impl AsRef<str> + Into<String>) -> String {
        self.work = self.work.saturating_add(piece.as_ref().len());
        if self.cut || self.work > MAX_WORK {
            self.cut = true;
            return ELLIPSIS.to_owned();
        }
        piece.into()
    }

    fn unknown_id(&mut self, what: &str, id: usize, error: &Error) -> String {
        self.unknown_because(what, &format_args!("{id:#x}"), &code_name(error))
    }

    fn unknown(&mut self, what: &str, token: impl Into<Token>, error: &Error) -> String {
        self.unknown_because(what, &token.into(), &code_name(error))
    }

    fn unknown_because(&mut self, what: &str, which: &dyn Display, why: &dyn Display) -> String {
        self.missing = true;
        format!("<unknown {what} {which}: {why}>")
    }
}

/// The short form of an error: its code's name, or the code.
pub(super) fn code_name(error: &Error) -> String {
    error.name().map_or_else(|| format!("{:#010x}", error.code().0), str::to_owned)
}

/// Global methods have a class too, [`GLOBAL`], so only a class that nobody named is empty.
fn join_member(class: &str, member: &str) -> String {
    if class.is_empty() {
        return member.to_owned();
    }
    // With room for a few parameters.
    let mut text = String::with_capacity(class.len() + member.len() + 32);
    text.push_str(class);
    text.push('.');
    text.push_str(member);
    text
}

fn element_name(array: &ArrayClass) -> Option<Primitive> {
    u8::try_from(array.element_type.0).ok().and_then(Primitive::from_element)
}

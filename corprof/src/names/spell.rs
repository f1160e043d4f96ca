//! Puts a name together from its parts.
//!
//! The text is written from left to right into one buffer. An unknown part is replaced by text in angle brackets with
//! the reason, and the speller remembers that the name is incomplete and not worth keeping. Names may be endless
//! (metadata and type arguments come from the profiled program, and nest without limit), so both the depth and the work
//! spent on one name are limited; an ellipsis replaces the rest. `limits` writes the pieces, `types` spells the types
//! of signatures.

mod limits;
mod types;

use std::mem;

use super::Name;
use super::generics::Levels;
use super::source::Source;
use super::spelling::Spelling;
use crate::error::Error;
use crate::ffi::buffer::Units;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{ArrayClass, ClassInfo};
use crate::metadata::signature::cursor::Reader;
use crate::metadata::signature::{Primitive, SignatureError};
use crate::metadata::{MethodDef, Table, Token, TypeDef, TypeRef};
use crate::session::names::Named;

/// The limit on enclosing types. A longer chain is a cycle in broken metadata.
const MAX_LEVELS: usize = 32;
/// The class of global methods, for which metadata use nil as often as this name.
const GLOBAL: &str = "<Module>";
/// The class of what the runtime keeps of a method that it has suspended. It derives a class from this one for each
/// layout.
const CONTINUATION: &str = "System.Runtime.CompilerServices.Continuation";
/// Enough for nearly every name.
const USUAL_BYTES: usize = 256;
const ELLIPSIS: &str = "\u{2026}";

/// The meaning of generic parameters: arguments, or the parameters' names if the arguments are unknown.
enum Arguments {
    Known(Vec<ClassId>),
    Named(Vec<String>),
}

impl Arguments {
    const NONE: Self = Self::Known(Vec::new());

    fn rest(&self) -> Rest<'_, '_> {
        match self {
            Self::Known(classes) => Rest::Known(classes),
            Self::Named(names) => Rest::Named(names),
        }
    }
}

/// The arguments that are still to be written.
enum Rest<'r, 'b> {
    Known(&'r [ClassId]),
    Named(&'r [String]),
    /// This many, which come next in a signature.
    Spelt(&'r mut Reader<'b>, usize, &'r Scope<'r>),
}

impl Rest<'_, '_> {
    fn len(&self) -> usize {
        match self {
            Self::Known(classes) => classes.len(),
            Self::Named(names) => names.len(),
            Self::Spelt(_, count, _) => *count,
        }
    }
}

/// The meaning of generic parameters, within one module's metadata.
struct Scope<'a> {
    module: ModuleId,
    type_arguments: &'a Arguments,
    method_arguments: &'a Arguments,
}

pub(super) struct Speller<'s, S: Source> {
    source: &'s S,
    spelling: Spelling,
    text: String,
    /// Whether a part is unknown.
    missing: bool,
    /// Whether the identifier may be reused without a callback.
    passing: bool,
    /// Whether a limit was reached; from then on nothing more is spelt.
    cut: bool,
    depth: usize,
    work: usize,
    /// The class of the function, with its name, if that was not known.
    declaring: Option<(ClassId, Name)>,
}

impl<'s, S: Source> Speller<'s, S> {
    pub(super) fn new(source: &'s S, spelling: Spelling) -> Self {
        Self {
            source,
            spelling,
            text: String::with_capacity(USUAL_BYTES),
            missing: false,
            passing: false,
            cut: false,
            depth: 0,
            work: 0,
            declaring: None,
        }
    }

    /// Whether the name is worth keeping: it is complete, or as complete as it can get, and stays true.
    pub(super) fn is_lasting(&self) -> bool {
        !self.missing && !self.passing
    }

    /// Whether everything spelt so far is complete.
    fn is_whole(&self) -> bool {
        !self.missing && !self.cut
    }

    /// `Namespace.Outer+Inner<T>.Method<U>(int32, string[])`
    pub(super) fn function(&mut self, function: FunctionId) -> Name {
        match self.source.function_info(function) {
            Ok(info) if info.token.is_nil() => self.dynamic_function(function),
            Ok(info) => self.method(info.class, info.module, info.token, &info.type_args),
            Err(error) => self.unknown_id("function", function.as_raw(), &error),
        }
        let name = Name::from(self.text.as_str());
        if self.is_lasting() {
            self.source.learn(Named::Function(function), &name);
        }
        if let Some((class, name)) = self.declaring.take() {
            self.source.learn(Named::Class(class), &name);
        }
        name
    }

    /// A method as its module defines it: generic parameters by their own names.
    pub(super) fn method_def(&mut self, module: ModuleId, token: MethodDef) -> Name {
        self.method(None, module, token, &[]);
        self.text.as_str().into()
    }

    /// `Namespace.Outer<int32>+Inner<string>`, `System.String[]` as `string[]`.
    pub(super) fn new_class(&mut self, class: ClassId) -> Name {
        self.nested(|this| this.unlearnt_class(class));
        let name = Name::from(self.text.as_str());
        if self.is_lasting() {
            self.source.learn(Named::Class(class), &name);
        }
        name
    }

    /// Spells a class, and keeps its name.
    fn class(&mut self, class: ClassId) {
        self.nested(|this| {
            if let Some(name) = this.source.known_class(class) {
                return this.push(&name);
            }
            // Gaps in the outer name do not prevent keeping this one.
            let outer_missing = mem::take(&mut this.missing);
            let start = this.text.len();
            this.unlearnt_class(class);
            if this.is_whole() {
                let name = Name::from(this.text.get(start..).unwrap_or_default());
                this.source.learn(Named::Class(class), &name);
            }
            this.missing |= outer_missing;
        });
    }

    fn unlearnt_class(&mut self, class: ClassId) {
        match self.source.class_info(class) {
            Ok(info) => self.defined_class(&info),
            Err(error) if error.code() == corprof_sys::CORPROF_E_CLASSID_IS_ARRAY => {
                match self.source.array_class(class) {
                    Ok(Some(array)) => self.array(class, &array),
                    Ok(None) => self.unknown_id("class", class.as_raw(), &error),
                    Err(error) => self.unknown_id("class", class.as_raw(), &error),
                }
            }
            Err(error) if self.is_without_metadata(class, &error) => self.push(CONTINUATION),
            Err(error) => self.unknown_id("class", class.as_raw(), &error),
        }
    }

    /// Whether a class, about which the runtime has answered `error`, is loaded and yet has no metadata. The only such
    /// classes are those that .NET 11 derives from [`CONTINUATION`], and its events give them that name.
    ///
    /// .NET 8, 10 and 11 know the definition of every other class that a callback names, and the runtime says of these
    /// classes as well that they are not arrays.
    fn is_without_metadata(&self, class: ClassId, error: &Error) -> bool {
        error.code() == corprof_sys::CORPROF_E_DATAINCOMPLETE && self.source.array_class(class) == Ok(None)
    }

    fn defined_class(&mut self, info: &ClassInfo) {
        self.type_def(info.module, info.token, Rest::Known(&info.type_args));
    }

    fn array(&mut self, class: ClassId, array: &ArrayClass) {
        let start = self.text.len();
        match (array.element, element_name(array)) {
            (Some(element), _) => self.argument(element),
            (None, Some(primitive)) => self.text.push_str(self.spelling.primitive(primitive)),
            (None, None) => {
                self.missing = true;
                self.push(&format!("<unknown element of array class {class:#x}>"));
            }
        }
        self.spelling.array(&mut self.text, start, array.rank);
    }

    /// A class inside another name: the core library's types by their keywords.
    fn argument(&mut self, class: ClassId) {
        let start = self.text.len();
        self.class(class);
        self.spelling.argument(&mut self.text, start);
    }

    /// Spells the declaring class of a method; returns its arguments or, if they are unknown, its parameters' names.
    fn declaring_class(&mut self, class: Option<ClassId>, module: ModuleId, token: TypeDef) -> Arguments {
        if let Some(class) = class {
            let known = self.source.known_class(class);
            // A class with arguments shows them, so this one has none, and the runtime need not be asked.
            if let Some(name) = &known
                && !name.contains('<')
            {
                self.nested(|this| this.push(name));
                return Arguments::NONE;
            }
            match self.source.class_info(class) {
                Ok(info) => {
                    self.nested(|this| match known {
                        Some(name) => this.push(&name),
                        None => {
                            this.defined_class(&info);
                            this.declaring = this.is_whole().then(|| (class, this.text.as_str().into()));
                        }
                    });
                    return Arguments::Known(info.type_args);
                }
                // The metadata still have its name.
                Err(_) => self.missing = true,
            }
        }
        if token.is_nil() {
            self.push(GLOBAL);
            return Arguments::NONE;
        }
        let arguments = self.parameter_names(module, token.token());
        self.type_def(module, token, arguments.rest());
        arguments
    }

    fn parameter_names(&mut self, module: ModuleId, owner: Token) -> Arguments {
        Arguments::Named(self.source.generic_params(module, owner).unwrap_or_else(|_| {
            self.missing = true;
            Vec::new()
        }))
    }

    fn method(&mut self, class: Option<ClassId>, module: ModuleId, token: MethodDef, type_args: &[ClassId]) {
        let source = self.source;
        let read = source.method(module, token, |declaring, name, signature| {
            // Counted before the long parts, so that it is in the name whatever else does not fit.
            let is_fit = self.has_room(name.len());
            let type_arguments = self.declaring_class(class, module, declaring);
            self.push_dot();
            if is_fit {
                name.push_to(&mut self.text);
            } else {
                self.text.push_str(ELLIPSIS);
            }
            self.method_signature(module, token, signature, &type_arguments, type_args);
        });
        if let Err(error) = read {
            if let Some(class) = class {
                self.class(class);
                self.push_dot();
            }
            self.unknown("method", token, &error);
        }
    }

    /// Global methods have a class too, [`GLOBAL`], so only a class without a name is empty.
    fn push_dot(&mut self) {
        if !self.text.is_empty() {
            self.text.push('.');
        }
    }

    #[inline]
    fn push_all_arguments(&mut self, arguments: &Arguments) {
        let mut rest = arguments.rest();
        let count = rest.len();
        if count == 0 {
            return;
        }
        // Names and classes involve no signature that could be malformed.
        let _ = self.push_arguments(&mut rest, count);
    }

    /// Writes `<int32, string>`, from the first of the remaining arguments; writes nothing for none.
    fn push_arguments(&mut self, rest: &mut Rest<'_, '_>, count: usize) -> Spelt {
        if count == 0 {
            return Ok(());
        }
        self.text.push('<');
        for at in 0..count {
            if at > 0 {
                self.text.push_str(", ");
            }
            if self.cut {
                // The ellipsis takes the argument's place.
                self.text.push_str(ELLIPSIS);
                break;
            }
            match rest {
                Rest::Known(classes) => {
                    let Some((&class, others)) = classes.split_first() else { break };
                    *classes = others;
                    self.argument(class);
                }
                Rest::Named(names) => {
                    let Some((name, others)) = names.split_first() else { break };
                    *names = others;
                    self.text.push_str(name);
                }
                Rest::Spelt(reader, left, scope) => {
                    *left = left.saturating_sub(1);
                    self.spelt(reader, scope)?;
                }
            }
        }
        self.text.push('>');
        Ok(())
    }

    fn type_def(&mut self, module: ModuleId, token: TypeDef, mut arguments: Rest<'_, '_>) {
        // The arguments involve no signature that could be malformed.
        let _ = self.type_levels(token, &mut arguments, |this, token| this.type_def_level(module, token));
    }

    /// A type's own name, and its enclosing type. A separate function, because its buffer is large and its caller
    /// recursive.
    #[inline(never)]
    fn type_def_level(&mut self, module: ModuleId, token: TypeDef) -> Outer<TypeDef> {
        let mut name = Units::new();
        match self.source.type_def(module, token, &mut name) {
            Ok(is_nested) => {
                self.push_name(&name);
                if !is_nested {
                    return Outer::None;
                }
                match self.source.enclosing_class(module, token) {
                    Ok(enclosing) => enclosing.map_or(Outer::None, Outer::At),
                    Err(error) => Outer::Unknown(error),
                }
            }
            Err(error) => {
                self.unknown("type", token, &error);
                Outer::None
            }
        }
    }

    /// The same for a type that is defined elsewhere.
    #[inline(never)]
    fn type_ref_level(&mut self, module: ModuleId, token: TypeRef) -> Outer<TypeRef> {
        let mut name = Units::new();
        match self.source.type_ref(module, token, &mut name) {
            Ok(scope) => {
                self.push_name(&name);
                // The scope of a nested type's reference is the reference to its enclosing type; any other scope is a
                // module.
                let is_nested = scope.table() == Some(Table::TypeRef) && !scope.is_nil();
                let outer = if is_nested { TypeRef::try_from(scope).ok() } else { None };
                outer.map_or(Outer::None, Outer::At)
            }
            Err(error) => {
                self.unknown("type", token, &error);
                Outer::None
            }
        }
    }

    /// A type with its enclosing types and the arguments of all. `level` appends the name of one.
    fn type_levels<T: Copy + Into<Token>>(
        &mut self,
        token: T,
        arguments: &mut Rest<'_, '_>,
        level: impl Fn(&mut Self, T) -> Outer<T>,
    ) -> Spelt {
        let ends = Levels::new(self.spelling, arguments.len());
        let start = self.text.len();
        let mut outer = level(self, token);
        if matches!(outer, Outer::None) {
            let own = ends.end(&mut self.text, start, true, arguments.len());
            return self.push_arguments(arguments, own);
        }
        // The innermost is known first and written last.
        let mut inner = token;
        let mut levels = vec![self.text.split_off(start)];
        loop {
            match outer {
                Outer::None => break,
                Outer::Unknown(error) => {
                    self.unknown("enclosing type of", inner, &error);
                    outer = Outer::None;
                }
                Outer::At(_) if levels.len() >= MAX_LEVELS || self.cut => {
                    self.cut = true;
                    self.text.push_str(ELLIPSIS);
                    outer = Outer::None;
                }
                Outer::At(token) => {
                    inner = token;
                    outer = level(self, token);
                }
            }
            levels.push(self.text.split_off(start));
        }
        let innermost = levels.len() - 1;
        for (at, level) in levels.iter().rev().enumerate() {
            if at > 0 {
                self.text.push(self.spelling.nested());
            }
            let start = self.text.len();
            self.text.push_str(level);
            let own = ends.end(&mut self.text, start, at == innermost, arguments.len());
            self.push_arguments(arguments, own)?;
        }
        Ok(())
    }

    fn dynamic_function(&mut self, function: FunctionId) {
        // The runtime reuses the identifiers of dead dynamic methods, so their names are not kept.
        self.passing = true;
        let name = self.source.dynamic_function_name(function).unwrap_or_default();
        self.text.push_str(match name.as_str() {
            "" => "<dynamic method",
            stub if stub.starts_with("IL_STUB") => "<stub ",
            _ => "<dynamic method ",
        });
        self.push(&name);
        self.text.push('>');
    }
}

/// The enclosing type of a type.
enum Outer<T> {
    None,
    At(T),
    Unknown(Error),
}

/// An error if the signature being spelt is malformed.
type Spelt = std::result::Result<(), SignatureError>;

/// The short form of an error: the name of its code, or the code.
pub(super) fn code_name(error: &Error) -> String {
    error.name().map_or_else(|| format!("{:#010x}", error.code().0), str::to_owned)
}

fn element_name(array: &ArrayClass) -> Option<Primitive> {
    u8::try_from(array.element_type.0).ok().and_then(Primitive::from_element)
}

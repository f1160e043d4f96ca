//! Declarations to the model: names looked up, values computed, slots counted, facts applied.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Diagnostic, Error};
use crate::facts::Facts;
use crate::model::{Alias, ArrayLength, CType, Enum, Function, Interface, Method, Model, Param, Record, TypeKind};
use crate::sources::{Input, SourceFile};
use crate::syntax::{Attribute, Declaration, Enumerator, Item, Name, TypeRef};

/// An input, parsed.
pub struct Unit {
    /// The input.
    pub file: SourceFile,
    /// Its declarations.
    pub items: Vec<Item>,
}

/// Makes the model of all inputs.
pub fn resolve(units: &[Unit], facts: &Facts) -> Result<Model, Error> {
    let mut resolver =
        Resolver { facts, model: Model::default(), enumerators: BTreeMap::new(), opaque: BTreeSet::new() };
    let mut superseded = BTreeSet::new();
    let mut kept: Vec<(&SourceFile, &Item)> = Vec::new();
    for unit in units {
        for item in &unit.items {
            let Some((name, kind)) = declared(item) else { continue };
            if facts.superseded.contains_key(&name.text) && unit.file.input != Input::Supplement {
                superseded.insert(name.text.clone());
                continue;
            }
            resolver.declare(&unit.file, name, kind)?;
            kept.push((&unit.file, item));
        }
    }
    for (file, item) in kept {
        resolver.item(file, item)?;
    }
    resolver.slots(units)?;
    resolver.check_facts(&superseded)?;
    Ok(resolver.model)
}

/// The name that an item declares, with its kind.
fn declared(item: &Item) -> Option<(&Name, TypeKind)> {
    match item {
        Item::Forward(_) | Item::Nothing => None,
        Item::Enum(name, _) => Some((name, TypeKind::Enum)),
        Item::Record { name, .. } => Some((name, TypeKind::Record)),
        Item::Alias(declaration) => Some((&declaration.name, TypeKind::Alias)),
        Item::Function { name, .. } => Some((name, TypeKind::Function)),
        Item::Interface { name, .. } => Some((name, TypeKind::Interface)),
    }
}

struct Resolver<'f> {
    facts: &'f Facts,
    model: Model,
    /// Every enumerator so far: C has them all in one room.
    enumerators: BTreeMap<String, i64>,
    /// The opaque types that are used.
    opaque: BTreeSet<String>,
}

impl Resolver<'_> {
    fn declare(&mut self, file: &SourceFile, name: &Name, kind: TypeKind) -> Result<(), Diagnostic> {
        if self.model.type_kind(&name.text).is_some() {
            return Err(file.diagnostic(name.offset, format!("`{}` is declared twice", name.text)));
        }
        self.model.kinds.insert(name.text.clone(), kind);
        Ok(())
    }

    fn item(&mut self, file: &SourceFile, item: &Item) -> Result<(), Diagnostic> {
        let input = file.input;
        match item {
            Item::Forward(_) | Item::Nothing => {}
            Item::Enum(name, list) => {
                let enumeration = self.enumeration(file, name, list)?;
                self.model.enums.push(enumeration);
            }
            Item::Record { name, union, fields } => {
                unique(file, fields.iter().map(|field| &field.name), "field")?;
                let fields = fields
                    .iter()
                    .map(|field| Ok((field.name.text.clone(), self.c_type(file, &field.ty, field.array.as_ref())?)))
                    .collect::<Result<_, Diagnostic>>()?;
                self.model.records.push(Record { name: name.text.clone(), input, union: *union, fields });
            }
            Item::Alias(alias) => {
                let ty = self.c_type(file, &alias.ty, alias.array.as_ref())?;
                self.model.aliases.push(Alias { name: alias.name.text.clone(), input, ty });
            }
            Item::Function { name, pointer, returns, params } => {
                let returns = self.c_type(file, returns, None)?;
                let params = self.params(file, params)?;
                self.model.functions.push(Function {
                    name: name.text.clone(),
                    input,
                    pointer: *pointer,
                    returns,
                    params,
                });
            }
            Item::Interface { name, uuid, parent, methods } => {
                let Some(uuid) = uuid else {
                    return Err(file.diagnostic(name.offset, format!("`{}` has no uuid", name.text)));
                };
                let Some(parent) = parent else {
                    return Err(file.diagnostic(name.offset, format!("`{}` extends nothing", name.text)));
                };
                if self.model.type_kind(&parent.text) != Some(TypeKind::Interface) {
                    return Err(file.diagnostic(parent.offset, format!("`{}` is not a known interface", parent.text)));
                }
                let iid = uuid.text.to_ascii_uppercase();
                if let Some(other) = self.model.interfaces.iter().find(|other| other.iid == iid) {
                    let message = format!("`{}` has the IID of `{}`", name.text, other.name);
                    return Err(file.diagnostic(uuid.offset, message));
                }
                unique(file, methods.iter().map(|method| &method.name), "method")?;
                let methods = methods
                    .iter()
                    .map(|method| {
                        let returns = self.c_type(file, &method.returns, None)?;
                        let params = self.params(file, &method.params)?;
                        Ok(Method { name: method.name.text.clone(), slot: 0, returns, params })
                    })
                    .collect::<Result<_, Diagnostic>>()?;
                let since = self.facts.since.get(&name.text).cloned();
                let name = name.text.clone();
                self.model.interfaces.push(Interface { name, input, iid, parent: parent.text.clone(), since, methods });
            }
        }
        Ok(())
    }

    fn enumeration(&mut self, file: &SourceFile, name: &Name, list: &[Enumerator]) -> Result<Enum, Diagnostic> {
        let mut enumerators = Vec::with_capacity(list.len());
        let mut next = 0;
        for enumerator in list {
            let Name { text, offset } = &enumerator.name;
            if self.enumerators.contains_key(text) {
                return Err(file.diagnostic(*offset, format!("`{text}` is declared twice")));
            }
            let value = match &enumerator.value {
                None => next,
                Some(value) => value.value(
                    &|name, offset| {
                        let known = self.enumerators.get(name).copied().map(i128::from);
                        known.ok_or_else(|| file.diagnostic(offset, format!("`{name}` is not an enumerator so far")))
                    },
                    &|name, _, offset| Err(file.diagnostic(offset, format!("`{name}(...)` is not a value"))),
                )?,
            };
            let short = i64::try_from(value)
                .ok()
                .filter(|value| *value >= i64::from(i32::MIN) && *value <= i64::from(u32::MAX));
            let Some(value) = short else {
                return Err(file.diagnostic(*offset, format!("the value of `{text}` does not fit 32 bits: {value}")));
            };
            next = i128::from(value) + 1;
            self.enumerators.insert(text.clone(), value);
            enumerators.push((text.clone(), value));
        }
        let bitflags = self.facts.bitflags.contains_key(&name.text);
        let large = enumerators.iter().any(|(_, value)| *value > i64::from(i32::MAX));
        let unsigned = bitflags || large || self.facts.unsigned.contains_key(&name.text);
        if let Some((negative, _)) = enumerators.iter().find(|(_, value)| unsigned && *value < 0) {
            return Err(
                file.diagnostic(name.offset, format!("`{}` is unsigned, but `{negative}` is negative", name.text))
            );
        }
        Ok(Enum { name: name.text.clone(), input: file.input, bitflags, unsigned, enumerators })
    }

    fn c_type(
        &mut self,
        file: &SourceFile,
        ty: &TypeRef,
        array: Option<&Option<crate::expr::Expr>>,
    ) -> Result<CType, Diagnostic> {
        let TypeRef { base: Name { text, offset }, constant, pointers } = ty;
        if self.model.type_kind(text).is_none() {
            if !self.facts.opaque.contains_key(text) {
                return Err(file.diagnostic(*offset, format!("the type `{text}` is not known")));
            }
            if *pointers == 0 {
                return Err(file.diagnostic(*offset, format!("`{text}` is opaque: only a pointer to it can be used")));
            }
            self.opaque.insert(text.clone());
            self.model.kinds.insert(text.clone(), TypeKind::Opaque);
        }
        let array = match array {
            None => None,
            Some(None) => Some(ArrayLength::Open),
            Some(Some(length)) => {
                let unknown = |name: &str, offset| Err(file.diagnostic(offset, format!("`{name}` is not a length")));
                let value = length.value(&unknown, &|name, _, offset| unknown(name, offset))?;
                let length =
                    usize::try_from(value).map_err(|_| file.diagnostic(*offset, "this length is not a size"))?;
                Some(ArrayLength::Fixed(length))
            }
        };
        Ok(CType { base: text.clone(), constant: *constant, pointers: *pointers, array })
    }

    fn params(&mut self, file: &SourceFile, params: &[Declaration]) -> Result<Vec<Param>, Diagnostic> {
        unique(file, params.iter().map(|param| &param.name), "parameter")?;
        params
            .iter()
            .map(|param| {
                let ty = self.c_type(file, &param.ty, param.array.as_ref())?;
                let mut made = Param {
                    name: param.name.text.clone(),
                    ty,
                    is_in: false,
                    is_out: false,
                    is_string: false,
                    size_is: None,
                    length_is: None,
                };
                param.attributes.iter().for_each(|attribute| describe(&mut made, attribute));
                Ok(made)
            })
            .collect()
    }

    fn slots(&mut self, units: &[Unit]) -> Result<(), Error> {
        let firsts: Vec<Option<usize>> = self
            .model
            .interfaces
            .iter()
            .map(|interface| {
                // More steps than there are interfaces: they go round in a circle.
                let mut first = 3;
                let mut at = interface;
                for _ in 0..self.model.interfaces.len() {
                    if at.parent == "IUnknown" {
                        return Some(first);
                    }
                    at = self.model.interface(&at.parent)?;
                    first += at.methods.len();
                }
                None
            })
            .collect();
        for (interface, first) in self.model.interfaces.iter_mut().zip(firsts) {
            let Some(first) = first else {
                let file = units.iter().map(|unit| &unit.file).find(|file| file.input == interface.input);
                let message = format!("`{}` does not go back to IUnknown", interface.name);
                let place = |file: &SourceFile| file.text.find(&format!("interface {} :", interface.name)).unwrap_or(0);
                return Err(match file {
                    Some(file) => file.diagnostic(place(file), message).into(),
                    None => Error::Facts { file: "the inputs", problems: vec![message] },
                });
            };
            for (index, method) in interface.methods.iter_mut().enumerate() {
                method.slot = first + index;
            }
        }
        Ok(())
    }

    fn check_facts(&self, superseded: &BTreeSet<String>) -> Result<(), Error> {
        let facts = self.facts;
        let mut problems = Vec::new();
        let mut check = |part: &str, names: &mut dyn Iterator<Item = &String>, known: &dyn Fn(&str) -> bool| {
            for name in names.filter(|name| !known(name)) {
                problems.push(format!("[{part}] {name}: nothing of that name is declared"));
            }
        };
        check("since", &mut facts.since.keys(), &|name| self.model.interface(name).is_some());
        check("bitflags", &mut facts.bitflags.keys(), &|name| self.model.enumeration(name).is_some());
        check("unsigned", &mut facts.unsigned.keys(), &|name| self.model.enumeration(name).is_some());
        check("opaque", &mut facts.opaque.keys(), &|name| self.opaque.contains(name));
        check("superseded", &mut facts.superseded.keys(), &|name| {
            superseded.contains(name) && self.model.kinds.contains_key(name)
        });
        if problems.is_empty() { Ok(()) } else { Err(Error::Facts { file: "facts.toml", problems }) }
    }
}

fn unique<'n>(file: &SourceFile, names: impl Iterator<Item = &'n Name>, what: &str) -> Result<(), Diagnostic> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(&name.text) {
            return Err(file.diagnostic(name.offset, format!("the {what} `{}` is declared twice", name.text)));
        }
    }
    Ok(())
}

/// Applies an attribute or annotation to a parameter.
fn describe(param: &mut Param, attribute: &Attribute) {
    let arguments = attribute.arguments.as_deref();
    match attribute.name.text.as_str() {
        "in" => param.is_in = true,
        "out" => param.is_out = true,
        "string" => param.is_string = true,
        "size_is" => param.size_is = arguments.map(str::to_owned),
        "length_is" => param.length_is = arguments.map(str::to_owned),
        // `"_Out_writes_to_(cchName, *pcchName)"`: the same words as below, quoted.
        "annotation" => {
            let inside = arguments.and_then(|text| text.trim_matches('"').split_once('(')?.1.strip_suffix(')'));
            describe_size(param, inside);
        }
        word if word.starts_with('_') => {
            let both = word.starts_with("_Inout");
            param.is_in |= both || word.starts_with("_In");
            param.is_out |= both || word.starts_with("_Out") || word.starts_with("_COM_Out");
            describe_size(param, arguments);
        }
        _ => {}
    }
}

fn describe_size(param: &mut Param, arguments: Option<&str>) {
    // An annotation copied from a header may still carry the marker that belongs to its parameter.
    let mut parts =
        arguments.into_iter().flat_map(|text| text.split(", ")).map(|part| part.trim_start_matches("[out]"));
    param.size_is = parts.next().map(str::to_owned).or(param.size_is.take());
    param.length_is = parts.next().map(str::to_owned).or(param.length_is.take());
}

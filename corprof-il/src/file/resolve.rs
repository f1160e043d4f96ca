//! Answers the verifier out of a set of assemblies.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::assembly::Assembly;
use super::schema::{IMPLEMENTATION, MEMBER_REF_PARENT, METHOD_DEF_OR_REF, RESOLUTION_SCOPE};
use crate::signature::{MethodSignature, Primitive, Signature, Type};
use crate::token::{Table, Token, TypeDef, TypeDefOrRef, TypeRef};
use crate::verify::{Category, Dispatch, FieldInfo, MethodInfo, Resolve, TypeInfo, WellKnown, is_ref_struct_of_system};

/// Assemblies that name each other's types.
#[derive(Debug, Default)]
pub struct Assemblies {
    all: Vec<Assembly>,
    by_name: HashMap<String, usize>,
}

/// The metadata of one assembly of a set, as the verifier asks for them.
#[derive(Clone, Copy, Debug)]
pub struct InAssembly<'a> {
    set: &'a Assemblies,
    assembly: &'a Assembly,
    number: usize,
}

/// What the definition of a method says of its calls.
#[derive(Clone, Copy)]
struct Calls {
    is_virtual: bool,
    is_abstract: bool,
}

/// How often a type can be forwarded or nested before it is given up.
const MOST_HOPS: usize = 16;

const STATIC_FIELD: u32 = 0x10;
const STATIC_METHOD: u32 = 0x10;
const VIRTUAL_METHOD: u32 = 0x40;
pub(super) const ABSTRACT_METHOD: u32 = 0x400;
/// TypeAttributes: no object can be made of it. Interfaces have it as well.
const ABSTRACT_TYPE: u32 = 0x80;
/// TypeAttributes: it is an interface.
pub(super) const INTERFACE: u32 = 0x20;

impl Assemblies {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an assembly and returns its number, by which [`iter`](Self::iter) orders them. Of two with the same name,
    /// the first one is found by name; one that is there already, byte for byte, is not added again.
    pub fn add(&mut self, assembly: Assembly) -> usize {
        let number = *self.by_name.entry(assembly.name().to_owned()).or_insert(self.all.len());
        if self.all.get(number).is_some_and(|known| known.bytes == assembly.bytes) {
            return number;
        }
        self.all.push(assembly);
        self.all.len() - 1
    }

    /// The assemblies of the set, each as the verifier asks for it.
    pub fn iter(&self) -> impl Iterator<Item = InAssembly<'_>> {
        self.all.iter().enumerate().map(|(number, assembly)| InAssembly { set: self, assembly, number })
    }

    fn get(&self, number: usize) -> Option<InAssembly<'_>> {
        Some(InAssembly { set: self, assembly: self.all.get(number)?, number })
    }

    /// Finds a type by assembly and name, through forwards. The assembly `from` finds itself by its own name.
    fn find(&self, from: usize, assembly: &str, space: &str, name: &str) -> Option<(usize, u32)> {
        let key = (space.to_owned(), name.to_owned());
        let is_itself = self.all.get(from).is_some_and(|from| from.name() == assembly);
        let mut number = if is_itself { from } else { *self.by_name.get(assembly)? };
        for _ in 0..MOST_HOPS {
            let here = self.all.get(number)?;
            if let Some(row) = here.types.get(&key) {
                return Some((number, *row));
            }
            let exported = *here.exported.get(&key)?;
            let target = here.metadata.coded(&here.bytes, 0x27, exported, 4, IMPLEMENTATION)?;
            if target.table() != Some(Table::AssemblyRef) {
                return None;
            }
            number = *self.by_name.get(here.string(0x23, target.row(), 6)?)?;
        }
        None
    }
}

impl<'a> InAssembly<'a> {
    /// Its number in the set.
    pub const fn number(&self) -> usize {
        self.number
    }

    /// The assembly of the set that defines the type that a token names, or whose method or field it names; `None` if
    /// the set has no such type.
    pub fn defined_in(&self, token: Token) -> Option<Self> {
        let owner = match token.table()? {
            Table::TypeDef | Table::MethodDef | Table::FieldDef => return Some(*self),
            Table::TypeRef | Table::TypeSpec => TypeDefOrRef::from_token(token),
            Table::MemberRef => self.member(token)?.0,
            Table::MethodSpec => return self.defined_in(self.method_spec(token)?.0),
            _ => return None,
        };
        self.definition_of_owner(owner?).map(|(there, _)| there)
    }

    /// The assembly.
    pub const fn assembly(&self) -> &'a Assembly {
        self.assembly
    }

    pub(super) const fn is_same(&self, other: &Self) -> bool {
        self.number == other.number
    }

    /// The definition of a type that is named here, in whichever assembly of the set it is.
    fn definition(&self, row: u32, hops: usize) -> Option<(usize, u32)> {
        let name = self.assembly.string(0x01, row, 1)?;
        let space = self.assembly.string(0x01, row, 2)?;
        let scope = self.assembly.metadata.coded(&self.assembly.bytes, 0x01, row, 0, RESOLUTION_SCOPE)?;
        match scope.table()? {
            Table::AssemblyRef => self.set.find(self.number, self.assembly.string(0x23, scope.row(), 6)?, space, name),
            Table::Module => {
                let row = self.assembly.types.get(&(space.to_owned(), name.to_owned()))?;
                Some((self.number, *row))
            }
            Table::TypeRef if hops < MOST_HOPS => {
                let (number, outer) = self.definition(scope.row(), hops + 1)?;
                let there = self.set.all.get(number)?;
                Some((number, *there.nested.get(&(outer, name.to_owned()))?))
            }
            _ => None,
        }
    }

    /// The definition of a type that is named here, and the assembly that has it.
    pub(super) fn definition_of(&self, row: u32) -> Option<(Self, u32)> {
        let (number, row) = self.definition(row, 0)?;
        Some((self.set.get(number)?, row))
    }

    /// The definition that a token of a type names, and the assembly that has it.
    pub(super) fn named(&self, token: Token) -> Option<(Self, u32)> {
        match token.table()? {
            Table::TypeDef => Some((*self, token.row())),
            Table::TypeRef => self.definition_of(token.row()),
            _ => None,
        }
    }

    fn of_definition(&self, row: u32) -> Option<TypeInfo> {
        let assembly = self.assembly;
        let name = assembly.string(0x02, row, 1)?;
        let space = assembly.string(0x02, row, 2)?;
        let is_core = assembly.types.get(&("System".to_owned(), "Object".to_owned()));
        let is_core = is_core.is_some_and(|object| assembly.base(*object).is_none());
        let is_top = !assembly.enclosing.contains_key(&row);
        let well_known = (is_core && is_top && space == "System").then(|| WellKnown::from_name(name)).flatten();
        let base = assembly.base(row).and_then(|base| self.name_of(base));
        let is_base = |of: &str| base.as_ref().is_some_and(|(space, name)| space == "System" && name == of);
        let is_interface = assembly.cell(0x02, row, 0)? & INTERFACE != 0;
        let is_enum_itself = is_core && is_top && space == "System" && name == "Enum";
        let category = if is_interface || is_enum_itself {
            Category::Reference
        } else if is_base("Enum") {
            assembly.enum_type(row).map_or(Category::Unknown, Category::Enum)
        } else if is_base("ValueType") {
            Category::Value
        } else {
            Category::Reference
        };
        let identity = (self.number as u64) << 32 | u64::from(TypeDef::NIL.as_raw() | row);
        Some(TypeInfo { identity, category, well_known })
    }

    pub(super) fn name_of(&self, token: Token) -> Option<(String, String)> {
        let (table, space) = match token.table()? {
            Table::TypeDef => (0x02, 2),
            Table::TypeRef => (0x01, 2),
            _ => return None,
        };
        let text = |column| self.assembly.string(table, token.row(), column).map(str::to_owned);
        Some((text(space)?, text(1)?))
    }

    /// A guess from the name, for a type that is not in the set.
    fn unresolved(&self, row: u32) -> Option<TypeInfo> {
        let name = self.assembly.string(0x01, row, 1)?;
        let space = self.assembly.string(0x01, row, 2)?;
        let mut hasher = DefaultHasher::new();
        (name, space).hash(&mut hasher);
        let mut scope = self.assembly.metadata.coded(&self.assembly.bytes, 0x01, row, 0, RESOLUTION_SCOPE)?;
        let is_top = scope.table() == Some(Table::AssemblyRef);
        for _ in 0..MOST_HOPS {
            match scope.table() {
                Some(Table::TypeRef) => {
                    self.assembly.string(0x01, scope.row(), 1)?.hash(&mut hasher);
                    scope =
                        self.assembly.metadata.coded(&self.assembly.bytes, 0x01, scope.row(), 0, RESOLUTION_SCOPE)?;
                }
                Some(Table::AssemblyRef) => {
                    self.assembly.string(0x23, scope.row(), 6)?.hash(&mut hasher);
                    break;
                }
                _ => break,
            }
        }
        let well_known = (is_top && space == "System").then(|| WellKnown::from_name(name)).flatten();
        let identity = 1 << 63 | hasher.finish();
        let token = Token::from_raw(TypeRef::NIL.as_raw() | row);
        let category = match self.assembly.is_value_by_signatures(token) {
            Some(true) => Category::ValueOrEnum,
            Some(false) => Category::Reference,
            None => Category::Unknown,
        };
        Some(TypeInfo { identity, category, well_known })
    }

    fn member(&self, token: Token) -> Option<(Option<TypeDefOrRef>, Token)> {
        let parent = self.assembly.metadata.coded(&self.assembly.bytes, 0x0a, token.row(), 0, MEMBER_REF_PARENT)?;
        match parent.table()? {
            // A call with more arguments than the definition has.
            Table::MethodDef => {
                let owner = self.assembly.owner_of(5, parent.row())?;
                Some((TypeDefOrRef::from_token(Token::from_raw(TypeDef::NIL.as_raw() | owner)), parent))
            }
            Table::ModuleRef => Some((None, parent)),
            _ => Some((TypeDefOrRef::from_token(parent), parent)),
        }
    }

    /// The assembly and row of the type that has a member which is named here.
    fn owner(&self, owner: Option<TypeDefOrRef>) -> Option<(&'a Assembly, u32)> {
        let (number, row) = match owner? {
            TypeDefOrRef::Def(token) => (self.number, token.token().row()),
            TypeDefOrRef::Ref(token) => self.definition(token.token().row(), 0)?,
            TypeDefOrRef::Spec(token) => match self.type_spec(token.token())?.unmodified() {
                Type::Generic { definition: TypeDefOrRef::Def(token), .. } => (self.number, token.token().row()),
                Type::Generic { definition: TypeDefOrRef::Ref(token), .. } => {
                    self.definition(token.token().row(), 0)?
                }
                _ => return None,
            },
        };
        Some((self.set.all.get(number)?, row))
    }

    /// Whether a field that is named here is static, if its definition is found.
    fn is_static(&self, owner: Option<TypeDefOrRef>, name: &str) -> Option<bool> {
        let (there, row) = self.owner(owner)?;
        let first = there.cell(0x02, row, 4)?;
        let end = there.cell(0x02, row + 1, 4).unwrap_or(there.metadata.rows(Table::FieldDef) + 1);
        let field = (first..end).take(1 << 16).find(|field| there.string(0x04, *field, 1) == Some(name))?;
        Some(there.cell(0x04, field, 0)? & STATIC_FIELD != 0)
    }

    /// How a method that is named here is called, if its definition is found. Overloads are taken to be alike, but
    /// static ones and others; of overloads that are not all abstract, none is.
    fn calls(&self, owner: Option<TypeDefOrRef>, name: &str, has_this: bool) -> Option<Calls> {
        let (there, row) = self.owner(owner)?;
        let first = there.cell(0x02, row, 5)?;
        let end = there.cell(0x02, row + 1, 5).unwrap_or(there.metadata.rows(Table::MethodDef) + 1);
        let flags = |method| there.cell(0x06, method, 2).unwrap_or_default();
        let is_it = |method: &u32| {
            there.string(0x06, *method, 3) == Some(name) && (flags(*method) & STATIC_METHOD == 0) == has_this
        };
        let mut methods = (first..end).take(1 << 16).filter(is_it).map(flags);
        let one = methods.next()?;
        let is_abstract = |flags: u32| flags & ABSTRACT_METHOD != 0;
        Some(Calls { is_virtual: one & VIRTUAL_METHOD != 0, is_abstract: is_abstract(one) && methods.all(is_abstract) })
    }
}

impl Resolve for InAssembly<'_> {
    fn type_info(&self, token: Token) -> Option<TypeInfo> {
        match token.table()? {
            Table::TypeDef => self.of_definition(token.row()),
            Table::TypeRef => match self.definition(token.row(), 0) {
                Some((number, row)) => self.set.get(number)?.of_definition(row),
                None => self.unresolved(token.row()),
            },
            _ => None,
        }
    }

    fn type_spec(&self, token: Token) -> Option<Type> {
        Type::decode(self.assembly.blob(0x1b, token.row(), 0)?).ok()
    }

    fn method(&self, token: Token) -> Option<MethodInfo> {
        let row = token.row();
        match token.table()? {
            Table::MethodDef => Some(MethodInfo {
                owner: {
                    let owner = self.assembly.owner_of(5, row)?;
                    TypeDefOrRef::from_token(Token::from_raw(TypeDef::NIL.as_raw() | owner))
                },
                signature: MethodSignature::decode(self.assembly.blob(0x06, row, 4)?).ok()?,
                is_constructor: self.assembly.string(0x06, row, 3)? == ".ctor",
                is_abstract: self.assembly.cell(0x06, row, 2)? & ABSTRACT_METHOD != 0,
                is_virtual: Some(self.assembly.cell(0x06, row, 2)? & VIRTUAL_METHOD != 0),
            }),
            Table::MemberRef => {
                let (owner, _) = self.member(token)?;
                let signature = MethodSignature::decode(self.assembly.blob(0x0a, row, 2)?).ok()?;
                let is_constructor = self.assembly.string(0x0a, row, 1)? == ".ctor";
                let found = self.calls(owner, self.assembly.string(0x0a, row, 1)?, signature.has_this);
                Some(MethodInfo {
                    owner,
                    signature,
                    is_constructor,
                    is_abstract: found.is_some_and(|found| found.is_abstract),
                    is_virtual: found.map(|found| found.is_virtual),
                })
            }
            _ => None,
        }
    }

    fn method_spec(&self, token: Token) -> Option<(Token, Vec<Type>)> {
        let generic = self.assembly.metadata.coded(&self.assembly.bytes, 0x2b, token.row(), 0, METHOD_DEF_OR_REF)?;
        Some((generic, Type::decode_method_spec(self.assembly.blob(0x2b, token.row(), 1)?).ok()?))
    }

    fn field(&self, token: Token) -> Option<FieldInfo> {
        let row = token.row();
        match token.table()? {
            Table::FieldDef => {
                let owner = self.assembly.owner_of(4, row)?;
                Some(FieldInfo {
                    owner: TypeDefOrRef::from_token(Token::from_raw(TypeDef::NIL.as_raw() | owner)),
                    ty: Type::decode_field(self.assembly.blob(0x04, row, 2)?).ok()?,
                    is_static: Some(self.assembly.cell(0x04, row, 0)? & STATIC_FIELD != 0),
                })
            }
            Table::MemberRef => {
                let (owner, _) = self.member(token)?;
                let ty = Type::decode_field(self.assembly.blob(0x0a, row, 2)?).ok()?;
                let is_static = self.is_static(owner, self.assembly.string(0x0a, row, 1)?);
                Some(FieldInfo { owner, ty, is_static })
            }
            _ => None,
        }
    }

    fn signature(&self, token: Token) -> Option<Signature> {
        if token.table() != Some(Table::StandAloneSignature) {
            return None;
        }
        Signature::decode(self.assembly.blob(0x11, token.row(), 0)?).ok()
    }

    fn has_string(&self, token: Token) -> bool {
        token.table() == Some(Table::UserString)
            && self.assembly.metadata.has_user_string(&self.assembly.bytes, token.row())
    }

    fn is_generic(&self, token: Token) -> bool {
        let found = self.named(token);
        found.is_some_and(|(there, row)| {
            let definition = Token::from_raw(TypeDef::NIL.as_raw() | row);
            there.assembly.generic_parameters.contains_key(&definition)
        })
    }

    fn is_abstract(&self, token: Token) -> bool {
        let flags = self.named(token).and_then(|(there, row)| there.assembly.cell(0x02, row, 0));
        flags.is_some_and(|flags| flags & ABSTRACT_TYPE != 0)
    }

    fn delegate(&self, token: Token) -> Option<MethodSignature> {
        self.invoke_of(token)
    }

    fn is_by_ref_like(&self, token: Token) -> bool {
        match self.named(token) {
            Some((there, row)) => there.assembly.ref_structs.contains(&row),
            None => {
                let name = self.name_of(token);
                name.is_some_and(|(space, name)| space == "System" && is_ref_struct_of_system(&name))
            }
        }
    }

    fn dispatch(&self, value_type: Option<Token>, method: Token) -> Dispatch {
        self.dispatch_on(value_type, method).unwrap_or(Dispatch::Unknown)
    }

    fn native_int(&self) -> Option<Primitive> {
        self.assembly.native_int()
    }

    fn has_varargs(&self) -> bool {
        cfg!(windows) || self.assembly.has_native_code()
    }
}

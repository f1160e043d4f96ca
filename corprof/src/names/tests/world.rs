//! The made-up world: one module, with its classes and functions.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use corprof_sys as sys;

use crate::error::{Error, Result};
use crate::ffi::buffer::Units;
use crate::id::{ClassId, FunctionId, ModuleId};
use crate::info::{ArrayClass, ClassInfo, FunctionInfo};
use crate::metadata::{MethodDef, MethodProps, Token, TypeDef, TypeDefProps, TypeRef, TypeRefProps, TypeSpec};
use crate::names::Name;
use crate::names::source::Source;
use crate::names::spell::Speller;
use crate::names::spelling::Spelling;
use crate::session::names::Named;

const ABSENT: Error = Error::new(sys::CORPROF_E_DATAINCOMPLETE, "Test");

pub(super) fn class_id(raw: usize) -> ClassId {
    ClassId::from_raw(raw).unwrap()
}

pub(super) fn function_id(raw: usize) -> FunctionId {
    FunctionId::from_raw(raw).unwrap()
}

pub(super) fn module_id() -> ModuleId {
    ModuleId::from_raw(0x1000).unwrap()
}

pub(super) fn type_def(row: u32) -> TypeDef {
    TypeDef::from_raw(0x0200_0000 | row)
}

pub(super) fn method_def(row: u32) -> MethodDef {
    MethodDef::from_raw(0x0600_0000 | row)
}

/// Anything that is missing returns `ABSENT`.
#[derive(Default)]
pub(super) struct World {
    pub(super) functions: HashMap<FunctionId, FunctionInfo>,
    pub(super) dynamic: HashMap<FunctionId, String>,
    pub(super) classes: HashMap<ClassId, ClassInfo>,
    pub(super) arrays: HashMap<ClassId, ArrayClass>,
    /// Classes that are loaded and have no metadata.
    pub(super) bare: HashSet<ClassId>,
    pub(super) methods: HashMap<MethodDef, MethodProps>,
    pub(super) types: HashMap<TypeDef, TypeDefProps>,
    pub(super) enclosing: HashMap<TypeDef, TypeDef>,
    pub(super) refs: HashMap<TypeRef, TypeRefProps>,
    pub(super) specs: HashMap<TypeSpec, Vec<u8>>,
    pub(super) generics: HashMap<Token, Vec<String>>,
    pub(super) learnt: RefCell<HashMap<ClassId, Name>>,
    pub(super) asked: Cell<usize>,
}

impl World {
    fn find<K: Eq + Hash, V: Clone>(&self, map: &HashMap<K, V>, key: K) -> Result<V> {
        self.asked.set(self.asked.get() + 1);
        map.get(&key).cloned().ok_or(ABSENT)
    }

    pub(super) fn define(&mut self, row: u32, name: &str, enclosing: Option<u32>, generics: &[&str]) {
        let flags = if enclosing.is_some() { sys::tdNestedPublic } else { sys::tdPublic };
        self.types.insert(type_def(row), TypeDefProps { name: name.to_owned(), flags, extends: None });
        if let Some(outer) = enclosing {
            self.enclosing.insert(type_def(row), type_def(outer));
        }
        let names = generics.iter().map(|&name| name.to_owned()).collect();
        self.generics.insert(type_def(row).token(), names);
    }

    pub(super) fn class(&mut self, id: usize, row: u32, type_args: &[usize]) {
        let type_args = type_args.iter().map(|&id| class_id(id)).collect();
        let info = ClassInfo { module: module_id(), token: type_def(row), parent: None, type_args };
        self.classes.insert(class_id(id), info);
    }

    pub(super) fn array(&mut self, id: usize, element: Option<usize>, element_type: sys::CorElementType, rank: u32) {
        self.arrays.insert(class_id(id), ArrayClass { element_type, element: element.map(class_id), rank });
    }

    pub(super) fn add_method(&mut self, row: u32, class: TypeDef, name: &str, signature: &[u8], generics: &[&str]) {
        let props = MethodProps {
            class,
            name: name.to_owned(),
            flags: sys::CorMethodAttr::empty(),
            impl_flags: sys::CorMethodImpl::empty(),
            code_rva: 0,
            signature: signature.to_vec(),
        };
        self.methods.insert(method_def(row), props);
        let names = generics.iter().map(|&name| name.to_owned()).collect();
        self.generics.insert(method_def(row).token(), names);
    }

    pub(super) fn function(&mut self, id: usize, class: Option<usize>, token: MethodDef, type_args: &[usize]) {
        let type_args = type_args.iter().map(|&id| class_id(id)).collect();
        let info = FunctionInfo { class: class.map(class_id), module: module_id(), token, type_args };
        self.functions.insert(function_id(id), info);
    }

    pub(super) fn name_of(&self, function: usize) -> (String, bool) {
        let mut speller = Speller::new(self, Spelling::Il);
        let name = speller.function(function_id(function));
        (name.as_str().to_owned(), speller.is_lasting())
    }

    pub(super) fn complete(&self, function: usize) -> String {
        let (name, complete) = self.name_of(function);
        assert!(complete, "{name}");
        name
    }

    pub(super) fn class_name(&self, class: usize) -> String {
        // As `Names::class` does.
        if let Some(name) = self.known_class(class_id(class)) {
            return name.to_string();
        }
        Speller::new(self, Spelling::Il).new_class(class_id(class)).as_str().to_owned()
    }
}

impl Source for World {
    fn function_info(&self, function: FunctionId) -> Result<FunctionInfo> {
        self.find(&self.functions, function)
    }
    fn dynamic_function_name(&self, function: FunctionId) -> Result<String> {
        self.find(&self.dynamic, function)
    }
    fn class_info(&self, class: ClassId) -> Result<ClassInfo> {
        if self.arrays.contains_key(&class) {
            return Err(Error::new(sys::CORPROF_E_CLASSID_IS_ARRAY, "Test"));
        }
        self.find(&self.classes, class)
    }
    fn array_class(&self, class: ClassId) -> Result<Option<ArrayClass>> {
        let is_loaded = self.classes.contains_key(&class) || self.bare.contains(&class);
        match self.find(&self.arrays, class) {
            Err(_) if is_loaded => Ok(None),
            array => array.map(Some),
        }
    }
    fn method<R>(&self, _: ModuleId, method: MethodDef, read: impl FnOnce(TypeDef, &Units, &[u8]) -> R) -> Result<R> {
        let props = self.find(&self.methods, method)?;
        Ok(read(props.class, &Units::from_text(&props.name), &props.signature))
    }
    fn type_def(&self, _: ModuleId, definition: TypeDef, name: &mut Units) -> Result<bool> {
        let props = self.find(&self.types, definition)?;
        *name = Units::from_text(&props.name);
        Ok(props.is_nested())
    }
    fn enclosing_class(&self, _: ModuleId, nested: TypeDef) -> Result<Option<TypeDef>> {
        self.find(&self.enclosing, nested).map(Some)
    }
    fn type_ref(&self, _: ModuleId, reference: TypeRef, name: &mut Units) -> Result<Token> {
        let props = self.find(&self.refs, reference)?;
        *name = Units::from_text(&props.name);
        Ok(props.scope)
    }
    fn type_spec(&self, _: ModuleId, spec: TypeSpec) -> Result<Vec<u8>> {
        self.find(&self.specs, spec)
    }
    fn generic_params(&self, _: ModuleId, owner: Token) -> Result<Vec<String>> {
        self.find(&self.generics, owner)
    }
    fn known_class(&self, class: ClassId) -> Option<Name> {
        self.learnt.borrow().get(&class).cloned()
    }
    fn learn(&self, of: Named, name: &Name) {
        if let Named::Class(class) = of {
            self.learnt.borrow_mut().insert(class, name.clone());
        }
    }
}

pub(super) const INT32: usize = 0x20;
pub(super) const STRING: usize = 0x30;
pub(super) const CANON: usize = 0x40;

/// Types: 1 `System.Int32`, 2 `System.String`, 3 `System.__Canon`, 4 `N.Outer<T>`, 5 `N.Outer<T>+Inner<U>`, 6
/// `N.Plain`.
pub(super) fn world() -> World {
    let mut world = World::default();
    world.define(1, "System.Int32", None, &[]);
    world.define(2, "System.String", None, &[]);
    world.define(3, "System.__Canon", None, &[]);
    world.define(4, "N.Outer`1", None, &["T"]);
    world.define(5, "Inner`1", Some(4), &["T", "U"]);
    world.define(6, "N.Plain", None, &[]);
    world.class(INT32, 1, &[]);
    world.class(STRING, 2, &[]);
    world.class(CANON, 3, &[]);
    world.class(0x50, 5, &[INT32, STRING]);
    world.class(0x60, 6, &[]);
    world
}

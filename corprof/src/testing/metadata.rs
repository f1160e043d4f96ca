//! The metadata of a module in a fake CLR: tables that grow as items are declared, and signatures encoded from them.

use std::sync::Arc;

use corprof_sys as sys;

use crate::metadata::Table;

use super::world::{Class, World};

/// The tables. The row of a token is its index here, counted from one.
pub(crate) struct Metadata {
    /// The name of the module from its compilation.
    pub(crate) name: String,
    pub(crate) types: Vec<TypeDefRow>,
    pub(crate) methods: Vec<MethodRow>,
    pub(crate) type_refs: Vec<TypeRefRow>,
    pub(crate) generic_params: Vec<GenericParamRow>,
}

pub(crate) struct TypeDefRow {
    /// With the namespace, without the enclosing types, with the arity suffix.
    pub(crate) name: String,
    /// The token of the enclosing type; 0 if there is none.
    pub(crate) enclosing: u32,
}

pub(crate) struct MethodRow {
    pub(crate) class: u32,
    pub(crate) name: String,
    pub(crate) is_static: bool,
    pub(crate) signature: Arc<[u8]>,
}

pub(crate) struct TypeRefRow {
    pub(crate) scope: u32,
    pub(crate) name: String,
}

pub(crate) struct GenericParamRow {
    pub(crate) owner: u32,
    pub(crate) index: u32,
    pub(crate) name: String,
}

/// The token of the row with index `at` in its table.
fn token(table: Table, at: usize) -> u32 {
    u32::from(table.as_byte()) << 24 | (at + 1) as u32
}

/// The row of a token, if it is of this table.
pub(crate) fn row<R>(rows: &[R], table: Table, token: u32) -> Option<&R> {
    let at = ((token & 0x00FF_FFFF) as usize).checked_sub(1)?;
    (token >> 24 == u32::from(table.as_byte())).then(|| rows.get(at)).flatten()
}

impl Metadata {
    /// Metadata with only the type that every module has.
    pub(crate) fn new(name: &str) -> Self {
        let module = TypeDefRow { name: "<Module>".to_owned(), enclosing: 0 };
        Self {
            name: name.to_owned(),
            types: vec![module],
            methods: Vec::new(),
            type_refs: Vec::new(),
            generic_params: Vec::new(),
        }
    }

    /// The token of a type; declares the type if necessary.
    pub(crate) fn type_def(&mut self, name: &str, enclosing: u32, generic_params: &[String]) -> u32 {
        let is_it = |row: &TypeDefRow| row.name == name && row.enclosing == enclosing;
        if let Some(at) = self.types.iter().position(is_it) {
            return token(Table::TypeDef, at);
        }
        self.types.push(TypeDefRow { name: name.to_owned(), enclosing });
        let token = token(Table::TypeDef, self.types.len() - 1);
        self.declare_params(token, generic_params);
        token
    }

    /// The token of a method; declares the method if necessary.
    pub(crate) fn method(
        &mut self,
        class: u32,
        name: &str,
        is_static: bool,
        signature: Vec<u8>,
        generic_params: &[String],
    ) -> u32 {
        let is_it = |row: &MethodRow| row.class == class && row.name == name && *row.signature == *signature;
        if let Some(at) = self.methods.iter().position(is_it) {
            return token(Table::MethodDef, at);
        }
        self.methods.push(MethodRow { class, name: name.to_owned(), is_static, signature: signature.into() });
        let token = token(Table::MethodDef, self.methods.len() - 1);
        self.declare_params(token, generic_params);
        token
    }

    /// The token for a type of another module.
    fn type_ref(&mut self, name: &str, scope: u32) -> u32 {
        let is_it = |row: &TypeRefRow| row.name == name && row.scope == scope;
        let at = self.type_refs.iter().position(is_it).unwrap_or_else(|| {
            self.type_refs.push(TypeRefRow { scope, name: name.to_owned() });
            self.type_refs.len() - 1
        });
        token(Table::TypeRef, at)
    }

    fn declare_params(&mut self, owner: u32, names: &[String]) {
        for (index, name) in (0..).zip(names) {
            self.generic_params.push(GenericParamRow { owner, index, name: name.clone() });
        }
    }

    /// The tokens of a type's or method's generic parameters.
    pub(crate) fn params_of(&self, owner: u32) -> Vec<u32> {
        let rows = self.generic_params.iter().enumerate().filter(|(_, row)| row.owner == owner);
        rows.map(|(at, _)| token(Table::GenericParam, at)).collect()
    }
}

/// Encodes a type for a signature in one module.
pub(crate) fn spell(world: &mut World, module: usize, class: usize, signature: &mut Vec<u8>) {
    let Some(Class { module: home, token, type_args, array, .. }) = world.classes.get(&class).cloned() else {
        // No loaded class: `object`, the base of all.
        signature.push(element(sys::ELEMENT_TYPE_OBJECT));
        return;
    };
    if let Some(array) = array {
        if array.rank == 1 {
            signature.push(element(sys::ELEMENT_TYPE_SZARRAY));
            spell(world, module, array.element, signature);
        } else {
            signature.push(element(sys::ELEMENT_TYPE_ARRAY));
            spell(world, module, array.element, signature);
            compressed(array.rank, signature);
            // Neither sizes nor lower bounds.
            signature.extend([0, 0]);
        }
        return;
    }
    if let Some(primitive) = primitive(world, class) {
        signature.push(element(primitive));
        return;
    }
    let token = if home == module { token } else { reference(world, module, home, token) };
    if !type_args.is_empty() {
        signature.push(element(sys::ELEMENT_TYPE_GENERICINST));
    }
    signature.push(element(sys::ELEMENT_TYPE_CLASS));
    // TypeDefOrRefEncoded: the row, and the table in the two lowest bits.
    let is_reference = token >> 24 == u32::from(Table::TypeRef.as_byte());
    compressed((token & 0x00FF_FFFF) << 2 | u32::from(is_reference), signature);
    if !type_args.is_empty() {
        compressed(type_args.len() as u32, signature);
        for argument in type_args {
            spell(world, module, argument, signature);
        }
    }
}

/// A module's token for a type of another module.
fn reference(world: &mut World, module: usize, home: usize, token: u32) -> u32 {
    let found = world.modules.get(&home).and_then(|home| row(&home.metadata.types, Table::TypeDef, token));
    let Some((name, enclosing)) = found.map(|row| (row.name.clone(), row.enclosing)) else { return 0 };
    let assembly = u32::from(Table::AssemblyRef.as_byte()) << 24 | 1;
    let scope = if enclosing == 0 { assembly } else { reference(world, module, home, enclosing) };
    world.modules.get_mut(&module).map_or(0, |module| module.metadata.type_ref(&name, scope))
}

/// The element type of a class, if signatures have one for it.
pub(crate) fn primitive(world: &World, class: usize) -> Option<sys::CorElementType> {
    let class = world.classes.get(&class)?;
    if class.module != world.core || class.array.is_some() {
        return None;
    }
    let core = world.modules.get(&world.core)?;
    let name = &row(&core.metadata.types, Table::TypeDef, class.token)?.name;
    Some(match name.strip_prefix("System.")? {
        "Void" => sys::ELEMENT_TYPE_VOID,
        "Boolean" => sys::ELEMENT_TYPE_BOOLEAN,
        "Char" => sys::ELEMENT_TYPE_CHAR,
        "SByte" => sys::ELEMENT_TYPE_I1,
        "Byte" => sys::ELEMENT_TYPE_U1,
        "Int16" => sys::ELEMENT_TYPE_I2,
        "UInt16" => sys::ELEMENT_TYPE_U2,
        "Int32" => sys::ELEMENT_TYPE_I4,
        "UInt32" => sys::ELEMENT_TYPE_U4,
        "Int64" => sys::ELEMENT_TYPE_I8,
        "UInt64" => sys::ELEMENT_TYPE_U8,
        "Single" => sys::ELEMENT_TYPE_R4,
        "Double" => sys::ELEMENT_TYPE_R8,
        "String" => sys::ELEMENT_TYPE_STRING,
        "Object" => sys::ELEMENT_TYPE_OBJECT,
        "IntPtr" => sys::ELEMENT_TYPE_I,
        "UIntPtr" => sys::ELEMENT_TYPE_U,
        _ => return None,
    })
}

/// The byte of an element type.
pub(crate) fn element(element: sys::CorElementType) -> u8 {
    element.0 as u8
}

/// An unsigned number in the encoding of signatures.
pub(crate) fn compressed(number: u32, signature: &mut Vec<u8>) {
    match number {
        0..=0x7F => signature.push(number as u8),
        0x80..=0x3FFF => signature.extend((number as u16 | 0x8000).to_be_bytes()),
        _ => signature.extend((number | 0xC000_0000).to_be_bytes()),
    }
}

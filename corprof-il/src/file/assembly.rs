//! One file: its methods, types and signatures.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;

use object::LittleEndian as LE;
use object::pe;
use object::read::pe::{ImageNtHeaders, SectionTable};

use super::FileError;
use super::metadata::Metadata;
use super::schema::{
    CUSTOM_ATTRIBUTE_TYPE, HAS_CUSTOM_ATTRIBUTE, MEMBER_REF_PARENT, TYPE_DEF_OR_REF, TYPE_OR_METHOD_DEF,
};
use crate::signature::{Primitive, Signature, Type};
use crate::token::{MethodDef, Table, Token, TypeDef, TypeDefOrRef};

/// An assembly in memory.
#[derive(Debug)]
pub struct Assembly {
    pub(super) bytes: Vec<u8>,
    pub(super) metadata: Metadata,
    sections: Vec<Section>,
    /// How wide native ints are, if there is native code as well, as compilers of C++/CLI make it.
    native_width: Option<Width>,
    name: String,
    /// The types that are not nested, by namespace and name.
    pub(super) types: HashMap<(String, String), u32>,
    /// The type that each nested type is in, by row.
    pub(super) enclosing: HashMap<u32, u32>,
    /// The nested types, by the row of the type around them and their name.
    pub(super) nested: HashMap<(u32, String), u32>,
    /// The rows of types that live in other assemblies, by namespace and name.
    pub(super) exported: HashMap<(String, String), u32>,
    /// The rows of the generic parameters of each type and method.
    pub(super) generic_parameters: HashMap<Token, Vec<u32>>,
    /// The rows of the constraints of each generic parameter.
    pub(super) constraints: HashMap<u32, Vec<u32>>,
    /// The interfaces that each type declares, by row.
    pub(super) interfaces: HashMap<u32, Vec<Token>>,
    /// The rows of the types that are `ref struct`s.
    pub(super) ref_structs: HashSet<u32>,
    is_reference: bool,
    /// Of the types that signatures name, whether they are value types; found when it is first asked for.
    named: OnceLock<HashMap<Token, bool>>,
}

/// The size of a native int.
#[derive(Clone, Copy, Debug)]
enum Width {
    Bits32,
    Bits64,
}

/// The parts of a PE file's headers that are needed.
struct Headers {
    sections: Vec<Section>,
    /// Where the metadata begin in the file.
    root: usize,
    /// Whether there is no native code but that which was compiled from IL.
    is_il: bool,
}

/// A section of a PE file: its address, its size in the file, and its offset there.
type Section = (u32, u32, u32);

/// A method that the assembly defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its token.
    pub token: MethodDef,
    /// Where its body is in memory; 0 if it has none.
    pub rva: u32,
}

/// MethodImplAttributes: the body is something else than IL.
const CODE_TYPE: u32 = 0x3;

impl Assembly {
    /// Reads an assembly from a file.
    ///
    /// # Errors
    /// If it cannot be read, is not a PE file or has no managed code, or if its metadata are damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::parse(std::fs::read(path)?)
    }

    /// Reads an assembly from the bytes of its file.
    ///
    /// # Errors
    /// As of [`Assembly::open`].
    pub fn parse(bytes: Vec<u8>) -> Result<Self, FileError> {
        let (headers, width) = match object::FileKind::parse(&*bytes)? {
            object::FileKind::Pe32 => (find::<pe::ImageNtHeaders32>(&bytes)?, Width::Bits32),
            object::FileKind::Pe64 => (find::<pe::ImageNtHeaders64>(&bytes)?, Width::Bits64),
            _ => return Err(FileError::NoMetadata),
        };
        let metadata = Metadata::read(&bytes, headers.root)?;
        let mut assembly = Self {
            bytes,
            metadata,
            sections: headers.sections,
            native_width: (!headers.is_il).then_some(width),
            name: String::new(),
            types: HashMap::new(),
            enclosing: HashMap::new(),
            nested: HashMap::new(),
            exported: HashMap::new(),
            generic_parameters: HashMap::new(),
            constraints: HashMap::new(),
            interfaces: HashMap::new(),
            ref_structs: HashSet::new(),
            is_reference: false,
            named: OnceLock::new(),
        };
        let name = assembly.metadata.string(&assembly.bytes, 0x20, 1, 7);
        assembly.name = name.or_else(|| assembly.string(0x00, 1, 1)).unwrap_or_default().to_owned();
        for row in 1..=assembly.metadata.rows_of(0x29) {
            if let (Some(nested), Some(outer)) = (assembly.cell(0x29, row, 0), assembly.cell(0x29, row, 1)) {
                assembly.enclosing.insert(nested, outer);
                if let Some(name) = assembly.string(0x02, nested, 1).map(str::to_owned) {
                    assembly.nested.entry((outer, name)).or_insert(nested);
                }
            }
        }
        for row in 1..=assembly.metadata.rows(Table::TypeDef) {
            if assembly.enclosing.contains_key(&row) {
                continue;
            }
            if let (Some(name), Some(space)) = (assembly.string(0x02, row, 1), assembly.string(0x02, row, 2)) {
                let key = (space.to_owned(), name.to_owned());
                assembly.types.entry(key).or_insert(row);
            }
        }
        for row in 1..=assembly.metadata.rows(Table::ExportedType) {
            if let (Some(name), Some(space)) = (assembly.string(0x27, row, 2), assembly.string(0x27, row, 3)) {
                let key = (space.to_owned(), name.to_owned());
                assembly.exported.entry(key).or_insert(row);
            }
        }
        for row in 1..=assembly.metadata.rows(Table::GenericParam) {
            if let Some(owner) = assembly.metadata.coded(&assembly.bytes, 0x2a, row, 2, TYPE_OR_METHOD_DEF) {
                assembly.generic_parameters.entry(owner).or_default().push(row);
            }
        }
        for row in 1..=assembly.metadata.rows(Table::GenericParamConstraint) {
            if let Some(parameter) = assembly.cell(0x2c, row, 0) {
                assembly.constraints.entry(parameter).or_default().push(row);
            }
        }
        for row in 1..=assembly.metadata.rows(Table::InterfaceImpl) {
            let interface = assembly.metadata.coded(&assembly.bytes, 0x09, row, 1, TYPE_DEF_OR_REF);
            if let (Some(class), Some(interface)) = (assembly.cell(0x09, row, 0), interface) {
                assembly.interfaces.entry(class).or_default().push(interface);
            }
        }
        for row in 1..=assembly.metadata.rows(Table::CustomAttribute) {
            let parent =
                assembly.metadata.coded(&assembly.bytes, 0x0c, row, 0, HAS_CUSTOM_ATTRIBUTE).unwrap_or_default();
            match parent.table() {
                Some(Table::TypeDef) if assembly.is_attribute(row, "IsByRefLikeAttribute") => {
                    assembly.ref_structs.insert(parent.row());
                }
                Some(Table::Assembly) if assembly.is_attribute(row, "ReferenceAssemblyAttribute") => {
                    assembly.is_reference = true;
                }
                _ => {}
            }
        }
        Ok(assembly)
    }

    /// Whether a custom attribute is of this class in `System.Runtime.CompilerServices`.
    fn is_attribute(&self, attribute: u32, name: &str) -> bool {
        let is_it = |class: (&str, &str)| class == ("System.Runtime.CompilerServices", name);
        self.attribute_class(attribute).is_some_and(is_it)
    }

    /// The namespace and the name of a custom attribute's class.
    fn attribute_class(&self, attribute: u32) -> Option<(&str, &str)> {
        let constructor = self.metadata.coded(&self.bytes, 0x0c, attribute, 1, CUSTOM_ATTRIBUTE_TYPE)?;
        let class = match constructor.table()? {
            Table::MethodDef => Token::from_raw(TypeDef::NIL.as_raw() | self.owner_of(5, constructor.row())?),
            _ => self.metadata.coded(&self.bytes, 0x0a, constructor.row(), 0, MEMBER_REF_PARENT)?,
        };
        let (table, space) = match class.table()? {
            Table::TypeDef => (0x02, 2),
            Table::TypeRef => (0x01, 2),
            _ => return None,
        };
        Some((self.string(table, class.row(), space)?, self.string(table, class.row(), 1)?))
    }

    /// Whether a type is a value type, as the signatures in this assembly have it; `None` if none names it, or they
    /// differ.
    pub(super) fn is_value_by_signatures(&self, token: Token) -> Option<bool> {
        self.named.get_or_init(|| self.named_in_signatures()).get(&token).copied()
    }

    fn named_in_signatures(&self) -> HashMap<Token, bool> {
        let mut found: HashMap<Token, Option<bool>> = HashMap::new();
        let mut add = |token: TypeDefOrRef, is_value: bool| {
            let known = found.entry(token.token()).or_insert(Some(is_value));
            *known = known.filter(|known| *known == is_value);
        };
        for (token, blob) in self.signatures() {
            let decoded = match token.table() {
                Some(Table::TypeSpec) => Type::decode(blob).map(Signature::Field),
                _ => Signature::decode(blob),
            };
            if let Ok(signature) = decoded {
                signature.for_each_named(&mut add);
            }
        }
        found.into_iter().filter_map(|(token, is_value)| Some((token, is_value?))).collect()
    }

    /// Whether it is a reference assembly: compilers read it, and nothing runs its bodies.
    pub const fn is_reference(&self) -> bool {
        self.is_reference
    }

    /// Whether there is native code beside the IL, as compilers of C++/CLI make it. Only Windows runs such an assembly.
    pub const fn has_native_code(&self) -> bool {
        self.native_width.is_some()
    }

    /// The integer that is a native int on the only kind of processor that the assembly is for; `None` if it is for
    /// all.
    pub(super) const fn native_int(&self) -> Option<Primitive> {
        match self.native_width {
            Some(Width::Bits32) => Some(Primitive::Int32),
            Some(Width::Bits64) => Some(Primitive::Int64),
            None => None,
        }
    }

    pub(super) fn cell(&self, table: u8, row: u32, column: usize) -> Option<u32> {
        self.metadata.cell(&self.bytes, table, row, column)
    }

    pub(super) fn string(&self, table: u8, row: u32, column: usize) -> Option<&str> {
        self.metadata.string(&self.bytes, table, row, column)
    }

    pub(super) fn blob(&self, table: u8, row: u32, column: usize) -> Option<&[u8]> {
        self.metadata.blob(&self.bytes, table, row, column)
    }

    /// The assembly's simple name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The methods that it defines, those without a body too.
    pub fn methods(&self) -> impl Iterator<Item = Method> {
        (1..=self.metadata.rows(Table::MethodDef)).filter_map(|row| {
            let is_il = self.cell(0x06, row, 1)? & CODE_TYPE == 0;
            let rva = self.cell(0x06, row, 0)?;
            Some(Method { token: token(row), rva: if is_il { rva } else { 0 } })
        })
    }

    /// The file from the first byte of a method's body on, as far as it can go; nothing for a method without one.
    ///
    /// # Errors
    /// If the body is not in the file.
    pub fn body_bytes(&self, method: Method) -> Result<Option<&[u8]>, FileError> {
        if method.rva == 0 {
            return Ok(None);
        }
        let section = self
            .sections
            .iter()
            .find(|(address, size, _)| method.rva.checked_sub(*address).is_some_and(|offset| offset < *size));
        let bytes = section.and_then(|(address, size, file)| {
            let start = (method.rva - address) as usize;
            self.bytes.get(*file as usize..)?.get(start..(*size as usize))
        });
        let missing = FileError::NoBody { token: method.token.token(), rva: method.rva };
        bytes.filter(|bytes| !bytes.is_empty()).map(Some).ok_or(missing)
    }

    /// The type that has this method or field: the last one whose list begins at or before it.
    pub(super) fn owner_of(&self, column: usize, row: u32) -> Option<u32> {
        let count = self.metadata.rows(Table::TypeDef);
        let mut low = 1;
        let mut high = count + 1;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.cell(0x02, middle, column)? <= row { low = middle + 1 } else { high = middle }
        }
        (low > 1).then_some(low - 1)
    }

    /// `Namespace.Outer/Nested::Method`, as far as the names can be read.
    pub fn method_name(&self, method: MethodDef) -> String {
        let row = method.token().row();
        let name = self.string(0x06, row, 3).unwrap_or("?");
        match self.owner_of(5, row) {
            Some(owner) => format!("{}::{name}", self.type_name(owner)),
            None => name.to_owned(),
        }
    }

    /// `Namespace.Outer/Nested`, as far as the names can be read.
    pub(super) fn type_name(&self, row: u32) -> String {
        let mut name = self.string(0x02, row, 1).unwrap_or("?").to_owned();
        let mut row = row;
        // Types nested in each other in a circle end here.
        for _ in 0..16 {
            match self.enclosing.get(&row) {
                Some(outer) => {
                    row = *outer;
                    name = format!("{}/{name}", self.string(0x02, row, 1).unwrap_or("?"));
                }
                None => break,
            }
        }
        match self.string(0x02, row, 2) {
            Some(space) if !space.is_empty() => format!("{space}.{name}"),
            _ => name,
        }
    }

    /// The type that a type extends.
    pub(super) fn base(&self, row: u32) -> Option<Token> {
        self.metadata.coded(&self.bytes, 0x02, row, 3, TYPE_DEF_OR_REF).filter(|token| !token.is_nil())
    }

    /// The primitive type under an enumeration: that of its one instance field.
    pub(super) fn enum_type(&self, row: u32) -> Option<Primitive> {
        const STATIC: u32 = 0x10;
        let first = self.cell(0x02, row, 4)?;
        let end = self.cell(0x02, row + 1, 4).unwrap_or(self.metadata.rows(Table::FieldDef) + 1);
        let field =
            (first..end).take(1 << 16).find(|field| self.cell(0x04, *field, 0).is_some_and(|f| f & STATIC == 0))?;
        match Type::decode_field(self.blob(0x04, field, 2)?).ok()? {
            Type::Primitive(primitive) => Some(primitive),
            _ => None,
        }
    }

    /// All signature blobs, with the table, row and column that name them.
    pub fn signatures(&self) -> impl Iterator<Item = (Token, &[u8])> {
        let columns = [(0x04, 2), (0x06, 4), (0x0a, 2), (0x11, 0), (0x17, 2), (0x1b, 0), (0x2b, 1)];
        columns.into_iter().flat_map(move |(table, column)| {
            (1..=self.metadata.rows_of(table)).filter_map(move |row| {
                Some((Token::from_raw(u32::from(table) << 24 | row), self.blob(table, row, column)?))
            })
        })
    }
}

const fn token(row: u32) -> MethodDef {
    MethodDef::from_raw(MethodDef::NIL.as_raw() | row)
}

fn find<Pe: ImageNtHeaders>(bytes: &[u8]) -> Result<Headers, FileError> {
    const CLI_HEADER: usize = 14;
    /// Flags of the CLI header: nothing but IL, or IL with what was compiled from it.
    const IL_ONLY: u32 = 0x1;
    const IL_LIBRARY: u32 = 0x4;
    let dos = pe::ImageDosHeader::parse(bytes)?;
    let mut offset = dos.nt_headers_offset().into();
    let (headers, directories) = Pe::parse(bytes, &mut offset)?;
    let sections: SectionTable<'_> = headers.sections(bytes, offset)?;
    let cli = directories.get(CLI_HEADER).ok_or(FileError::NoMetadata)?;
    let address = cli.virtual_address.get(LE);
    if address == 0 {
        return Err(FileError::NoMetadata);
    }
    let header = sections.pe_data_at(bytes, address).ok_or(FileError::NoMetadata)?;
    let word = |at: usize| {
        let bytes = header.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or(FileError::NoMetadata)
    };
    let metadata = word(8)?;
    let is_il = word(16)? & (IL_ONLY | IL_LIBRARY) != 0;
    let mut list = Vec::new();
    let mut root = None;
    for section in sections.iter() {
        let (start, size) = section.pe_file_range();
        let address = section.virtual_address.get(LE);
        if let Some(offset) = metadata.checked_sub(address).filter(|offset| *offset < size) {
            root = start.checked_add(offset);
        }
        list.push((address, size, start));
    }
    let root = root.ok_or(FileError::NoMetadata)? as usize;
    Ok(Headers { sections: list, root, is_il })
}

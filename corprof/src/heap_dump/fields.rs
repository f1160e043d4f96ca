//! [`FieldsOf`]: which fields a snapshot reads, of objects of chosen classes, while these stand still.

use std::io;

use corprof_sys as sys;
use rustc_hash::FxHashMap;

use super::BlockSink;
use crate::context::InNoGc;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{ClassId, ModuleId};
use crate::metadata::signature::{Primitive, Type};
use crate::metadata::{FieldDef, TypeDef, is_core_library};
use crate::runtime_layout;
use crate::runtime_layout::memory::{NearbyObjects, number as number_at, word};
use crate::session::Info;

/// The bytes of a word.
const WORD: usize = size_of::<usize>();
/// Why a field is refused.
const OTHER_TYPE: &str = "a snapshot does not read fields of this type";
/// The base class of structs.
const VALUE_TYPE: &str = "System.ValueType";
/// No class has so many ancestors.
const MOST_ANCESTORS: usize = 64;

/// Fields that a snapshot reads of the objects of a class, and of the classes derived from it.
#[derive(Clone, Debug)]
pub struct FieldsOf {
    module: ModuleId,
    definition: TypeDef,
    fields: Vec<Field>,
    /// The base class of structs, if they matter.
    value_type: Option<TypeDef>,
}

/// A field, and what of it is the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    field: FieldDef,
    value: FieldValue,
}

/// What of a field is the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FieldValue {
    /// All of it: so many bytes.
    Whole(usize),
    /// The field is a pointer, and the value is the word so far behind the place that it leads to.
    Behind(usize),
    /// The type of the field is the type parameter of this number, and the value is in the field that it declares
    /// first.
    FirstOf(u32),
}

impl FieldsOf {
    /// No fields yet, of objects of this class and of the classes derived from it. The class need not be loaded yet.
    /// An object of several of these classes has the values of each.
    #[must_use]
    pub fn new(module: ModuleId, definition: TypeDef) -> Self {
        Self { module, definition, fields: Vec::new(), value_type: None }
    }

    /// Adds a field that the class itself declares: a reference, a pointer or a number of at most eight bytes.
    ///
    /// # Errors
    /// `E_INVALIDARG`: the class declares no such field, or one of another type. Errors of
    /// [`metadata`](InNoGc::metadata).
    pub fn field(mut self, cx: &InNoGc<'_>, name: &str) -> Result<Self> {
        let (field, signature) = self.find(cx, name)?;
        let size = size(&signature).ok_or_else(|| wrong(OTHER_TYPE))?;
        self.fields.push(Field { field, value: FieldValue::Whole(size) });
        Ok(self)
    }

    /// Adds a word of what a field of the type of a pointer leads to, `offset` bytes behind its beginning. Where the
    /// pointer leads nowhere, the value is 0.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn behind(mut self, cx: &InNoGc<'_>, name: &str, offset: usize) -> Result<Self> {
        let (field, signature) = self.find(cx, name)?;
        if size(&signature) != Some(WORD) {
            return Err(wrong("it is not a pointer"));
        }
        self.fields.push(Field { field, value: FieldValue::Behind(offset) });
        Ok(self)
    }

    /// Adds the first four bytes of the field that a struct or class declares first, which is in a field whose type is
    /// a type parameter: of the box of an async method (`AsyncStateMachineBox<TStateMachine>`) the state of its state
    /// machine, of which compilers declare the state first. The class is one of the core library. Where the field is a
    /// null reference, the value is 0.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn first_of(mut self, cx: &InNoGc<'_>, name: &str) -> Result<Self> {
        let (field, signature) = self.find(cx, name)?;
        let Ok(Type::TypeParameter(parameter)) = Type::decode_field(&signature) else {
            return Err(wrong("its type is not a type parameter"));
        };
        let metadata = cx.metadata(self.module)?;
        if !is_core_library(&metadata)? {
            return Err(wrong("the class is not of the core library"));
        }
        self.value_type = metadata.find_type_def(VALUE_TYPE, None)?;
        self.fields.push(Field { field, value: FieldValue::FirstOf(parameter) });
        Ok(self)
    }

    /// The field with this name, and its signature.
    fn find(&self, cx: &InNoGc<'_>, name: &str) -> Result<(FieldDef, Vec<u8>)> {
        let metadata = cx.metadata(self.module)?;
        for field in metadata.fields(self.definition)? {
            let props = metadata.field(field)?;
            if props.name == name {
                return Ok((field, props.signature.to_vec()));
            }
        }
        Err(wrong("the class declares no such field"))
    }
}

fn wrong(why: &'static str) -> Error {
    Error::new(E_INVALIDARG, "FieldsOf").about("field", why)
}

/// The bytes of a field, by its signature; none if it is more than a word.
fn size(signature: &[u8]) -> Option<usize> {
    let mut kind = Type::decode_field(signature).ok()?;
    while let Type::Modified { inner, .. } = kind {
        kind = *inner;
    }
    match kind {
        Type::Primitive(primitive) => match primitive {
            Primitive::Bool | Primitive::Int8 | Primitive::UInt8 => Some(1),
            Primitive::Char | Primitive::Int16 | Primitive::UInt16 => Some(2),
            Primitive::Int32 | Primitive::UInt32 => Some(4),
            Primitive::Int64 | Primitive::UInt64 => Some(8),
            Primitive::NativeInt | Primitive::NativeUInt | Primitive::Object | Primitive::String => Some(WORD),
            _ => None,
        },
        Type::Class(_) | Type::Pointer(_) | Type::SzArray(_) | Type::Array(..) => Some(WORD),
        Type::Generic { value_type: false, .. } => Some(WORD),
        _ => None,
    }
}

/// Reads the fields during a snapshot.
pub(super) struct FieldReader {
    of: Vec<FieldsOf>,
    layouts: Vec<Layout>,
    /// Where its layouts begin and end among those that are chosen, by the number of a class.
    known: FxHashMap<u64, (usize, usize)>,
    /// Places of layouts in their list.
    chosen: Vec<usize>,
    /// The same of a class itself, without its ancestors.
    own: FxHashMap<u64, Option<usize>>,
    /// Where a class has the number of its parent: for classes without metadata.
    parent: Option<usize>,
    objects: NearbyObjects,
    /// Words behind pointers, by their addresses.
    behind: FxHashMap<usize, u64>,
    values: Vec<u64>,
}

/// Where the fields are in objects of a class.
struct Layout {
    /// Whose fields these are.
    of: usize,
    values: Vec<PlacedValue>,
    /// The bytes of an object to be read.
    end: usize,
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlacedValue {
    /// In the object.
    In { offset: usize, size: usize },
    /// Behind the place to which a pointer in the object leads.
    Behind { pointer: usize, offset: usize, size: usize },
}

impl PlacedValue {
    /// The end of what is read of the object.
    fn end(self) -> usize {
        match self {
            Self::In { offset, size } => offset + size,
            Self::Behind { pointer, .. } => pointer + WORD,
        }
    }
}

impl FieldReader {
    pub(super) fn new(info: &Info, of: Vec<FieldsOf>) -> Self {
        let descriptor = runtime_layout::descriptor(info);
        let parent = descriptor.and_then(|layout| layout.offset("MethodTable", "ParentMethodTable"));
        Self {
            of,
            layouts: Vec::new(),
            known: FxHashMap::default(),
            chosen: Vec::new(),
            own: FxHashMap::default(),
            parent,
            objects: NearbyObjects::default(),
            behind: FxHashMap::default(),
            values: Vec::new(),
        }
    }

    /// Passes the values of an object to the sink, if its class is among the chosen ones. The object stands still.
    pub(super) fn read(&mut self, info: &Info, object: u64, class: u64, sink: &mut dyn BlockSink) -> io::Result<()> {
        let (start, end) = match self.known.get(&class) {
            Some(known) => *known,
            None => self.find(info, class),
        };
        for place in start..end {
            let Some(layout) = self.chosen.get(place).and_then(|layout| self.layouts.get(*layout)) else { continue };
            // The system reads it: a wrong address is an error.
            let Some(bytes) = self.objects.read(object as usize, layout.end) else { continue };
            // An object begins with its class; while the heap is reported, the lowest bits may be the collector's.
            if number(bytes, 0, WORD) & !7 != class & !7 {
                continue;
            }
            self.values.clear();
            for value in &layout.values {
                self.values.push(match *value {
                    PlacedValue::In { offset, size } => number(bytes, offset, size),
                    PlacedValue::Behind { pointer, offset, size } => match number(bytes, pointer, WORD) {
                        0 => 0,
                        pointer => {
                            // Many objects refer to the same few places.
                            let address = (pointer as usize).wrapping_add(offset);
                            *self.behind.entry(address).or_insert_with(|| word_or_half(address, size))
                        }
                    },
                });
            }
            sink.fields(layout.of, object, &self.values)?;
        }
        Ok(())
    }

    /// Finds the layouts of a class with chosen fields, and those that it has from its ancestors.
    #[cold]
    fn find(&mut self, info: &Info, class: u64) -> (usize, usize) {
        let start = self.chosen.len();
        let mut next = Some(class);
        for _ in 0..MOST_ANCESTORS {
            let Some(ancestor) = next else { break };
            let own = match self.own.get(&ancestor) {
                Some(known) => *known,
                None => self.layout(info, ancestor),
            };
            self.own.insert(ancestor, own);
            self.chosen.extend(own);
            next = self.parent(info, ancestor);
        }
        let found = (start, self.chosen.len());
        self.known.insert(class, found);
        found
    }

    /// The layout of the class itself, if it is chosen.
    fn layout(&mut self, info: &Info, class: u64) -> Option<usize> {
        let class = info.class(class as usize)?;
        let class_info = info.class_info(class).ok()?;
        let is_it = |of: &FieldsOf| of.module == class_info.module && of.definition == class_info.token;
        let of = self.of.iter().position(is_it)?;
        let places = info.class_layout(class).ok()?.fields;
        let fields_of = self.of.get(of)?;
        let place = |field: &Field| {
            let offset = places.iter().find(|place| place.field == field.field)?.offset as usize;
            match field.value {
                FieldValue::Whole(size) => Some(PlacedValue::In { offset, size }),
                FieldValue::Behind(behind) => Some(PlacedValue::Behind { pointer: offset, offset: behind, size: WORD }),
                FieldValue::FirstOf(parameter) => {
                    let argument = class_info.type_args.get(parameter as usize).copied()?;
                    first_of(info, fields_of, argument, offset)
                }
            }
        };
        let values: Vec<PlacedValue> = fields_of.fields.iter().map(place).collect::<Option<_>>()?;
        let end = values.iter().map(|value| value.end()).max().unwrap_or_default().max(WORD);
        self.layouts.push(Layout { of, values, end });
        Some(self.layouts.len() - 1)
    }

    fn parent(&self, info: &Info, class: u64) -> Option<u64> {
        let id = info.class(class as usize)?;
        match info.class_info(id) {
            Ok(class) => class.parent.map(|parent| parent.as_raw() as u64),
            Err(error) if error.code() == sys::CORPROF_E_DATAINCOMPLETE => {
                let parent = word((class as usize).wrapping_add(self.parent?))?;
                (parent != 0).then_some(parent as u64)
            }
            // Arrays.
            Err(_) => None,
        }
    }
}

/// Where the field is that a class declares first. A field of that type is `offset` behind the beginning of an object.
fn first_of(info: &Info, of: &FieldsOf, class: ClassId, offset: usize) -> Option<PlacedValue> {
    const SIZE: usize = 4;
    let first = info.class_layout(class).ok()?.fields.into_iter().min_by_key(|place| place.field.as_raw())?;
    let inner = first.offset as usize;
    let parent = info.class_info(info.class_info(class).ok()?.parent?).ok()?;
    let is_struct = parent.module == of.module && Some(parent.token) == of.value_type;
    Some(match is_struct {
        true => PlacedValue::In { offset: offset + inner, size: SIZE },
        false => PlacedValue::Behind { pointer: offset, offset: inner, size: SIZE },
    })
}

/// The word at an address, or its first four bytes; 0 if there is no memory.
fn word_or_half(address: usize, size: usize) -> u64 {
    if size == WORD {
        return word(address).unwrap_or_default() as u64;
    }
    u64::from(number_at(address).unwrap_or_default())
}

/// The number in native order of `size` bytes at `at`; 0 where the bytes end before.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut number = [0; 8];
    let from = bytes.get(at..at + size).unwrap_or_default();
    for (to, from) in number.iter_mut().zip(from) {
        *to = *from;
    }
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_size_of_their_type() {
        const FIELD: u8 = 6;
        // volatile int, object, void*, long, bool, a class, a generic value type
        assert_eq!(size(&[FIELD, 0x1f, 0x05, 0x08]), Some(4));
        assert_eq!(size(&[FIELD, 0x1c]), Some(WORD));
        assert_eq!(size(&[FIELD, 0x0f, 0x01]), Some(WORD));
        assert_eq!(size(&[FIELD, 0x0a]), Some(8));
        assert_eq!(size(&[FIELD, 0x02]), Some(1));
        assert_eq!(size(&[FIELD, 0x12, 0x09]), Some(WORD));
        assert_eq!(size(&[FIELD, 0x11, 0x09]), None);
        assert_eq!(size(&[FIELD]), None);
    }

    #[test]
    fn numbers_are_read_within_their_bytes() {
        assert_eq!(number(&[1, 2, 3, 4], 1, 2), 0x0302);
        assert_eq!(number(&[1, 2], 1, 4), 0);
    }
}

//! [`FieldsOf`]: which fields a snapshot reads, of objects of chosen classes, while these stand still.

use std::io;

use corprof_sys as sys;
use rustc_hash::FxHashMap;

use super::BlockSink;
use crate::context::InNoGc;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::ModuleId;
use crate::metadata::signature::{Primitive, Type};
use crate::metadata::{FieldDef, TypeDef};
use crate::runtime_layout;
use crate::runtime_layout::memory::{NearbyObjects, word};
use crate::session::Info;

/// The bytes of a word.
const WORD: usize = size_of::<usize>();
/// Why a field is refused.
const OTHER_TYPE: &str = "a snapshot does not read fields of this type";
/// No class has so many ancestors.
const MOST_ANCESTORS: usize = 64;

/// Fields that a snapshot reads of the objects of a class, and of the classes derived from it.
#[derive(Clone, Debug)]
pub struct FieldsOf {
    module: ModuleId,
    definition: TypeDef,
    fields: Vec<Field>,
}

/// A field, and what of it is the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    field: FieldDef,
    size: usize,
    /// The field is a pointer, and the value is the word so far behind the place that it leads to.
    behind: Option<usize>,
}

impl FieldsOf {
    /// No fields yet, of objects of this class and of the classes derived from it. The class need not be loaded yet.
    #[must_use]
    pub fn new(module: ModuleId, definition: TypeDef) -> Self {
        Self { module, definition, fields: Vec::new() }
    }

    /// Adds a field that the class itself declares: a reference, a pointer or a number of at most eight bytes.
    ///
    /// # Errors
    /// `E_INVALIDARG`: the class declares no such field, or one of another type. Errors of
    /// [`metadata`](InNoGc::metadata).
    pub fn field(mut self, cx: &InNoGc<'_>, name: &str) -> Result<Self> {
        let field = self.find(cx, name)?;
        self.fields.push(field);
        Ok(self)
    }

    /// Adds a word of what a field of the type of a pointer leads to, `offset` bytes behind its beginning. Where the
    /// pointer leads nowhere, the value is 0.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn behind(mut self, cx: &InNoGc<'_>, name: &str, offset: usize) -> Result<Self> {
        let field = self.find(cx, name)?;
        if field.size != WORD {
            return Err(wrong("it is not a pointer"));
        }
        self.fields.push(Field { behind: Some(offset), ..field });
        Ok(self)
    }

    fn find(&self, cx: &InNoGc<'_>, name: &str) -> Result<Field> {
        let metadata = cx.metadata(self.module)?;
        for field in metadata.fields(self.definition)? {
            let props = metadata.field(field)?;
            if props.name == name {
                let size = size(&props.signature).ok_or_else(|| wrong(OTHER_TYPE))?;
                return Ok(Field { field, size, behind: None });
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
    /// The place of its layout in the list, by the number of a class.
    known: FxHashMap<u64, Option<usize>>,
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
    /// An offset for each field.
    offsets: Vec<usize>,
    /// The bytes of an object to be read.
    end: usize,
}

impl FieldReader {
    pub(super) fn new(info: &Info, of: Vec<FieldsOf>) -> Self {
        let descriptor = runtime_layout::descriptor(info);
        let parent = descriptor.and_then(|layout| layout.offset("MethodTable", "ParentMethodTable"));
        Self {
            of,
            layouts: Vec::new(),
            known: FxHashMap::default(),
            parent,
            objects: NearbyObjects::default(),
            behind: FxHashMap::default(),
            values: Vec::new(),
        }
    }

    /// Passes the values of an object to the sink, if its class is among the chosen ones. The object stands still.
    pub(super) fn read(&mut self, info: &Info, object: u64, class: u64, sink: &mut dyn BlockSink) -> io::Result<()> {
        let layout = match self.known.get(&class) {
            Some(known) => *known,
            None => self.find(info, class),
        };
        let Some(layout) = layout.and_then(|layout| self.layouts.get(layout)) else { return Ok(()) };
        let Some(of) = self.of.get(layout.of) else { return Ok(()) };
        // The system reads it: a wrong address is an error.
        let Some(bytes) = self.objects.read(object as usize, layout.end) else { return Ok(()) };
        // An object begins with its class; while the heap is reported, the lowest bits may be the collector's.
        if number(bytes, 0, WORD) & !7 != class & !7 {
            return Ok(());
        }
        self.values.clear();
        for (field, offset) in of.fields.iter().zip(&layout.offsets) {
            let value = number(bytes, *offset, field.size);
            self.values.push(match field.behind {
                Some(offset) if value != 0 => {
                    // Many objects refer to the same few places.
                    let address = (value as usize).wrapping_add(offset);
                    *self.behind.entry(address).or_insert_with(|| word(address).unwrap_or_default() as u64)
                }
                _ => value,
            });
        }
        sink.fields(layout.of, object, &self.values)
    }

    /// Finds the layout of a class with chosen fields, which it may have from an ancestor.
    #[cold]
    fn find(&mut self, info: &Info, class: u64) -> Option<usize> {
        let mut next = Some(class);
        let mut layout = None;
        for _ in 0..MOST_ANCESTORS {
            let Some(ancestor) = next.filter(|_| layout.is_none()) else { break };
            layout = self.known.get(&ancestor).copied().flatten().or_else(|| self.layout(info, ancestor));
            next = self.parent(info, ancestor);
        }
        self.known.insert(class, layout);
        layout
    }

    /// The layout of the class itself, if it is chosen.
    fn layout(&mut self, info: &Info, class: u64) -> Option<usize> {
        let class = info.class(class as usize)?;
        let of = {
            let class = info.class_info(class).ok()?;
            self.of.iter().position(|of| of.module == class.module && of.definition == class.token)?
        };
        let places = info.class_layout(class).ok()?.fields;
        let fields = &self.of.get(of)?.fields;
        let place = |field: &Field| places.iter().find(|place| place.field == field.field);
        let offsets: Vec<usize> =
            fields.iter().map(|field| Some(place(field)?.offset as usize)).collect::<Option<_>>()?;
        let ends = fields.iter().zip(&offsets).map(|(field, offset)| field.size + offset);
        let end = ends.max().unwrap_or_default().max(WORD);
        self.layouts.push(Layout { of, offsets, end });
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

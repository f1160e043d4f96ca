//! The descriptions that events of EventSources carry.

use crate::cursor::{Cursor, Truncated};
use crate::keywords::Keywords;
use crate::text::Text;
use crate::types::{Count, DEEPEST, Definitions, Scalar, Shape, Type};

/// More fields are not believed: an event has at most 64 KB.
const MOST_FIELDS: u32 = 4096;

/// How a description of fields is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Type, then name: versions 4 and 5 of `.nettrace`, and events of profilers.
    V1,
    /// Size, name, type: the tag `V2Params` of version 5, for fields that are arrays.
    V2,
    /// Size, name, type, in fewer bytes: version 6.
    V6,
}

/// The self-description of an EventSource's event: name, number, keywords, fields.
///
/// A profiler gets it with each event; [`read`](Self::read) reads that. A `.nettrace` has it once for many events.
///
/// ```
/// use corprof_events::{Description, Event, Provider};
///
/// let metadata = b"\x07\0\0\0R\0e\0q\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\x01\0\0\0\x09\0\0\0i\0d\0\0\0";
/// let description = Description::read(metadata).ok_or("no description")?;
/// assert_eq!(description.name(), "Req");
/// let event = Event::described(Provider::of("Shop"), &description, b"\x2a\0\0\0", true);
/// assert_eq!(event.field("id").and_then(|id| id.as_i64()), Some(42));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Description<'a> {
    id: u32,
    version: u32,
    level: u32,
    keywords: Keywords,
    name: Text<'a>,
    fields: Option<Described<'a>>,
}

/// A tag behind a description: the opcode.
const OPCODE: u8 = 1;
/// A tag behind a description: the fields in the second layout.
const FIELDS_V2: u8 = 2;

impl<'a> Description<'a> {
    /// Reads the metadata that a profiler gets with an event: a description without provider. `None` if it ends too
    /// early. A description with unreadable fields has none.
    #[must_use]
    pub fn read(metadata: &'a [u8]) -> Option<Self> {
        Self::read_from(&mut Cursor::new(metadata, true)).ok()
    }

    fn read_from(cursor: &mut Cursor<'a>) -> Result<Self, Truncated> {
        let id = cursor.u32()?;
        let name = cursor.utf16z()?;
        let keywords = Keywords::from_bits(cursor.u64()?);
        let version = cursor.u32()?;
        let level = cursor.u32()?;
        let (fields, _) = Self::fields_v1(cursor.rest());
        Ok(Self { id, version, level, keywords, name, fields })
    }

    /// The fields of versions 4 and 5: count and fields in the first layout, then tags, one of which may have them in
    /// the second. And the opcode, if a tag has it.
    fn fields_v1(bytes: &'a [u8]) -> (Option<Described<'a>>, Option<u8>) {
        let mut fields = Described { layout: Layout::V1, bytes };
        let Ok(end) = fields.checked() else { return (None, None) };
        let mut opcode = None;
        let mut tags = Cursor::new(end, true);
        let mut next = || {
            let size = usize::try_from(tags.u32()?).map_err(|_| Truncated)?;
            let [kind] = tags.array()?;
            Ok::<_, Truncated>((kind, tags.bytes(size)?))
        };
        while let Ok((kind, bytes)) = next() {
            match (kind, bytes) {
                (OPCODE, [first, ..]) => opcode = Some(*first),
                (FIELDS_V2, _) => {
                    fields = Described { layout: Layout::V2, bytes };
                    if fields.checked().is_err() {
                        return (None, opcode);
                    }
                }
                _ => {}
            }
        }
        (Some(fields), opcode)
    }

    /// Its number among those of its provider.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// How important it is, from 1 (critical) to 5 (verbose).
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The groups that it belongs to.
    #[must_use]
    pub fn keywords(&self) -> Keywords {
        self.keywords
    }

    /// Its name. The runtime's own events have none.
    #[must_use]
    pub fn name(&self) -> Text<'a> {
        self.name
    }

    /// Its fields; nothing if they are described in a way that this crate does not know.
    #[must_use]
    pub fn fields(&self) -> Option<FieldList<'a>> {
        self.fields.map(FieldList)
    }
}

/// A list of fields as bytes describe it, which have been checked.
#[derive(Debug, Clone, Copy)]
pub struct FieldList<'a>(pub(crate) Described<'a>);

impl<'a> FieldList<'a> {
    /// The fields behind the level in a metadata block of versions 4 and 5, and the opcode if a tag has it. No list if
    /// there is something that this crate does not know.
    #[must_use]
    pub fn read_v4(bytes: &'a [u8]) -> (Option<Self>, Option<u8>) {
        let (fields, opcode) = Description::fields_v1(bytes);
        (fields.map(Self), opcode)
    }

    /// The fields of version 6, and the bytes after them.
    #[must_use]
    pub fn read_v6(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let fields = Described { layout: Layout::V6, bytes };
        fields.checked().ok().map(|rest| (Self(fields), rest))
    }

    /// A list that was [checked](Self::read_v4) before and has been kept. Bytes that are none give an empty list.
    #[must_use]
    pub fn kept(layout: Layout, bytes: &'a [u8]) -> Self {
        Self(Described { layout, bytes })
    }

    /// How and where it is described, for [`kept`](Self::kept).
    #[must_use]
    pub fn parts(self) -> (Layout, &'a [u8]) {
        (self.0.layout, self.0.bytes)
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.definitions().len() == 0
    }

    pub(crate) fn definitions(self) -> Definitions<'a> {
        self.0.fields().unwrap_or(Definitions::NONE)
    }
}

/// Bytes that describe a type, from its code on, or a list of fields, from its count on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    layout: Layout,
    bytes: &'a [u8],
}

mod code {
    pub(super) const OBJECT: u32 = 1;
    pub(super) const ARRAY: u32 = 19;
    pub(super) const FIXED_ARRAY: u32 = 22;
    pub(super) const RELATIVE_LOCATION: u32 = 24;
    pub(super) const DATA_LOCATION: u32 = 25;
}

impl<'a> Described<'a> {
    fn cursor(self) -> Cursor<'a> {
        Cursor::new(self.bytes, true)
    }

    /// The list of fields that begins here.
    fn fields(self) -> Result<Definitions<'a>, Truncated> {
        let mut cursor = self.cursor();
        let count = if self.layout == Layout::V6 { cursor.u16()?.into() } else { cursor.u32()? };
        Ok(Definitions::Described(count, Described { bytes: cursor.rest(), ..self }))
    }

    /// Name and type of the field that begins here; then the next begins here.
    pub(crate) fn next_field(&mut self) -> Result<(Text<'a>, Described<'a>), Truncated> {
        let mut cursor = self.cursor();
        let layout = self.layout;
        let field = match layout {
            Layout::V1 => {
                let ty = *self;
                cursor = Cursor::new(ty.end(DEEPEST, &mut { MOST_FIELDS })?, true);
                (cursor.utf16z()?, ty)
            }
            Layout::V2 => {
                let size = cursor.u32()?.checked_sub(4).ok_or(Truncated)?;
                let mut field = Cursor::new(cursor.bytes(usize::try_from(size).map_err(|_| Truncated)?)?, true);
                let name = field.utf16z()?;
                (name, Described { layout, bytes: field.rest() })
            }
            Layout::V6 => {
                let size = cursor.u16()?.into();
                let mut field = Cursor::new(cursor.bytes(size)?, true);
                let name = field.counted_utf8()?;
                (name, Described { layout, bytes: field.rest() })
            }
        };
        self.bytes = cursor.rest();
        Ok(field)
    }

    /// The code of the type that begins here, and the bytes after it.
    fn code(self) -> Result<(u32, Described<'a>), Truncated> {
        let mut cursor = self.cursor();
        let code = if self.layout == Layout::V6 { cursor.u8()?.into() } else { cursor.u32()? };
        Ok((code, Described { bytes: cursor.rest(), ..self }))
    }

    pub(crate) fn shape(self) -> Result<Shape<'a>, Truncated> {
        let (code, rest) = self.code()?;
        if let Some(scalar) = self.scalar(code) {
            return Ok(Shape::Scalar(scalar));
        }
        match (code, self.layout) {
            (code::OBJECT, _) => rest.fields().map(Shape::Record),
            (code::ARRAY, Layout::V2 | Layout::V6) => Ok(Shape::List(Type::Described(rest), Count::Inline)),
            (code::FIXED_ARRAY, Layout::V6) => {
                let mut end = Cursor::new(rest.end(DEEPEST, &mut { MOST_FIELDS })?, true);
                Ok(Shape::List(Type::Described(rest), Count::Fixed(end.u16()?.into())))
            }
            (code::RELATIVE_LOCATION | code::DATA_LOCATION, Layout::V6) => Ok(Shape::Scalar(Scalar::Location)),
            _ => Err(Truncated),
        }
    }

    /// The types that are only a code.
    fn scalar(self, code: u32) -> Option<Scalar> {
        let is_v6 = self.layout == Layout::V6;
        Some(match code {
            3 => Scalar::Bool32,
            4 => Scalar::Utf16Unit,
            5 => Scalar::I8,
            6 => Scalar::U8,
            7 => Scalar::I16,
            8 => Scalar::U16,
            9 => Scalar::I32,
            10 => Scalar::U32,
            11 => Scalar::I64,
            12 => Scalar::U64,
            13 => Scalar::F32,
            14 => Scalar::F64,
            15 => Scalar::Decimal,
            // The format's description says eight numbers; .NET writes a file time.
            16 if is_v6 => Scalar::SystemTime,
            16 => Scalar::FileTime,
            17 => Scalar::Guid,
            18 => Scalar::Utf16Z,
            20 if is_v6 => Scalar::VarInt,
            21 if is_v6 => Scalar::VarUInt,
            23 if is_v6 => Scalar::Utf8Unit,
            26 if is_v6 => Scalar::Bool8,
            _ => return None,
        })
    }

    /// The bytes after the type that begins here. `budget` limits the number of its fields.
    fn end(self, depth: u8, budget: &mut u32) -> Result<&'a [u8], Truncated> {
        let depth = depth.checked_sub(1).ok_or(Truncated)?;
        let (code, rest) = self.code()?;
        if self.scalar(code).is_some() {
            return Ok(rest.bytes);
        }
        match (code, self.layout) {
            // Each value has at least a byte, so that there are no more of them than the payload has bytes.
            (code::OBJECT, _) if rest.fields()?.len() == 0 => Err(Truncated),
            (code::OBJECT, _) => rest.end_of_fields(depth, budget),
            (code::ARRAY, Layout::V2 | Layout::V6) => rest.end(depth, budget),
            (code::RELATIVE_LOCATION | code::DATA_LOCATION, Layout::V6) => rest.end(depth, budget),
            (code::FIXED_ARRAY, Layout::V6) => {
                let mut cursor = Cursor::new(rest.end(depth, budget)?, true);
                if cursor.u16()? == 0 { Err(Truncated) } else { Ok(cursor.rest()) }
            }
            _ => Err(Truncated),
        }
    }

    /// The bytes after the list of fields that begins here.
    fn end_of_fields(self, depth: u8, budget: &mut u32) -> Result<&'a [u8], Truncated> {
        let Definitions::Described(count, mut at) = self.fields()? else { return Err(Truncated) };
        for _ in 0..count {
            *budget = budget.checked_sub(1).ok_or(Truncated)?;
            if at.layout == Layout::V1 {
                let mut cursor = Cursor::new(at.end(depth, budget)?, true);
                cursor.utf16z()?;
                at.bytes = cursor.rest();
            } else {
                let (_, ty) = at.next_field()?;
                ty.end(depth, budget)?;
            }
        }
        Ok(at.bytes)
    }

    /// The bytes after this list of fields, if all of them are known.
    fn checked(self) -> Result<&'a [u8], Truncated> {
        self.end_of_fields(DEEPEST, &mut { MOST_FIELDS })
    }
}

//! The descriptions that events of EventSources carry.

use crate::cursor::{Cursor, Truncated};
use crate::keywords::Keywords;
use crate::misfit::Misfit;
use crate::text::Text;
use crate::types::Definitions;
use crate::types::described::{Described, Layout};

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
        let rest = fields.checked().ok()?;
        let (list, rest) = bytes.split_at_checked(bytes.len() - rest.len())?;
        Some((Self(Described { bytes: list, ..fields }), rest))
    }

    /// Appends the description as version 6 has it, to be read by [`read_v6`](Self::read_v6). The codes of types, and
    /// so the payloads, are the same in all versions.
    ///
    /// # Errors
    /// If the description of a field, with those in it, takes more than 65,535 bytes: [`Misfit::Description`].
    pub fn write_v6(self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        self.0.write_v6(out)
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

//! The definitions of events.

use corprof_events::{FieldList, Layout};
use uuid::Uuid;

use crate::bytes::{Cursor, Malformed};

/// The definition of an event, which many events refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Its number in the trace.
    pub id: u32,
    /// The provider of the event, such as `Microsoft-Windows-DotNETRuntime`.
    pub provider: String,
    /// The number of the event among those of its provider.
    pub event_id: u32,
    /// Its name. Empty for the runtime's own events: their names are in the runtime's manifest.
    pub name: String,
    /// The groups of events that it belongs to, a bit each.
    pub keywords: u64,
    /// Its version. A newer one has more fields at its end.
    pub version: u32,
    /// How important it is, from 1 (critical) to 5 (verbose).
    pub level: u32,
    /// Its opcode, if the trace has it.
    pub opcode: Option<u8>,
    /// The description of its fields, which has been checked.
    fields: Option<(Layout, Box<[u8]>)>,
    /// The provider's GUID (version 6).
    pub provider_guid: Option<Uuid>,
    /// A text with places for the fields (version 6).
    pub message: Option<String>,
    /// The meaning of the event (version 6).
    pub description: Option<String>,
    /// Further entries (version 6).
    pub properties: Vec<(String, String)>,
}

/// The kinds of options of version 6.
mod option {
    pub(super) const OPCODE: u8 = 1;
    pub(super) const KEYWORDS: u8 = 3;
    pub(super) const MESSAGE: u8 = 4;
    pub(super) const DESCRIPTION: u8 = 5;
    pub(super) const PROPERTY: u8 = 6;
    pub(super) const PROVIDER_GUID: u8 = 7;
    pub(super) const LEVEL: u8 = 8;
    pub(super) const VERSION: u8 = 9;
}

impl Metadata {
    /// Its fields; nothing where they are described in a way that is not known: then there are only the bytes. Empty
    /// for the runtime's own events, which are known otherwise: see [`Event::decoded`](crate::Event::decoded).
    #[must_use]
    pub fn fields(&self) -> Option<FieldList<'_>> {
        self.fields.as_ref().map(|(layout, bytes)| FieldList::kept(*layout, bytes))
    }

    /// The payload of an event in a metadata block of versions 4 and 5.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(payload);
        let mut metadata = Self { id: cursor.u32()?, provider: cursor.utf16z()?, ..Self::default() };
        metadata.read_rest(&mut cursor)?;
        Ok(metadata)
    }

    /// The bytes after the provider's name. A profiler's EventPipe session delivers an event with these bytes alone.
    fn read_rest(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        self.event_id = cursor.u32()?;
        self.name = cursor.utf16z()?;
        self.keywords = cursor.u64()?;
        self.version = cursor.u32()?;
        self.level = cursor.u32()?;
        // An unknown form of description leaves the event without fields, and the trace readable.
        let (fields, opcode) = FieldList::read_v4(cursor.rest());
        self.keep(fields);
        self.opcode = opcode;
        Ok(())
    }

    fn keep(&mut self, fields: Option<FieldList<'_>>) {
        self.fields = fields.map(FieldList::parts).map(|(layout, bytes)| (layout, bytes.into()));
    }

    /// A row of a metadata block of version 6.
    pub(crate) fn read_row(row: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(row);
        let id = cursor.varuint32()?;
        let provider = cursor.utf8()?;
        let event_id = cursor.varuint32()?;
        let name = cursor.utf8()?;
        let mut metadata = Self { id, provider, event_id, name, ..Self::default() };
        let fields = FieldList::read_v6(cursor.rest());
        metadata.keep(fields.map(|(fields, _)| fields));
        if let Some((_, rest)) = fields {
            let mut cursor = Cursor::new(rest);
            let size = cursor.u16()?.into();
            // A kind that is not known has no size, so that nothing behind it can be read.
            let _ = metadata.read_options(&mut Cursor::new(cursor.bytes(size)?));
        }
        Ok(metadata)
    }

    fn read_options(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        while !cursor.is_empty() {
            match cursor.u8()? {
                option::OPCODE => self.opcode = Some(cursor.u8()?),
                option::KEYWORDS => self.keywords = cursor.u64()?,
                option::MESSAGE => self.message = Some(cursor.utf8()?),
                option::DESCRIPTION => self.description = Some(cursor.utf8()?),
                option::PROPERTY => self.properties.push((cursor.utf8()?, cursor.utf8()?)),
                option::PROVIDER_GUID => self.provider_guid = Some(Uuid::from_bytes_le(cursor.array()?)),
                option::LEVEL => self.level = cursor.u8()?.into(),
                option::VERSION => self.version = cursor.u8()?.into(),
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }

    /// How many bytes of memory it takes, about.
    pub(crate) fn cost(&self) -> usize {
        let texts = [Some(&self.provider), Some(&self.name), self.message.as_ref(), self.description.as_ref()];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        let properties: usize =
            self.properties.iter().map(|(key, value)| size_of::<(String, String)>() + key.len() + value.len()).sum();
        // As much again for the map that it is in.
        2 * size_of::<Self>() + texts + properties + self.fields.as_ref().map_or(0, |(_, bytes)| bytes.len())
    }
}

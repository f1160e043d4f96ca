//! The definitions of events.

use corprof_events::{EventDefinition, FieldList, Layout, Misfit};
use uuid::Uuid;

use crate::bytes::{Cursor, Malformed};
use crate::encode;
use crate::error::WriteError;

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
    /// A definition without fields, to be written: the event `event_id` of a provider, and its name, which may be empty
    /// for the runtime's own events. `id` is its number in the trace, from 1 to [`i32::MAX`].
    #[must_use]
    pub fn new(id: u32, provider: impl Into<String>, event_id: u32, name: impl Into<String>) -> Self {
        let fields = Some((Layout::V6, Box::from([0; 2])));
        Self { id, provider: provider.into(), event_id, name: name.into(), fields, ..Self::default() }
    }

    /// The definition of an event that is a struct, to be written under the number `id`.
    ///
    /// # Errors
    /// If its fields have no description: [`Misfit::Description`].
    pub fn of(id: u32, event: &EventDefinition) -> Result<Self, Misfit> {
        let mut metadata = Self::new(id, event.provider, event.id, event.name);
        metadata.keywords = event.keywords.bits();
        metadata.version = event.version;
        metadata.level = event.level as u32;
        metadata.opcode = (event.opcode != 0).then_some(event.opcode);
        let mut fields = Vec::new();
        event.write_v6(&mut fields)?;
        metadata.fields = Some((Layout::V6, fields.into()));
        Ok(metadata)
    }

    /// The definition that a profiler's EventPipe session delivers with an event, to be written under the number `id`.
    /// `None` if it ends too early.
    #[must_use]
    pub fn described(id: u32, provider: impl Into<String>, description: &[u8]) -> Option<Self> {
        let mut metadata = Self::new(id, provider, 0, "");
        metadata.read_rest(&mut Cursor::new(description)).ok()?;
        Some(metadata)
    }

    /// With these fields.
    #[must_use]
    pub fn with_fields(mut self, fields: FieldList<'_>) -> Self {
        self.keep(Some(fields));
        self
    }

    /// Appends it as a row of a block of version 6.
    pub(crate) fn write_row(&self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        let Self { id, provider, event_id, name, .. } = self;
        if !matches!(id, 1..=0x7fff_ffff) {
            return Err(WriteError::Impossible("the number of an event's definition is from 1 to 2,147,483,647"));
        }
        if *event_id > u16::MAX.into() {
            return Err(WriteError::Impossible("the number of an event among those of its provider is at most 65,535"));
        }
        encode::varuint(out, (*id).into());
        encode::utf8(out, provider);
        encode::varuint(out, (*event_id).into());
        encode::utf8(out, name);
        match self.fields() {
            Some(fields) => fields.write_v6(out).map_err(|misfit| WriteError::Impossible(misfit.rule()))?,
            None => out.extend([0; 2]),
        }
        let mut options = Vec::new();
        self.write_options(&mut options)?;
        out.extend(encode::length16("the definition of an event", &options)?);
        out.extend(options);
        Ok(())
    }

    fn write_options(&self, out: &mut Vec<u8>) -> Result<(), WriteError> {
        if let Some(opcode) = self.opcode {
            out.extend([option::OPCODE, opcode]);
        }
        if self.keywords != 0 {
            out.push(option::KEYWORDS);
            out.extend(self.keywords.to_le_bytes());
        }
        for (kind, text) in [(option::MESSAGE, &self.message), (option::DESCRIPTION, &self.description)] {
            if let Some(text) = text {
                out.push(kind);
                encode::utf8(out, text);
            }
        }
        for property in &self.properties {
            out.push(option::PROPERTY);
            encode::property(out, property);
        }
        if let Some(guid) = self.provider_guid {
            out.push(option::PROVIDER_GUID);
            out.extend(guid.to_bytes_le());
        }
        for (kind, number) in [(option::LEVEL, self.level), (option::VERSION, self.version)] {
            let Ok(number) = u8::try_from(number) else {
                return Err(WriteError::Impossible("the level and the version of an event are at most 255"));
            };
            if number != 0 {
                out.extend([kind, number]);
            }
        }
        Ok(())
    }

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

//! Events of whole machines, which `dotnet-trace collect-linux` and `record-trace` write and PerfView reads: samples of
//! processors, switches of threads, and what is where in the memory of processes.
//!
//! ```
//! use corprof_events::universal::ProcessSymbol;
//! use corprof_events::{Event, Provider, Text};
//!
//! let symbol =
//!     ProcessSymbol { id: 1, mapping_id: 2, start_address: 0x7f00_1000, end_address: 0x7f00_10ff, name: Text::from("main") };
//! let mut payload = Vec::new();
//! symbol.write(&mut payload)?;
//! let event = Event::new(Provider::UNIVERSAL_SYSTEM, ProcessSymbol::ID, 0, &payload, true);
//! assert_eq!(event.decode::<ProcessSymbol<'_>>()?, symbol);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The process of an event is that of its thread in the trace. `collect-linux` describes texts as single characters, so
//! fields of [`Provider::UNIVERSAL_SYSTEM`] are read as its readers know them, and not as an event describes them; what
//! follows them in a payload is passed over.

use crate::cursor::{Cursor, Truncated};
use crate::description::FieldList;
use crate::event::Event;
use crate::manifest_event::ManifestEvent;
use crate::misfit::Misfit;
use crate::provider::{Manifest, Provider};
use crate::provider_event::EncodeError;
use crate::text::Text;
use crate::types::described::{Layout, write_varuint};
use crate::universal_rows::UNIVERSAL_SYSTEM;
use crate::view::{DecodeError, RuntimeView, View};

/// The events of [`Provider::UNIVERSAL_SYSTEM`], by number.
#[must_use]
pub fn system_events() -> &'static [ManifestEvent] {
    UNIVERSAL_SYSTEM
}

/// A sample or a switch, with a stack: an event of [`Provider::UNIVERSAL_EVENTS`], which are told apart by their names.
/// Their numbers differ from trace to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Of [`CPU`](Self::CPU) and [`WAIT`](Self::WAIT) the weight of the sample, where a program gets as many as it has
    /// samples: 1 if all samples are worth the same. Of [`CONTEXT_SWITCH`](Self::CONTEXT_SWITCH) for how long the
    /// thread had not run, in ticks of the trace.
    pub value: u64,
}

impl Measured {
    /// The name of a sample of a thread that runs.
    pub const CPU: &'static str = "cpu";

    /// The name of the event of a thread that runs again, with the stack that it had left the processor at.
    pub const CONTEXT_SWITCH: &'static str = "cswitch";

    /// The name of a sample of a thread that waits, which corprof's recordings have.
    pub const WAIT: &'static str = "wait";

    /// The description of its fields, for a definition in a trace.
    #[must_use]
    pub fn fields() -> FieldList<'static> {
        const DESCRIPTION: &([u8; LONGEST], usize) = &description(&[("Value", <u64 as Part<'_>>::CODES)]);
        FieldList::kept(Layout::V6, DESCRIPTION.0.split_at(DESCRIPTION.1).0)
    }

    /// Appends the values of the fields.
    pub fn write(&self, payload: &mut Vec<u8>) {
        write_varuint(payload, self.value);
    }
}

impl View<'_> for Measured {
    fn decode(event: &Event<'_>) -> Result<Self, DecodeError> {
        if event.provider() != Provider::UNIVERSAL_EVENTS {
            return Err(DecodeError::OtherEvent { expected: "event of Universal.Events", id: event.id() });
        }
        let value = event.cursor().varuint().map_err(|_| DecodeError::TooShort { event: "Universal.Events" })?;
        Ok(Self { value })
    }
}

/// The type of a field.
pub(crate) trait Part<'a>: Sized {
    /// Its description in version 6.
    const CODES: &'static [u8];
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Truncated>;
    fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit>;
}

impl Part<'_> for u64 {
    const CODES: &'static [u8] = &[21];

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Truncated> {
        cursor.varuint()
    }

    fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit> {
        write_varuint(payload, *self);
        Ok(())
    }
}

impl<'a> Part<'a> for Text<'a> {
    /// An array of units of UTF-8.
    const CODES: &'static [u8] = &[19, 23];

    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Truncated> {
        cursor.utf8_counted()
    }

    fn write(&self, payload: &mut Vec<u8>) -> Result<(), Misfit> {
        let text = self.to_string();
        payload.extend(u16::try_from(text.len()).map_err(|_| Misfit::LongText)?.to_le_bytes());
        payload.extend(text.as_bytes());
        Ok(())
    }
}

/// Descriptions of fields, their names and the codes of their types, as version 6 has them; and how many bytes they
/// are.
pub(crate) const fn description(fields: &[(&str, &[u8])]) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    bytes[0] = fields.len() as u8;
    let mut end = 2;
    let mut field = 0;
    while field < fields.len() {
        let (name, codes) = fields[field];
        // All names are short, so that their lengths are one byte.
        let parts = [&[(1 + name.len() + codes.len()) as u8, 0, name.len() as u8], name.as_bytes(), codes];
        let mut part = 0;
        while part < parts.len() {
            let mut at = 0;
            while at < parts[part].len() {
                bytes[end] = parts[part][at];
                end += 1;
                at += 1;
            }
            part += 1;
        }
        field += 1;
    }
    (bytes, end)
}

/// The longest description.
pub(crate) const LONGEST: usize = 128;

/// An event as a struct.
macro_rules! event {
    ($(#[$doc:meta])* $struct:ident, $id:literal, $name:literal; $($(#[$field_doc:meta])* $field:ident: $type:ty = $field_name:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $struct<'a> {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> $struct<'a> {
            /// Its number among the events of [`Provider::UNIVERSAL_SYSTEM`].
            pub const ID: u32 = $id;

            /// Its name.
            pub const NAME: &'static str = $name;

            const DESCRIPTION: &'static ([u8; LONGEST], usize) = &description(&[$(($field_name, <$type as Part<'_>>::CODES)),*]);

            /// The description of its fields, for a definition in a trace.
            #[must_use]
            pub fn fields() -> FieldList<'static> {
                FieldList::kept(Layout::V6, Self::DESCRIPTION.0.split_at(Self::DESCRIPTION.1).0)
            }

            /// Appends the values of the fields.
            ///
            /// # Errors
            /// If a text has more than 65,535 bytes in UTF-8: [`Misfit::LongText`]. `payload` then has a part of the
            /// fields.
            pub fn write(&self, payload: &mut Vec<u8>) -> Result<(), EncodeError> {
                $(self.$field.write(payload).map_err(|misfit| EncodeError { event: $name, field: $field_name, misfit })?;)*
                Ok(())
            }
        }

        impl<'a> RuntimeView<'a> for $struct<'a> {
            const EVENT: (Manifest, u32, u32) = (Manifest::UniversalSystem, $id, 0);
            const NAME: &'static str = $name;

            fn read(cursor: &mut Cursor<'a>, _version: u32) -> Result<Self, Truncated> {
                $(let $field = <$type as Part<'a>>::read(cursor)?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}

event! {
    /// A process that was there when the trace began.
    ExistingProcess, 0, "ExistingProcess";
    /// Its id in its own namespace; 0 if that is not known.
    namespace_id: u64 = "NamespaceId",
    /// Its name.
    name: Text<'a> = "Name",
    /// The name of its namespace.
    namespace_name: Text<'a> = "NamespaceName",
}

event! {
    /// A process begins.
    ProcessCreate, 1, "ProcessCreate";
    /// Its id in its own namespace; 0 if that is not known.
    namespace_id: u64 = "NamespaceId",
    /// Its name.
    name: Text<'a> = "Name",
    /// The name of its namespace.
    namespace_name: Text<'a> = "NamespaceName",
}

event! {
    /// A file, or memory with code, is in the memory of a process.
    ProcessMapping, 3, "ProcessMapping";
    /// Its number in the trace.
    id: u64 = "Id",
    /// Its first address.
    start_address: u64 = "StartAddress",
    /// Its last address.
    end_address: u64 = "EndAddress",
    /// The byte of the file that is at its first address; 0 for libraries in the format of Windows.
    file_offset: u64 = "FileOffset",
    /// The path of the file. Empty if there is none.
    file_name: Text<'a> = "FileName",
    /// The [`id`](ProcessMappingMetadata::id) of what is known about the file; 0 if there is nothing.
    metadata_id: u64 = "MetadataId",
}

event! {
    /// Some addresses of a mapping have a name.
    ProcessSymbol, 4, "ProcessSymbol";
    /// Its number in the trace.
    id: u64 = "Id",
    /// The [`id`](ProcessMapping::id) of the mapping.
    mapping_id: u64 = "MappingId",
    /// Its first address.
    start_address: u64 = "StartAddress",
    /// Its last address.
    end_address: u64 = "EndAddress",
    /// Its name.
    name: Text<'a> = "Name",
}

event! {
    /// What is known about a file that is mapped.
    ProcessMappingMetadata, 5, "ProcessMappingMetadata";
    /// Its number in the trace, from 1.
    id: u64 = "Id",
    /// Where its symbols are: its format and what finds them, in JSON.
    symbol_metadata: Text<'a> = "SymbolMetadata",
    /// Its version, in JSON.
    version_metadata: Text<'a> = "VersionMetadata",
}

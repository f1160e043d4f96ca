//! Events of EventSources, and of a profiler's own providers, as structs of a user's.

use std::fmt::{self, Display, Formatter};

use crate::event::Event;
use crate::field::FieldType;
use crate::keywords::{Keywords, Level};
use crate::misfit::Misfit;
use crate::types::described;
use crate::value::{Fields, Value};
use crate::view::DecodeError;

/// An event of an EventSource, or of a profiler's own provider, as a struct. `#[derive(ProviderEvent)]` implements it,
/// and [`View`](crate::View), so that [`Event::decode`](crate::Event::decode) returns the struct.
pub trait ProviderEvent {
    /// What the provider says about the event.
    const EVENT: EventDefinition;

    /// Appends the values of the fields, as EventPipe has them.
    ///
    /// A text ends at its first NUL.
    ///
    /// # Errors
    /// If a value is a [`Misfit`]; `payload` then has a part of the fields.
    fn write(&self, payload: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// An event as its provider describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventDefinition {
    /// The name of its provider.
    pub provider: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its number among those of its provider.
    pub id: u32,
    /// Its version, which increases when fields are added.
    pub version: u32,
    /// How important it is.
    pub level: Level,
    /// The groups that it belongs to, as bits that the provider defines.
    pub keywords: Keywords,
    /// Its role in a longer activity: 1 the start, 2 the stop, 0 neither.
    pub opcode: u8,
    /// Whether the runtime records the stack with it.
    pub needs_stack: bool,
    /// Its fields, in the order of the payload.
    pub fields: &'static [FieldDefinition],
}

impl EventDefinition {
    /// Appends the description of its fields as version 6 of `.nettrace` has it, to be read by
    /// [`FieldList::read_v6`](crate::FieldList::read_v6).
    ///
    /// # Errors
    /// If a name is too long, or there are too many fields: [`Misfit::Description`].
    pub fn write_v6(&self, out: &mut Vec<u8>) -> Result<(), Misfit> {
        out.extend(u16::try_from(self.fields.len()).map_err(|_| Misfit::Description)?.to_le_bytes());
        for field in self.fields {
            described::write_field_v6(out, field.name, |out| {
                out.extend(field.is_list.then_some(described::ARRAY));
                out.push(field.ty.code());
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// A field as its provider describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDefinition {
    /// Its name.
    pub name: &'static str,
    /// Its type, or the type of its elements.
    pub ty: FieldType,
    /// Whether it is a list.
    pub is_list: bool,
}

/// An event cannot have the value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeError {
    /// The event.
    pub event: &'static str,
    /// The field.
    pub field: &'static str,
    /// Why.
    pub misfit: Misfit,
}

impl Display for EncodeError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "no event can have the value of the field {} of {}: {}", self.field, self.event, self.misfit.rule())
    }
}

impl std::error::Error for EncodeError {}

/// The fields of an event, for the code of the derive.
#[doc(hidden)]
pub struct Decoder<'a> {
    event: Event<'a>,
    definition: &'static EventDefinition,
    /// From the field behind the last one on: most events have the order of the struct.
    rest: Fields<'a>,
}

impl<'a> Decoder<'a> {
    /// The fields, if it is this event and describes itself.
    pub fn new(event: &Event<'a>, definition: &'static EventDefinition) -> Result<Self, DecodeError> {
        let EventDefinition { name, id, provider, .. } = *definition;
        if event.id() != id || event.provider().name() != provider {
            return Err(DecodeError::OtherEvent { expected: name, id: event.id() });
        }
        if !event.is_known() {
            return Err(DecodeError::Undescribed { event: name });
        }
        Ok(Self { event: *event, definition, rest: event.fields() })
    }

    /// The value of the field of this name, by the `read` of its type.
    pub fn field<T>(&mut self, name: &'static str, read: fn(Value<'a>) -> Option<T>) -> Result<T, DecodeError> {
        let event = self.definition.name;
        let next = self.rest.next().filter(|(field, _)| *field == name).map(|(_, value)| value);
        let value = next.or_else(|| self.event.field(name)).ok_or(DecodeError::NoField { event, field: name })?;
        read(value).ok_or(DecodeError::OtherType { event, field: name })
    }
}

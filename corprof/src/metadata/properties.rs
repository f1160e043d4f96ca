//! Properties and events.

use corprof_sys as sys;

use super::constant::RawConstant;
use super::import::MetadataImport;
use super::raw::Blob;
use super::{Constant, Event, MethodDef, Property, Token, TypeDef};
use crate::error::Result;
use crate::ffi::buffer::read_utf16;

/// A property that the module defines.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct PropertyProps {
    /// The type that declares it.
    pub class: TypeDef,
    /// Its name.
    pub name: String,
    /// Its flags.
    pub flags: sys::CorPropertyAttr,
    /// Its signature: see [`PropertySignature`](super::signature::PropertySignature).
    pub signature: Vec<u8>,
    /// Its default value, if it has one.
    pub constant: Option<Constant>,
    /// Its setter, if it has one.
    pub setter: Option<MethodDef>,
    /// Its getter, if it has one.
    pub getter: Option<MethodDef>,
}

/// An event that the module defines.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EventProps {
    /// The type that declares it.
    pub class: TypeDef,
    /// Its name.
    pub name: String,
    /// Its flags.
    pub flags: sys::CorEventAttr,
    /// The type of its handlers: a type definition, reference or spec.
    pub handler: Token,
    /// The method that adds a handler.
    pub add: Option<MethodDef>,
    /// The method that removes a handler.
    pub remove: Option<MethodDef>,
    /// The method that raises it; the C# compiler makes none.
    pub fire: Option<MethodDef>,
}

impl MetadataImport<'_> {
    /// The properties that a type declares.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumProperties")]
    pub fn properties(&self, class: TypeDef) -> Result<Vec<Property>> {
        let raw = self.raw()?;
        self.tokens("EnumProperties", Property::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumProperties(handle, class.as_raw(), start, room, count) }
        })
    }

    /// The name, class, flags, signature and methods of a property.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetPropertyProps")]
    pub fn property(&self, property: Property) -> Result<PropertyProps> {
        let raw = self.raw()?;
        let mut class = 0;
        let mut flags = 0;
        let mut setter = 0;
        let mut getter = 0;
        let mut others = 0;
        let mut blob = Blob::default();
        let mut constant = RawConstant::default();
        let name = read_utf16("GetPropertyProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, at most `room` units of text, and no other methods; it
            // keeps nothing (fact: outputs).
            unsafe {
                raw.GetPropertyProps(
                    property.as_raw(),
                    &mut class,
                    start,
                    room,
                    count,
                    &mut flags,
                    &mut blob.start,
                    &mut blob.size,
                    &mut constant.element,
                    &mut constant.start,
                    &mut constant.units,
                    &mut setter,
                    &mut getter,
                    std::ptr::null_mut(),
                    0,
                    &mut others,
                )
            }
        })?;
        Ok(PropertyProps {
            class: TypeDef::from_raw(class),
            name,
            flags: sys::CorPropertyAttr::from_bits_retain(flags),
            // SAFETY: the successful call above has filled it in, and the module is still loaded.
            signature: unsafe { blob.copy() },
            // SAFETY: the same.
            constant: unsafe { constant.read() },
            setter: some_method(setter),
            getter: some_method(getter),
        })
    }

    /// The events that a type declares.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "EnumEvents")]
    pub fn events(&self, class: TypeDef) -> Result<Vec<Event>> {
        let raw = self.raw()?;
        self.tokens("EnumEvents", Event::from_raw, |handle, start, room, count| {
            // SAFETY: as `tokens` asks; the call keeps nothing but its own handle.
            unsafe { raw.EnumEvents(handle, class.as_raw(), start, room, count) }
        })
    }

    /// The name, class, flags, type and methods of an event.
    ///
    /// # Errors
    /// `CLDB_E_…` or `E_INVALIDARG` for a token that this module does not have.
    #[doc(alias = "GetEventProps")]
    pub fn event(&self, event: Event) -> Result<EventProps> {
        let raw = self.raw()?;
        let mut class = 0;
        let mut flags = 0;
        let mut handler = 0;
        let mut others = 0;
        let mut add = 0;
        let mut remove = 0;
        let mut fire = 0;
        let name = read_utf16("GetEventProps", |start, room, count| {
            // SAFETY: the call writes the locals, the count, at most `room` units of text, and no other methods; it
            // keeps nothing (fact: outputs).
            unsafe {
                raw.GetEventProps(
                    event.as_raw(),
                    &mut class,
                    start,
                    room,
                    count,
                    &mut flags,
                    &mut handler,
                    &mut add,
                    &mut remove,
                    &mut fire,
                    std::ptr::null_mut(),
                    0,
                    &mut others,
                )
            }
        })?;
        Ok(EventProps {
            class: TypeDef::from_raw(class),
            name,
            flags: sys::CorEventAttr::from_bits_retain(flags),
            handler: Token::from_raw(handler),
            add: some_method(add),
            remove: some_method(remove),
            fire: some_method(fire),
        })
    }
}

fn some_method(raw: u32) -> Option<MethodDef> {
    Some(MethodDef::from_raw(raw)).filter(|method| !method.is_nil())
}

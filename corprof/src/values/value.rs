//! One value: its place, and reading it.

use std::marker::PhantomData;

use crate::id::{ClassId, ObjectId};
use crate::info::StringLayout;
use crate::metadata::FieldDef;
use crate::metadata::signature::Primitive;
use crate::system;

use super::Unreadable;
use super::plan::{FieldNode, Node, StructNode, size_of_number};

/// A value that a function receives or returns, or that an [object](super::ObjectValue) contains.
///
/// It is valid in the hook or callback that shows it, where no collection can move objects, and cannot be kept longer:
///
/// ```compile_fail
/// # use corprof::values::{Arguments, Value};
/// # use corprof::prelude::*;
/// fn keep<'a>(kept: &mut Option<Value<'static>>, args: &Arguments<'a>) {
///     *kept = args.get(0); // borrowed data escapes
/// }
/// ```
///
/// `Display` formats it much like C#.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Value<'h> {
    /// `bool`
    Bool(bool),
    /// `char`, a UTF-16 code unit
    Char(u16),
    /// `sbyte`
    Int8(i8),
    /// `byte`
    UInt8(u8),
    /// `short`
    Int16(i16),
    /// `ushort`
    UInt16(u16),
    /// `int`
    Int32(i32),
    /// `uint`
    UInt32(u32),
    /// `long`
    Int64(i64),
    /// `ulong`
    UInt64(u64),
    /// `float`
    Float32(f32),
    /// `double`
    Float64(f64),
    /// `IntPtr`
    NativeInt(isize),
    /// `UIntPtr`
    NativeUInt(usize),
    /// A member of an enumeration, or another number in its place.
    Enum(EnumValue),
    /// A string, or null. Where an object of another class is in its place, that is an [`Object`](Self::Object).
    String(Option<StringRef<'h>>),
    /// An object of any other reference type, or null.
    Object(Option<ObjectId<'h>>),
    /// An unmanaged pointer or a function pointer. It is not followed.
    Pointer(usize),
    /// `ref`, `in` or `out`, and the `this` of a struct.
    ByRef(ByRef<'h>),
    /// A struct.
    Struct(StructValue<'h>),
    /// It cannot be read.
    Unreadable(Unreadable),
}

/// A value of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumValue {
    class: ClassId,
    underlying: Primitive,
    bits: [u8; 8],
}

impl EnumValue {
    /// The enumeration.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// The number of the member: an integer, in rare cases a truth value or a character.
    pub fn value(&self) -> Value<'static> {
        number(self.underlying, self.bits)
    }
}

/// A string. Its text can be read as long as the hook runs.
#[derive(Clone, Copy, Debug)]
pub struct StringRef<'h> {
    object: ObjectId<'h>,
    text: &'h [u16],
}

impl<'h> StringRef<'h> {
    /// The object.
    pub fn object(&self) -> ObjectId<'h> {
        self.object
    }

    /// Its text, as the runtime has it: UTF-16 units, which may be ill-formed.
    pub fn as_utf16(&self) -> &'h [u16] {
        self.text
    }
}

/// A managed reference to a place that holds a value.
#[derive(Clone, Copy, Debug)]
pub struct ByRef<'h> {
    address: usize,
    node: &'h Node,
    layout: StringLayout,
}

impl<'h> ByRef<'h> {
    /// The address of the place, 0 for a null reference.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The value in that place; for an `out` parameter, the value before the method writes it.
    ///
    /// A by-ref may point past the end of an array or a stack block, where correct code does not follow it. So the
    /// memory is read through the system, which refuses unmapped memory, and an object reference is not returned
    /// ([`Unreadable::ObjectBehindByRef`]): see [`value_unchecked`](Self::value_unchecked).
    ///
    /// In a sandbox that forbids the system calls (on Linux `process_vm_readv`, which the seccomp filters of some
    /// containers forbid, and `pipe2`, which takes its place), every by-ref is [`Unreadable::NoMemory`].
    pub fn value(&self) -> Value<'h> {
        Place { address: self.address, is_probed: true, layout: self.layout, _hook: PhantomData }.value(self.node)
    }

    /// The value in that place, object references included.
    ///
    /// # Safety
    /// The by-ref must lead to a place that holds a value of its type. This is true of a `ref`, `in` or `out` parameter
    /// of a method that is called with existing variables, fields or elements, and of the `this` of a struct. It is not
    /// true of a by-ref from `Unsafe`, `MemoryMarshal` or an empty span, which many methods of the core library
    /// receive.
    pub unsafe fn value_unchecked(&self) -> Value<'h> {
        if self.address == 0 {
            return Value::Unreadable(Unreadable::NoMemory);
        }
        // SAFETY: the caller's promise; the value lives as long as the by-ref, which the hooked function still has
        // (fact: hook-values).
        unsafe { Place::new(self.address, self.layout) }.value(self.node)
    }
}

/// A struct, read field by field.
#[derive(Clone, Copy, Debug)]
pub struct StructValue<'h> {
    node: &'h StructNode,
    place: Place<'h>,
}

impl<'h> StructValue<'h> {
    /// The class.
    pub fn class(&self) -> ClassId {
        self.node.class
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.node.size
    }

    /// Its instance fields.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'h>> + use<'h> {
        let place = self.place;
        self.node.fields.iter().map(move |field| Field::new(field, place))
    }

    /// The field with this name in the metadata, or of the property with this name that the C# compiler has made.
    pub fn field(&self, name: &str) -> Option<Field<'h>> {
        self.fields().find(|field| field.field.is_called(name))
    }
}

/// A field of a struct or an object.
#[derive(Clone, Copy, Debug)]
pub struct Field<'h> {
    field: &'h FieldNode,
    place: Place<'h>,
}

impl<'h> Field<'h> {
    pub(super) fn new(field: &'h FieldNode, place: Place<'h>) -> Self {
        Self { field, place }
    }

    /// Its name in the metadata.
    pub fn name(&self) -> &'h str {
        &self.field.name
    }

    /// The name of the property (`int Pieces { get; }`, a part of a record) for which the C# compiler has made the
    /// field; none if it is another field.
    pub fn property(&self) -> Option<&'h str> {
        self.field.property()
    }

    /// Its definition, in the module of the class that declares it.
    pub fn token(&self) -> FieldDef {
        self.field.token
    }

    /// Its value.
    pub fn value(&self) -> Value<'h> {
        self.place.at(self.field.offset).value(&self.field.node)
    }
}

/// The place of a value while the hook runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'h> {
    address: usize,
    /// Whether the memory must be probed through the system; otherwise it is mapped, and object references in it are
    /// live.
    is_probed: bool,
    layout: StringLayout,
    _hook: PhantomData<&'h ()>,
}

impl<'h> Place<'h> {
    /// The place that the runtime returned for a value.
    ///
    /// # Safety
    /// For `'h` the place holds a value of the type that will be read, and no collection runs. Strings have this
    /// layout.
    #[inline]
    pub(super) unsafe fn new(address: usize, layout: StringLayout) -> Self {
        Self { address, is_probed: false, layout, _hook: PhantomData }
    }

    pub(super) fn at(self, offset: usize) -> Self {
        Self { address: self.address.wrapping_add(offset), ..self }
    }

    #[inline]
    fn read<const N: usize>(self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        if self.is_probed {
            return system::read_memory(self.address, &mut bytes).then_some(bytes);
        }
        // SAFETY: a place that is not probed holds a value of the type that is read, by the promise of `new`.
        Some(unsafe { std::ptr::with_exposed_provenance::<[u8; N]>(self.address).read_unaligned() })
    }

    fn read_number(self, primitive: Primitive) -> Option<[u8; 8]> {
        let mut bits = [0; 8];
        match size_of_number(primitive)? {
            1 => bits[..1].copy_from_slice(&self.read::<1>()?),
            2 => bits[..2].copy_from_slice(&self.read::<2>()?),
            4 => bits[..4].copy_from_slice(&self.read::<4>()?),
            _ => bits = self.read::<8>()?,
        }
        Some(bits)
    }

    /// A number in this place.
    #[inline]
    pub(super) fn number(self, primitive: Primitive) -> Value<'static> {
        let read = || {
            Some(match primitive {
                Primitive::Bool => Value::Bool(self.read::<1>()? != [0]),
                Primitive::Int32 => Value::Int32(i32::from_ne_bytes(self.read()?)),
                Primitive::UInt32 => Value::UInt32(u32::from_ne_bytes(self.read()?)),
                Primitive::Int64 => Value::Int64(i64::from_ne_bytes(self.read()?)),
                Primitive::UInt64 => Value::UInt64(u64::from_ne_bytes(self.read()?)),
                Primitive::Float64 => Value::Float64(f64::from_ne_bytes(self.read()?)),
                other => number(other, self.read_number(other)?),
            })
        };
        read().unwrap_or(Value::Unreadable(Unreadable::NoMemory))
    }

    /// A reference to any object in this place.
    #[inline]
    pub(super) fn object(self) -> Value<'h> {
        self.read_object().map_or(Value::Unreadable(Unreadable::NoMemory), Value::Object)
    }

    #[inline]
    fn read_address(self) -> Option<usize> {
        self.read::<{ size_of::<usize>() }>().map(usize::from_ne_bytes)
    }

    /// The value with this node's type in this place.
    pub(super) fn value(self, node: &'h Node) -> Value<'h> {
        self.read_value(node).unwrap_or(Value::Unreadable(Unreadable::NoMemory))
    }

    fn read_value(self, node: &'h Node) -> Option<Value<'h>> {
        Some(match node {
            Node::Primitive(primitive) => number(*primitive, self.read_number(*primitive)?),
            &Node::Enum { class, underlying } => {
                Value::Enum(EnumValue { class, underlying, bits: self.read_number(underlying)? })
            }
            Node::String(_) | Node::Object if self.is_probed => Value::Unreadable(Unreadable::ObjectBehindByRef),
            Node::String(class) => match self.read_object()? {
                None => Value::String(None),
                Some(object) if is_of(object, class.get()) => Value::String(Some(self.string(object))),
                Some(object) => Value::Object(Some(object)),
            },
            Node::Object => self.object(),
            Node::Pointer => Value::Pointer(self.read_address()?),
            Node::ByRef(node) => Value::ByRef(ByRef { address: self.read_address()?, node, layout: self.layout }),
            Node::Struct(node) => Value::Struct(StructValue { node, place: self }),
            Node::Unreadable(why) => Value::Unreadable(*why),
        })
    }

    /// The object whose reference is here.
    #[inline]
    pub(super) fn read_object(self) -> Option<Option<ObjectId<'h>>> {
        // SAFETY: the signature says that this is a reference; it is null or leads to an object, which does not move
        // during `'h` (fact: hook-values).
        self.read_address().map(|address| unsafe { ObjectId::from_raw(address) })
    }

    /// The text of an object that is a string.
    pub(super) fn string(self, object: ObjectId<'h>) -> StringRef<'h> {
        let start = object.as_raw();
        let [length, text] =
            [self.layout.length_offset, self.layout.buffer_offset].map(|offset| start + offset as usize);
        // SAFETY: the object is a string by its class, and the place says that the reference to it is live. The runtime
        // has returned where its length and its text are, and text does not change once there is a reference to pass
        // on. A collection could move it, but none runs during `'h` (fact: hook-values).
        let text = unsafe {
            let length = std::ptr::with_exposed_provenance::<u32>(length).read();
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(text), length as usize)
        };
        StringRef { object, text }
    }
}

/// Whether an object is of this class. Its declared type does not say that: fields may lie at one place, and
/// `Unsafe.As` checks nothing.
fn is_of(object: ObjectId<'_>, class: Option<ClassId>) -> bool {
    // SAFETY: the object is alive, and begins with its class (fact: object-class).
    let word = unsafe { std::ptr::with_exposed_provenance::<usize>(object.as_raw()).read() };
    class.is_some_and(|class| class.as_raw() == word)
}

/// A number from its bits, in the lowest bytes.
fn number(primitive: Primitive, bits: [u8; 8]) -> Value<'static> {
    let [a, b, c, d, ..] = bits;
    match primitive {
        Primitive::Bool => Value::Bool(a != 0),
        Primitive::Char => Value::Char(u16::from_ne_bytes([a, b])),
        Primitive::Int8 => Value::Int8(a.cast_signed()),
        Primitive::UInt8 => Value::UInt8(a),
        Primitive::Int16 => Value::Int16(i16::from_ne_bytes([a, b])),
        Primitive::UInt16 => Value::UInt16(u16::from_ne_bytes([a, b])),
        Primitive::Int32 => Value::Int32(i32::from_ne_bytes([a, b, c, d])),
        Primitive::UInt32 => Value::UInt32(u32::from_ne_bytes([a, b, c, d])),
        Primitive::Int64 => Value::Int64(i64::from_ne_bytes(bits)),
        Primitive::UInt64 => Value::UInt64(u64::from_ne_bytes(bits)),
        Primitive::Float32 => Value::Float32(f32::from_ne_bytes([a, b, c, d])),
        Primitive::Float64 => Value::Float64(f64::from_ne_bytes(bits)),
        Primitive::NativeInt => Value::NativeInt(i64::from_ne_bytes(bits) as isize),
        Primitive::NativeUInt => Value::NativeUInt(u64::from_ne_bytes(bits) as usize),
        // The planner makes no numbers of these types.
        Primitive::Void | Primitive::String | Primitive::Object | Primitive::TypedRef => {
            Value::Unreadable(Unreadable::Mismatch)
        }
    }
}

#[cfg(target_endian = "big")]
compile_error!("numbers are read into the lowest bytes of their bits");

//! [`ObjectValue`]: an object of the managed heap, read by its class.
//!
//! A callback with an object may not load classes, so the layout is made of what the runtime answers everywhere: the
//! chain of base classes, their fields, and the metadata. That leaves out structs in fields, whose class only a loading
//! call would find.

use std::fmt;

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{ClassId, ModuleId, ObjectId};
use crate::info::{ArrayClass, ArrayObject, Definitions};
use crate::metadata::TypeDefOrRef;
use crate::metadata::signature::Primitive;

use super::display::show_fields;
use super::live::{is_enum, kind_by_names, layout_of, number_of_enum, type_name};
use super::plan::{FieldNode, Node, StringClass};
use super::planner::{self, Kind, Shape, Source};
use super::value::Place;
use super::{Field, StringRef, Unreadable, Value};

/// The most base classes of a class.
const MOST_BASES: usize = 256;

const CALL: &str = "value of an object";

/// An object: a string, a boxed value, an array, or fields. [`InNoGc::value`] makes it.
#[derive(Debug)]
pub struct ObjectValue<'gc> {
    object: ObjectId<'gc>,
    class: ClassId,
    place: Place<'gc>,
    content: Content<'gc>,
}

/// The parts of an object. Offsets are in bytes from its address.
#[derive(Debug)]
enum Content<'gc> {
    String(StringRef<'gc>),
    Boxed { node: Node, offset: usize },
    Array { array: Box<ArrayObject>, node: Node, offset: usize, stride: usize },
    Fields(Box<[FieldNode]>),
}

impl InNoGc<'_> {
    /// The object's value: its class, and its text, its boxed value, its elements, or its fields by name.
    ///
    /// ```
    /// # use corprof::prelude::*;
    /// # struct Messages;
    /// # impl Messages {
    /// fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
    ///     let Ok(exception) = cx.value(thrown) else { return };
    ///     let message = exception.field("_message").map(|value| value.to_string());
    ///     eprintln!("{}: {message:?}", cx.names().class(exception.class())); // System.FormatException: "Not a number."
    /// }
    /// # }
    /// ```
    ///
    /// One level is read: what a field refers to is an object of its own, to ask about in turn. Other threads may write
    /// to the object meanwhile, so two fields need not belong together. A struct in a field is
    /// [`Unreadable::StructInObject`], because the call that finds its layout could start a collection; an enumeration
    /// there reads as its number. The call asks the metadata for each field, which takes some ten microseconds.
    ///
    /// Call class: **sync**, allowed after attach, never starts a GC.
    ///
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: the object may move in this place. `CORPROF_E_DATAINCOMPLETE`: its class
    /// has no metadata, as those that .NET 11 makes for methods that it suspends itself. `E_INVALIDARG`: what the
    /// runtime says of the object does not fit together.
    pub fn value<'gc>(&self, object: ObjectId<'gc>) -> Result<ObjectValue<'gc>> {
        self.check_still(CALL)?;
        self.check_unmarked(CALL)?;
        let class = self.class_of(object)?;
        let layout = self.string_layout()?;
        // SAFETY: the object is alive while its id is, and does not move, by `check_still` (fact: still). What is read
        // from the place lies within the object's own size, and has the type that its class says.
        let place = unsafe { Place::new(object.as_raw(), layout) };
        let content = Reader { cx: self, object, place }.content(class)?;
        Ok(ObjectValue { object, class, place, content })
    }
}

impl<'gc> ObjectValue<'gc> {
    /// The object.
    pub fn object(&self) -> ObjectId<'gc> {
        self.object
    }

    /// Its class.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Its text, if it is a string.
    pub fn string(&self) -> Option<StringRef<'gc>> {
        match &self.content {
            Content::String(text) => Some(*text),
            _ => None,
        }
    }

    /// The value in the box, if it is one: a number, a member of an enumeration, a struct.
    pub fn boxed(&self) -> Option<Value<'_>> {
        match &self.content {
            Content::Boxed { node, offset } => Some(self.place.at(*offset).value(node)),
            _ => None,
        }
    }

    /// The dimensions, if it is an array.
    pub fn array(&self) -> Option<&ArrayObject> {
        match &self.content {
            Content::Array { array, .. } => Some(array),
            _ => None,
        }
    }

    /// The element of an array at this place, counted from 0 through all dimensions, the last one fastest.
    pub fn element(&self, index: usize) -> Option<Value<'_>> {
        let Content::Array { array, node, offset, stride } = &self.content else { return None };
        if index as u64 >= array.len() {
            return None;
        }
        Some(self.place.at(offset + index * stride).value(node))
    }

    /// The instance fields, those of base classes behind those of derived ones. Strings, boxes and arrays have none.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'_>> {
        let fields = match &self.content {
            Content::Fields(fields) => &**fields,
            _ => &[],
        };
        fields.iter().map(|field| Field::new(field, self.place))
    }

    /// The value of the field with this name in the metadata, or of the property with this name that the C# compiler
    /// has made; of the most derived class, if several have one.
    pub fn field(&self, name: &str) -> Option<Value<'_>> {
        let Content::Fields(fields) = &self.content else { return None };
        let field = fields.iter().find(|field| field.is_called(name))?;
        Some(Field::new(field, self.place).value())
    }

    /// The object that the field with this name, or of the property with this name, refers to; none if the field does
    /// not exist, is null or is not a reference.
    ///
    /// Unlike the value of a [`field`](Self::field) it outlives this one, so a chain of objects can be followed.
    pub fn reference(&self, name: &str) -> Option<ObjectId<'gc>> {
        let Content::Fields(fields) = &self.content else { return None };
        let field = fields.iter().find(|field| field.is_called(name))?;
        match field.node {
            Node::Object | Node::String(_) => self.place.at(field.offset).read_object()?,
            _ => None,
        }
    }
}

/// Much like C#: text in quotation marks, the boxed value, the number of elements, or the fields by name.
impl fmt::Display for ObjectValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::String(text) => text.fmt(f),
            Content::Boxed { node, offset } => self.place.at(*offset).value(node).fmt(f),
            Content::Array { array, .. } => write!(f, "[{} elements]", array.len()),
            Content::Fields(_) => show_fields(f, self.fields()),
        }
    }
}

/// Finds the parts of an object.
struct Reader<'a, 'gc> {
    cx: &'a InNoGc<'a>,
    object: ObjectId<'gc>,
    place: Place<'gc>,
}

impl<'gc> Reader<'_, 'gc> {
    fn content(&self, class: ClassId) -> Result<Content<'gc>> {
        if let Some(array) = self.cx.array_class(class)? {
            return self.array(array);
        }
        let bases = self.bases(class)?;
        let mut types = KnownTypes { cx: self.cx, core: self.core(&bases)? };
        match types.kind(class)? {
            Kind::String => Ok(Content::String(self.place.string(self.object))),
            Kind::Reference => {
                let fields = planner::object_fields(&mut types, &bases, self.size()?)?;
                Ok(Content::Fields(fields))
            }
            Kind::Primitive(_) | Kind::Enum(_) | Kind::Struct => {
                let offset = self.cx.box_class_layout(class)? as usize;
                let node = planner::class_node(&mut types, class);
                self.check_fits(offset, node.size().unwrap_or(0))?;
                Ok(Content::Boxed { node, offset })
            }
        }
    }

    fn array(&self, class: ArrayClass) -> Result<Content<'gc>> {
        let array = self.cx.array_object_info(self.object)?;
        let offset = array.data().wrapping_sub(self.object.as_raw());
        let node = self.element_node(class)?;
        let stride = node.size().unwrap_or(0);
        let size = usize::try_from(array.len()).ok().and_then(|len| len.checked_mul(stride)).ok_or(misfit())?;
        self.check_fits(offset, size)?;
        Ok(Content::Array { array: Box::new(array), node, offset, stride })
    }

    fn element_node(&self, class: ArrayClass) -> Result<Node> {
        let primitive = u8::try_from(class.element_type.0).ok().and_then(Primitive::from_element);
        match (class.element_type, primitive) {
            (sys::ELEMENT_TYPE_PTR | sys::ELEMENT_TYPE_FNPTR, _) => Ok(Node::Pointer),
            (_, Some(Primitive::String)) => {
                let strings = StringClass::of(self.cx);
                class.element.into_iter().for_each(|class| strings.learn(class));
                Ok(Node::String(strings))
            }
            (_, Some(Primitive::Object)) => Ok(Node::Object),
            (_, Some(number)) => Ok(Node::Primitive(number)),
            // A class, which may be that of strings, or a value type.
            (_, None) => self.class_node(class.element),
        }
    }

    fn class_node(&self, class: Option<ClassId>) -> Result<Node> {
        let Some(class) = class else { return Ok(Node::Unreadable(Unreadable::InternalType)) };
        if self.cx.array_class(class)?.is_some() {
            return Ok(Node::Object);
        }
        let core = self.core(&self.bases(class)?)?;
        Ok(planner::class_node(&mut KnownTypes { cx: self.cx, core }, class))
    }

    /// The class and its base classes, up to `System.Object`.
    fn bases(&self, class: ClassId) -> Result<Vec<ClassId>> {
        let mut bases = vec![class];
        let mut current = class;
        while let Some(base) = self.cx.class_info(current)?.parent {
            if bases.len() == MOST_BASES {
                return Err(misfit());
            }
            bases.push(base);
            current = base;
        }
        Ok(bases)
    }

    /// The core library: the module of `System.Object`.
    fn core(&self, bases: &[ClassId]) -> Result<ModuleId> {
        let root = bases.last().copied().ok_or(misfit())?;
        Ok(self.cx.class_info(root)?.module)
    }

    /// The size of the object from its address on: the header lies before that.
    fn size(&self) -> Result<usize> {
        Ok(self.cx.object_size(self.object)?.saturating_sub(size_of::<usize>()))
    }

    fn check_fits(&self, offset: usize, size: usize) -> Result<()> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size()? => Ok(()),
            _ => Err(misfit()),
        }
    }
}

fn misfit() -> Error {
    Error::new(E_INVALIDARG, CALL)
        .about("layout", "what the runtime says of the object's class and size does not fit together")
}

/// What is known about types without loading one.
struct KnownTypes<'a> {
    cx: &'a InNoGc<'a>,
    core: ModuleId,
}

impl Source for KnownTypes<'_> {
    fn kind(&mut self, class: ClassId) -> Result<Kind> {
        if self.cx.array_class(class)?.is_some() {
            return Ok(Kind::Reference);
        }
        let info = self.cx.class_info(class)?;
        let Some(parent) = info.parent else { return Ok(Kind::Reference) };
        let parent = self.cx.class_info(parent)?;
        let name_in_core = |module, token| match module == self.core {
            true => type_name(self.cx, module, token).map(Some),
            false => Ok(None),
        };
        let own = name_in_core(info.module, info.token)?;
        let base = name_in_core(parent.module, parent.token)?;
        kind_by_names(own.as_deref(), base.as_deref(), || number_of_enum(self.cx, info.module, info.token))
    }

    fn string_class(&mut self) -> StringClass {
        let strings = StringClass::of(self.cx);
        strings.find(self.cx, self.core);
        strings
    }

    fn class(&mut self, _: ModuleId, _: TypeDefOrRef, _: &[ClassId]) -> Result<ClassId, Unreadable> {
        Err(Unreadable::StructInObject)
    }

    fn core_class(&mut self, _: Primitive) -> Result<ClassId, Unreadable> {
        Err(Unreadable::StructInObject)
    }

    fn enumeration(&mut self, module: ModuleId, token: TypeDefOrRef) -> Option<Primitive> {
        let (module, definition) = Definitions::new(self.cx).resolve(module, token).ok()?;
        is_enum(self.cx, module, definition).ok()?.then_some(())?;
        number_of_enum(self.cx, module, definition).ok()?
    }

    fn shape(&mut self, class: ClassId) -> Result<Shape> {
        layout_of(self.cx, class)
    }
}

//! [`Arguments`] and [`ReturnValue`]: combine the runtime's places of values with the plan of their types.

use std::fmt;

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::info::StringLayout;

use super::plan::{Node, Plan, size_of_number};
use super::value::Place;
use super::{Unreadable, Value};

/// The most values in one hook, `this` included: more than compilers commonly make.
pub(crate) const MOST_RANGES: usize = 128;

/// The places of values, from the runtime; or the reason why it did not return them.
pub(crate) type Ranges<'h> = Result<&'h [sys::COR_PRF_FUNCTION_ARGUMENT_RANGE], Unreadable>;

/// The arguments of a function that begins, valid in its hook.
pub struct Arguments<'h> {
    plan: &'h Plan,
    ranges: Ranges<'h>,
    layout: StringLayout,
}

/// The result of a function that is about to return, valid in its hook.
pub struct ReturnValue<'h> {
    node: Option<&'h Node>,
    range: Result<sys::COR_PRF_FUNCTION_ARGUMENT_RANGE, Unreadable>,
    layout: StringLayout,
}

/// The value with this node's type in a range. A number or an object is read where the hook asks for it: through a call
/// with a whole [`Value`] in memory it takes 20 ns instead of 1 (`cargo xtask bench --only probes`).
///
/// # Safety
/// For `'h`, the runtime has a value of this type in the range, and no collection runs. Strings have this layout.
#[inline]
unsafe fn value<'h>(
    node: &'h Node,
    range: Option<&sys::COR_PRF_FUNCTION_ARGUMENT_RANGE>,
    layout: StringLayout,
) -> Value<'h> {
    if let (Node::Primitive(primitive), Some(range)) = (node, range)
        && size_of_number(*primitive).is_some_and(|size| range.length as usize >= size)
        && range.startAddress != 0
    {
        // SAFETY: the caller's promise.
        return unsafe { Place::new(range.startAddress, layout) }.number(*primitive);
    }
    if let (Node::Object, Some(range)) = (node, range)
        && range.length as usize >= size_of::<usize>()
        && range.startAddress != 0
    {
        // SAFETY: the caller's promise.
        return unsafe { Place::new(range.startAddress, layout) }.object();
    }
    // SAFETY: the caller's promise.
    unsafe { any_value(node, range, layout) }
}

/// The same for values of any type.
///
/// # Safety
/// As [`value`].
unsafe fn any_value<'h>(
    node: &'h Node,
    range: Option<&sys::COR_PRF_FUNCTION_ARGUMENT_RANGE>,
    layout: StringLayout,
) -> Value<'h> {
    let mismatch = Value::Unreadable(Unreadable::Mismatch);
    if let Node::Unreadable(why) = node {
        return Value::Unreadable(*why);
    }
    match (range, node.size()) {
        (Some(range), Some(size)) if range.startAddress != 0 && range.length as usize >= size => {
            // SAFETY: the caller's promise.
            unsafe { Place::new(range.startAddress, layout) }.value(node)
        }
        _ => mismatch,
    }
}

impl<'h> Arguments<'h> {
    /// For `'h`, the runtime has the arguments of the plan's function in the ranges, and no collection runs. Strings
    /// have this layout.
    pub(crate) unsafe fn new(plan: &'h Plan, ranges: Ranges<'h>, layout: StringLayout) -> Self {
        let ranges = match (plan.unreadable_now(), ranges) {
            (Some(why), _) => Err(why),
            (None, Ok(ranges)) if ranges.len() != plan.ranges() => Err(Unreadable::Mismatch),
            (None, ranges) => ranges,
        };
        Self { plan, ranges, layout }
    }

    /// Like [`new`](Self::new), with the places of the first arguments only.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    #[inline]
    pub(crate) unsafe fn new_in_probe(plan: &'h Plan, ranges: Ranges<'h>, layout: StringLayout) -> Self {
        Self { plan, ranges: plan.unreadable_now().map_or(ranges, Err), layout }
    }

    #[inline]
    fn value(&self, node: &'h Node, index: usize) -> Value<'h> {
        match self.ranges {
            // SAFETY: by the promise of `new`, the node describes the value at this place: there are as many ranges as
            // values, in the same order.
            Ok(ranges) if index < ranges.len() => unsafe { value(node, ranges.get(index), self.layout) },
            Ok(_) => Value::Unreadable(Unreadable::TooManyArguments),
            Err(why) => Value::Unreadable(why),
        }
    }

    /// The object that the method is called on; a [by-ref](Value::ByRef) for a struct. None for a static method.
    #[inline]
    pub fn this(&self) -> Option<Value<'h>> {
        self.plan.this.as_ref().map(|node| self.value(node, 0))
    }

    /// The number of parameters, without `this`.
    pub fn len(&self) -> usize {
        self.plan.parameters.len()
    }

    /// Whether there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.plan.parameters.is_empty()
    }

    /// The argument of a parameter, counted from 0 without `this`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Value<'h>> {
        let parameter = self.plan.parameters.get(index)?;
        Some(self.value(&parameter.node, index + usize::from(self.plan.this.is_some())))
    }

    /// The name of a parameter, if the metadata have it.
    pub fn name(&self, index: usize) -> Option<&'h str> {
        self.plan.parameters.get(index)?.name.as_deref()
    }

    /// The arguments in order, without `this`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'h>> + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Unreadable(Unreadable::Mismatch)))
    }

    /// The arguments as text, with what is in objects: their fields one level deep, as [`InNoGc::value`] reads them. An
    /// object that it cannot read is shown by its address.
    ///
    /// In hooks that the runtime calls: inserted code offers no calls that read objects.
    ///
    /// ```
    /// # use corprof::{hooks::InSlowHook, prelude::*, values::Arguments};
    /// # struct Hooks;
    /// # impl Hooks {
    /// fn enter_with_args(&self, cx: &InSlowHook<'_>, _thread: &mut (), method: &Name, args: &Arguments<'_>) {
    ///     eprintln!("{method} gets {}", args.with_objects(cx)); // Shop.Put gets (7, { Cake: "Sacher", Pieces: 3 })
    /// }
    /// # }
    /// ```
    pub fn with_objects<'a>(&'a self, cx: &'a InNoGc<'_>) -> impl fmt::Display + use<'a, 'h> {
        WithObjects { args: self, cx }
    }

    /// The reason if no argument can be read. If even the number of parameters is unknown, [`len`](Self::len) is 0.
    pub fn unreadable(&self) -> Option<Unreadable> {
        self.ranges.err()
    }
}

impl<'h> ReturnValue<'h> {
    /// For `'h`, the runtime has the result of the plan's function in the range, and no collection runs. Strings have
    /// this layout.
    #[inline]
    pub(crate) unsafe fn new(
        plan: &'h Plan,
        range: Result<sys::COR_PRF_FUNCTION_ARGUMENT_RANGE, Unreadable>,
        layout: StringLayout,
    ) -> Self {
        let range = range.and_then(|range| plan.unreadable_now().map_or(Ok(range), Err));
        Self { node: plan.result.as_ref(), range, layout }
    }

    /// The value; none if the method returns nothing.
    #[inline]
    pub fn get(&self) -> Option<Value<'h>> {
        let node = self.node?;
        Some(match &self.range {
            // SAFETY: by the promise of `new`.
            Ok(range) => unsafe { value(node, Some(range), self.layout) },
            Err(why) => Value::Unreadable(*why),
        })
    }
}

/// In parentheses, like the arguments of a call.
impl fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_list(f, self.iter())
    }
}

/// [`Arguments::with_objects`].
struct WithObjects<'a, 'h> {
    args: &'a Arguments<'h>,
    cx: &'a InNoGc<'a>,
}

impl fmt::Display for WithObjects<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Value<'_>| match value {
            Value::Object(Some(object)) => self.cx.value(object).map_or(value.to_string(), |read| read.to_string()),
            _ => value.to_string(),
        };
        show_list(f, self.args.iter().map(shown))
    }
}

fn show_list(f: &mut fmt::Formatter<'_>, values: impl Iterator<Item: fmt::Display>) -> fmt::Result {
    f.write_str("(")?;
    for (at, value) in values.enumerate() {
        write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
    }
    f.write_str(")")
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arguments").field("this", &self.this()).field("values", &format_args!("{self}")).finish()
    }
}

/// The value, or `void`.
impl fmt::Display for ReturnValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => value.fmt(f),
            None => f.write_str("void"),
        }
    }
}

impl fmt::Debug for ReturnValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReturnValue").field(&format_args!("{self}")).finish()
    }
}

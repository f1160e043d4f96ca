//! [`Arguments`] and [`ReturnValue`]: where the runtime says that values are, put beside what they are.

use std::fmt;

use corprof_sys as sys;

use crate::info::StringLayout;

use super::plan::{Node, Plan};
use super::value::Place;
use super::{Unreadable, Value};

/// How many values there is room for in a hook, `this` included: more than compilers commonly make.
pub(in crate::hooks) const MOST_RANGES: usize = 128;

/// Where values are, as the runtime tells; or why it does not.
pub(in crate::hooks) type Ranges<'h> = Result<&'h [sys::COR_PRF_FUNCTION_ARGUMENT_RANGE], Unreadable>;

/// The arguments of a function that begins: good in its hook.
pub struct Arguments<'h> {
    plan: &'h Plan,
    ranges: Ranges<'h>,
    layout: StringLayout,
}

/// What a function that is about to return will return: good in its hook.
pub struct ReturnValue<'h> {
    node: Option<&'h Node>,
    range: Result<sys::COR_PRF_FUNCTION_ARGUMENT_RANGE, Unreadable>,
    layout: StringLayout,
}

/// The value of this type in a range.
///
/// # Safety
/// For `'h`, the range is where the runtime has a value of this type, and no collection runs. Strings have this layout.
unsafe fn value<'h>(
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
    /// # Safety
    /// For `'h`, the ranges are where the runtime has the arguments of the function that the plan is of, and no collection
    /// runs. Strings have this layout.
    pub(in crate::hooks) unsafe fn new(plan: &'h Plan, ranges: Ranges<'h>, layout: StringLayout) -> Self {
        let ranges = match (plan.unreadable, ranges) {
            (Some(why), _) => Err(why),
            (None, Ok(ranges)) if ranges.len() != plan.ranges() => Err(Unreadable::Mismatch),
            (None, ranges) => ranges,
        };
        Self { plan, ranges, layout }
    }

    fn value(&self, node: &'h Node, index: usize) -> Value<'h> {
        match self.ranges {
            // SAFETY: by the promise of `new`, this is the place of the value that the node describes: there are as many
            // ranges as values, and in the same order.
            Ok(ranges) => unsafe { value(node, ranges.get(index), self.layout) },
            Err(why) => Value::Unreadable(why),
        }
    }

    /// The object that the method is called on; a [by-ref](Value::ByRef) if that is a struct. None for a static method.
    pub fn this(&self) -> Option<Value<'h>> {
        self.plan.this.as_ref().map(|node| self.value(node, 0))
    }

    /// How many parameters there are, `this` not counted.
    pub fn len(&self) -> usize {
        self.plan.parameters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.plan.parameters.is_empty()
    }

    /// The argument for a parameter, counted from 0 without `this`.
    pub fn get(&self, index: usize) -> Option<Value<'h>> {
        let parameter = self.plan.parameters.get(index)?;
        Some(self.value(&parameter.node, index + usize::from(self.plan.this.is_some())))
    }

    /// The name of a parameter, if the metadata have one.
    pub fn name(&self, index: usize) -> Option<&'h str> {
        self.plan.parameters.get(index)?.name.as_deref()
    }

    /// The arguments in order, without `this`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value<'h>> + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Unreadable(Unreadable::Mismatch)))
    }

    /// Why no argument is told, if none is. Where not even the number of parameters is known, [`len`](Self::len) is 0.
    pub fn unreadable(&self) -> Option<Unreadable> {
        self.ranges.err()
    }
}

impl<'h> ReturnValue<'h> {
    /// # Safety
    /// For `'h`, the range is where the runtime has what the function of the plan returns, and no collection runs. Strings
    /// have this layout.
    pub(in crate::hooks) unsafe fn new(
        plan: &'h Plan,
        range: Result<sys::COR_PRF_FUNCTION_ARGUMENT_RANGE, Unreadable>,
        layout: StringLayout,
    ) -> Self {
        Self { node: plan.result.as_ref(), range, layout }
    }

    /// The value; none if the method returns nothing.
    pub fn get(&self) -> Option<Value<'h>> {
        let node = self.node?;
        Some(match &self.range {
            // SAFETY: by the promise of `new`.
            Ok(range) => unsafe { value(node, Some(range), self.layout) },
            Err(why) => Value::Unreadable(*why),
        })
    }
}

/// In parentheses, as where a method is called.
impl fmt::Display for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (at, value) in self.iter().enumerate() {
            write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
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

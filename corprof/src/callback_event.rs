//! [`CallbackEvent`] as text, for logs: the event, and its arguments by name.

use std::fmt;

use windows_core::GUID as Guid;

use crate::args::{
    ClassCounts, EventPipeEvent, GcReason, Generations, JitCache, MovedRanges, Roots, SurvivingRanges, SuspendReason,
    TransitionReason, WeakTableElements,
};
use crate::context::InNoGc;
use crate::error::Result;
pub use crate::generated::callback_event::CallbackEvent;
use crate::id::{
    AppDomainId, AssemblyId, ClassId, EventPipeProviderId, FunctionId, HandleId, Inert, ModuleId, ObjectId, ReJitId,
    ThreadId,
};
use crate::metadata::MethodDef;

impl CallbackEvent<'_> {
    /// The event as text, with the names of what it is about: `JITInlining(caller: App.Main(), callee: App.Add(int32,
    /// int32))`.
    ///
    /// An object shows its class, a result `ok` or the error, a list its length. What has no name, or none that can be
    /// looked up in this place, shows its number.
    pub fn named<'a>(&'a self, cx: &'a InNoGc<'_>) -> impl fmt::Display + 'a {
        NamedEvent { event: self, cx }
    }
}

struct NamedEvent<'a, 'cb> {
    event: &'a CallbackEvent<'a>,
    cx: &'a InNoGc<'cb>,
}

impl fmt::Display for NamedEvent<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.event.event().name())?;
        let mut arguments = ShownArguments { cx: self.cx, f, count: 0 };
        self.event.show(&mut arguments)?;
        if arguments.count == 0 { Ok(()) } else { f.write_str(")") }
    }
}

/// Arguments while they are written.
pub(crate) struct ShownArguments<'a, 'f> {
    cx: &'a InNoGc<'a>,
    f: &'a mut fmt::Formatter<'f>,
    count: usize,
}

impl ShownArguments<'_, '_> {
    pub(crate) fn add(&mut self, name: &str, argument: &impl Named) -> fmt::Result {
        let separator = if self.count == 0 { "(" } else { ", " };
        self.count += 1;
        write!(self.f, "{separator}{name}: ")?;
        argument.fmt(self.cx, self.f)
    }
}

/// An argument of a callback, as text.
pub(crate) trait Named {
    fn fmt(&self, cx: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

macro_rules! named {
    ($($ty:ty, $value:ident, $cx:pat => $text:expr;)*) => { $(
        impl Named for $ty {
            fn fmt(&self, $cx: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $value = self;
                write!(f, "{}", $text)
            }
        }
    )* };
}

named! {
    AssemblyId, id, cx => cx.names().assembly(*id);
    ModuleId, id, cx => cx.names().module(*id);
    ClassId, id, cx => cx.names().class(*id);
    FunctionId, id, cx => cx.names().function(*id);
    ObjectId<'_>, object, cx => cx.names().class_of(*object);
    AppDomainId, id, _ => format_args!("{id:#x}");
    ThreadId, id, _ => format_args!("{id:#x}");
    HandleId, id, _ => format_args!("{id:#x}");
    EventPipeProviderId<'_>, id, _ => format_args!("{id:#x}");
    ReJitId, id, _ => id.0;
    MethodDef, token, _ => format_args!("{:#x}", token.as_raw());
    bool, value, _ => value;
    u32, value, _ => value;
    usize, value, _ => format_args!("{value:#x}");
    &str, value, _ => value;
    &Guid, value, _ => format_args!("{value:?}");
    &[u8], value, _ => format_args!("{} bytes", value.len());
    &[Option<ObjectId<'_>>], value, _ => format_args!("{} objects", value.iter().flatten().count());
    SuspendReason, value, _ => value;
    TransitionReason, value, _ => value;
    JitCache, value, _ => value;
    GcReason, value, _ => value;
    Generations, value, _ => value;
    MovedRanges<'_>, value, _ => format_args!("{} ranges", value.iter().count());
    SurvivingRanges<'_>, value, _ => format_args!("{} ranges", value.iter().count());
    Roots<'_>, value, _ => format_args!("{} roots", value.iter().count());
    WeakTableElements<'_>, value, _ => format_args!("{} elements", value.iter().count());
}

impl<I: fmt::LowerHex> Named for Inert<I> {
    fn fmt(&self, _: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#x}")
    }
}

impl<T: Named> Named for Option<T> {
    fn fmt(&self, cx: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Some(value) => value.fmt(cx, f),
            None => f.write_str("none"),
        }
    }
}

impl Named for Result<()> {
    fn fmt(&self, _: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ok(()) => f.write_str("ok"),
            Err(error) => write!(f, "{error}"),
        }
    }
}

impl Named for ClassCounts<'_> {
    fn fmt(&self, cx: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (class, count)) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{count} of {}", cx.names().class(class))?;
        }
        Ok(())
    }
}

impl Named for EventPipeEvent<'_> {
    fn fmt(&self, cx: &InNoGc<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(provider) = cx.event_pipe_provider_info(self.provider) else { return write!(f, "event {}", self.id) };
        match self.decoded(&provider).name() {
            name if name.is_empty() => write!(f, "{provider}/{}", self.id),
            name => write!(f, "{provider}/{name}"),
        }
    }
}

//! [`InProbe`]: the context of a probe.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::id::ModuleId;
use crate::info::Info;
use crate::metadata::MethodDef;

/// The context of a [`Probe`](super::Probe) on the calling thread.
///
/// Like the context of a hook ([`InHook`](crate::InHook)) it offers the calls of [`Info`], which the runtime answers
/// everywhere. It names the method; which instantiation of generic code runs is not known.
pub struct InProbe<'h> {
    info: &'h Info,
    module: ModuleId,
    method: MethodDef,
    /// The probe runs on the calling thread only.
    _not_send: PhantomData<*mut ()>,
}

static_assertions::assert_not_impl_any!(InProbe<'static>: Send, Sync, Clone);

impl<'h> InProbe<'h> {
    /// The calling thread is in a probe of the method until this is dropped.
    #[inline]
    pub(super) const fn new(info: &'h Info, module: ModuleId, method: MethodDef) -> Self {
        Self { info, module, method, _not_send: PhantomData }
    }

    /// The module that the method belongs to.
    #[inline]
    pub const fn module(&self) -> ModuleId {
        self.module
    }

    /// The method.
    #[inline]
    pub const fn method(&self) -> MethodDef {
        self.method
    }
}

impl Deref for InProbe<'_> {
    type Target = Info;

    #[inline]
    fn deref(&self) -> &Info {
        self.info
    }
}

impl fmt::Debug for InProbe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProbe({:?}, {:?})", self.module, self.method)
    }
}

//! Values that calls have answered, kept for later calls: random ones stay for ever, so some are of things that have
//! gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corprof::detach::Detacher;
use corprof::edit::CheckedBody;
use corprof::id::{CodeAddress, EventPipeEventId, EventPipeProviderId, EventPipeSessionId, NativeCode};
use corprof::info::{ObjectHandle, RuntimeEvents};
use corprof::instrumentation::{Instrumentation, Rewrite, Selection};
use corprof::metadata::{FieldDef, MethodDef, TypeDef};
use corprof::prelude::*;
use fastrand::Rng;

use super::facts::{Facts, Known};

/// How many of a kind are kept.
const KEPT: usize = 200;

/// Values of one kind. Nothing is called, and nothing dropped, while its lock is held.
pub(super) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps it; once the pool is full, in a random one's place, which is dropped.
    pub(super) fn put(&self, random: &mut Rng, value: T) {
        let mut all = self.lock();
        if all.len() < KEPT {
            return all.push(value);
        }
        let at = random.usize(0..all.len());
        let old = std::mem::replace(&mut all[at], value);
        // To drop it may make a callback, in which this pool is used.
        drop(all);
        drop(old);
    }

    /// Keeps all of them.
    pub(super) fn put_all(&self, random: &mut Rng, values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(|value| self.put(random, value));
    }

    /// A random one, which is no longer kept.
    pub(super) fn take(&self, random: &mut Rng) -> Option<T> {
        let mut all = self.lock();
        let at = (!all.is_empty()).then(|| random.usize(0..all.len()))?;
        Some(all.swap_remove(at))
    }
}

impl<T: Clone> Pool<T> {
    /// A copy of a random one.
    pub(super) fn pick(&self, random: &mut Rng) -> Option<T> {
        let all = self.lock();
        let at = (!all.is_empty()).then(|| random.usize(0..all.len()))?;
        Some(all[at].clone())
    }
}

pub(super) static APP_DOMAINS: Pool<AppDomainId> = Pool::new();
pub(super) static ASSEMBLIES: Pool<AssemblyId> = Pool::new();
pub(super) static MODULES: Pool<ModuleId> = Pool::new();
pub(super) static CLASSES: Pool<ClassId> = Pool::new();
pub(super) static FUNCTIONS: Pool<FunctionId> = Pool::new();
pub(super) static DYNAMIC: Pool<FunctionId> = Pool::new();
pub(super) static THREADS: Pool<ThreadId> = Pool::new();
pub(super) static CODE: Pool<NativeCode> = Pool::new();
pub(super) static ADDRESSES: Pool<CodeAddress> = Pool::new();
pub(super) static METHODS: Pool<(ModuleId, MethodDef)> = Pool::new();
pub(super) static TYPES: Pool<(ModuleId, TypeDef)> = Pool::new();
pub(super) static FIELDS: Pool<FieldDef> = Pool::new();
pub(super) static PROVIDERS: Pool<(EventPipeProviderId<'static>, EventPipeEventId)> = Pool::new();
pub(super) static SESSIONS: Pool<EventPipeSessionId> = Pool::new();
pub(super) static RUNTIME_EVENTS: Pool<RuntimeEvents> = Pool::new();
/// In an `Arc`, so that several threads use one.
pub(super) static HANDLES: Pool<Arc<ObjectHandle>> = Pool::new();
pub(super) static BODIES: Pool<CheckedBody> = Pool::new();
pub(super) static REWRITES: Pool<Rewrite> = Pool::new();
pub(super) static SELECTIONS: Pool<Selection> = Pool::new();
pub(super) static INFOS: Pool<Info> = Pool::new();
pub(super) static INSTRUMENTATION: Pool<Instrumentation> = Pool::new();
pub(super) static DETACHERS: Pool<Detacher> = Pool::new();

/// Random subjects for a row of the matrix, which need not fit each other; none while a kind is still missing.
pub(super) fn facts(random: &mut Rng) -> Option<Facts> {
    let (module, method) = METHODS.pick(random)?;
    let (core_module, class_token) = TYPES.pick(random)?;
    // Half of the time the method's own.
    let [module, core_module] = [module, core_module].map(|own| {
        let other = MODULES.pick(random);
        if random.bool() { own } else { other.unwrap_or(own) }
    });
    let function = FUNCTIONS.pick(random)?;
    let facts = Facts::of(Known {
        app_domain: APP_DOMAINS.pick(random)?,
        assembly: ASSEMBLIES.pick(random)?,
        module,
        core_module,
        class: CLASSES.pick(random)?,
        class_token,
        value_class: CLASSES.pick(random)?,
        program: CLASSES.pick(random)?,
        function,
        method,
        code: CODE.pick(random)?,
        dynamic: DYNAMIC.pick(random).unwrap_or(function),
        thread: THREADS.pick(random)?,
        field: FIELDS.pick(random)?,
        thread_field: FIELDS.pick(random)?,
        rva_class: CLASSES.pick(random)?,
        rva_field: FIELDS.pick(random)?,
        provider: PROVIDERS.pick(random),
        pinned: 0,
    });
    if let Some(handle) = HANDLES.take(random) {
        match Arc::try_unwrap(handle) {
            Ok(handle) => facts.keep_handle(handle),
            Err(shared) => HANDLES.put(random, shared),
        }
    }
    Some(facts)
}

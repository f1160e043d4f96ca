//! The place where a probe's calls arrive: compiled code has its address, and the addresses of the functions here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof_sys as sys;

use super::entries::Entered;
use super::{InProbe, Probe, ProbeKinds};
use crate::error::{E_NOTIMPL, Error};
use crate::id::{ModuleId, ObjectId};
use crate::info::{Info, StringLayout};
use crate::metadata::MethodDef;
use crate::report;
use crate::session::gate::Gate;
use crate::session::panics::{PanicPlace, catch};
use crate::session::thread_slot::Tag;
use crate::values::{Arguments, Plan, ReturnValue, Unreadable};

/// A probe in a method. It is never freed, as nothing says when compiled code is gone.
pub(super) struct Site<P> {
    /// One load away.
    gate: &'static Gate,
    info: &'static Info,
    module: ModuleId,
    method: MethodDef,
    values: Values,
    probe: P,
}

/// What is known about the method's values: found out before its code runs.
pub(in crate::edit) struct Values {
    plan: OnceLock<&'static Plan>,
    layout: StringLayout,
    /// The calls that came before there was a plan.
    missed: AtomicU64,
}

impl Values {
    const fn new(layout: StringLayout) -> Self {
        Self { plan: OnceLock::new(), layout, missed: AtomicU64::new(0) }
    }

    /// Sets the plan of the method.
    pub(in crate::edit) fn set(&self, plan: &'static Plan) {
        let _ = self.plan.set(plan); // only the edit that made the site does
    }

    /// The plan of the method. Without one the probe cannot be called: that is counted and reported.
    #[inline(always)]
    fn plan(&self, module: ModuleId, method: MethodDef) -> Option<&'static Plan> {
        match self.plan.get() {
            Some(plan) => Some(plan),
            None => self.miss(module, method),
        }
    }

    /// No edit that was published leads here.
    #[cold]
    #[inline(never)]
    fn miss(&self, module: ModuleId, method: MethodDef) -> Option<&'static Plan> {
        let missed = self.missed.fetch_add(1, Relaxed) + 1;
        // Often enough to see how many they are, and not at each call.
        if missed.is_power_of_two() {
            report::line(format_args!(
                "the probe of {method:?} in {module:?} has missed {missed} calls so far: its values are not known yet"
            ));
        }
        None
    }
}

/// The error for values that the probe does not want.
fn not_asked(what: &'static str) -> Unreadable {
    Unreadable::NotTold(Error::new(E_NOTIMPL, what).about("values", "`Probe::KINDS` lacks them: add them"))
}

/// A value at an address: its length is that of its type, by construction of the inserted code.
pub(crate) const fn range(address: usize) -> sys::COR_PRF_FUNCTION_ARGUMENT_RANGE {
    sys::COR_PRF_FUNCTION_ARGUMENT_RANGE { startAddress: address, length: u32::MAX }
}

impl<P: Probe> Site<P> {
    /// Makes a site for good.
    pub(super) fn leak(
        info: Info,
        module: ModuleId,
        method: MethodDef,
        layout: StringLayout,
        probe: P,
    ) -> &'static Self {
        let info: &'static Info = Box::leak(Box::new(info));
        let values = Values::new(layout);
        Box::leak(Box::new(Self { gate: &info.profiler().gate, info, module, method, values, probe }))
    }

    pub(super) const fn values(&'static self) -> &'static Values {
        &self.values
    }

    /// The number that compiled code has for it.
    pub(super) fn number(&'static self) -> i64 {
        std::ptr::from_ref(self).expose_provenance() as i64
    }

    /// # Safety
    /// `number` is that of a site of this `P`.
    #[inline(always)]
    unsafe fn of(number: i64) -> &'static Self {
        // SAFETY: the caller's promise; sites are never freed.
        unsafe { &*std::ptr::with_exposed_provenance(number as usize) }
    }

    /// Passes the gate, and calls the user's code under the guard.
    #[inline(always)]
    fn run(&'static self, name: &'static str, user: impl FnOnce(&P, &InProbe<'_>)) {
        let Some(first) = self.gate.enter_first(Tag::STATELESS) else {
            return self.run_nested(name, user);
        };
        catch(|| user(&self.probe, &self.cx()), || self.disable_after_panic(name));
        first.leave();
    }

    /// The same on a thread that is inside already, or new, or has state of hooks.
    #[inline(never)]
    fn run_nested(&'static self, name: &'static str, user: impl FnOnce(&P, &InProbe<'_>)) {
        let Some(_inside) = self.gate.enter() else { return };
        catch(|| user(&self.probe, &self.cx()), || self.disable_after_panic(name));
    }

    #[inline(always)]
    fn cx(&'static self) -> InProbe<'static> {
        InProbe::new(self.info, self.module, self.method)
    }

    #[cold]
    fn disable_after_panic(&'static self, name: &str) {
        self.info.profiler().disable_after_panic(PanicPlace::Method(name));
    }

    /// The method is about to return a value.
    ///
    /// # Safety
    /// Compiled code of the method calls it, without a transition. `site` is the number of a site of this `P`; `place`
    /// is 0, or the address of a local variable of the type that the method returns.
    unsafe extern "C" fn leave(site: i64, place: usize) {
        // SAFETY: the caller's promise.
        let site = unsafe { Self::of(site) };
        site.run("leave", |probe, cx| {
            let Some(plan) = site.values.plan(site.module, site.method) else { return };
            let is_asked = const { P::KINDS.contains(ProbeKinds::RESULT) };
            let range = if is_asked { Ok(range(place)) } else { Err(not_asked("leave")) };
            // SAFETY: as in `enter`, for the result.
            let result = unsafe { ReturnValue::new(plan, range, site.values.layout) };
            probe.leave(cx, &result);
        });
    }

    /// An exception is about to leave the method.
    ///
    /// # Safety
    /// As [`leave`](Self::leave); `place` is the address of a local variable with a reference to an object.
    unsafe extern "C" fn exception(site: i64, place: usize) {
        // SAFETY: the caller's promise.
        let site = unsafe { Self::of(site) };
        site.run("exception", |probe, cx| {
            // SAFETY: the local variable has a reference, or null (fact: inserted-calls).
            let address = unsafe { std::ptr::with_exposed_provenance::<usize>(place).read() };
            // SAFETY: the object does not move during the probe: the thread stays in cooperative mode (fact:
            // inserted-calls).
            probe.exception(cx, unsafe { ObjectId::from_raw(address) });
        });
    }

    /// An exception leaves the method.
    ///
    /// # Safety
    /// As [`leave`](Self::leave).
    unsafe extern "C" fn unwound(site: i64) {
        // SAFETY: the caller's promise.
        let site = unsafe { Self::of(site) };
        site.run("unwound", |probe, cx| probe.unwound(cx));
    }

    /// The function that compiled code calls to leave, with the site and an address.
    pub(super) fn address_of_leave() -> i64 {
        (Self::leave as *const ()).expose_provenance() as i64
    }

    /// The function for an exception, with the site and an address.
    pub(super) fn address_of_exception() -> i64 {
        (Self::exception as *const ()).expose_provenance() as i64
    }

    /// The function for unwinding, with the site.
    pub(super) fn address_of_unwound() -> i64 {
        (Self::unwound as *const ()).expose_provenance() as i64
    }
}

impl<P: Probe> Entered for Site<P> {
    #[inline(always)]
    unsafe fn entered<const N: usize>(site: i64, places: [usize; N]) {
        // SAFETY: the caller's promise.
        let site = unsafe { Self::of(site) };
        site.run("enter", |probe, cx| {
            let Some(plan) = site.values.plan(site.module, site.method) else { return };
            let ranges = places.map(range);
            let is_asked = const { P::KINDS.contains(ProbeKinds::ARGUMENTS) };
            let ranges = if is_asked { Ok(&ranges[..]) } else { Err(not_asked("enter")) };
            // SAFETY: the plan is of this method. Compiled code passes, in the order of the plan, addresses of local
            // variables that have the types of the arguments, or 0. No collection runs: the call makes no transition,
            // and the thread stays in cooperative mode (fact: inserted-calls).
            let args = unsafe { Arguments::new_in_probe(plan, ranges, site.values.layout) };
            probe.enter(cx, &args);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_before_there_is_a_plan_are_counted() {
        let values = Values::new(StringLayout::default());
        let module = ModuleId::from_raw(0x1000).unwrap();
        let method = MethodDef::from_raw(0x0600_0001);
        assert!(values.plan(module, method).is_none());
        assert!(values.plan(module, method).is_none());
        assert_eq!(values.missed.load(Relaxed), 2);
        values.set(Box::leak(Box::default()));
        assert!(values.plan(module, method).is_some());
        assert_eq!(values.missed.load(Relaxed), 2);
    }
}

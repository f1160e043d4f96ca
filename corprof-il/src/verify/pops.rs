//! Takes values off the stack, and checks that they are of the kind that an instruction expects.

use super::Rule;
use super::kind::{Kind, Target};
use super::resolve::{Resolve, WellKnown};
use super::stack::Flowing;

impl<R: Resolve + ?Sized> Flowing<'_, '_, '_, R> {
    pub(super) fn pop_well_known(&mut self, of: WellKnown) {
        let kind = self.facts.types.well_known(of);
        self.pop_kind(kind);
    }

    pub(super) fn pop_address(&mut self) {
        self.pop_where(Kind::is_address, "an address");
    }

    #[inline]
    pub(super) fn pop_kind(&mut self, wanted: Kind) {
        let found = self.pop();
        let wanted = self.facts.types.sized(wanted);
        let fits = match found {
            Kind::Unknown => true,
            // It may be an enumeration.
            Kind::Named(_) => wanted.is_number(),
            Kind::Native => self.facts.types.fits(found, wanted),
            _ => found == wanted,
        };
        if !fits && !self.frame.is_same_reference(found, wanted) {
            let found = self.name(found);
            let wanted = self.name(wanted);
            self.breach(Rule::StackUnexpected, found, wanted);
        }
    }

    #[inline]
    pub(super) fn pop_where(&mut self, fits: impl Fn(Kind) -> bool, expected: &str) {
        self.pop_of(fits, expected);
    }

    #[inline]
    pub(super) fn pop_of(&mut self, fits: impl Fn(Kind) -> bool, expected: &str) -> Kind {
        let found = self.pop();
        if fits(found) {
            return found;
        }
        let name = self.name(found);
        self.breach(Rule::StackUnexpected, name, expected);
        Kind::Unknown
    }

    /// A value of this kind is to be read at the address on top of the stack.
    pub(super) fn reads(&mut self, kind: Kind) {
        let Some(Kind::To(target)) = self.stack.last().copied() else { return };
        if !self.holds(target, kind) {
            let found = self.name(Kind::To(target));
            let expected = self.name(kind.address());
            self.breach(Rule::StackUnexpected, found, expected);
        }
    }

    /// Whether a value of this kind may be read where such a value is. All places may be read as numbers.
    fn holds(&self, target: Target, kind: Kind) -> bool {
        let is_known = match target {
            Target::Reference => return true,
            Target::Number => false,
            Target::Value(held) if self.frame.is_reference(Kind::Value(held)) => return true,
            Target::Value(held) => kind == Kind::Value(held) || kind == Kind::Named(held),
        };
        is_known || !(kind.is_value() || self.frame.is_reference(kind))
    }

    /// Whether the address of such a value may go where one of another is wanted.
    fn stands_for(&self, target: Target, wanted: Target) -> bool {
        let is_any = |target| matches!(target, Target::Value(id) if self.facts.types.is_parameter(id));
        match wanted {
            Target::Number => true,
            Target::Reference => self.holds(target, Kind::Object),
            Target::Value(id) => is_any(target) || is_any(wanted) || self.holds(target, Kind::Value(id)),
        }
    }

    #[inline]
    fn goes_to(&mut self, wanted: Kind, what: &str) {
        let (Some(Kind::To(found)), Kind::To(target)) = (self.stack.last().copied(), wanted) else { return };
        if !self.stands_for(found, target) {
            let found = self.name(Kind::To(found));
            let wanted = self.name(wanted);
            self.breach(Rule::Assignment, found, format!("{wanted} for {what}"));
        }
    }

    #[inline]
    pub(super) fn pop_into(&mut self, wanted: Kind, what: &str) -> Kind {
        self.goes_to(wanted, what);
        let found = self.pop();
        let wanted = self.facts.types.sized(wanted.plain());
        if !self.facts.types.fits(found, wanted) && !self.frame.is_same_reference(found, wanted) {
            let found = self.name(found);
            let wanted = self.name(wanted);
            self.breach(Rule::Assignment, found, format!("{wanted} for {what}"));
        }
        found
    }
}

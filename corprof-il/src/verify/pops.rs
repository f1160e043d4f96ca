//! Takes values off the stack, and checks that they are of the kind that an instruction expects.

use super::Rule;
use super::kind::Kind;
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

    /// A reference is to be read at the address on top of the stack.
    pub(super) fn not_of_a_static_value(&mut self) {
        if self.stack.last() == Some(&Kind::StaticValue) {
            let found = self.name(Kind::StaticValue);
            let expected = self.name(Kind::ToReference);
            self.breach(Rule::StackUnexpected, found, expected);
        }
    }

    #[inline]
    pub(super) fn pop_into(&mut self, wanted: Kind, what: &str) -> Kind {
        if wanted == Kind::ToReference {
            self.not_of_a_static_value();
        }
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

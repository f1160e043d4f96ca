//! The constructors of delegates: the method must fit `Invoke`.
//!
//! Runtimes make a delegate's code out of the two signatures without comparing them: some die of a pair that does not
//! fit when the body is compiled, others when the delegate is called.

use std::rc::Rc;

use super::Rule;
use super::facts::{Facts, Method, arguments};
use super::kind::{Kind, Scope};
use super::resolve::Resolve;
use super::stack::Flowing;
use crate::signature::Type;
use crate::token::{Token, TypeDefOrRef};

impl<R: Resolve + ?Sized> Facts<'_, R> {
    /// `Invoke` of the delegate that has this constructor; `None` if it is not a delegate's, or not known.
    pub(super) fn invoke(&mut self, constructor: Token) -> Option<Rc<Method>> {
        if let Some(known) = self.delegates.get(&constructor) {
            return known.clone();
        }
        let found = self.find_invoke(constructor).map(Rc::new);
        self.delegates.insert(constructor, found.clone());
        found
    }

    fn find_invoke(&mut self, constructor: Token) -> Option<Method> {
        let info = self.resolve.method(constructor)?;
        let (definition, spec) = match info.owner? {
            TypeDefOrRef::Spec(spec) => {
                let spec = self.types.spec(self.resolve, spec.token())?;
                match spec.unmodified() {
                    Type::Generic { definition, .. } => (*definition, Some(Rc::clone(&spec))),
                    Type::Class(definition) => (*definition, None),
                    _ => return None,
                }
            }
            named => (named, None),
        };
        let signature = self.resolve.delegate(definition.token())?;
        let scope = Scope { of_type: arguments(spec.as_deref()), of_method: None };
        Some(self.called(&signature, scope, Kind::Object))
    }
}

impl<R: Resolve + ?Sized> Flowing<'_, '_, '_, R> {
    /// Checks `newobj` with this constructor before its arguments are taken; most are not a delegate's.
    pub(super) fn delegate(&mut self, constructor: Token, method: &Method) {
        let [target, Kind::Native] = *method.parameters else { return };
        if target != Kind::Object {
            return;
        }
        let Some(Kind::Function(function)) = self.stack.last().copied() else {
            // A value of unknown origin stays unknown.
            if matches!(self.stack.last(), Some(Kind::Native | Kind::Mixed)) && self.facts.invoke(constructor).is_some()
            {
                self.breach(Rule::DelegateCtor, "a native int", "the address of a method, by ldftn or ldvirtftn");
            }
            return;
        };
        let Some(invoke) = self.facts.invoke(constructor) else { return };
        let Some(method) = self.facts.method(function) else { return };
        if !self.is_fitting(&invoke, &method) {
            let found = self.describe(&method);
            let expected = self.describe(&invoke);
            self.breach(Rule::DelegateCtor, format!("{function}: {found}"), format!("what fits Invoke: {expected}"));
        }
    }

    /// Whether the delegate can call the method: with the same parameters, or with the target as the first one of a
    /// static method, or with the first argument as the `this` of an instance method.
    fn is_fitting(&self, invoke: &Method, method: &Method) -> bool {
        let given = &*invoke.parameters;
        let taken = &*method.parameters;
        let is_same = |given: &[Kind], taken: &[Kind]| {
            given.len() == taken.len() && given.iter().zip(taken).all(|(given, taken)| self.is_alike(*given, *taken))
        };
        let fits = match (method.has_this, given.split_first(), taken.split_first()) {
            _ if is_same(given, taken) => true,
            (false, _, Some((target, rest))) => self.is_alike(Kind::Object, *target) && is_same(given, rest),
            (true, Some((this, rest)), _) => match method.owner {
                Kind::Object | Kind::Unknown => self.is_alike(*this, method.owner) && is_same(rest, taken),
                _ => self.is_alike(*this, Kind::Ref) && is_same(rest, taken),
            },
            _ => false,
        };
        fits && match (method.returns, invoke.returns) {
            (None, None) => true,
            (Some(returned), Some(wanted)) => self.is_alike(returned, wanted),
            _ => false,
        }
    }

    fn is_alike(&self, a: Kind, b: Kind) -> bool {
        let a = a.plain();
        let b = b.plain();
        let is_named = matches!(a, Kind::Named(_)) || matches!(b, Kind::Named(_));
        let is_unknown = a == Kind::Unknown || b == Kind::Unknown;
        a == b || is_unknown || is_named && a.fits(b) || self.frame.is_same_reference(a, b)
    }

    #[cold]
    fn describe(&self, method: &Method) -> String {
        let parameters: Vec<String> = method.parameters.iter().map(|kind| self.name(*kind)).collect();
        let returns = method.returns.map_or_else(|| "void".into(), |kind| self.name(kind));
        format!("{}{returns} ({})", if method.has_this { "instance " } else { "static " }, parameters.join(", "))
    }
}

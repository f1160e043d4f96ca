//! Edits after which a method does what it did.

use std::hint::black_box;

use corprof::edit::{CallCounter, EditError, InProbe, MethodEdit, Probe};
use corprof::instrumentation::Selector;
use corprof::metadata::signature::{Primitive, Type};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};
use fastrand::Rng;

use super::{act, plan, pools};

static CALLS: CallCounter = CallCounter::new();

#[derive(Clone, Copy, Debug)]
pub(super) enum Edit {
    Nothing,
    Count,
    Probe,
    ProbeEntry,
    Local,
    Text,
    Fail,
    Twice,
}

impl Edit {
    /// One of those that the seed has.
    pub(super) fn any(random: &mut Rng) -> Self {
        const ALL: [(&str, Edit); 8] = [
            ("edited: nothing", Edit::Nothing),
            ("edited: count", Edit::Count),
            ("edited: probe", Edit::Probe),
            ("edited: entry", Edit::ProbeEntry),
            ("edited: local", Edit::Local),
            ("edited: text", Edit::Text),
            ("edited: fail", Edit::Fail),
            ("edited: twice", Edit::Twice),
        ];
        let (name, edit) = ALL[random.usize(0..ALL.len())];
        if plan::current().is_none_or(|plan| plan.has(name)) { edit } else { Self::Nothing }
    }

    pub(super) fn apply(self, open: &mut MethodEdit<'_>) -> Result<(), EditError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Count => open.count_calls(&CALLS),
            Self::Probe => open.probe(Acts),
            Self::ProbeEntry => open.probe_entry(seen),
            Self::Local => open.add_local(Type::Primitive(Primitive::Object)).map(drop),
            // Texts that no application has.
            Self::Text => open.replace_strings("generated", "made up").map(drop),
            Self::Fail => Err(EditError::Other("as planned".to_owned())),
            Self::Twice => {
                open.probe(Acts)?;
                open.count_calls(&CALLS)?;
                open.probe(Acts)
            }
        }
    }
}

fn seen(cx: &InProbe<'_>, arguments: &Arguments<'_>) {
    for value in arguments.this().into_iter().chain(arguments.iter()) {
        black_box(value.to_string());
    }
    act::anywhere(cx, "probe enter");
}

/// Acts wherever a probe is called.
struct Acts;

impl Probe for Acts {
    fn enter(&self, cx: &InProbe<'_>, arguments: &Arguments<'_>) {
        seen(cx, arguments);
    }

    fn leave(&self, cx: &InProbe<'_>, result: &ReturnValue<'_>) {
        black_box(result.get().map(|value| value.to_string()));
        act::anywhere(cx, "probe leave");
    }

    fn exception(&self, cx: &InProbe<'_>, _exception: Option<ObjectId<'_>>) {
        act::anywhere(cx, "probe exception");
    }

    fn unwound(&self, cx: &InProbe<'_>) {
        act::anywhere(cx, "probe unwound");
    }
}

pub(super) fn edit_method(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    let (module, method) = pools::METHODS.pick(random)?;
    let edit = Edit::any(random);
    let body = cx.edit_method(module, method, |open| edit.apply(open)).ok()?;
    let is_set = random.bool() && cx.set_checked_body(&body).is_ok();
    act::remark(format_args!("{} by {edit:?}, set: {is_set}", cx.names().method_def(module, method)));
    pools::BODIES.put(random, body);
    Some(())
}

pub(super) fn edit_once(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    let function = pools::FUNCTIONS.pick(random)?;
    let edit = Edit::any(random);
    let is_set = cx.edit_once(function, |open| edit.apply(open)).is_ok();
    act::remark(format_args!("{} by {edit:?}, set: {is_set}", cx.names().function(function)));
    Some(())
}

/// In the compilation of this function.
pub(super) fn edit_this(cx: &mut InCallback<'_>, function: FunctionId, random: &mut Rng) {
    let edit = Edit::any(random);
    let _ = cx.edit_once(function, |open| edit.apply(open));
}

pub(super) fn rewrite(random: &mut Rng) -> Option<()> {
    let instrumentation = pools::INSTRUMENTATION.pick(random)?;
    let (module, method) = pools::METHODS.pick(random)?;
    let edit = Edit::any(random);
    let rewrite = instrumentation.edit(module, method, move |open| edit.apply(open));
    pools::REWRITES.put(random, rewrite);
    Some(())
}

pub(super) fn rewrite_all(random: &mut Rng) -> Option<()> {
    let instrumentation = pools::INSTRUMENTATION.pick(random)?;
    let methods: Vec<_> = (0..random.usize(1..6)).filter_map(|_| pools::METHODS.pick(random)).collect();
    let edit = Edit::any(random);
    for rewrite in instrumentation.edit_all(methods, move |open| edit.apply(open)) {
        pools::REWRITES.put(random, rewrite);
    }
    Some(())
}

pub(super) fn select(random: &mut Rng) -> Option<()> {
    let instrumentation = pools::INSTRUMENTATION.pick(random)?;
    let assembly = ["Generics", "Throw", "Unloads", "System.Collections", "none"][random.usize(0..5)];
    let edit = Edit::any(random);
    let selection = instrumentation.select(Selector::assembly(assembly), move |open| edit.apply(open));
    pools::SELECTIONS.put(random, selection);
    Some(())
}

//! Edits after which a method does what it did.

use std::hint::black_box;
use std::time::Duration;

use corprof::edit::{CallArgument, CallCounter, EditError, InProbe, MethodEdit, Probe};
use corprof::instrumentation::Selector;
use corprof::metadata::signature::{CallingConvention, MethodSignature, Primitive, Type};
use corprof::metadata::{Constant, MethodDef, TypeDef};
use corprof::prelude::*;
use corprof::values::{Arguments, ReturnValue};
use corprof_il::body::Part;
use fastrand::Rng;

use super::made_up::{define_nonsense, some_type};
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
    Tails,
    Calls,
    Rows,
    Changing,
    Slow,
}

impl Edit {
    /// One of those that the seed has.
    pub(super) fn any(random: &mut Rng) -> Self {
        const ALL: [(&str, Edit); 13] = [
            ("edited: nothing", Edit::Nothing),
            ("edited: count", Edit::Count),
            ("edited: probe", Edit::Probe),
            ("edited: entry", Edit::ProbeEntry),
            ("edited: local", Edit::Local),
            ("edited: text", Edit::Text),
            ("edited: fail", Edit::Fail),
            ("edited: twice", Edit::Twice),
            ("edited: tails", Edit::Tails),
            ("edited: calls", Edit::Calls),
            ("edited: rows", Edit::Rows),
            ("edited: changing", Edit::Changing),
            ("edited: slow", Edit::Slow),
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
            Self::Tails => {
                if !needs_tail_calls(open)? {
                    open.drop_tail_calls();
                }
                open.probe(Acts)
            }
            Self::Calls => calls(open),
            Self::Rows => rows(open),
            // Another edit each time that it runs.
            Self::Changing => match fastrand::u32(..3) {
                0 => open.count_calls(&CALLS),
                1 => open.probe(Acts),
                _ => Err(EditError::Other("as planned".to_owned())),
            },
            Self::Slow => {
                std::thread::sleep(Duration::from_millis(fastrand::u64(..30)));
                open.count_calls(&CALLS)
            }
        }
    }
}

/// Whether the method is of tests/managed/Tails.il: without tail calls it runs out of stack.
fn needs_tail_calls(open: &mut MethodEdit<'_>) -> Result<bool, EditError> {
    let metadata = open.metadata();
    let Some(assembly) = metadata.assembly()? else { return Ok(false) };
    Ok(metadata.assembly_identity(assembly)?.name == "Tails")
}

/// Inserts calls of some methods of the module, and gives up: what they do is the application's.
fn calls(open: &mut MethodEdit<'_>) -> Result<(), EditError> {
    let mut random = Rng::new();
    let classes: Vec<TypeDef> = open.metadata().type_defs()?;
    for _ in 0..4 {
        let class = classes[random.usize(0..classes.len())];
        let methods: Vec<MethodDef> = open.metadata().methods(class)?;
        let instructions: Vec<_> = open.body().iter().map(|(id, _)| id).collect();
        let regions: Vec<_> = open.body().region_ids().collect();
        let Some(&method) = methods.get(random.usize(0..methods.len().max(1))) else { continue };
        let argument = match random.u32(0..3) {
            0 => CallArgument::from(Constant::Null),
            1 => CallArgument::Argument(random.u16(0..4)),
            _ => CallArgument::Local(random.u16(0..4)),
        };
        let arguments = if random.bool() { vec![argument] } else { Vec::new() };
        let place = instructions[random.usize(0..instructions.len())];
        let part = [Part::Tried, Part::Filter, Part::Handler][random.usize(0..3)];
        let _ = match (random.u32(0..4), regions.first()) {
            (0, _) => open.call_after(place, method, &arguments),
            (1, _) => open.call_before_returns(method, &arguments).map(drop),
            (2, Some(&region)) => open.call_before_exits(region, part, method, &arguments).map(drop),
            _ => open.call_before(place, method, &arguments),
        };
    }
    Err(EditError::Other("as planned".to_owned()))
}

/// Defines rows of every kind, which nothing uses, and loads the texts that were there.
fn rows(open: &mut MethodEdit<'_>) -> Result<(), EditError> {
    let mut random = Rng::new();
    let ty = some_type(&mut random, 2);
    let _ = open.type_spec(&ty);
    let assembly = ["System.Runtime", "mscorlib", "System.Private.CoreLib", "none"][random.usize(0..4)];
    if let Ok(class) = open.type_ref(assembly, &format!("System.Generated{}", random.u32(0..9))) {
        let signature = MethodSignature {
            convention: CallingConvention::Default,
            has_this: random.bool(),
            explicit_this: false,
            generic_parameters: 0,
            return_type: some_type(&mut random, 1),
            parameters: vec![some_type(&mut random, 1)],
            sentinel: None,
        };
        let _ = open.signature(&signature);
        if let Ok(method) = open.method_ref(class, "Generated", &signature) {
            let _ = open.method_spec(method, &[some_type(&mut random, 1)]);
        }
    }
    for (id, text) in open.strings()? {
        open.replace_string(id, &text.clone())?;
    }
    if random.u32(0..20) == 0 {
        define_nonsense(&mut random, open.emit());
    }
    Ok(())
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
    let is_set = cx.edit_once(function, |open| edit.apply(open)).is_ok();
    act::remark(format_args!("{} as it is compiled by {edit:?}, set: {is_set}", cx.names().function(function)));
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
    let selector = match random.u32(0..8) {
        0 => Selector::class("Generics").in_assembly(assembly),
        1 => Selector::method("Throw", "Main"),
        _ => Selector::assembly(assembly),
    };
    let selection = instrumentation.select(selector, move |open| edit.apply(open));
    pools::SELECTIONS.put(random, selection);
    Some(())
}

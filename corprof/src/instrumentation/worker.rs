//! The thread of the instrumentation: prepares bodies, then makes one request for all that are ready.
//!
//! One thread prepares. Two would take half the time for that: 0.5 instead of 1.1 s of processor time each for the
//! 41,569 methods of the core library (.NET 10). But with many modules most of the time goes to the request, which is
//! one call: 56 % for a third of the methods of all 160 modules of .NET; and an application that starts needs the
//! processor.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::edit::{CheckedBody, EditError, EditLookups, PreparedEdit};
use crate::error::{Error, Result};
use crate::id::ModuleId;
use crate::metadata::MethodDef;
use crate::profiler_thread::ProfilerThread;
use crate::session::liveness::Lifeline;
use crate::session::panics::catch;
use crate::values::Types;

use super::fitness::{Fit, Unfit, recompiles_suspended};
use super::outcome::{Rewrite, State};
use super::queue::{Client, Command, Edit, Leave};
use super::selector::{Selection, Selector};
use super::shared_state::{Shared, take_module};
use crate::session::MethodKey as Key;

pub(super) struct Worker<'s> {
    shared: &'s Arc<Shared>,
    methods: BTreeMap<Key, Method>,
    selections: Vec<Selected>,
    /// What is dropped at the end of a round: the user's code.
    gone: Vec<Client>,
    gone_edits: Vec<Edit>,
}

/// A method with clients.
struct Method {
    module: ModuleId,
    method: MethodDef,
    lifeline: Lifeline,
    /// In the order in which they have asked.
    clients: Vec<Client>,
    /// The clients whose edits are in the requested body, and the round of the first request.
    requested: Option<(Vec<Arc<State>>, u64)>,
}

/// A selector, and where it has looked.
struct Selected {
    selector: Selector,
    edit: Edit,
    selection: Selection,
    modules: BTreeSet<usize>,
}

/// What one round is to do.
#[derive(Default)]
struct Round {
    /// The methods whose clients have changed.
    changed: BTreeSet<Key>,
    /// Those that are left by their last client for a new compilation of their own body.
    restored: BTreeSet<Key>,
    /// The clients that leave.
    leaving: Vec<Arc<State>>,
}

/// A method that is to get a body.
struct Ready<B> {
    key: Key,
    lifeline: Lifeline,
    /// None: the method's own.
    body: Option<B>,
    states: Vec<Arc<State>>,
}

impl<B> Ready<B> {
    fn method(&self) -> Option<(ModuleId, MethodDef)> {
        named(self.key)
    }
}

fn named((module, method): Key) -> Option<(ModuleId, MethodDef)> {
    Some((ModuleId::from_raw(module)?, MethodDef::from_raw(method)))
}

impl<'s> Worker<'s> {
    /// The thread, from start to end.
    pub(super) fn run(shared: &'s Arc<Shared>, cx: &mut ProfilerThread<'_>) {
        let mut worker =
            Self { shared, methods: BTreeMap::new(), selections: Vec::new(), gone: Vec::new(), gone_edits: Vec::new() };
        let end = catch_unwind(AssertUnwindSafe(|| worker.work(cx)));
        let rest = shared.close();
        for (_, method) in std::mem::take(&mut worker.methods) {
            worker.gone.extend(method.clients);
        }
        worker.gone.iter().for_each(|client| client.state.stopped());
        rest.iter().for_each(Command::stopped);
        worker.gone_edits.extend(worker.selections.drain(..).map(|selected| selected.edit));
        let is_sound = discard(rest) & worker.discard_gone();
        shared.nudge();
        if let Err(payload) = end {
            resume_unwind(payload);
        }
        assert!(is_sound, "an edit panicked when it was dropped");
    }

    fn work(&mut self, cx: &mut ProfilerThread<'_>) {
        while let Some(commands) = self.shared.take() {
            let count = commands.len() as u64;
            let number = self.shared.request_table().begin_round();
            let mut round = Round::default();
            for command in commands {
                self.apply(cx, command, &mut round);
            }
            self.carry_out(cx, number, round);
            let is_sound = self.discard_gone();
            self.shared.done(count);
            assert!(is_sound, "an edit panicked when it was dropped");
        }
    }

    /// Drops edits, each by itself: the user's code may panic there. Returns whether none has.
    fn discard_gone(&mut self) -> bool {
        discard(std::mem::take(&mut self.gone)) & discard(std::mem::take(&mut self.gone_edits))
    }

    /// The loaded modules; once the attach is complete, if it was an attach.
    fn listed(&self, cx: &mut ProfilerThread<'_>) -> Vec<ModuleId> {
        const PAUSE: Duration = Duration::from_millis(1);
        let runtime = cx.info();
        while runtime.liveness().may_miss_unloads(runtime.runtime()) && cx.wait(PAUSE).is_continue() {}
        cx.enum_modules().unwrap_or_default()
    }

    fn apply(&mut self, cx: &mut ProfilerThread<'_>, command: Command, round: &mut Round) {
        match command {
            Command::Edit(lifeline, client) => self.add(lifeline, client, round),
            Command::Select(selector, edit, selection) => {
                let mut selected = Selected { selector, edit, selection, modules: BTreeSet::new() };
                // Before the runtime has started it lists none: they are reported when they are loaded.
                for module in self.listed(cx) {
                    self.select_in(cx, module, &mut selected, round);
                }
                self.selections.push(selected);
            }
            Command::ModuleLoaded(module) => {
                let Some(module) = ModuleId::from_raw(module) else { return };
                let mut selections = std::mem::take(&mut self.selections);
                selections.iter_mut().for_each(|selected| self.select_in(cx, module, selected, round));
                self.selections = selections;
            }
            Command::ModuleGone(module) => {
                self.selections.iter_mut().for_each(|selected| _ = selected.modules.remove(&module));
                for (key, method) in take_module(&mut self.methods, module) {
                    round.changed.remove(&key);
                    method.clients.iter().for_each(|client| client.state.unloaded());
                    self.gone.extend(method.clients);
                }
            }
            Command::Leave(state, how) => self.leave(&state, how, round),
            Command::LeaveAll(selection, how) => {
                let ended = self.selections.extract_if(.., |known| known.selection.is_same(&selection));
                self.gone_edits.extend(ended.map(|ended| ended.edit));
                selection.rewrites().iter().for_each(|rewrite| self.leave(&rewrite.state, how, round));
            }
            Command::Replace(old, lifeline, client) => {
                let key = key(&old);
                let method = self.methods.get_mut(&key);
                let known =
                    method.and_then(|method| method.clients.iter_mut().find(|known| Arc::ptr_eq(&known.state, &old)));
                match known {
                    Some(known) => {
                        self.gone.push(std::mem::replace(known, client));
                        round.changed.insert(key);
                    }
                    None => self.add(lifeline, client, round),
                }
                old.superseded();
            }
        }
    }

    fn add(&mut self, lifeline: Option<Lifeline>, client: Client, round: &mut Round) {
        let Some(lifeline) = lifeline else {
            client.state.unloaded();
            self.gone.push(client);
            return;
        };
        let module = client.state.module;
        let method = client.state.method;
        let key = key(&client.state);
        let new = || Method { module, method, lifeline, clients: Vec::new(), requested: None };
        self.methods.entry(key).or_insert_with(new).clients.push(client);
        round.changed.insert(key);
    }

    fn select_in(&mut self, cx: &ProfilerThread<'_>, module: ModuleId, selected: &mut Selected, round: &mut Round) {
        // A module without metadata, or one that goes, has nothing to select.
        let Ok(methods) = selected.selector.find(cx, module) else { return };
        // A module may be listed and be reported as well.
        if !selected.modules.insert(module.as_raw()) {
            return;
        }
        for method in methods {
            let state = Arc::new(State::new(module, method));
            selected.selection.add(Rewrite::new(Arc::clone(self.shared), Arc::clone(&state)));
            let client = Client { state, edit: Arc::clone(&selected.edit) };
            self.add(self.shared.lifeline(module), client, round);
        }
    }

    fn leave(&mut self, state: &Arc<State>, how: Leave, round: &mut Round) {
        let key = key(state);
        let Some(method) = self.methods.get_mut(&key) else { return };
        let Some(at) = method.clients.iter().position(|client| Arc::ptr_eq(&client.state, state)) else { return };
        self.gone.push(method.clients.remove(at));
        round.changed.insert(key);
        state.leaving();
        round.leaving.push(Arc::clone(state));
        match how {
            Leave::Restore => round.restored.insert(key),
            Leave::Revert => round.restored.remove(&key),
        };
    }

    /// Prepares what has changed, then requests it.
    fn carry_out(&mut self, cx: &mut ProfilerThread<'_>, number: u64, round: Round) {
        let mut ready = Vec::new();
        let mut reverted = Vec::new();
        let lookups = cx.look_up_for_edits();
        let recompiles_suspended = recompiles_suspended(cx);
        for (module, keys) in by_module(&round.changed) {
            let fit = Fit::new(cx, module, recompiles_suspended);
            for key in keys {
                // The application is ending, and may wait for this thread.
                if cx.is_stopping() {
                    return;
                }
                let Some(method) = self.methods.get_mut(&key) else { continue };
                if !method.clients.is_empty() {
                    let composed = method.compose(cx, &lookups, fit.as_ref().map_err(|unfit| *unfit), &mut self.gone);
                    let states: Vec<_> = method.clients.iter().map(|client| Arc::clone(&client.state)).collect();
                    let is_old = method.requested.as_ref().is_some_and(|(old, _)| is_same(old, &states));
                    if let Some(body) = composed.filter(|_| !is_old) {
                        ready.push(Ready { key, lifeline: method.lifeline.clone(), body: Some(body), states });
                    }
                } else if method.requested.is_some() && round.restored.contains(&key) {
                    ready.push(Ready { key, lifeline: method.lifeline.clone(), body: None, states: Vec::new() });
                }
                if method.clients.is_empty() {
                    // It was in effect, or all its clients have failed.
                    if let Some(method) = self.methods.remove(&key)
                        && method.requested.is_some()
                        && !round.restored.contains(&key)
                    {
                        reverted.push((key, method.lifeline));
                    }
                }
            }
        }
        let ready = self.publish(cx, ready);
        self.request(cx, number, &ready);
        self.revert(cx, reverted, &round.leaving);
        round.leaving.iter().for_each(|state| state.reverted());
    }

    /// The bodies that the runtime may have. Those whose rows of metadata it refuses are left out, and their clients
    /// told.
    fn publish(&mut self, cx: &mut ProfilerThread<'_>, all: Vec<Ready<PreparedEdit>>) -> Vec<Ready<CheckedBody>> {
        let mut prepared = Vec::new();
        let mut others = Vec::new();
        for Ready { key, lifeline, body, states } in all {
            others.push((body.is_some(), Ready { key, lifeline, body: None, states }));
            prepared.extend(body);
        }
        let mut published = PreparedEdit::publish_all(prepared, cx, Types::MayLoad).into_iter();
        let mut ready = Vec::new();
        for (has_body, method) in others {
            let body = if has_body { published.next() } else { None };
            match body {
                None => ready.push(method),
                Some(Ok(body)) => ready.push(Ready { body: Some(body), ..method }),
                Some(Err(error)) => self.refuse(&method, error),
            }
        }
        ready
    }

    /// The runtime has refused the rows of a method's new body.
    fn refuse(&mut self, refused: &Ready<CheckedBody>, error: Error) {
        refused.states.iter().for_each(|state| state.refused(EditError::Runtime(error)));
        // What was requested before stays in effect.
        let Some(method) = self.methods.get_mut(&refused.key) else { return };
        let is_refused = |client: &mut Client| client.state.outcome().is_final();
        self.gone.extend(method.clients.extract_if(.., is_refused));
        if method.clients.is_empty() && method.requested.is_none() {
            self.methods.remove(&refused.key);
        }
    }

    /// One request for all bodies.
    fn request(&mut self, cx: &mut ProfilerThread<'_>, number: u64, ready: &[Ready<CheckedBody>]) {
        cx.wait_for_attach();
        // Their modules stay loaded until the request is made.
        let held: Vec<_> = ready.iter().map(|ready| ready.lifeline.pin("RequestReJIT")).collect();
        let alive = || ready.iter().zip(&held).filter(|(_, held)| held.is_ok()).map(|(ready, _)| ready);
        let now = Instant::now();
        {
            let mut request_table = self.shared.request_table();
            alive().for_each(|ready| request_table.request(ready.key, ready.body.clone(), ready.states.clone(), now));
        }
        let methods: Vec<_> = alive().filter_map(Ready::method).collect();
        if methods.is_empty() {
            return;
        }
        let error = make_request(cx, &methods).err();
        for ready in alive() {
            match (error, self.methods.get_mut(&ready.key)) {
                (None, Some(method)) => {
                    let since = method.requested.as_ref().map_or(number, |(_, since)| *since);
                    method.requested = Some((ready.states.clone(), since));
                }
                (None, None) => {}
                (Some(error), _) => ready.states.iter().for_each(|state| state.failed(error)),
            }
        }
        self.shared.nudge();
    }

    /// Takes back the methods without clients, and the callers that were recompiled for them.
    fn revert(&self, cx: &mut ProfilerThread<'_>, mut reverted: Vec<(Key, Lifeline)>, leaving: &[Arc<State>]) {
        if reverted.is_empty() {
            return;
        }
        let own = reverted.len();
        let requested = self.methods.values().filter_map(|method| method.requested.as_ref());
        let oldest = requested.map(|(_, since)| *since).min();
        reverted.extend(self.shared.request_table().take_callers(oldest));
        let held: Vec<_> = reverted.iter().map(|(_, lifeline)| lifeline.pin("RequestRevert")).collect();
        let alive = || reverted.iter().zip(&held).enumerate().filter(|(_, (_, held))| held.is_ok());
        let methods: Vec<_> = alive().filter_map(|(_, ((key, _), _))| named(*key)).collect();
        if methods.is_empty() {
            return;
        }
        let answers = match cx.request_revert(&methods) {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); methods.len()],
        };
        for ((at, ((key, _), _)), answer) in alive().zip(answers) {
            match answer {
                Err(error) if at < own => {
                    leaving.iter().filter(|state| self::key(state) == *key).for_each(|state| state.failed(error));
                }
                _ => self.shared.request_table().reverted(*key),
            }
        }
    }
}

fn make_request(cx: &mut ProfilerThread<'_>, methods: &[(ModuleId, MethodDef)]) -> Result<()> {
    // Asked for callers as well: a caller that is instrumented would otherwise be compiled from the body that it was
    // loaded with.
    match cx.request_rejit_with_inliners(methods, true) {
        // Then nothing is inlined anywhere.
        Err(error) if error.code() == sys::CORPROF_E_REJIT_INLINING_DISABLED => cx.request_rejit(methods),
        answer => answer,
    }
}

impl Method {
    /// The body with the edits of all clients. Those that fail are told, and leave.
    fn compose(
        &mut self,
        cx: &ProfilerThread<'_>,
        lookups: &EditLookups,
        fit: std::result::Result<&Fit<'_>, Unfit>,
        gone: &mut Vec<Client>,
    ) -> Option<PreparedEdit> {
        let module = self.module;
        let method = self.method;
        // The number of the client whose edit is running.
        let running = Cell::new(None);
        let edit = |clients: &[&Client]| {
            running.set(None);
            fit?.check(method)?;
            cx.prepare_edit(lookups, module, method, |edit| {
                for (number, client) in clients.iter().enumerate() {
                    running.set(Some(number));
                    (client.edit)(edit)?;
                }
                running.set(None);
                Ok(())
            })
        };
        let tell = |client: &Client, error| match self.lifeline.pin("edit_method") {
            Ok(_) => client.state.refused(error),
            Err(_) => client.state.unloaded(),
        };
        let mut all: Vec<&Client> = self.clients.iter().collect();
        let mut best = None;
        while !all.is_empty() && !cx.is_stopping() {
            match (edit(&all), running.get(), all.as_slice()) {
                (Ok(body), ..) => {
                    best = Some(body);
                    break;
                }
                // It has returned an error by itself: the others go on without it.
                (Err(error), Some(number), _) if number < all.len() => tell(all.remove(number), error),
                (Err(error), _, [only]) => {
                    tell(only, error);
                    break;
                }
                // All are done, and the result is wrong: one by one, each with those before it that have not failed.
                (Err(_), ..) => {
                    let mut kept = Vec::new();
                    for client in all {
                        if cx.is_stopping() {
                            break;
                        }
                        kept.push(client);
                        match edit(&kept) {
                            Ok(body) => best = Some(body),
                            Err(error) => {
                                kept.pop();
                                tell(client, error);
                            }
                        }
                    }
                    break;
                }
            }
        }
        let has_failed = |client: &mut Client| client.state.outcome().is_final();
        gone.extend(self.clients.extract_if(.., has_failed));
        best
    }
}

fn key(state: &State) -> Key {
    (state.module.as_raw(), state.method.as_raw())
}

/// The changed methods by their module.
fn by_module(changed: &BTreeSet<Key>) -> Vec<(ModuleId, Vec<Key>)> {
    let by_module = changed.iter().copied().collect::<Vec<_>>();
    let by_module = by_module.chunk_by(|(one, _), (other, _)| one == other);
    by_module.filter_map(|keys| Some((ModuleId::from_raw(keys.first()?.0)?, keys.to_vec()))).collect()
}

fn is_same(old: &[Arc<State>], new: &[Arc<State>]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| Arc::ptr_eq(old, new))
}

/// Drops the user's code, each by itself: it may panic. Returns whether none has.
fn discard<T>(items: Vec<T>) -> bool {
    let mut is_sound = true;
    items.into_iter().for_each(|item| _ = catch(|| drop(item), || is_sound = false));
    is_sound
}

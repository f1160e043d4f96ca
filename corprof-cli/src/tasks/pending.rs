//! Which pending tasks await which: by the references of a snapshot and the fields of its tasks.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use corprof_heap::{HeapGraph, ObjectId};

use super::names;
use crate::async_trace::Await;
use crate::heap::inside::{Code, TaskFields};

/// Bits of `Task.m_stateFlags`: it has run to completion, was canceled, or has failed.
const COMPLETED: u32 = 0x100_0000 | 0x40_0000 | 0x20_0000;
/// As far as objects between a task and those that await it are followed.
const DEPTH: usize = 5;
/// The most methods of a chain that is read: a chain of a damaged heap may be endless.
const MOST_FRAMES: usize = 10_000;

/// A task that has not ended.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) object: ObjectId,
    /// The methods that go on when it goes on, the innermost first. None for what is not an async method.
    pub(super) methods: Vec<Method>,
    /// The pending tasks that await it, and those that it awaits, by their places in the list.
    pub(super) awaiters: Vec<usize>,
    pub(super) awaits: Vec<usize>,
    /// Whether a thread stands still until it ends.
    pub(super) blocks_thread: bool,
    /// Whether it is code to run, and not a promise.
    pub(super) is_work: bool,
}

/// A suspended method.
#[derive(Debug, Clone)]
pub(super) struct Method {
    /// As the runtime names it.
    pub(super) name: String,
    pub(super) place: Option<AwaitPlace>,
}

/// Where a method awaits: the module, the token of the method, and which of its awaits it is.
pub(super) type AwaitPlace = (PathBuf, u32, Await);

/// The pending tasks of a heap, by their addresses.
pub(super) fn pending(graph: &HeapGraph, fields: &TaskFields) -> Vec<Pending> {
    let mut states: Vec<_> = fields.tasks.iter().filter(|(_, state)| state.flags & COMPLETED == 0).collect();
    states.sort_unstable_by_key(|(address, _)| **address);
    let mut all: Vec<Pending> = Vec::new();
    let mut continuations = Vec::new();
    for (address, state) in states {
        let Some(object) = graph.object_at(*address) else { continue };
        let class = graph.class_name(object);
        let methods = match names::state_machine(class) {
            Some(name) => vec![Method { name, place: machine_place(fields, *address, class) }],
            None => suspended(fields, state.state),
        };
        // Other classes have an action besides what they stand for.
        let is_work = state.action != 0 && names::of(graph.class_name(object), names::PROMISE);
        all.push(Pending { object, methods, awaiters: Vec::new(), awaits: Vec::new(), blocks_thread: false, is_work });
        continuations.push(state.continuation);
    }
    let places: HashMap<ObjectId, usize> = all.iter().enumerate().map(|(place, task)| (task.object, place)).collect();
    for (place, continuation) in continuations.into_iter().enumerate() {
        let Some(start) = graph.object_at(continuation) else { continue };
        let (awaiters, blocks_thread) = awaiters(graph, fields, &places, start);
        for awaiter in awaiters.iter().filter(|awaiter| **awaiter != place) {
            if let Some(awaiter) = all.get_mut(*awaiter) {
                awaiter.awaits.push(place);
            }
        }
        if let Some(task) = all.get_mut(place) {
            task.awaiters = awaiters;
            task.awaiters.retain(|awaiter| *awaiter != place);
            task.blocks_thread = blocks_thread;
        }
    }
    all
}

/// Where the method awaits whose state machine this task has.
fn machine_place(fields: &TaskFields, task: u64, class: &str) -> Option<AwaitPlace> {
    let (module, token) = fields.machines.get(class)?.as_ref()?;
    // Others are of a method that runs, or has ended.
    let state = fields.states.get(&task).copied().filter(|state| *state >= 0)?;
    Some((module.clone(), *token, Await::State(state)))
}

/// The methods that the runtime itself has suspended, from the innermost one on.
fn suspended(fields: &TaskFields, mut address: u64) -> Vec<Method> {
    let mut methods = Vec::new();
    for _ in 0..MOST_FRAMES {
        let Some(continuation) = fields.continuations.get(&address) else { break };
        // Continuations of the runtime have no method.
        if continuation.address != 0 {
            methods.push(match fields.code.get(&continuation.address) {
                Some(Code { name, place }) => {
                    let place = place.as_ref();
                    let place = place.map(|(module, token, offset)| (module.clone(), *token, Await::Offset(*offset)));
                    Method { name: name.clone(), place }
                }
                None => Method { name: names::UNKNOWN.to_owned(), place: None },
            });
        }
        address = continuation.next;
    }
    methods
}

/// The pending tasks that a continuation leads to, and whether it wakes a thread.
fn awaiters(
    graph: &HeapGraph,
    fields: &TaskFields,
    places: &HashMap<ObjectId, usize>,
    start: ObjectId,
) -> (Vec<usize>, bool) {
    let mut found = Vec::new();
    let mut wakes = false;
    let mut seen = HashSet::from([start]);
    let mut next = vec![start];
    for _ in 0..DEPTH {
        for object in std::mem::take(&mut next) {
            if let Some(place) = places.get(&object) {
                found.push(*place);
                continue;
            }
            let class = graph.class_name(object);
            wakes |= names::wakes_thread(class);
            // Of a task that has ended nobody goes on.
            if fields.tasks.contains_key(&graph.address(object)) || !names::leads_to_awaiter(class) {
                continue;
            }
            next.extend(graph.references(object).filter(|target| seen.insert(*target)));
        }
    }
    found.sort_unstable();
    (found, wakes)
}

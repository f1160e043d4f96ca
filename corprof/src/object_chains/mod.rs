//! Chains of objects that begin on the stacks of waiting threads: who awaits the async method in which a thread hangs.
//!
//! A hook sees a chain when it begins ([`Links`](crate::values::Links)). A profiler that attaches later has missed
//! that: [`Round::object_chains`] finds the first object by a pointer that a method of its own has on the stack, and
//! follows one field of each object.
//!
//! On Linux. Only of threads that wait: what a running thread has on its stack changes at any time.
//!
//! # How it is safe and sound
//!
//! The system reads the memory for it, so a wrong address is an error and not a fault. What was read is kept as
//! evidence, and compared while the runtime is suspended: no object moves meanwhile. Only a chain that is still there
//! counts, of a thread that has not run in between. If two objects might be the first one, neither is.
//!
//! An old pointer may lead to what was an object once, and from there anywhere. So the runtime is asked about a class
//! only if the memory has a description of one there (`classes.rs`), at the moment of that comparison.

mod classes;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::{E_FAIL, Error, Result};
use crate::id::ClassId;
use crate::profiler_thread::ProfilerThread;
use crate::runtime_layout::memory::{Evidence, number, word, words};
use crate::sampler::{Round, Sample};
use crate::system;
use crate::values::reference_offset;
use crate::walk::stack_writer::SampledFrame;
use crate::walk::suspended::Suspender;

use classes::Classes;

/// How much of a stack is looked through, in words.
const STACK_WORDS: usize = 0x8000;
/// How many objects a chain has at most.
const MOST_OBJECTS: usize = 256;
/// How often the memory is compared at most: once for each class that is met for the first time.
const MOST_COMPARISONS: usize = 64;
/// How often a chain is looked for that was not found, or had changed.
const ATTEMPTS: u32 = 5;
/// The time between two attempts to suspend the runtime.
const PAUSE: Duration = Duration::from_millis(20);
/// How far the description of a class refers to that of the class whose code it shares, in words.
const CLASS_WORDS: usize = 12;

/// Where a chain begins.
#[derive(Clone, Copy)]
pub struct ChainStart<'r> {
    /// The stack.
    pub sample: Sample<'r>,
    /// The index of the frame that has a pointer into the first object.
    pub frame: usize,
    /// The index of the outermost frame that may have one.
    pub outermost: usize,
    /// The class of the object or its base class, or the one whose code it shares.
    pub class: ClassId,
    /// How far behind the beginning of the object the pointer leads, in bytes.
    pub offset: usize,
    /// How far behind the beginning of the object a 32-bit number is that tells it from others of its class, and this
    /// number.
    pub mark: (usize, u32),
}

/// The objects of a chain, by what was learned of their classes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectChain<K> {
    /// The first object first.
    pub objects: Vec<K>,
}

/// What is known of a class: what its objects are, and where they have the reference that leads on.
type Known<K> = HashMap<usize, (K, Option<usize>)>;

/// A chain before it is compared.
struct Found<K> {
    start: usize,
    os_id: u32,
    runs: Option<u64>,
    evidence: Evidence,
    objects: Vec<K>,
    /// The class at which it does not go on yet.
    unknown: Option<usize>,
}

impl<'r> Round<'r, '_> {
    /// The chains that begin at these places, now; none for a place where no object or more than one is found, or whose
    /// thread runs. `learn` says what the objects of a class are and which field leads on, a reference of the class or
    /// a base class.
    ///
    /// It suspends the runtime once for each class that is met for the first time, for some microseconds for each
    /// chain.
    ///
    /// # Errors
    /// If the runtime cannot be suspended, or this thread has become a managed one.
    pub fn object_chains<K: Clone>(
        &mut self,
        starts: &[ChainStart<'r>],
        mut learn: impl FnMut(&InNoGc<'_>, ClassId) -> (K, Option<&'static str>),
    ) -> Result<Vec<Option<ObjectChain<K>>>> {
        let mut chains: Vec<Option<ObjectChain<K>>> = starts.iter().map(|_| None).collect();
        let mut failures = vec![0; starts.len()];
        let mut known = Known::new();
        let mut changes = None;
        let Some(mut classes) = Classes::learn(self.cx(), starts.iter().map(|start| start.class)) else {
            return Ok(chains);
        };
        for _ in 0..MOST_COMPARISONS {
            // A class that is asked for below must not be unloaded before that.
            let now = Some(self.cx().liveness().changes());
            if now != changes {
                changes = now;
                known.clear();
                classes.take_modules(self.cx_mut())?;
            }
            let look_up = self.cx().liveness().look_up();
            if Some(self.cx().liveness().changes()) != changes {
                continue;
            }
            let mut all_found = Vec::new();
            for (index, start) in starts.iter().enumerate() {
                if chains[index].is_some() || failures[index] == ATTEMPTS {
                    continue;
                }
                match find(index, start, &known, &classes) {
                    Some(found) => all_found.push(found),
                    None => failures[index] += 1,
                }
            }
            let claims = all_found.iter().map(|found| Claim::new(&found.evidence, found.os_id, found.runs));
            let stay = match compare(self.cx(), &claims.collect::<Vec<_>>()) {
                Err(error) if error.code() == sys::CORPROF_E_SUSPENSION_IN_PROGRESS => {
                    drop(look_up);
                    let _ = self.cx_mut().wait(PAUSE); // for a collection
                    continue;
                }
                stay => stay?,
            };
            let mut met = Vec::new();
            for (found, stays) in all_found.into_iter().zip(stay) {
                match found.unknown {
                    _ if !stays => failures[found.start] += 1,
                    None => chains[found.start] = Some(ObjectChain { objects: found.objects }),
                    Some(class) => match self.cx().class(class) {
                        Some(id) => met.push((class, id)),
                        None => failures[found.start] += 1,
                    },
                }
            }
            // No unloading waits for the profiler's own code: an id of what is gone is refused.
            drop(look_up);
            for (class, id) in met {
                let (kind, field) = learn(self.cx(), id);
                let offset = field.and_then(|field| reference_offset(self.cx_mut(), id, &[field]).ok());
                known.insert(class, (kind, offset));
            }
            let is_done = |index: usize| chains[index].is_some() || failures[index] == ATTEMPTS;
            if (0..starts.len()).all(is_done) {
                break;
            }
        }
        Ok(chains)
    }
}

/// Finds the first object, and follows the chain as far as its classes are known.
fn find<K: Clone>(index: usize, start: &ChainStart<'_>, known: &Known<K>, classes: &Classes) -> Option<Found<K>> {
    let os_id = start.sample.thread().os_id?;
    let runs = runs(os_id);
    let stack_pointer = system::stack_pointer(os_id).filter(|pointer| *pointer != 0)?;
    let stack = words(stack_pointer, STACK_WORDS);
    let (from, to) = part_of(&stack, start.sample.frames(), start.frame, start.outermost)?;
    let mut evidence = Evidence::default();
    let address = |place: usize| stack_pointer + place * size_of::<usize>();
    let first = first_object(start, stack.get(from..to)?, classes)?;
    for place in [from, to, from + first.place] {
        if evidence.word(address(place))? != *stack.get(place)? {
            return None;
        }
    }
    let (mark_offset, mark) = start.mark;
    if evidence.number(first.object.checked_add(mark_offset)?)? != mark {
        return None;
    }
    let mut objects = Vec::new();
    let mut unknown = None;
    let mut object = first.object;
    while objects.len() < MOST_OBJECTS && object != 0 {
        let class = evidence.word(object)?;
        let Some((kind, offset)) = known.get(&class) else {
            if !classes.has(class, &mut evidence) {
                return None;
            }
            unknown = Some(class);
            break;
        };
        objects.push(kind.clone());
        let Some(offset) = offset else { break };
        object = evidence.word(object.checked_add(*offset)?)?;
    }
    Some(Found { start: index, os_id, runs, evidence, objects, unknown })
}

/// The part of a stack from the return address in one frame to that in the caller of another one, in words.
fn part_of(stack: &[usize], frames: &[SampledFrame], first: usize, last: usize) -> Option<(usize, usize)> {
    let mut from = None;
    let mut place = 0;
    for (index, frame) in frames.get(..last.checked_add(2)?)?.iter().enumerate() {
        if frame.function.is_none() {
            continue;
        }
        // A frame's address is where its callee returns to, which the call has put on the stack.
        let found = stack.get(place..)?.iter().position(|word| *word == frame.ip);
        let Some(found) = found else {
            // The innermost frames may have called nothing.
            if index < first {
                continue;
            }
            return None;
        };
        place += found + 1;
        if index == first {
            from = Some(place - 1);
        }
    }
    frames.get(last.checked_add(1)?)?.function?;
    Some((from?, place - 1))
}

/// The first object of a chain, and the place of a pointer to it in the part of the stack.
struct FirstObject {
    place: usize,
    object: usize,
}

/// The only object there of this class with this mark.
fn first_object(start: &ChainStart<'_>, stack: &[usize], classes: &Classes) -> Option<FirstObject> {
    let mut objects = BTreeMap::new();
    for (place, pointer) in stack.iter().enumerate() {
        let Some(object) = pointer.checked_sub(start.offset).filter(|object| object.is_multiple_of(8)) else {
            continue;
        };
        let (mark_offset, mark) = start.mark;
        if object.checked_add(mark_offset).and_then(number) != Some(mark) {
            continue;
        }
        let Some(class) = word(object) else { continue };
        // A frame tells the class that declares its method.
        let mut with_base = [Some(class), classes.base(class)].into_iter().flatten();
        if with_base.any(|class| has_code_of(class, start.class)) {
            objects.insert(object, place);
        }
    }
    let (object, place) = objects.pop_first()?;
    objects.is_empty().then_some(FirstObject { place, object })
}

/// Whether this is the class, or one that shares its code: the description of the latter has its address, marked by the
/// lowest bit (.NET 10 and 11; on 8 no such class is found).
fn has_code_of(class: usize, of: ClassId) -> bool {
    class == of.as_raw() || (class.is_multiple_of(8) && words_of_class(class).contains(&(of.as_raw() | 1)))
}

fn words_of_class(class: usize) -> Vec<usize> {
    (0..CLASS_WORDS).map_while(|index| word(class.checked_add(index * size_of::<usize>())?)).collect()
}

/// What is said of a thread, and what it rests on.
pub(crate) struct Claim<'e> {
    evidence: &'e Evidence,
    os_id: u32,
    runs: Option<u64>,
}

impl<'e> Claim<'e> {
    /// Of a thread that had run so often.
    pub(crate) fn new(evidence: &'e Evidence, os_id: u32, runs: Option<u64>) -> Self {
        Self { evidence, os_id, runs }
    }
}

/// Compares all that was found with the memory, at one moment. Says of each claim whether it still holds.
pub(crate) fn compare(cx: &ProfilerThread<'_>, claims: &[Claim<'_>]) -> Result<Vec<bool>> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    // A managed thread would wait for itself (suspension rule 1).
    if cx.current_thread()?.is_some() {
        return Err(Error::new(E_FAIL, "SuspendRuntime").about("thread", "it has run managed code: ask on another one"));
    }
    let mut stay = vec![false; claims.len()];
    let mut suspender = Suspender::new(cx)?;
    let suspension = suspender.suspend(&mut 0).map_err(|code| Error::new(code, "SuspendRuntime"))?;
    for (stays, claim) in stay.iter_mut().zip(claims) {
        *stays = claim.evidence.holds();
    }
    if let Some(code) = suspension.end() {
        return Err(Error::new(code, "ResumeRuntime"));
    }
    for (stays, claim) in stay.iter_mut().zip(claims) {
        *stays &= claim.runs.is_some() && runs(claim.os_id) == claim.runs;
    }
    Ok(stay)
}

/// A number that grows whenever the thread runs; none if the system has none.
pub(crate) fn runs(os_id: u32) -> Option<u64> {
    system::run_count(os_id).or_else(|| Some(system::scheduling(os_id)?.waits))
}

#[cfg(test)]
mod tests {
    use crate::id::FunctionId;

    use super::*;

    fn frame(ip: usize, function: usize) -> SampledFrame {
        SampledFrame { function: FunctionId::from_raw(function), ip }
    }

    #[test]
    fn the_part_of_a_frame_is_between_its_return_address_and_that_of_the_caller() {
        let frames = [frame(0x10, 1), frame(0x20, 2), frame(0x30, 3)];
        let stack = [7, 0x10, 7, 0x20, 7, 7, 0x30, 7];
        assert_eq!(part_of(&stack, &frames, 1, 1), Some((3, 6)));
        assert_eq!(part_of(&stack, &frames, 0, 1), Some((1, 6)));
        assert_eq!(part_of(&stack[..5], &frames, 1, 1), None, "the caller is not there");
    }

    #[test]
    fn places_that_are_made_up_are_none() {
        let frames = [frame(0x10, 1), frame(0x20, 2)];
        for place in [1, 2, usize::MAX - 1, usize::MAX] {
            assert_eq!(part_of(&[0x10, 0x20], &frames, place, place), None);
            assert_eq!(part_of(&[0x10, 0x20], &frames, usize::MAX, place), None);
        }
    }
}

//! Which methods must have been inlined between two frames, by the calls in their IL alone.
//!
//! A method is certain if every way from the statement of the caller to the callee leads through it. A call whose
//! target the IL does not say (virtual, by a delegate, by a pointer) may lead anywhere.

use std::collections::HashSet;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

/// How many methods a search visits. What needs more may lead anywhere.
const MOST_VISITED: usize = 64;

/// What a call calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<K> {
    /// This method, and no other.
    Method(K),
    /// Perhaps any.
    Unknown,
}

/// A call in the IL of a method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<K> {
    /// Its offset in the IL.
    pub(super) offset: u32,
    /// The number of its block: code without a branch into or out of its middle.
    pub(super) block: u32,
    /// Whether a loop begins or ends with this block: the compiler may copy it.
    pub(super) is_of_loop: bool,
    pub(super) target: Target<K>,
    /// Whether the method may end with it, so that the compiler may make it a jump.
    pub(super) is_tail: bool,
}

/// The calls in the IL of a method.
#[derive(Clone, Debug)]
pub(super) struct MethodCalls<K> {
    /// In order of their offsets.
    pub(super) calls: Vec<Call<K>>,
    /// Whether the compiler may inline it.
    pub(super) may_be_inlined: bool,
    /// Whether it may be called by the name of another method.
    pub(super) is_virtual: bool,
    /// The offsets behind stores to variables.
    pub(super) after_stores: Vec<u32>,
}

impl<K> Default for MethodCalls<K> {
    /// Those of a method without IL.
    fn default() -> Self {
        Self { calls: Vec::new(), may_be_inlined: false, is_virtual: false, after_stores: Vec::new() }
    }
}

/// Knows the calls of methods.
pub(super) trait Bodies<K> {
    fn calls(&mut self, method: K) -> Arc<MethodCalls<K>>;
}

/// Two frames, one next to the other.
pub(super) struct Frames<'a, K> {
    /// The calls of the caller.
    pub(super) caller: &'a MethodCalls<K>,
    /// Where the return address is in the caller's IL.
    pub(super) statement: Range<u32>,
    pub(super) callee: K,
    /// Whether the machine code of the caller calls the callee itself. Otherwise a method between them may have called
    /// the callee by a jump, and have had a frame of its own before that.
    pub(super) is_direct: bool,
}

/// How a method leads to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// It does not.
    No,
    /// It calls what the IL does not say.
    Perhaps,
    /// By calls whose targets the IL says.
    Yes,
}

/// The methods that must have been inlined between two frames, the outermost first.
pub(super) fn inlined_between<K: Copy + Eq + Hash>(bodies: &mut impl Bodies<K>, frames: &Frames<'_, K>) -> Vec<K> {
    let callee = frames.callee;
    let calls = &frames.caller.calls;
    let mut search = Search { bodies, callee, is_direct: frames.is_direct };
    // Where the whole method has one way, it does not matter which statement runs.
    if let Some(chain) = search.chain(calls.clone()).filter(|chain| !chain.is_empty()) {
        return chain;
    }
    let (in_statement, elsewhere): (Vec<Call<K>>, Vec<Call<K>>) =
        calls.iter().partition(|call| frames.statement.contains(&call.offset));
    let Some(chain) = search.chain(in_statement.clone()) else { return Vec::new() };
    let Some(outermost) = chain.first().copied() else { return Vec::new() };
    // The compiler copies blocks (the condition of a loop before the loop) and merges equal ends of blocks. Its map then
    // takes a call for one of another statement.
    let is_virtual = search.bodies.calls(callee).is_virtual;
    let blocks: HashSet<u32> = in_statement.iter().map(|call| call.block).collect();
    let is_called_elsewhere = elsewhere.iter().filter(|call| !blocks.contains(&call.block)).any(|call| {
        let Target::Method(method) = call.target else { return is_virtual || call.is_of_loop };
        method == callee || method != outermost && search.way(method) == Way::Yes
    });
    if is_called_elsewhere { Vec::new() } else { chain }
}

struct Search<'a, K, B> {
    bodies: &'a mut B,
    callee: K,
    is_direct: bool,
}

impl<K: Copy + Eq + Hash, B: Bodies<K>> Search<'_, K, B> {
    /// The methods through which every way from these calls to the callee leads; none if that is not certain.
    fn chain(&mut self, in_statement: Vec<Call<K>>) -> Option<Vec<K>> {
        let mut chain: Vec<K> = Vec::new();
        let mut calls = in_statement;
        loop {
            let is_callee = |call: &Call<K>| call.target == Target::Method(self.callee);
            let (direct, others): (Vec<Call<K>>, Vec<Call<K>>) = calls.into_iter().partition(is_callee);
            let leading = self.leading(&others);
            if !direct.is_empty() {
                let is_only_way = leading.is_some_and(|leading| leading.is_empty());
                let may_be_a_jump = direct.iter().any(|call| call.is_tail);
                return Some(chain).filter(|_| self.is_direct || is_only_way && !may_be_a_jump);
            }
            let next = match leading.as_deref() {
                Some([(next, Way::Yes)]) if !chain.contains(next) => *next,
                // What is certain so far is so if no method can have ended with a jump.
                _ => return Some(chain).filter(|_| self.is_direct),
            };
            let body = self.bodies.calls(next);
            if !body.may_be_inlined {
                return None;
            }
            chain.push(next);
            calls = body.calls.clone();
        }
    }

    /// The methods of these calls that lead to the callee; none if a call may lead anywhere.
    fn leading(&mut self, calls: &[Call<K>]) -> Option<Vec<(K, Way)>> {
        let mut leading: Vec<(K, Way)> = Vec::new();
        for call in calls {
            let Target::Method(method) = call.target else { return None };
            if leading.iter().any(|(known, _)| *known == method) {
                continue;
            }
            let way = self.way(method);
            if way != Way::No {
                leading.push((method, way));
            }
        }
        Some(leading)
    }

    /// How a method leads to the callee from inside its caller.
    fn way(&mut self, method: K) -> Way {
        let mut visited = HashSet::new();
        let mut next = vec![method];
        let mut way = Way::No;
        while let Some(method) = next.pop() {
            if !visited.insert(method) {
                continue;
            }
            if visited.len() > MOST_VISITED {
                return way.max(Way::Perhaps);
            }
            let body = self.bodies.calls(method);
            // One that is not inlined has a frame, unless it has ended with a jump.
            if self.is_direct && !body.may_be_inlined {
                continue;
            }
            for call in &body.calls {
                match call.target {
                    Target::Unknown => way = Way::Perhaps,
                    Target::Method(called) if called == self.callee => return Way::Yes,
                    Target::Method(called) => next.push(called),
                }
            }
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Methods by number, each with the methods that it calls; 0 stands for a call that the IL does not say.
    struct Program(HashMap<u32, MethodCalls<u32>>);

    const UNKNOWN: u32 = 0;
    /// The caller, and the callee with a frame.
    const CALLER: u32 = 1;
    const LEAF: u32 = 9;

    /// The calls to these methods, each in a statement of its own, ten bytes apart; the last one is not a tail call.
    fn calling(methods: &[u32]) -> MethodCalls<u32> {
        let target = |method: u32| if method == UNKNOWN { Target::Unknown } else { Target::Method(method) };
        let call = |(at, method): (u32, &u32)| Call {
            offset: at * 10,
            block: at,
            is_of_loop: false,
            target: target(*method),
            is_tail: false,
        };
        let calls = (0..).zip(methods).map(call).collect();
        MethodCalls { calls, may_be_inlined: true, ..MethodCalls::default() }
    }

    impl Program {
        fn of(methods: &[(u32, &[u32])]) -> Self {
            Self(methods.iter().map(|(method, calls)| (*method, calling(calls))).collect())
        }

        fn change(mut self, method: u32, change: impl FnOnce(&mut MethodCalls<u32>)) -> Self {
            change(self.0.entry(method).or_default());
            self
        }

        /// The same for calls from some statements, the last one not included.
        fn in_statements(&mut self, statements: Range<u32>, is_direct: bool) -> Vec<u32> {
            let caller = self.calls(CALLER);
            let statement = statements.start * 10..statements.end * 10;
            inlined_between(self, &Frames { caller: &caller, statement, callee: LEAF, is_direct })
        }

        /// What is inlined between the caller, in its first statement, and the leaf.
        fn inlined(mut self) -> Vec<u32> {
            self.in_statements(0..1, true)
        }
    }

    impl Bodies<u32> for Program {
        fn calls(&mut self, method: u32) -> Arc<MethodCalls<u32>> {
            Arc::new(self.0.get(&method).cloned().unwrap_or_default())
        }
    }

    #[test]
    fn the_only_way_is_shown_to_the_end() {
        assert_eq!(Program::of(&[(CALLER, &[2]), (2, &[LEAF])]).inlined(), [2]);
        assert_eq!(Program::of(&[(CALLER, &[2]), (2, &[3]), (3, &[LEAF])]).inlined(), [2, 3]);
        // A method that calls others besides, which lead nowhere.
        assert_eq!(Program::of(&[(CALLER, &[2]), (2, &[4, 3]), (3, &[LEAF]), (4, &[5]), (5, &[])]).inlined(), [2, 3]);
    }

    #[test]
    fn a_call_that_has_a_frame_hides_nothing() {
        assert!(Program::of(&[(CALLER, &[LEAF])]).inlined().is_empty());
        assert!(Program::of(&[(CALLER, &[])]).inlined().is_empty());
        // The callee is called by something that the IL does not show.
        assert!(Program::of(&[(CALLER, &[2]), (2, &[3]), (3, &[])]).inlined().is_empty());
    }

    #[test]
    fn what_may_lead_anywhere_is_not_guessed() {
        assert!(Program::of(&[(CALLER, &[UNKNOWN])]).inlined().is_empty());
        // Another call of the statement.
        let mut both = Program::of(&[(CALLER, &[2, UNKNOWN]), (2, &[LEAF])]);
        assert!(both.in_statements(0..2, true).is_empty());
        assert_eq!(both.in_statements(0..1, true), [2]);
        // The method that is certain may call anything, but it leads to the callee by itself as well.
        assert_eq!(Program::of(&[(CALLER, &[2]), (2, &[UNKNOWN, 3]), (3, &[LEAF])]).inlined(), [2]);
        assert!(Program::of(&[(CALLER, &[2]), (2, &[UNKNOWN])]).inlined().is_empty());
    }

    #[test]
    fn of_two_ways_what_they_share_is_certain() {
        let mut two = Program::of(&[(CALLER, &[2, 3]), (2, &[LEAF]), (3, &[LEAF])]);
        assert!(two.in_statements(0..2, true).is_empty());
        assert_eq!(Program::of(&[(CALLER, &[2]), (2, &[3, 4]), (3, &[LEAF]), (4, &[LEAF])]).inlined(), [2]);
        assert_eq!(Program::of(&[(CALLER, &[2]), (2, &[LEAF, 4]), (4, &[LEAF])]).inlined(), [2]);
    }

    #[test]
    fn a_method_that_is_never_inlined_is_no_way() {
        let kept = |program: Program| program.change(3, |calls| calls.may_be_inlined = false);
        let mut two = kept(Program::of(&[(CALLER, &[2, 3]), (2, &[LEAF]), (3, &[LEAF])]).in_one_block());
        assert_eq!(two.in_statements(0..2, true), [2]);
        assert!(kept(Program::of(&[(CALLER, &[3]), (3, &[LEAF])])).inlined().is_empty());
    }

    #[test]
    fn equal_code_of_another_block_may_be_merged() {
        let mut two = Program::of(&[(CALLER, &[2, LEAF]), (2, &[LEAF])]);
        assert!(two.in_statements(0..1, true).is_empty());
        let mut two = Program::of(&[(CALLER, &[2, 3]), (2, &[LEAF]), (3, &[LEAF])]);
        assert!(two.in_statements(0..1, true).is_empty());
        // The same method in both is the same answer; and blocks do not merge with themselves.
        assert_eq!(Program::of(&[(CALLER, &[2, 2]), (2, &[LEAF])]).inlined(), [2]);
        assert_eq!(Program::of(&[(CALLER, &[2, LEAF]), (2, &[LEAF])]).in_one_block().inlined(), [2]);
    }

    #[test]
    fn where_the_whole_method_has_one_way_the_statement_does_not_matter() {
        let mut program = Program::of(&[(CALLER, &[4, 2]), (2, &[LEAF]), (4, &[])]);
        assert_eq!(program.in_statements(0..1, true), [2]);
        let mut program = Program::of(&[(CALLER, &[4, 2, UNKNOWN]), (2, &[LEAF]), (4, &[])]);
        assert!(program.in_statements(0..1, true).is_empty());
        assert_eq!(program.in_statements(1..2, true), [2]);
        // What is not said may be the callee itself, if that is virtual.
        let mut program = program.change(LEAF, |calls| calls.is_virtual = true);
        assert!(program.in_statements(1..2, true).is_empty());
        assert_eq!(program.in_one_block().in_statements(1..2, true), [2]);
        // And a copy of the code of a loop may lie behind another statement.
        let mut program = Program::of(&[(CALLER, &[2, UNKNOWN]), (2, &[LEAF])])
            .change(CALLER, |calls| calls.calls.iter_mut().for_each(|call| call.is_of_loop = true));
        assert!(program.in_statements(0..1, true).is_empty());
    }

    #[test]
    fn a_jump_leaves_no_frame_either() {
        let tail =
            |program: Program| program.change(2, |calls| calls.calls.iter_mut().for_each(|call| call.is_tail = true));
        let mut program = Program::of(&[(CALLER, &[2]), (2, &[LEAF])]);
        assert_eq!(program.in_statements(0..1, false), [2]);
        let mut program = tail(program);
        assert!(program.in_statements(0..1, false).is_empty());
        assert_eq!(program.in_statements(0..1, true), [2]);
        // A method that is not inlined may have jumped.
        let mut program = Program::of(&[(CALLER, &[2, 3]), (2, &[LEAF]), (3, &[LEAF])])
            .in_one_block()
            .change(3, |calls| calls.may_be_inlined = false);
        assert!(program.in_statements(0..2, false).is_empty());
    }

    #[test]
    fn recursion_and_large_programs_end() {
        assert!(Program::of(&[(CALLER, &[2]), (2, &[2])]).inlined().is_empty());
        assert!(Program::of(&[(CALLER, &[2]), (2, &[3]), (3, &[2])]).inlined().is_empty());
        let many: Vec<(u32, Vec<u32>)> = (10..2000).map(|method| (method, vec![method + 1])).collect();
        let mut methods: Vec<(u32, &[u32])> = many.iter().map(|(method, calls)| (*method, calls.as_slice())).collect();
        methods.extend([(CALLER, &[2, 10][..]), (2, &[LEAF][..])]);
        assert!(Program::of(&methods).in_one_block().in_statements(0..2, true).is_empty());
    }

    impl Program {
        /// Puts all calls of the caller into one block.
        fn in_one_block(self) -> Self {
            self.change(CALLER, |calls| calls.calls.iter_mut().for_each(|call| call.block = 0))
        }
    }
}

//! The data of pictures: labels and kinds of frames, and one tree of all threads.

use rustc_hash::FxHashMap;

use crate::about::Mode;
use crate::label::{self, Machine};
use crate::names::{clipped, machines};
use crate::{Frame, FrameId, FrameKind, Profile, folded};

/// Levels that are drawn.
const DEEPEST: u32 = 1_000;

/// How a frame is shown.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) label: String,
    /// The label where there is less room, and where there is hardly any.
    pub(crate) shorter: [String; 2],
    pub(crate) kind: FrameKind,
}

/// The look of each frame, by its number.
pub(crate) fn looks(profile: &Profile) -> Vec<Look> {
    if profile.has_raw_names {
        return raw_looks(profile);
    }
    let machines = machines(profile);
    let frames = (0u32..).map(FrameId).take(profile.frames.len());
    frames
        .map(|id| {
            let frame = profile.frame_of(id);
            let name = clipped(frame.name);
            let is_native = matches!(frame.kind, FrameKind::Native | FrameKind::Runtime);
            let label = match is_native {
                true => label::native(name),
                false => label::managed(name, machines.get(&id).copied().unwrap_or(Machine::Async)),
            };
            let label = if label.trim().is_empty() { "[no name]".to_owned() } else { label };
            let brief = if is_native { label.clone() } else { label::brief(&label) };
            let method = if is_native { label.clone() } else { label::method(&brief) };
            let label = match place(&frame) {
                // The place distinguishes the lambdas of a method.
                Some(place) if label.contains('λ') => format!("{label} ({place})"),
                _ => label,
            };
            Look { label, shorter: [brief, method], kind: profile.kind_of(&frame) }
        })
        .collect()
}

/// The look of each frame by the runtime's names.
fn raw_looks(profile: &Profile) -> Vec<Look> {
    let frames = (0u32..).map(FrameId).take(profile.frames.len());
    let look = |id| {
        let frame = profile.frame_of(id);
        let label = clipped(frame.name).trim();
        let label = if label.is_empty() { "[no name]".to_owned() } else { label.to_owned() };
        Look { shorter: [label.clone(), label.clone()], label, kind: profile.kind_of(&frame) }
    };
    frames.map(look).collect()
}

/// `Program.cs:41`, if that is known.
fn place(frame: &Frame<'_>) -> Option<String> {
    let file = frame.file?.rsplit(['/', '\\']).next().filter(|file| !file.is_empty())?;
    (frame.line > 0).then(|| format!("{file}:{}", frame.line))
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Frame(FrameId),
    /// A stack without frames.
    NoFrames,
    /// Stacks in which there is no code of the user's.
    OtherCode,
    /// The levels below the deepest one.
    Deeper,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) item: Item,
    /// The caller's place, which is less than its own; none for roots.
    pub(crate) caller: Option<usize>,
    /// 0 for roots.
    pub(crate) depth: u32,
    /// The weight of it and of all that it calls.
    pub(crate) total: u128,
}

/// A tree of calls.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) nodes: Vec<Node>,
    pub(crate) total: u128,
    /// The hidden part: threads of the runtime and of frameworks that only wait.
    pub(crate) idle: u128,
}

/// How the name of a dynamic method begins.
const DYNAMIC: &str = "<dynamic method ";

/// The position of a stack in the tree, and its properties.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    node: Option<usize>,
    /// The innermost node of the user's code.
    mine: Option<usize>,
    has_mine: bool,
    /// Whether it is there for the user's code: it has some, or a dynamic method.
    is_for_mine: bool,
    /// The outermost frame waits: a profiler has put the stacks of waiting threads under a separate root.
    is_under_waits: bool,
    /// That, or the innermost managed frame waits.
    is_waiting: bool,
}

impl View {
    /// The profile as pictures show it: without idle threads, if it is of wall-clock time; with user code only, if so
    /// asked.
    pub(crate) fn new(profile: &Profile, looks: &[Look]) -> Self {
        let mut view = Self::default();
        let mut known = FxHashMap::default();
        let mut places: Vec<Place> = Vec::with_capacity(profile.stacks.len());
        for &(caller, frame) in &profile.stacks {
            let caller = places.get(caller.0 as usize).copied().unwrap_or_default();
            let place = view.place(profile, looks, caller, frame, &mut known);
            places.push(place);
        }
        let hides_idle = profile.about.mode == Some(Mode::Wall);
        for (stack, weight) in folded::sums(profile) {
            let weight = u128::from(weight);
            let place = places.get(stack.0 as usize).copied().unwrap_or_default();
            if hides_idle && place.is_waiting && !place.is_for_mine {
                view.idle += weight;
                continue;
            }
            view.total += weight;
            let node = match place.node {
                Some(node) => node,
                None => view.child(None, Item::NoFrames, &mut known),
            };
            if let Some(node) = view.nodes.get_mut(node) {
                node.total += weight;
            }
        }
        for index in (0..view.nodes.len()).rev() {
            let (total, caller) = view.nodes.get(index).map_or((0, None), |node| (node.total, node.caller));
            if let Some(caller) = caller.and_then(|caller| view.nodes.get_mut(caller)) {
                caller.total += total;
            }
        }
        view
    }

    fn place(
        &mut self,
        profile: &Profile,
        looks: &[Look],
        caller: Place,
        frame: FrameId,
        known: &mut FxHashMap<(Option<usize>, Item), usize>,
    ) -> Place {
        let kind = looks.get(frame.0 as usize).map_or(FrameKind::Native, |look| look.kind);
        let is_mine = kind == FrameKind::User;
        let has_mine = caller.has_mine || is_mine;
        // Frameworks make methods that call the user's code, which may be inlined into them.
        let is_for_mine = caller.is_for_mine || is_mine || profile.frame_of(frame).name.starts_with(DYNAMIC);
        let is_under_waits = caller.is_under_waits || (kind == FrameKind::Wait && caller.node.is_none());
        let is_waiting = match kind {
            FrameKind::Wait => true,
            FrameKind::Native | FrameKind::Runtime => caller.is_waiting,
            _ => is_under_waits,
        };
        let node = match (profile.is_only_my_code, is_mine) {
            (false, _) => self.child(caller.node, Item::Frame(frame), known),
            (true, true) if self.is_kickoff(looks, caller.mine, frame) => caller.mine.unwrap_or_default(),
            (true, true) => self.child(caller.mine, Item::Frame(frame), known),
            // A direct callee of user code is shown, and represents all its callees.
            (true, false) if caller.has_mine && caller.node == caller.mine => {
                self.child(caller.mine, Item::Frame(frame), known)
            }
            (true, false) if caller.has_mine => caller.node.unwrap_or_default(),
            (true, false) => self.child(None, Item::OtherCode, known),
        };
        let mine = if is_mine { Some(node) } else { caller.mine };
        Place { node: Some(node), mine, has_mine, is_for_mine, is_under_waits, is_waiting }
    }

    /// Whether `frame` is the body of the async method that has just called it.
    fn is_kickoff(&self, looks: &[Look], caller: Option<usize>, frame: FrameId) -> bool {
        let label = |frame: FrameId| looks.get(frame.0 as usize).map_or("", |look| &look.label);
        let Some(Node { item: Item::Frame(caller), .. }) = caller.and_then(|caller| self.nodes.get(caller)) else {
            return false;
        };
        label(frame).strip_suffix(" (async)").is_some_and(|method| method == label(*caller))
    }

    fn child(
        &mut self,
        caller: Option<usize>,
        item: Item,
        known: &mut FxHashMap<(Option<usize>, Item), usize>,
    ) -> usize {
        let parent = caller.and_then(|caller| self.nodes.get(caller));
        if let (Some(Node { item: Item::Deeper, .. }), Some(caller)) = (parent, caller) {
            return caller;
        }
        let depth = parent.map_or(0, |parent| parent.depth + 1);
        let item = if depth < DEEPEST { item } else { Item::Deeper };
        *known.entry((caller, item)).or_insert_with(|| {
            self.nodes.push(Node { item, caller, depth, total: 0 });
            self.nodes.len() - 1
        })
    }

    /// The share of threads that only wait, which are not in the tree.
    pub(crate) fn idle_share(&self) -> f64 {
        let all = self.total + self.idle;
        if all == 0 { 0.0 } else { self.idle as f64 / all as f64 }
    }
}

/// The text of a label as a picture may show it: nothing that ends a line, hides, or turns the direction of writing.
pub(crate) fn visible(text: &str) -> String {
    let is_bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_bad(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Unit;

    fn profile(stacks: &[(&[&str], u64)]) -> Profile {
        let mut profile = Profile::new("app", Unit::Samples);
        let thread = profile.thread(1, "main");
        for (names, weight) in stacks {
            let frames: Vec<_> = names.iter().map(|name| profile.frame(Frame::managed(name))).collect();
            let stack = profile.stack_root_first(frames);
            profile.sample(thread, Duration::ZERO, stack, *weight);
        }
        profile
    }

    /// Each node's path with its weight.
    fn paths(profile: &Profile) -> Vec<(String, u128)> {
        let looks = looks(profile);
        let view = View::new(profile, &looks);
        let mut paths: Vec<(String, u128)> = Vec::new();
        for node in &view.nodes {
            let label = match node.item {
                Item::Frame(frame) => looks[frame.0 as usize].label.clone(),
                other => format!("{other:?}"),
            };
            let path = node.caller.map_or(label.clone(), |caller| format!("{} > {label}", paths[caller].0));
            paths.push((path, node.total));
        }
        paths.retain(|(_, total)| *total > 0);
        paths
    }

    const REQUEST: [&str; 5] = [
        "System.Threading.Thread.StartCallback()",
        "Shop.Api.GetAsync()",
        "System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start<T>(T&)",
        "Shop.Api+<GetAsync>d__1.MoveNext()",
        "System.Linq.Enumerable.ToList<T>(System.Collections.Generic.IEnumerable<T>)",
    ];

    #[test]
    fn only_my_code_keeps_what_it_calls_and_folds_the_rest() {
        let deeper = [&REQUEST[..], &["System.Linq.Enumerable.Fill()", "Shop.Api+<Items>d__2.MoveNext()"]].concat();
        let framework = ["System.Threading.Thread.StartCallback()", "System.GC.Collect()"];
        let profile = profile(&[(&REQUEST, 5), (&deeper, 2), (&framework, 3)]).only_my_code();
        assert_eq!(
            paths(&profile),
            [
                ("OtherCode".to_owned(), 3),
                ("Api.GetAsync".to_owned(), 7),
                ("Api.GetAsync > Enumerable.ToList<T>".to_owned(), 5),
                ("Api.GetAsync > Api.Items (iterator)".to_owned(), 2),
            ]
        );
    }

    #[test]
    fn threads_that_only_wait_are_left_out_of_wall_time() {
        let idle =
            ["System.Threading.Thread.StartCallback()", "System.Threading.LowLevelLifoSemaphore.WaitForSignal()"];
        let waits = ["Shop.Program.Main()", "System.Threading.Thread.Sleep(int32)"];
        // An endpoint that was inlined into what the framework has made to call it.
        let blocked = ["System.Threading.Thread.StartCallback()", "<dynamic method lambda_method7>", waits[1]];
        let waiting = || profile(&[(&idle, 9), (&waits, 1), (&blocked, 1)]);
        let wall = waiting().in_mode(Mode::Wall);
        assert_eq!(
            paths(&wall).iter().filter(|(path, _)| !path.contains('>')).map(|(_, total)| total).sum::<u128>(),
            2
        );
        assert!((View::new(&wall, &looks(&wall)).idle_share() - 9.0 / 11.0).abs() < 1e-9);
        // Who asks for waits, or for processor time, sees all.
        for all in [waiting(), waiting().in_mode(Mode::Cpu)] {
            assert_eq!(View::new(&all, &looks(&all)).total, 11);
        }
    }

    #[test]
    fn lambdas_say_where_they_are_and_methods_need_not() {
        let mut profile = Profile::new("app", Unit::Samples);
        for name in ["Shop.Program+<>c.<Main>b__0_0(int)", "Shop.Program.Main()"] {
            profile.frame(Frame::managed(name).at("/src/Program.cs", 41));
        }
        let labels: Vec<_> = looks(&profile).into_iter().map(|look| (look.label, look.shorter)).collect();
        let expected = |label: &str, brief: &str, method: &str| (label.into(), [brief.into(), method.into()]);
        assert_eq!(
            labels,
            [
                expected("Program.Main λ (Program.cs:41)", "Program.Main λ", "Main λ"),
                expected("Program.Main", "Program.Main", "Main"),
            ]
        );
    }

    #[test]
    fn who_calls_a_state_machine_tells_what_it_is() {
        let called_by = |caller: &str| {
            let profile = profile(&[(&[caller, "Shop.Api+<Items>d__2.MoveNext()"], 1)]);
            looks(&profile).pop().map(|look| look.label).unwrap_or_default()
        };
        assert_eq!(called_by("System.Linq.Enumerable.Count()"), "Api.Items (iterator)");
        assert_eq!(called_by("Shop.Api.Items()"), "Api.Items (async)");
        let builder = "System.Runtime.CompilerServices.AsyncIteratorMethodBuilder.MoveNext<T>(T&)";
        assert_eq!(called_by(builder), "Api.Items (async iterator)");
        let resumed = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<X>+AsyncStateMachineBox<Y>.MoveNext()";
        assert_eq!(called_by(resumed), "Api.Items (async)");
        // As ASP.NET calls endpoints, by methods that the runtime suspends itself.
        let factory =
            "Microsoft.AspNetCore.Http.RequestDelegateFactory.<ExecuteTaskOfTFast>g__ExecuteAwaited|0<int>(int)";
        for awaits in [factory, "Shop.Api.LoadAsync(int)", "Shop.Api.LoadAsync<string>()"] {
            assert_eq!(called_by(awaits), "Api.Items (async)");
        }
        let lambda = profile(&[(&["Shop.Api.Any()", "Shop.Api+<>c+<<Main>b__0_3>d.MoveNext()"], 1)]);
        assert_eq!(looks(&lambda).pop().map(|look| look.label).as_deref(), Some("Api.Main λ4 (async)"));
    }
}

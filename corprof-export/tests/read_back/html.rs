//! The page: loads nothing from outside, resists hostile names, and its model agrees with the other formats.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use corprof_export::{
    CallEnding, Change, Format, Frame, FrameKind, Heat, HeatMap, Mode, Profile, SlowCall, SlowCalls, SlowStack,
    StackId, Table, Unit,
};
use serde_json::{Value, json};

use crate::shapes;

const BEGINNING: &str = r#"<script type="application/json" id="data">"#;

/// The page before and after its data, and the data.
fn parts(profile: &Profile) -> (String, Value) {
    let page = shapes::text(profile, Format::Html);
    let (before, rest) = page.split_once(BEGINNING).unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    assert!(!data.contains(['<', '>', '&']), "something that could be markup");
    (format!("{before}{after}"), serde_json::from_str(data).unwrap())
}

/// Evaluates an expression in the page's own script, in which `model` is the model of the profile. `None` without
/// Node, with a message.
fn asked(profile: &Profile, expression: &str) -> Option<Value> {
    let (_, data) = parts(profile);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/src/html/model.js");
    let script = format!(
        "const data = JSON.parse(require('fs').readFileSync(0, 'utf8'));\n\
         const model = require({model:?})(data);\n\
         const label = (view) => (node) => node < 0 ? '' : label(view)(view.caller[node]) + '>' + view.label(node);\n\
         const paths = (view) => Object.fromEntries(view.rows.flat().map((node) => [label(view)(node), view.total[node]]));\n\
         process.stdout.write(JSON.stringify({expression}));"
    );
    run_by_node(&script, &data)
}

/// Runs a script by Node, with the data as standard input. `None` without Node, with a message.
fn run_by_node(script: &str, data: &Value) -> Option<Value> {
    let node = Command::new("node").arg("-e").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut node) = node else {
        eprintln!("skipped: there is no `node` on PATH to run the page's script");
        return None;
    };
    node.stdin.take().unwrap().write_all(data.to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "the script failed");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn each_slow_call_has_a_flame_graph_of_its_own() {
    let mut profile = shapes::told();
    let (page, data) = parts(&profile);
    assert!(!page.contains("id=\"slow\"") && data.get("slow").is_none());
    let [main, load, sleep] = ["Shop.Main()", "Shop.Load<T>(int)", "System.Threading.Thread.Sleep(int)"]
        .map(|name| profile.frame(Frame::managed(name)));
    let waits = profile.frame(Frame::native("[waits]"));
    let stack = |stack, weight| SlowStack { stack, samples: 1, weight };
    let runs = profile.stack_root_first([main, load]);
    let rests = profile.stack_root_first([waits, main, load, sleep]);
    let call = |arguments: &str, stacks| SlowCall {
        method: "Shop.Load<T>(int)".to_owned(),
        arguments: arguments.to_owned(),
        thread: "7".to_owned(),
        at: Duration::from_secs(2),
        time: Duration::from_secs(1),
        running: Duration::from_millis(250),
        end: CallEnding::Returned,
        stacks,
    };
    let slowest =
        vec![call("(1, \"<b>\")", vec![stack(runs, 25), stack(rests, 75)]), call("(2)", vec![stack(runs, 9)])];
    profile.set_slow_calls(SlowCalls { calls: 9, slow: 2, limit: "at least 1 s".to_owned(), slowest });
    let (page, data) = parts(&profile);
    assert!(page.contains("id=\"slow\"") && page.contains("function createSlow("));
    assert_eq!(data["slow"]["calls"][0]["call"], "Shop.Load<T>(1, \"<b>\")");
    assert_eq!(data["slow"]["calls"][0]["cells"], json!(["1.00 s", "250 ms", "750 ms", "2", "2.00 s", "7"]));
    let expression = "[-1, 0, 1].map((call) => model.build({ mine: false, waits: 'all', threads: 'merged', call }))\
        .map((view, index) => (index === 0 ? view.all : paths(view)))";
    let Some(views) = asked(&profile, expression) else { return };
    let whole = asked(&shapes::told(), "model.build({ mine: false, waits: 'all', threads: 'merged' }).all").unwrap();
    let of_first = json!({
        ">Shop.Load<T>": 25, ">[waits]": 75, ">[waits]>Shop.Load<T>": 75, ">[waits]>Shop.Load<T>>Thread.Sleep": 75
    });
    assert_eq!(views, json!([whole, of_first, { ">Shop.Load<T>": 9 }]));
}

#[test]
fn a_table_is_on_the_page_and_is_no_markup() {
    let mut profile = shapes::told();
    assert!(!parts(&profile).0.contains("id=\"table\""));
    let mut table = Table::new("Places & times", ["waits", "waits at"]);
    table.row(["3", "Shop.Query<T>"]);
    profile.set_table(table);
    let (page, _) = parts(&profile);
    assert!(page.contains("<summary>Places &amp; times</summary>") && page.contains("<th>waits at</th>"));
    assert!(page.contains("<tr><td>3</td><td>Shop.Query&lt;T&gt;</td></tr>"));
    assert!(!page.contains("{{"), "a placeholder is left");
}

#[test]
fn a_heat_map_is_read_by_the_page() {
    let mut profile = Profile::summed("shop", Unit::Samples);
    let [main, order] = ["Shop.Main()", "Shop.Order()"].map(|name| profile.frame(Frame::managed(name)));
    let outer = profile.stack_root_first([main]);
    let inner = profile.stack_root_first([main, order]);
    let thread = profile.thread(0, "all threads");
    assert!(!parts(&profile).0.contains("id=\"moments\""));
    let heats = [(3, inner, 500), (3, outer, 2), (700, StackId::EMPTY, 1), (700, inner, 7)];
    let heats = heats.map(|(cell, stack, weight)| Heat { cell, thread, stack, weight });
    heats.iter().for_each(|heat| profile.sample(thread, Duration::ZERO, heat.stack, heat.weight));
    profile.set_heat_map(HeatMap::new(Duration::from_millis(20), 50, 0, 15, heats.to_vec()));
    let (page, data) = parts(&profile);
    assert!(page.contains("id=\"moments\"") && !page.contains("{{"), "no map, or a placeholder is left");
    let moments = concat!(env!("CARGO_MANIFEST_DIR"), "/src/html/moments.js");
    let script = format!(
        "const data = JSON.parse(require('fs').readFileSync(0, 'utf8'));\n\
         require({moments:?}).unpackMoments(data).then(() => {{\n\
         const {{ caller, frame }} = data.stacks, {{ stacks, cells, starts, ranks, weights }} = data.heat;\n\
         const lists = {{ caller, frame, stacks, cells, starts, ranks, weights }};\n\
         for (const name in lists) lists[name] = Array.from(lists[name]);\n\
         process.stdout.write(JSON.stringify(lists)); }});"
    );
    let Some(read) = run_by_node(&script, &data) else { return };
    let expected = json!({
        "caller": [-1, 0], "frame": [0, 1], "stacks": [1, 0, -1], "cells": [3, 700], "starts": [0, 2, 4],
        "ranks": [0, 1, 0, 2], "weights": [500, 2, 7, 1],
    });
    assert_eq!(read, expected);
}

#[test]
fn changes_are_by_frame_and_only_where_something_is_compared() {
    let mut profile = shapes::told();
    assert_eq!(parts(&profile).1["frames"].get("change"), None);
    let slower = profile.frame(Frame::managed("Shop.Slower<T>()"));
    let faster = profile.frame(Frame::managed("Shop.Faster()"));
    profile.set_change(slower, Change::More, "1 → <2>");
    profile.set_change(faster, Change::LessBelow, "");
    let (_, data) = parts(&profile);
    let column = |name: &str| data["frames"][name].as_array().unwrap().clone();
    let (changes, words) = (column("change"), column("changeWords"));
    assert_eq!((changes.len(), words.len()), (column("name").len(), column("name").len()));
    let [.., more, less] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((more, less, &changes[0]), (&json!(1), &json!(4), &json!(0)));
    let of_slower = words[words.len() - 2].as_u64().unwrap() as usize;
    assert_eq!(data["texts"][of_slower], "1 → <2>");
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    let (page, data) = parts(&shapes::told());
    for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src 'none'") && page.contains("<title>shop – profile</title>"));
    let about = data["about"].to_string().replace("\",\"", " · ");
    for expected in shapes::TOLD {
        assert!(about.contains(expected), "{expected}: {about}");
    }
    assert_eq!(
        (&data["about"]["unit"], &data["about"]["started"]),
        (&json!("nanoseconds"), &json!(1_700_000_000_000u64))
    );
}

#[test]
fn hostile_names_stay_names() {
    let hostile = ["</script><script>alert(1)</script>", "<!--<script>", "a\u{2028}b\u{202e}c", "&lt;\"'`${x}"];
    let mut profile = Profile::new(hostile[0], Unit::Samples);
    for name in hostile {
        let frame = profile.frame(Frame::native(name).in_module(name).at(name, 1));
        let stack = profile.stack_root_first([frame]);
        let thread = profile.thread(1, name);
        profile.sample(thread, Duration::ZERO, stack, 1);
        profile.note(name);
    }
    let (page, data) = parts(&profile);
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2), "its own scripts only");
    assert!(page.contains("<title>&lt;/script&gt;"));
    let texts = data["texts"].as_array().unwrap();
    assert!(hostile.iter().all(|name| texts.contains(&json!(name))), "{texts:?}");
    let Some(labels) =
        asked(&profile, "model.build({ threads: 'merged' }).rows[0].map((node) => model.describe(node).name)")
    else {
        return;
    };
    assert!(labels.as_array().unwrap().contains(&json!("a\u{fffd}b\u{fffd}c")), "{labels}");
}

/// A request on a pool thread through frameworks, an idle pool thread, and a main thread that waits.
fn service() -> Profile {
    let mut profile = Profile::new("shop", Unit::Samples).in_mode(Mode::Wall).of_process(7);
    let pool = "System.Threading.Thread.StartCallback()";
    let request = [
        pool,
        "Microsoft.AspNetCore.Server.Kestrel.Run()",
        "Shop.Api.GetAsync()",
        "System.Runtime.CompilerServices.AsyncMethodBuilderCore.Start<T>(T&)",
        "Shop.Api+<GetAsync>d__1.MoveNext()",
        "System.Linq.Enumerable.Sum()",
    ];
    let deeper = [&request[..], &["Shop.Api.<GetAsync>b__0_0(int32)"]].concat();
    let idle = [pool, "System.Threading.LowLevelLifoSemaphore.WaitForSignal()"];
    let main = ["Shop.Program.Main()", "System.Threading.Thread.Sleep(int32)"];
    let stacks: [(&str, u32, &[&str], u64); 5] = [
        (".NET TP Worker 1", 8, &request, 5),
        (".NET TP Worker 2", 9, &deeper, 4),
        (".NET TP Worker 2", 9, &idle, 30),
        ("", 7, &main, 20),
        (".NET TP Worker 1", 8, &request[..2], 1),
    ];
    for (name, id, names, weight) in stacks {
        let thread = profile.thread(id, name);
        let frames: Vec<_> = names.iter().map(|name| profile.frame(Frame::managed(name))).collect();
        let native = profile.frame(Frame::native("[native code]"));
        let stack = profile.stack_root_first(frames.into_iter().chain([native]));
        profile.sample(thread, Duration::ZERO, stack, weight);
    }
    profile
}

#[test]
fn idle_threads_and_frameworks_are_folded_as_asked() {
    let Some(mine) = asked(&service(), "paths(model.build({ mine: true, waits: 'idle', threads: 'merged' }))") else {
        return;
    };
    let expected = json!({
        ">Program.Main": 20,
        ">Program.Main>Thread.Sleep": 20,
        ">Api.GetAsync": 9,
        ">Api.GetAsync>Enumerable.Sum": 5,
        ">Api.GetAsync>Api.GetAsync λ": 4,
        ">Api.GetAsync>Api.GetAsync λ>[native code]": 4,
        ">[no code of yours]": 1,
    });
    assert_eq!(mine, expected);
    let totals = |waits| {
        asked(&service(), &format!("(({{ all, hidden }}) => [all, hidden])(model.build({{ waits: {waits:?} }}))"))
    };
    assert_eq!(totals("all"), Some(json!([60, 0])));
    assert_eq!(totals("idle"), Some(json!([30, 30])));
    assert_eq!(totals("none"), Some(json!([10, 50])));
}

#[test]
fn the_picture_in_svg_folds_the_same() {
    let svg = shapes::text(&service().only_my_code(), Format::FlameGraph);
    for title in [
        "all (30 samples, 100.00%)",
        "Shop.Program.Main() (20 samples, 66.67%)",
        "Shop.Api.GetAsync() (9 samples, 30.00%)",
        "System.Linq.Enumerable.Sum() (5 samples, 16.67%)",
        "[no code of yours] (1 samples, 3.33%)",
    ] {
        assert!(svg.contains(&format!("<title>{title}</title>")), "{title}: {svg}");
    }
    assert!(svg.contains("50% of the samples"), "the idle threads are not spoken of: {svg}");
    assert!(!svg.contains("Kestrel"), "a framework");
}

#[test]
fn what_is_under_a_root_for_waits_waits() {
    let mut profile = Profile::new("shop", Unit::Samples).in_mode(Mode::Wall);
    let thread = profile.thread(1, "main");
    for (names, weight) in
        [(&["[waits]", "System.Net.Sockets.Run()"][..], 5), (&["[waits]", "Shop.Main()"], 3), (&["Shop.Main()"], 1)]
    {
        let frames: Vec<_> = names
            .iter()
            .map(|name| profile.frame(if name.starts_with('[') { Frame::native(name) } else { Frame::managed(name) }))
            .collect();
        let stack = profile.stack_root_first(frames);
        profile.sample(thread, Duration::ZERO, stack, weight);
    }
    assert!(shapes::text(&profile, Format::FlameGraph).contains("<title>all (4 samples, 100.00%)</title>"));
    for (waits, all) in [("idle", 4), ("none", 1), ("all", 9)] {
        let Some(shown) = asked(&profile, &format!("model.build({{ waits: {waits:?} }}).all")) else { return };
        assert_eq!(shown, json!(all), "{waits}");
    }
}

#[test]
fn threads_are_roots_by_their_names_or_alone() {
    let roots = "((view) => view.roots.map((node) => [view.label(node), view.total[node]]))";
    let Some(named) = asked(&service(), &format!("{roots}(model.build({{ waits: 'all', threads: 'named' }}))")) else {
        return;
    };
    assert_eq!(named, json!([[".NET TP Worker", 40], ["main thread", 20]]));
    let one = asked(&service(), "model.build({ waits: 'all', threads: 3 }).all");
    assert_eq!(one, Some(json!(20)));
}

#[test]
fn the_table_counts_a_method_that_calls_itself_once() {
    let mut profile = Profile::new("shop", Unit::Nanoseconds);
    let thread = profile.thread(1, "main");
    let walk = profile.frame(Frame::managed("Tree.Walk()"));
    let leaf = profile.frame(Frame::new(FrameKind::Framework, "System.String.Concat()"));
    let stack = profile.stack_root_first([walk, walk, walk, leaf]);
    profile.sample(thread, Duration::ZERO, stack, 3);
    let stack = profile.stack_root_first([walk, walk]);
    profile.sample(thread, Duration::ZERO, stack, 2);
    let table = "model.table(model.build({}), -1).map((row) => [row.label, row.own, row.total, row.kind])";
    let Some(table) = asked(&profile, table) else { return };
    assert_eq!(table, json!([["Tree.Walk", 2, 5, 0], ["String.Concat", 3, 3, 1]]));
}

#[test]
fn empty_odd_and_deep_profiles_are_shown() {
    for (profile, all, rows) in
        [(Profile::new("none", Unit::Bytes), 0, 0), (shapes::odd(), 30_005, 2), (shapes::deep(), 10, 10_000)]
    {
        let shown = asked(&profile, "((view) => [view.all, view.rows.length])(model.build({ threads: 'merged' }))");
        assert!(shown.is_none() || shown == Some(json!([all, rows])), "{shown:?}");
    }
}

/// Stacks of a few methods that call each other and themselves, with weights; always the same ones.
fn recursive_stacks() -> Vec<(Vec<usize>, u64)> {
    let mut state = 7_u64;
    let mut next = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    (0..300)
        .map(|_| {
            let depth = 1 + next(7);
            ((0..depth).map(|_| next(4) as usize).collect(), 1 + next(9))
        })
        .collect()
}

const METHODS: [&str; 4] = ["N.T.A()", "N.T.B()", "N.T.C()", "N.T.D()"];
const LABELS: [&str; 4] = ["T.A", "T.B", "T.C", "T.D"];

fn of_stacks(stacks: &[(Vec<usize>, u64)]) -> Profile {
    let mut profile = Profile::new("shop", Unit::Samples);
    let thread = profile.thread(1, "main");
    for (stack, weight) in stacks {
        let frames: Vec<_> = stack.iter().map(|&method| profile.frame(Frame::managed(METHODS[method]))).collect();
        let stack = profile.stack_root_first(frames);
        profile.sample(thread, Duration::ZERO, stack, *weight);
    }
    profile
}

/// The weight of the stacks that have the property.
fn weight_of(stacks: &[(Vec<usize>, u64)], has: impl Fn(&[usize]) -> bool) -> u64 {
    stacks.iter().filter(|(stack, _)| has(stack)).map(|(_, weight)| weight).sum()
}

#[test]
fn callers_and_callees_are_those_of_the_stacks() {
    let stacks = recursive_stacks();
    let profile = of_stacks(&stacks);
    for (method, label) in LABELS.iter().enumerate() {
        let around = format!(
            "(() => {{
                const view = model.build({{}});
                const node = view.rows.flat().find((node) => view.label(node) === {label:?});
                const {{ own, total, callers, callees }} = model.around(view, -1, view.key(node));
                const weights = (rows) => Object.fromEntries(rows.map((row) => [row.label, row.weight]));
                return {{ own, total, callers: weights(callers), callees: weights(callees) }};
            }})()"
        );
        let Some(around) = asked(&profile, &around) else { return };
        let has_call = |stack: &[usize], call: [usize; 2]| stack.windows(2).any(|pair| *pair == call);
        let mut expected = json!({
            "own": weight_of(&stacks, |stack| stack.last() == Some(&method)),
            "total": weight_of(&stacks, |stack| stack.contains(&method)),
            "callers": { "": weight_of(&stacks, |stack| stack.first() == Some(&method)) },
            "callees": {},
        });
        for (other, label) in LABELS.iter().enumerate() {
            expected["callers"][label] = json!(weight_of(&stacks, |stack| has_call(stack, [other, method])));
            expected["callees"][label] = json!(weight_of(&stacks, |stack| has_call(stack, [method, other])));
        }
        assert_eq!(around, expected, "{label}");
    }
}

#[test]
fn callers_and_callees_within_a_zoom_are_those_below_it() {
    let profile = of_stacks(&[(vec![0, 1, 2], 3), (vec![3, 1, 2], 5), (vec![3, 1, 0], 7)]);
    let below = "(() => {
        const view = model.build({});
        const zoom = view.roots.find((node) => view.label(node) === 'T.D');
        const key = view.key(view.rows.flat().find((node) => view.label(node) === 'T.B'));
        const { total, callers, callees } = model.around(view, zoom, key);
        return [total, ...[callers, callees].map((rows) => rows.map((row) => [row.label, row.weight]))];
    })()";
    let Some(below) = asked(&profile, below) else { return };
    assert_eq!(below, json!([12, [["T.D", 12]], [["T.A", 7], ["T.C", 5]]]));
}

#[test]
fn bottom_up_the_methods_that_run_come_first() {
    let stacks = recursive_stacks();
    let up = asked(&of_stacks(&stacks), "paths(model.invert(model.build({})))");
    let Some(up) = up else { return };
    let up = up.as_object().unwrap();
    for (path, total) in up {
        let path: Vec<_> =
            path.split('>').skip(1).map(|label| LABELS.iter().position(|known| *known == label)).collect();
        let ends_so = |stack: &[usize]| {
            path.len() <= stack.len() && stack.iter().rev().zip(&path).all(|(method, label)| Some(*method) == *label)
        };
        assert_eq!(*total, json!(weight_of(&stacks, ends_so)), "{path:?}");
    }
    let all: u64 = LABELS.iter().map(|label| up[&format!(">{label}")].as_u64().unwrap()).sum();
    assert_eq!(all, weight_of(&stacks, |_| true));
    assert!(up.len() > 300, "the callers are missing: {}", up.len());
}

#[test]
fn bottom_up_narrow_boxes_get_their_callers_when_one_zooms() {
    let mut stacks = vec![(vec![0, 1], 100_000)];
    stacks.push((vec![0, 2, 3], 1));
    let steps = "(() => {
        const view = model.invert(model.build({}));
        const narrow = view.roots.find((node) => view.label(node) === 'T.D');
        const before = view.children[narrow].length;
        view.reveal(narrow);
        return [before, paths(view)['>T.D>T.C>T.A'], view.rows.length];
    })()";
    let Some(steps) = asked(&of_stacks(&stacks), steps) else { return };
    assert_eq!(steps, json!([0, 1, 3]));
}

#[test]
fn a_search_says_what_is_outside_of_the_zoom() {
    let stacks = recursive_stacks();
    let profile = of_stacks(&stacks);
    let found = "(() => {
        const calls = model.build({}), up = model.invert(calls);
        const of = (view, label) => {
            const zoom = view.roots.find((node) => view.label(node) === label);
            const deeper = view.children[zoom].find((node) => view.label(node) === 'T.B');
            return [-1, zoom, deeper].map((zoom) => model.found(view, zoom, 't.c'));
        };
        return [of(calls, 'T.A'), of(up, 'T.A'), of(calls, 'T.C')];
    })()";
    let Some(found) = asked(&profile, found) else { return };
    let is_found = |stack: &[usize]| stack.contains(&2);
    let parts = |is_shown: &dyn Fn(&[usize]) -> bool| {
        json!({
            "inside": weight_of(&stacks, |stack| is_found(stack) && is_shown(stack)),
            "outside": weight_of(&stacks, |stack| is_found(stack) && !is_shown(stack)),
        })
    };
    let begins = |start: &'static [usize]| parts(&move |stack| stack.starts_with(start));
    let ends = |end: &'static [usize]| parts(&move |stack| stack.ends_with(end));
    let everything = parts(&|_| true);
    assert_eq!(
        found,
        json!([
            [everything, begins(&[0]), begins(&[0, 1])],
            [everything, ends(&[0]), ends(&[1, 0])],
            [everything, begins(&[2]), begins(&[2, 1])],
        ])
    );
}

#[test]
fn hot_lines_are_shares_of_the_methods_own_and_total_weight() {
    let mut profile = of_stacks(&[(vec![0, 1], 60), (vec![0], 40), (vec![2], 900)]);
    let method = profile.frame(Frame::managed(METHODS[0]));
    for (file, line, own, total) in
        [("/src/T.cs", 7, 10, 70), ("/src/T.cs", 9, 29, 29), ("C:\\src\\Other.cs", 7, 1, 1), ("/src/T.cs", 7, 0, 0)]
    {
        profile.add_line(method, file, line, own, total);
    }
    let lines = "(() => {
        const view = model.build({});
        const lines = (label) => {
            const key = view.key(view.rows.flat().find((node) => view.label(node) === label));
            const { own, total, rows } = model.hotLines(key);
            return [own, total, ...rows.map((row) => [row.place, row.own, row.total])];
        };
        return [lines('T.A'), lines('T.B')];
    })()";
    let Some(lines) = asked(&profile, lines) else { return };
    let expected = json!([40, 100, ["/src/T.cs:9", 29, 29], ["/src/T.cs:7", 10, 70], ["C:\\src\\Other.cs:7", 1, 1]]);
    assert_eq!(lines, json!([expected, [0, 0]]));
}

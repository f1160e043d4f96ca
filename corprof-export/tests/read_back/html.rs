//! The page: loads nothing from outside, resists hostile names, and its model agrees with the other formats.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use corprof_export::{Format, Frame, FrameKind, Mode, Profile, Table, Unit};
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

//! Firefox Profiler files, by the rules of its processed format: tables whose columns refer to each other.

use corprof_export::{Format, Profile, Unit};
use serde_json::Value;

use crate::shapes;

fn read(profile: &Profile) -> Value {
    serde_json::from_slice(&shapes::bytes(profile, Format::Firefox)).unwrap()
}

fn column<'a>(table: &'a Value, name: &str) -> &'a Vec<Value> {
    table[name].as_array().unwrap_or_else(|| panic!("no column {name} in {table}"))
}

fn index(value: &Value) -> Option<usize> {
    value.as_u64().map(|number| number as usize)
}

/// Strings are the thread's in older versions of the format, and shared in newer ones.
fn text(file: &Value, thread: &Value, at: &Value) -> String {
    let own = thread["stringArray"].as_array().or_else(|| file["shared"]["stringArray"].as_array()).unwrap();
    own[index(at).unwrap()].as_str().unwrap().to_owned()
}

/// The stacks of a thread's samples, root first, with their weights.
fn samples(file: &Value, thread: &Value) -> Vec<(Vec<String>, i64)> {
    let stacks = &thread["stackTable"];
    let frames = &thread["frameTable"];
    let functions = &thread["funcTable"];
    let samples = &thread["samples"];
    let weights = column(samples, "weight");
    assert_eq!(index(&samples["length"]), Some(weights.len()));
    let each = column(samples, "stack").iter().zip(weights).map(|(stack, weight)| {
        let mut names = Vec::new();
        let mut next = index(stack);
        while let Some(stack) = next {
            let frame = index(&column(stacks, "frame")[stack]).unwrap();
            let function = index(&column(frames, "func")[frame]).unwrap();
            names.push(text(file, thread, &column(functions, "name")[function]));
            next = index(&column(stacks, "prefix")[stack]);
        }
        names.reverse();
        (names, weight.as_i64().unwrap())
    });
    each.collect()
}

#[test]
fn threads_have_their_samples_and_modules() {
    let file = read(&shapes::shop(Unit::Samples));
    assert_eq!(file["meta"]["product"], "shop");
    assert_eq!(file["meta"]["startTime"], 1_700_000_000_000.0);
    assert_eq!(file["meta"]["symbolicated"], true);
    let threads = file["threads"].as_array().unwrap();
    let names: Vec<_> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["main", "thread 4712"]);
    let work = "Shop.Work<T>(int32, \"x\")";
    let expected = [(vec!["Shop.Main()"], 1), (vec!["Shop.Main()", work], 3), (vec!["Shop.Main()", work, "read"], 2)]
        .map(|(names, weight)| (names.into_iter().map(str::to_owned).collect(), weight));
    assert_eq!(samples(&file, &threads[0]), expected);
    let categories = file["meta"]["categories"].as_array().unwrap();
    let user = categories.iter().find(|category| category["name"] == "User code").unwrap();
    assert!(user["subcategories"].as_array().unwrap().contains(&"Shop.dll".into()), "{user}");
}

#[test]
fn the_run_is_told_as_it_was() {
    let file = read(&shapes::told());
    assert_eq!((&file["meta"]["product"], file["meta"]["interval"].as_f64()), (&"shop".into(), Some(10.0)));
    let threads = file["threads"].as_array().unwrap();
    for (thread, tid) in threads.iter().zip(["4711", "4712"]) {
        assert_eq!(thread["processName"], "shop");
        assert_eq!((&thread["pid"], thread["tid"].to_string().trim_matches('"')), (&"77".into(), tid), "{thread}");
        assert_eq!(thread["processShutdownTime"].as_f64(), Some(5_230.0));
    }
    let extra = file["meta"]["extra"].as_array().unwrap();
    let entries: Vec<_> =
        extra[0]["entries"].as_array().unwrap().iter().map(|entry| entry["value"].to_string()).collect();
    for expected in shapes::TOLD {
        assert!(entries.iter().any(|entry| entry.contains(expected)), "{expected}: {entries:?}");
    }
}

#[test]
fn parts_of_milliseconds_add_up() {
    let mut profile = Profile::new("time", Unit::Nanoseconds);
    let thread = profile.thread(1, "main");
    let frame = profile.frame(corprof_export::Frame::managed("Tick()"));
    let stack = profile.stack_root_first([frame]);
    for _ in 0..1_000 {
        profile.sample(thread, std::time::Duration::ZERO, stack, 12_300);
    }
    let file = read(&profile);
    assert_eq!(file["threads"][0]["samples"]["weightType"], "tracing-ms");
    let sum: i64 = samples(&file, &file["threads"][0]).iter().map(|(_, weight)| weight).sum();
    assert_eq!(sum, 12);
}

/// The category of each sample, which is that of its leaf.
fn categories(file: &Value, thread: &Value) -> Vec<String> {
    let names = file["meta"]["categories"].as_array().unwrap();
    let name = |stack: &Value| {
        let frame = index(&column(&thread["stackTable"], "frame")[index(stack).unwrap()]).unwrap();
        let category = index(&column(&thread["frameTable"], "category")[frame]).unwrap();
        names[category]["name"].as_str().unwrap().to_owned()
    };
    column(&thread["samples"], "stack").iter().map(name).collect()
}

#[test]
fn a_thread_that_waits_does_so_whatever_its_leaf_is_called() {
    use corprof_export::Frame;
    let mut profile = Profile::new("waits", Unit::Samples);
    let thread = profile.thread(1, "pool");
    let root = profile.frame(Frame::native("[waits]"));
    let worker = profile.frame(Frame::managed("System.Threading.PortableThreadPool.WorkerThreadStart()"));
    let renamed = profile.frame(Frame::managed("System.Threading.NewInTheNextRelease.Park(int32)"));
    let own = profile.frame(Frame::managed("Shop.Native.ReadCard()"));
    let stacks = [vec![root, worker, renamed], vec![root, own], vec![root], vec![worker, renamed], vec![own]];
    for frames in stacks {
        let stack = profile.stack_root_first(frames);
        profile.sample(thread, std::time::Duration::ZERO, stack, 1);
        profile.sample(thread, std::time::Duration::ZERO, stack, 1);
    }
    let file = read(&profile);
    let expected = ["Waits", "Waits", "Waits", "Framework", "User code"].map(|kind| [kind, kind]).concat();
    assert_eq!(categories(&file, &file["threads"][0]), expected);
    let names = samples(&file, &file["threads"][0]);
    assert_eq!(names[1].0.last().unwrap(), "System.Threading.NewInTheNextRelease.Park(int32)");
}

#[test]
fn empty_odd_and_deep_profiles_are_read() {
    assert_eq!(read(&Profile::new("none", Unit::Bytes))["threads"].as_array().unwrap().len(), 0);
    let odd = read(&shapes::odd());
    let read_back = samples(&odd, &odd["threads"][0]);
    assert!(read_back.iter().any(|(names, _)| names == &["line\nbreak\r\t"]), "names are as they were");
    let deep = read(&shapes::deep());
    assert_eq!(samples(&deep, &deep["threads"][0])[9].0.len(), 10_000);
}

//! `corprof requests` and `corprof waits`: what only .NET 11 tells.

use corprof_tests::{ensure_or_longer, patiently, repetitions};
use serde_json::Value;

use super::super::documents::Schema;
use super::*;

/// A run of tests/managed/modern/WebWaits.cs.
fn web(runtime: &Runtime, arguments: &[&str]) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "WebWaits").args(arguments.iter().copied()).command()?)?;
    program.expect("ready")?;
    Ok(program)
}

fn asked(program: &Program, arguments: &[&str]) -> Result<Output> {
    let (command, options) = arguments.split_first().context("no command")?;
    let mut corprof = corprof()?;
    corprof.arg(command).arg(program.child.id().to_string()).args(options);
    Ok(corprof.output()?)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn requests_tell_where_they_wait() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let program = web(&runtime, &[])?;
        let options = ["--duration", "3", "--slowest", "2", "--sort", "mean", "--json"];
        let output = asked(&program, &[&["requests"], &options[..]].concat())?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        let report: Value = serde_json::from_str(&stdout)?;
        Schema::read()?.check("requests", &report)?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        let endpoint = |path: &str| {
            let found = endpoints.iter().find(|endpoint| endpoint["endpoint"] == format!("GET {path}"));
            found.with_context(|| format!("{runtime}: no {path}: {report}"))
        };
        let reports = endpoint("/reports")?;
        ensure!(endpoints[0]["endpoint"] == "GET /reports", "{runtime}: {report}");
        let count = number(&reports["requests"]);
        // 220 ms of delays, and what the machine adds.
        ensure!(count >= 3.0 && number(&reports["mean_ms"]) >= 219.0, "{runtime}: {reports}");
        let first = &reports["waits"][0];
        ensure!(first["method"] == "Shop.Collect (async)" && first["is_mine"] == true, "{runtime}: {reports}");
        // The timer starts before the method is suspended, on a busy machine some milliseconds before.
        ensure!(number(&first["ms"]) >= 150.0 * (count - 1.0), "{runtime}: {reports}");
        let orders = endpoint("/orders")?;
        ensure!(orders["waits"][0]["method"] == "Shop.Query (async)", "{runtime}: {orders}");
        ensure!((19.0..=200.0).contains(&number(&orders["mean_ms"])), "{runtime}: {orders}");
        let all = number(&reports["total_ms"]);
        let told = number(&reports["running_ms"]) + number(&reports["waiting_ms"]);
        ensure!(told <= 1.001 * all && told >= 0.9 * all, "{runtime}: {reports}");
        let slowest = &report["slowest"][0];
        ensure!(slowest["endpoint"] == "GET /reports", "{runtime}: {slowest}");
        ensure!(slowest["trace_id"].as_str().is_some_and(|id| id.len() == 32), "{runtime}: {slowest}");
        let lines = slowest["timeline"].as_array().context("no timeline")?;
        let sum: f64 = lines.iter().map(|line| number(&line["ms"])).sum();
        ensure!((sum - number(&slowest["ms"])).abs() < 0.01, "{runtime}: {slowest}");
        // Another operation may run in the middle of it.
        let waits = lines.iter().filter(|line| line["method"] == "Shop.Collect (async)" && line["does"] != "runs");
        let waited: f64 = waits.map(|line| number(&line["ms"])).sum();
        ensure!(waited >= 150.0, "{runtime}: {slowest}");
        program.end()?;
    }
    Ok(())
}

/// The value of a property of the style of an element, in percent.
fn percent(element: &str, property: &str) -> f64 {
    let value = element.split_once(property).and_then(|(_, rest)| rest.split_once('%'));
    value.and_then(|(value, _)| value.parse().ok()).unwrap_or(f64::NAN)
}

/// A box of a flame graph.
struct Bar {
    row: usize,
    left: f64,
    width: f64,
    ms: f64,
}

/// The boxes of `flame` that have this class and name.
fn bars(flame: &str, class: &str, name: &str) -> Vec<Bar> {
    let class = format!("class=\"{class}");
    let title = format!("title=\"{name}: ");
    let rows = flame.lines().filter(|line| line.contains("class=\"row\"")).enumerate();
    let boxes = rows.flat_map(|(row, line)| line.split("<i ").skip(1).map(move |bar| (row, bar)));
    let found = boxes.filter(|(_, bar)| bar.starts_with(&class) && bar.contains(&title));
    let bar = |(row, text): (usize, &str)| {
        let ms = text.split_once(&title).and_then(|(_, rest)| rest.split_once(" ms"));
        Bar {
            row,
            left: percent(text, "left:"),
            width: percent(text, "width:"),
            ms: ms.and_then(|(ms, _)| ms.parse().ok()).unwrap_or(f64::NAN),
        }
    };
    found.map(bar).collect()
}

/// A request of /reports waits in `Collect` for 200 ms: boxes below each other.
fn check_flame(flame: &str) -> Result<()> {
    let collects = bars(flame, "mine", "Shop.Collect (async)");
    let longest = collects.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
    let collect = longest.context("no Shop.Collect")?;
    // Of a request that was under way at the beginning the waits belong to no method.
    ensure_or_longer!(collect.ms > 150.0, "Shop.Collect has {} ms", collect.ms);
    let waits = bars(flame, "waits", "waits");
    let is_below = |wait: &&Bar| wait.row == collect.row + 1 && (wait.left - collect.left).abs() < 1.0;
    let wait = waits.iter().find(is_below).context("Shop.Collect has no wait")?;
    ensure!(wait.ms > 150.0 && wait.width < collect.width + 0.1, "Shop.Collect waits {} ms", wait.ms);
    Ok(())
}

#[test]
fn a_page_shows_the_slowest_requests_as_waterfalls() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        if !runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        let program = web(runtime, &["0", "both"])?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("requests.html");
        let name = file.display().to_string();
        let seconds = (3 * times).to_string();
        let output = asked(&program, &["requests", "--duration", &seconds, "--slowest", "300", "-o", &name])?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success() && stderr.contains("requests.html is written"), "{runtime}: {stderr}");
        let page = fs::read_to_string(&file)?;
        ensure!(!page.contains("<script") && !page.contains("http-equiv=\"refresh"), "{runtime}: it has no script");
        let details = page.split("<details").skip(1);
        let (endpoints, requests): (Vec<&str>, Vec<&str>) =
            details.partition(|part| part.starts_with(" class=\"endpoint\""));
        // The text has the same.
        ensure!(requests.len() == stdout.matches("\nslowest: ").count(), "{runtime}: {} requests", requests.len());
        let lanes = |request: &&str| -> Vec<String> {
            request.lines().filter(|line| line.contains("class=\"track\"")).map(str::to_owned).collect()
        };
        let of = |path: &str| -> Vec<Vec<String>> {
            let is_it = |request: &&&str| request.contains(&format!("<summary>GET {path} "));
            requests.iter().filter(is_it).map(lanes).collect()
        };
        // Some 20 of 220 ms, then the rest.
        let reports = of("/reports");
        let is_right = |lanes: &&Vec<String>| {
            let whole: Vec<&str> = lanes[0].split("<i ").skip(1).collect();
            let sum: f64 = whole.iter().map(|bar| percent(bar, "width:")).sum();
            let is_collect = |bar: &&&str| bar.contains("title=\"waits: Shop.Collect (async)  WebWaits.cs:");
            let collect = whole.iter().find(is_collect);
            let is_long = collect.is_some_and(|bar| percent(bar, "width:") > 50.0 && percent(bar, "left:") > 1.0);
            is_long
                && (99.0..=101.0).contains(&sum)
                && lanes.iter().any(|lane| lane.contains("title=\"Shop.Reports (async)\""))
        };
        ensure!(reports.iter().find(is_right).is_some(), "{runtime}: {reports:#?}");
        // It asks by an activity within, for most of its time.
        let both = of("/both");
        let is_right = |lane: &String| {
            lane.contains("lane activity") && lane.contains("System.Net.Http") && percent(lane, "width:") > 50.0
        };
        ensure!(both.iter().any(|lanes| lanes.iter().any(is_right)), "{runtime}: {both:#?}");
        // A bar has room for the end of a framework's name only.
        let is_full = |lane: &&String| lane.contains(">Microsoft.AspNetCore.");
        let full: Vec<&String> = both.iter().flatten().filter(is_full).collect();
        ensure!(full.is_empty(), "{runtime}: {full:#?}");
        // The endpoint and its slowest requests each have a flame graph, and so has each slow request.
        let reports = endpoints.iter().find(|part| part.contains("<summary>GET /reports<"));
        let reports = reports.with_context(|| format!("{runtime}: no flame graphs of /reports: {endpoints:#?}"))?;
        ensure!(reports.contains("<p>All ") && reports.contains("<p>The slowest "), "{runtime}: {reports}");
        let of_request = requests.iter().find(|part| part.contains("<summary>GET /reports "));
        let flames: Vec<&str> = reports.split("class=\"flame\"").skip(1).collect();
        ensure!(flames.len() == 2, "{runtime}: {reports}");
        for flame in flames.iter().chain(of_request) {
            check_flame(flame).with_context(|| format!("{runtime}: {flame}"))?;
        }
        program.end()?;
        Ok(())
    })
}

#[test]
fn waits_are_summed_up_and_drawn() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let program = web(&runtime, &[])?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("waits.folded");
        let output = asked(&program, &["waits", "--duration", "2", "-o", &file.display().to_string()])?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        let row = |place: &str| {
            let found = stdout.lines().find(|line| line.contains(&format!("  {place}")));
            found.with_context(|| format!("{runtime}: no {place}: {stdout}"))
        };
        let words: Vec<&str> = row("Shop.Collect")?.split_whitespace().collect();
        let mean: f64 = words.get(2).context("no mean")?.parse()?;
        ensure!((150.0..=500.0).contains(&mean), "{runtime}: {stdout}");
        row("Shop.Query")?;
        let folded = fs::read_to_string(&file)?;
        let chain = folded.lines().find(|line| line.contains("Collect")).context("no stack of Collect")?;
        // Who awaits comes first.
        let position = |name| chain.find(name).with_context(|| format!("{runtime}: {chain}"));
        ensure!(position("Reports")? < position("Collect")?, "{runtime}: {chain}");
        let page = folder.path().join("waits.html");
        let options = ["--duration", "2", "--sort", "mean", "--json", "-o", &page.display().to_string()];
        let output = asked(&program, &[&["waits"], &options[..]].concat())?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        Schema::read()?.check("waits", &report)?;
        ensure!(report["places"][0]["method"] == "Shop.Collect (async)", "{runtime}: {report}");
        let page = fs::read_to_string(&page)?;
        let row = page.lines().find(|line| line.starts_with("<tr><td>") && line.contains("<td>Shop.Collect"));
        let row = row.with_context(|| format!("{runtime}: no row of Shop.Collect on the page"))?;
        ensure!(row.matches("<td>").count() == 6 && row.contains("WebWaits.cs:"), "{runtime}: {row}");
        program.end()?;
    }
    Ok(())
}

/// Beside each other, `corprof COMMAND --json -- WebWaits 7` for each of these commands: all have begun to answer their
/// requests.
fn started(runtime: &Runtime, commands: &[&str]) -> Result<Vec<Program>> {
    let start = |command: &str| -> Result<Program> {
        let mut corprof = corprof()?;
        corprof
            .args([command, "--json", "--env", "WEB_WAITS=from the command line", "--"])
            .args(application(runtime, "WebWaits")?)
            .arg("7");
        let program = Program::start(corprof)?;
        program.expect("ready")?;
        program.expect("WEB_WAITS is from the command line")?;
        Ok(program)
    };
    let programs = commands.iter().map(|command| start(command)).collect::<Result<Vec<_>>>()?;
    // Threads hold what they tell for a second or two.
    thread::sleep(Duration::from_secs(3));
    Ok(programs)
}

/// The document on the last line.
fn last(lines: &[String]) -> Result<Value> {
    serde_json::from_str(lines.last().context("no line")?).with_context(|| format!("no JSON: {lines:?}"))
}

#[test]
fn an_application_is_listened_to_from_its_start_to_its_end() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        // The next test has the other command.
        let commands = repetitions(&["requests"][..], &["requests", "waits"]);
        let mut documents = Vec::new();
        for program in started(&runtime, commands)? {
            let (lines, code) = program.rest()?;
            ensure!(code == Some(7), "{runtime}: the code of the application is lost: {code:?}: {lines:?}");
            documents.push(last(&lines)?);
        }
        let report = documents.first().context("no report")?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        let reports = endpoints.iter().find(|endpoint| endpoint["endpoint"] == "GET /reports").context("no reports")?;
        // At its start a busy application may wait longer for the framework.
        let mut waited = reports["waits"].as_array().into_iter().flatten();
        let first = waited.find(|wait| wait["is_mine"] == true).with_context(|| format!("{runtime}: {reports}"))?;
        ensure!(first["method"] == "Shop.Collect (async)", "{runtime}: {reports}");

        for report in documents.iter().skip(1) {
            let places = report["places"].as_array().context("no places")?;
            ensure!(places.iter().any(|place| place["method"] == "Shop.Collect (async)"), "{runtime}: {report}");
        }
    }
    Ok(())
}

#[test]
fn an_interrupt_has_the_answer_before_the_application_ends() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let commands = repetitions(&["waits"][..], &["requests", "waits"]);
        for (command, mut program) in commands.iter().zip(started(&runtime, commands)?) {
            // The application stops its server at SIGTERM, and runs on until its input ends.
            let input = program.input.take();
            program.signal("-INT")?;
            let line = program.lines.recv_timeout(PATIENCE).context("no answer")?;
            ensure!(line.contains("Shop.Collect"), "{runtime}: {command}: {line}");
            let document: Value = serde_json::from_str(&line)?;
            Schema::read()?.check(command, &document)?;
            ensure!(program.child.try_wait()?.is_none(), "{runtime}: {command} does not wait for the application");
            drop(input);
            let (lines, code) = program.rest()?;
            ensure!(code == Some(0) && lines.is_empty(), "{runtime}: {command}: {code:?}: {lines:?}");
        }
    }
    Ok(())
}

#[test]
fn children_of_the_application_do_not_wait() -> Result<()> {
    for runtime in runtimes()? {
        if !runtime.has(Difference::AsyncOperations) {
            continue;
        }
        // The shell's second runtime is let go on, too.
        let web = application(&runtime, "WebWaits")?;
        let hello = application(&runtime, "Hello")?;
        let words = |words: &[std::ffi::OsString]| {
            words.iter().map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ")
        };
        let script = format!("{} && {}", words(&web), words(&hello));
        let mut command = corprof()?;
        command.args(["requests", "--json", "--", "sh", "-c", &script]);
        let program = Program::start(command)?;
        program.expect("ready")?;
        thread::sleep(Duration::from_secs(2));
        let (lines, code) = program.rest()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {lines:?}");
        ensure!(lines.iter().any(|line| line.contains("GET /reports")), "{runtime}: {lines:?}");
        ensure!(lines.len() > 1, "{runtime}: the second program has not run: {lines:?}");
    }
    Ok(())
}

#[test]
fn an_application_of_an_older_runtime_is_not_run() -> Result<()> {
    for runtime in runtimes()? {
        if runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let output = corprof()?.args(["waits", "--"]).args(application(&runtime, "Diagnosed")?).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.code() == Some(3) && stdout.is_empty(), "{runtime}: {output:?}");
        ensure!(stderr.contains(".NET 11 is the first that tells of async operations"), "{runtime}: {stderr}");
        ensure!(stderr.contains("`corprof tasks "), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn what_is_not_dotnet_ends_as_it_does() -> Result<()> {
    let output = corprof()?.args(["waits", "--", "sh", "-c", "exit 9"]).output()?;
    ensure!(output.status.code() == Some(9), "{output:?}");
    ensure!(texts(&output).1.contains("it has ended without a .NET process"), "{output:?}");
    Ok(())
}

#[test]
fn an_older_runtime_is_refused_at_once() -> Result<()> {
    for runtime in runtimes()? {
        if runtime.has(Difference::AsyncOperations) {
            continue;
        }
        let program = diagnosed(&runtime, None)?;
        let output = asked(&program, &["waits"])?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(3), "{runtime}: {output:?}");
        ensure!(stderr.contains(".NET 11 is the first that tells of async operations"), "{runtime}: {stderr}");
        program.end()?;
    }
    Ok(())
}

/// The runtime tells no end of the operations that an exception ends, unless it is asked for unwinds.
#[test]
fn requests_after_exceptions_are_told_as_others() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        if !runtime.has(Difference::AsyncOperations) {
            return Ok(());
        }
        let program = web(runtime, &["0", "both"])?;
        let output = asked(&program, &["requests", "--duration", &(2 * times).to_string(), "--json"])?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        for name in ["GET /fails", "GET [not found]", "GET /lines/{customer}"] {
            ensure!(endpoints.iter().any(|endpoint| endpoint["endpoint"] == name), "{runtime}: no {name}: {report}");
        }
        // They wait for 20 ms and for 220.
        for name in ["GET /orders", "GET /reports"] {
            let endpoint =
                endpoints.iter().find(|endpoint| endpoint["endpoint"] == name).context("no such endpoint")?;
            let share = number(&endpoint["running_ms"]) / number(&endpoint["total_ms"]);
            ensure_or_longer!(share < 0.2, "{runtime}: {name} runs for {share}: {report}");
        }
        program.end()?;
        Ok(())
    })
}

/// What an older runtime tells: requests with their routes and times, and the calls within.
#[test]
fn requests_of_an_older_runtime_have_their_endpoints_and_calls() -> Result<()> {
    let runtimes = Runtime::all_for_modern("WebWaits")?.into_iter();
    for runtime in runtimes.filter(|runtime| !runtime.is_emulated() && !runtime.has(Difference::AsyncOperations)) {
        let program = web(&runtime, &["0", "both"])?;
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("requests.html");
        let options =
            ["--duration", "3", "--sort", "p99", "--slowest", "300", "--json", "-o", &page.display().to_string()];
        let output = asked(&program, &[&["requests"], &options[..]].concat())?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {stderr}");
        ensure!(stderr.contains("what ran and what waited is not known"), "{runtime}: {stderr}");
        let report: Value = serde_json::from_str(&stdout)?;
        Schema::read()?.check("requests", &report)?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        let endpoint = |name: &str| endpoints.iter().find(|endpoint| endpoint["endpoint"] == name);
        let named = |name: &str| endpoint(name).with_context(|| format!("{runtime}: no {name}: {report}"));
        ensure!(endpoints.len() == 6, "{runtime}: {report}");
        named("GET /fails")?;
        named("GET [not found]")?;
        ensure!(endpoints[0]["endpoint"] == "GET /reports", "{runtime}: {report}");
        let reports = named("GET /reports")?;
        ensure!(number(&reports["mean_ms"]) >= 219.0 && reports["waiting_ms"].is_null(), "{runtime}: {report}");
        // Each asks for an order of its own, by the path of another customer.
        let lines = named("GET /lines/{customer}")?;
        ensure!(number(&lines["requests"]) > 10.0, "{runtime}: {report}");
        let call = &named("GET /both")?["calls"][0];
        let share = number(&call["ms"]) / number(&named("GET /both")?["total_ms"]);
        ensure!(call["call"] == "GET (System.Net.Http)", "{runtime}: {report}");
        ensure!((0.5..=1.0).contains(&share), "{runtime}: {report}");
        let page = fs::read_to_string(&page)?;
        ensure!(page.contains("lane activity") && !page.contains("Flame graphs"), "{runtime}: {page}");
        program.end()?;
    }
    Ok(())
}

//! Every command with --json: its documents have the fields that the book states, and no others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::*;

/// The tables of book/src/json.md: the types of fields, by name.
pub(super) struct Schema(BTreeMap<String, BTreeMap<String, String>>);

impl Schema {
    pub(super) fn read() -> Result<Self> {
        let page = xtask::cargo::workspace_root().join("book").join("src").join("json.md");
        let text = fs::read_to_string(page)?;
        let mut tables: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut current = None;
        for line in text.lines() {
            if line.starts_with('#') {
                let name = line.strip_prefix("### `").and_then(|name| name.strip_suffix('`'));
                current = name.map(str::to_owned);
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let (Some(table), ["", field, kind, _, ""]) = (&current, cells.as_slice())
                && let Some(field) = field.strip_prefix('`').and_then(|field| field.strip_suffix('`'))
            {
                tables.entry(table.clone()).or_default().insert(field.to_owned(), (*kind).to_owned());
            }
        }
        ensure!(tables.len() > 20, "the page has {} tables", tables.len());
        Ok(Self(tables))
    }

    fn table(&self, name: &str) -> Result<&BTreeMap<String, String>> {
        self.0.get(name).with_context(|| format!("the page has no table `{name}`"))
    }

    /// Checks a document against a table; that of a question also has the fields of `answer`.
    pub(super) fn check(&self, name: &str, document: &Value) -> Result<()> {
        let fields = document.as_object().with_context(|| format!("{name} is not an object: {document}"))?;
        let mut types = self.table(name)?.clone();
        if fields.contains_key("question") {
            ensure!(fields["question"] == name, "{name}: {document}");
            types.extend(self.table("answer")?.clone());
        }
        self.check_fields(name, &types, fields).with_context(|| format!("{name}: {document}"))
    }

    fn check_fields(&self, at: &str, types: &BTreeMap<String, String>, fields: &Map<String, Value>) -> Result<()> {
        let known: BTreeSet<&String> = types.keys().collect();
        let unknown: Vec<_> = fields.keys().filter(|field| !known.contains(field)).collect();
        ensure!(unknown.is_empty(), "{at} has fields that the page does not have: {unknown:?}");
        for (field, kind) in types {
            let at = format!("{at}.{field}");
            match (fields.get(field), kind.strip_prefix("optional ")) {
                (None, Some(_)) => {}
                (None, None) => anyhow::bail!("there is no {at}"),
                (Some(value), kind_of_optional) => self.check_value(&at, kind_of_optional.unwrap_or(kind), value)?,
            }
        }
        Ok(())
    }

    fn check_value(&self, at: &str, kind: &str, value: &Value) -> Result<()> {
        if let Some(kind) = kind.strip_suffix(" or null") {
            return if value.is_null() { Ok(()) } else { self.check_value(at, kind, value) };
        }
        if let Some(kind) = kind.strip_prefix("list of ") {
            let list = value.as_array().with_context(|| format!("{at} is not a list: {value}"))?;
            return list.iter().try_for_each(|value| self.check_value(at, kind, value));
        }
        let is_right = match kind {
            "number" => value.is_number(),
            "text" => value.is_string(),
            "bool" => value.is_boolean(),
            "any" => true,
            table => {
                let fields = value.as_object().with_context(|| format!("{at} is not an object: {value}"))?;
                return self.check_fields(at, self.table(table)?, fields);
            }
        };
        ensure!(is_right, "{at} is not of the type {kind}: {value}");
        Ok(())
    }
}

/// The documents of a command, one on each line.
fn documents(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))).collect()
}

/// Whether an answer has what tests/managed/modern/Asked.cs makes it have.
fn is_right(name: &str, document: &Value) -> bool {
    let list = |field: &str| document[field].as_array().cloned().unwrap_or_default();
    let begins = |value: &Value, text: &str| value.as_str().is_some_and(|value| value.starts_with(text));
    let has_line = |frame: &Value| frame["line"].is_u64() && begins(&frame["method"], "Asked.");
    let stands = |stack: &Value| stack["frames"].as_array().is_some_and(|frames| frames.iter().any(has_line));
    match name {
        "locks" => {
            let waits = document["waits"].as_u64().is_some_and(|waits| waits > 0);
            waits
                && list("waiters").iter().any(|row| begins(&row["method"], "Asked.Wants("))
                && list("owners").iter().any(|row| row["name"] == "keeper")
                && list("longest").iter().any(|wait| stands(&wait["waiter"]))
        }
        "starvation" => list("blockers").iter().any(|row| begins(&row["method"], "Asked.Blocks(") && stands(row)),
        "pauses" => list("longest").iter().any(|pause| stands(&pause["caused_by"])),
        "exceptions" => list("kinds").iter().any(|kind| {
            let message = &kind["messages"][0];
            has_line(&kind["thrower"])
                && has_line(&kind["catcher"])
                && begins(&kind["catcher"]["method"], "Asked.Catches(")
                && message["text"] == "asked for"
        }),
        "allocations" => list("rows").iter().any(|row| row["class"] == "Order"),
        "leaks" => {
            let groups = document["grown"]["groups"].as_array().cloned().unwrap_or_default();
            groups
                .iter()
                .any(|group| group["way"].as_array().is_some_and(|way| way.iter().any(|step| step["class"] == "Node")))
        }
        "timer" => list("top").iter().any(|row| begins(&row["method"], "Asked.Outer(")),
        "tracer" => document["lost"] == 0,
        _ => false,
    }
}

/// The options with which a question has its answer soon.
fn options(name: &str) -> &'static [&'static str] {
    match name {
        "leaks" => &["--first", "0.2"],
        "timer" | "tracer" => &["--filter", "Asked.*"],
        _ => &[],
    }
}

fn answers_by_document(name: &str) -> Result<()> {
    let schema = Schema::read()?;
    for runtime in runtimes()? {
        let program = Program::start(Run::new(&runtime, "Asked").args([name]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let mut is_done = false;
        let mut seen = String::new();
        for seconds in [2, 4, 8, 16] {
            let mut command = corprof()?;
            command.args([name, &pid, "--json", "--duration", &seconds.to_string()]).args(options(name));
            let output = command.output()?;
            let (stdout, stderr) = texts(&output);
            ensure!(output.status.success(), "{runtime}: {stdout}{stderr}");
            let mut all = documents(&stdout)?;
            let answer = all.pop().with_context(|| format!("{runtime}: no document: {stderr}"))?;
            schema.check(name, &answer).with_context(|| runtime.to_string())?;
            ensure!(answer["pid"] == program.child.id(), "{runtime}: {answer}");
            ensure!(all.is_empty() || name == "tracer", "{runtime}: {stdout}");
            for call in &all {
                schema.check("call", call)?;
            }
            is_done = is_right(name, &answer) && (name != "tracer" || !all.is_empty());
            seen = stdout;
            // The runtime keeps those that have changed code.
            if is_done || ["timer", "tracer"].contains(&name) {
                break;
            }
        }
        ensure!(is_done, "{runtime}: {seen}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn locks_answers_by_a_document() -> Result<()> {
    answers_by_document("locks")
}

#[test]
fn starvation_answers_by_a_document() -> Result<()> {
    answers_by_document("starvation")
}

#[test]
fn pauses_answers_by_a_document() -> Result<()> {
    answers_by_document("pauses")
}

#[test]
fn exceptions_answers_by_a_document() -> Result<()> {
    answers_by_document("exceptions")
}

#[test]
fn allocations_answers_by_a_document() -> Result<()> {
    answers_by_document("allocations")
}

#[test]
fn leaks_answers_by_a_document() -> Result<()> {
    answers_by_document("leaks")
}

#[test]
fn timer_answers_by_a_document() -> Result<()> {
    answers_by_document("timer")
}

#[test]
fn tracer_answers_by_a_document() -> Result<()> {
    answers_by_document("tracer")
}

#[test]
fn an_application_is_answered_for_after_its_own_output() -> Result<()> {
    let schema = Schema::read()?;
    for runtime in runtimes()? {
        for name in ["exceptions", "allocations"] {
            let mut command = corprof()?;
            command.args([name, "--json", "--"]).args(application(&runtime, "Asked")?).arg(name);
            let program = Program::start(command)?;
            program.expect("ready")?;
            thread::sleep(Duration::from_secs(1));
            let (lines, code) = program.rest()?;
            ensure!(code == Some(0), "{runtime}: {code:?}: {lines:?}");
            let line = lines.last().with_context(|| format!("{runtime}: no line"))?;
            let answer: Value = serde_json::from_str(line).with_context(|| format!("{runtime}: {lines:?}"))?;
            schema.check(name, &answer).with_context(|| runtime.to_string())?;
            ensure!(is_right(name, &answer), "{runtime}: {answer}");
        }
    }
    Ok(())
}

#[test]
fn other_commands_print_documents() -> Result<()> {
    let schema = Schema::read()?;
    for runtime in runtimes()? {
        let program = Program::start(Run::new(&runtime, "Asked").args(["locks"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        for (name, arguments) in [
            ("stacks", &["stacks", &pid, "--json"][..]),
            ("ps", &["ps", "--json"]),
            ("counters", &["counters", &pid, "--json", "--duration", "3"]),
            ("tasks", &["tasks", &pid, "--json"]),
            ("events", &["events", &pid, "--set", "contention", "--json", "--duration", "2"]),
            ("heap", &["heap", &pid, "--json"]),
        ] {
            let output = corprof()?.args(arguments).output()?;
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let stdout = texts(&output).0;
            // That of the heap has many lines.
            let all = if name == "heap" { vec![serde_json::from_str(&stdout)?] } else { documents(&stdout)? };
            ensure!(!all.is_empty(), "{runtime}: {name} prints nothing: {output:?}");
            for document in &all {
                schema.check(name, document).with_context(|| runtime.to_string())?;
            }
        }
        program.end()?;
    }
    Ok(())
}

/// The commands of `corprof`, by their words, from the help of `words`.
fn commands(words: &[&str]) -> Result<Vec<String>> {
    let output = corprof()?.args(words).arg("--help").output()?;
    ensure!(output.status.success(), "{words:?}: {output:?}");
    let help = texts(&output).0;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    let mut all = Vec::new();
    // `il` alone is none, but `heap` is.
    if !words.is_empty() && (names.is_empty() || has_json(&help)) {
        all.push(words.join(" "));
    }
    for name in names {
        all.extend(commands(&[words, &[name]].concat())?);
    }
    Ok(all)
}

fn has_json(help: &str) -> bool {
    help.lines().any(|line| line.split_whitespace().next() == Some("--json"))
}

#[test]
fn every_command_has_documents_that_the_book_states() -> Result<()> {
    let schema = Schema::read()?;
    let all = commands(&[])?;
    ensure!(all.len() > 30 && all.iter().any(|command| command == "il dump"), "{all:?}");
    for command in all {
        let words: Vec<_> = command.split(' ').collect();
        let help = texts(&corprof()?.args(&words).arg("--help").output()?).0;
        // A script for a shell, and a text for people.
        if ["completions", "exit-codes"].contains(&command.as_str()) {
            continue;
        }
        ensure!(has_json(&help), "{command} has no --json: {help}");
        let table = if command == "heap top" { "heap".to_owned() } else { command.replace(' ', "-") };
        schema.table(&table)?;
    }
    Ok(())
}

/// The documents of a command that needs no process, which must succeed.
fn prints(schema: &Schema, table: &str, command: &mut Command) -> Result<Vec<Value>> {
    let output = command.output()?;
    let (stdout, stderr) = texts(&output);
    ensure!(output.status.success(), "{table}: {stdout}{stderr}");
    let all = documents(&stdout)?;
    ensure!(!all.is_empty(), "{table} prints nothing: {stderr}");
    all.iter().try_for_each(|document| schema.check(table, document))?;
    Ok(all)
}

#[test]
fn commands_without_a_process_print_documents() -> Result<()> {
    let schema = Schema::read()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let all = prints(&schema, "run", corprof()?.args(["run", "--list", "--json"]))?;
    ensure!(all.iter().any(|profiler| profiler["name"] == "sampler"), "{all:?}");
    let one = prints(&schema, "run", corprof()?.args(["run", "timer", "--list", "--json"]))?;
    ensure!(one.len() == 1 && one[0]["name"] == "timer", "{one:?}");
    let unpacked = prints(&schema, "unpack", corprof()?.arg("unpack").arg(at("there")).args(["locks", "--json"]))?;
    ensure!(unpacked.iter().all(|library| library["file"].as_str().is_some_and(|file| Path::new(file).is_file())));
    let checkout = xtask::cargo::workspace_root().join("corprof");
    let mut new = corprof()?;
    new.args(["new", "its-name", "--json", "--corprof-path"]).arg(checkout).arg("--path").arg(at("crate"));
    prints(&schema, "new", &mut new)?;
    fs::write(at("one.nettrace"), recording()?)?;
    let mut heatmap = corprof()?;
    heatmap.arg("heatmap").arg(at("one.nettrace")).arg("-o").arg(at("map.html")).arg("--json");
    let map = prints(&schema, "heatmap", &mut heatmap)?;
    ensure!(map[0]["cell_ms"] == 20.0 && at("map.html").is_file(), "{map:?}");
    let mut doctor = corprof()?;
    doctor.args(["doctor", "--json"]).env("CORECLR_ENABLE_PROFILING", "1");
    // It has found something, which its exit code says.
    let output = doctor.output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    documents(&texts(&output).0)?.iter().try_for_each(|finding| schema.check("doctor", finding))?;
    let Some(runtime) = runtimes()?.into_iter().next() else { return Ok(()) };
    let app = PathBuf::from(runtime.app("Pool")?);
    let checked = prints(&schema, "il-check", corprof()?.args(["il", "check", "--json"]).arg(&app))?;
    let dumped = prints(&schema, "il-dump", corprof()?.args(["il", "dump", "--json"]).arg(&app).arg("Main"))?;
    ensure!(checked.iter().any(|method| method["token"] == dumped[0]["token"]), "{dumped:?}");
    Ok(())
}

#[test]
fn snapshots_print_documents() -> Result<()> {
    let schema = Schema::read()?;
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = Program::start(Run::new(&runtime, "Asked").args(["leaks"]).command()?)?;
        program.expect("ready")?;
        let pid = program.child.id().to_string();
        let document = |words: &[&str]| -> Result<Option<Value>> {
            let output = corprof()?.current_dir(folder.path()).arg("heap").args(words).output()?;
            ensure!(output.status.success(), "{runtime}: {words:?}: {output:?}");
            let stdout = texts(&output).0;
            Ok(if stdout.is_empty() { None } else { Some(serde_json::from_str(&stdout)?) })
        };
        for file in ["one.heap", "two.heap"] {
            document(&[&pid, "-o", file])?;
        }
        let top = document(&["top", "one.heap", "--json"])?.context("no document")?;
        schema.check("heap", &top).with_context(|| runtime.to_string())?;
        let diff = document(&["diff", "one.heap", "two.heap", "--json"])?.context("no document")?;
        schema.check("heap-diff", &diff).with_context(|| runtime.to_string())?;
        let is_node = |class: &Value| class["name"] == "Node" && class["object_growth"].as_i64() > Some(0);
        ensure!(diff["classes"].as_array().is_some_and(|classes| classes.iter().any(is_node)), "{runtime}: {diff}");
        program.end()?;
    }
    Ok(())
}

#[test]
fn recordings_are_told_by_documents() -> Result<()> {
    let schema = Schema::read()?;
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let mut record = corprof()?;
        record.current_dir(folder.path()).args(["record", "-o", "p.folded", "--json", "--"]);
        record.args(application(&runtime, "Pool")?).args(["1000", "2", "100000"]);
        let output = record.output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let stdout = texts(&output).0;
        let last = stdout.lines().last().with_context(|| format!("{runtime}: {output:?}"))?;
        let document: Value = serde_json::from_str(last).with_context(|| format!("{runtime}: {last}"))?;
        schema.check("record", &document).with_context(|| runtime.to_string())?;
        let file = &document["files"][0];
        ensure!(file["file"].as_str().is_some_and(|file| file.ends_with("p.folded")), "{runtime}: {document}");
        ensure!(file["summary"].as_array().is_some_and(|lines| lines.len() > 1), "{runtime}: {document}");
    }
    Ok(())
}

#[test]
fn commands_on_a_process_print_documents() -> Result<()> {
    let schema = Schema::read()?;
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let document = |table: &str, words: &[&str]| -> Result<Value> {
            let mut command = corprof()?;
            command.current_dir(folder.path()).args(words);
            let all = prints(&schema, table, &mut command).with_context(|| runtime.to_string())?;
            ensure!(all.len() == 1, "{runtime}: {all:?}");
            Ok(all.into_iter().next().unwrap_or_default())
        };
        document("top", &["top", &pid, "--json", "--duration", "1"])?;
        let wall = ["record", "-p", &pid, "--json", "--mode", "wall", "--duration", "1", "-o", "q.folded"];
        let recorded = document("record", &wall)?;
        ensure!(recorded["files"][0]["pid"] == program.child.id(), "{runtime}: {recorded}");
        ensure!(document("resume", &["resume", &pid, "--json"])?["has_waited"] == false, "{runtime}");
        let attached = document("attach", &["attach", &pid, "exceptions", "--json"])?;
        ensure!(attached["pid"] == program.child.id(), "{runtime}: {attached}");
        document("detach", &["detach", &pid, "--json"])?;
        program.end()?;
    }
    Ok(())
}

/// A recording with two hundred samples of a processor.
fn recording() -> Result<Vec<u8>> {
    use corprof_nettrace::events::universal::Measured;
    use corprof_nettrace::{Metadata, NewEvent, Thread, Trace, UtcTime, Writer};

    let now = UtcTime::from_system_time(std::time::SystemTime::now()).context("no clock")?;
    let mut writer = Writer::new(Vec::new(), &Trace::new(now, 0, 1_000))?;
    let definition = Metadata::new(1, "Universal.Events", 1, Measured::CPU).with_fields(Measured::fields());
    writer.define_event(&definition)?;
    writer.define_thread(&Thread::new(1))?;
    let mut payload = Vec::new();
    Measured { value: 1 }.write(&mut payload);
    for ticks in 0..200 {
        let mut event = NewEvent::new(1, 1, ticks);
        event.payload = &payload;
        event.stack = &[0x1000];
        writer.write(&event)?;
    }
    Ok(writer.finish()?)
}

#[test]
fn a_recording_is_viewed_as_a_document() -> Result<()> {
    let schema = Schema::read()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("one.nettrace");
    fs::write(&file, recording()?)?;
    for by in ["method", "line", "type", "thread", "label:user"] {
        let output = corprof()?.arg("view").arg(&file).args(["--json", "--by", by]).output()?;
        ensure!(output.status.success(), "{output:?}");
        for document in documents(&texts(&output).0)? {
            ensure!(document["samples"] == 200, "{document}");
            schema.check("view", &document)?;
        }
    }
    let output = corprof()?.arg("diff").args([&file, &file]).arg("--json").output()?;
    ensure!(output.status.success(), "{output:?}");
    for document in documents(&texts(&output).0)? {
        ensure!(document["rows"][0]["own"]["changed"] == false, "{document}");
        schema.check("diff", &document)?;
    }
    Ok(())
}

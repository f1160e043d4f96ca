//! Source lines of `corprof record` and `corprof top`: the shares of lines are those that the program has by
//! construction (tests/managed/modern/HotLines.cs), in optimised code.

use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::*;

/// How many points a share of so many seconds may be off: what chance makes of so few samples, and at least 5. On two
/// processors that others use as well, a sample at 500 Hz stands for 4 ms.
fn tolerance(seconds: f64) -> f64 {
    const OF_A_SAMPLE: f64 = 0.004;
    let deviation = 100.0 * (0.7 * 0.3 * OF_A_SAMPLE / seconds).sqrt();
    (3.0 * deviation).max(5.0)
}

fn runtimes_for_hot_lines() -> Result<Vec<Runtime>> {
    let all = Runtime::all_for_modern("HotLines")?;
    Ok(all.into_iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()).collect())
}

/// A line of a method, with its seconds.
struct Line {
    method: String,
    file: String,
    line: u64,
    own: f64,
    total: f64,
}

/// The numbers of the marked lines of the program.
fn marked(mark: &str) -> Result<u64> {
    let source = fs::read_to_string(xtask::managed::modern_dir().join("HotLines.cs"))?;
    let found = source.lines().zip(1..).find(|(line, _)| line.ends_with(&format!("; // {mark}")));
    Ok(found.with_context(|| format!("no line is marked by {mark}"))?.1)
}

/// Checks the shares of lines.
fn check(lines: &[Line]) -> Result<()> {
    let seconds = |method: &str, mark: &str| -> Result<(f64, f64)> {
        let number = marked(mark)?;
        let is_it = |line: &&Line| {
            line.method.starts_with(method) && line.file.ends_with("/HotLines.cs") && line.line == number
        };
        Ok(lines.iter().find(is_it).map_or((0.0, 0.0), |line| (line.own, line.total)))
    };
    let sum = |method: &str, of: fn(&Line) -> f64| -> f64 {
        lines.iter().filter(|line| line.method.starts_with(method)).map(of).sum()
    };
    let all = sum("HotLines.Loops(", |line| line.own);
    let all_calls = sum("HotLines.Calls(", |line| line.total);
    ensure_or_longer!(all > 0.7 && all_calls > 0.7, "few samples: {all} s in Loops, {all_calls} s in Calls");
    for (share, mark) in [(70.0, "70"), (30.0, "30")] {
        let own = 100.0 * seconds("HotLines.Loops(", mark)?.0 / all;
        ensure_or_longer!((own - share).abs() < tolerance(all), "Loops: {own} % of its own time at {mark}");
        let (own_of_call, total) = seconds("HotLines.Calls(", &format!("calls {mark}"))?;
        let total_share = 100.0 * total / all_calls;
        ensure_or_longer!(
            (total_share - share).abs() < tolerance(all_calls),
            "Calls: {total_share} % of its time at {mark}"
        );
        ensure!(own_of_call < 0.1 * total, "a call is the time of what it calls: {own_of_call} of {total}");
        println!("{mark}: {own:.1} % own, {total_share:.1} % total");
    }
    let (burns, _) = seconds("HotLines.Burns(", "burns")?;
    let all_burns = sum("HotLines.Burns(", |line| line.own);
    ensure_or_longer!(burns > 0.95 * all_burns, "Burns: {burns} of {all_burns} s at its loop");
    Ok(())
}

/// The lines of a page.
fn of_page(page: &str) -> Result<Vec<Line>> {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).context("no page")?;
    let (data, _) = rest.split_once("</script>").context("no end")?;
    let data: Value = serde_json::from_str(data)?;
    let column = |table: &str, name: &str| data[table][name].as_array().cloned().unwrap_or_default();
    let names = column("frames", "name");
    let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX) as usize;
    let text = |value: &Value| data["texts"][number(value)].as_str().unwrap_or_default().to_owned();
    let rows = column("lines", "frame").into_iter().enumerate().map(|(row, frame)| {
        let value = |name: &str| data["lines"][name][row].clone();
        let seconds = |name: &str| value(name).as_f64().unwrap_or_default() / 1e9;
        Line {
            method: names.get(number(&frame)).map(text).unwrap_or_default(),
            file: text(&value("file")),
            line: value("line").as_u64().unwrap_or_default(),
            own: seconds("own"),
            total: seconds("total"),
        }
    });
    Ok(rows.collect())
}

#[test]
fn the_page_of_a_recording_has_the_hot_lines() -> Result<()> {
    patiently(runtimes_for_hot_lines()?, |runtime, longer| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("lines.html");
        let mut command = corprof()?;
        command.arg("record").arg("-o").arg(&file).args(["--rate", "500", "--delay", "0.8", "--"]);
        let output = command.args(application(runtime, "HotLines")?).arg((3500 * longer).to_string()).output()?;
        ensure!(output.status.success(), "{output:?}");
        let lines = of_page(&fs::read_to_string(&file)?)?;
        // What the application ran before the delay was over is in no sample.
        let sum: f64 = lines.iter().filter(|line| line.method.starts_with("HotLines.")).map(|line| line.own).sum();
        ensure!(sum < 3.6 * longer as f64, "{sum} s in a run of {longer} times 3.5 s");
        check(&lines)
    })
}

mod long {
    use super::*;

    #[test]
    fn the_page_of_a_nettrace_has_the_hot_lines() -> Result<()> {
        patiently(runtimes_for_hot_lines()?, |runtime, longer| {
            let folder = tempfile::tempdir()?;
            let [file, page] = ["lines.nettrace", "lines.html"].map(|name| folder.path().join(name));
            let mut command = corprof()?;
            command.arg("record").arg("-o").arg(&file).args(["--rate", "500", "--"]);
            let output = command.args(application(runtime, "HotLines")?).arg((3500 * longer).to_string()).output()?;
            ensure!(output.status.success(), "{output:?}");
            let output = corprof()?.arg("view").arg(&file).arg("-o").arg(&page).output()?;
            ensure!(output.status.success(), "{output:?}");
            check(&of_page(&fs::read_to_string(&page)?)?)
        })
    }

    #[test]
    fn top_shows_the_hot_lines() -> Result<()> {
        patiently(runtimes_for_hot_lines()?, |runtime, longer| {
            let mut command = Run::new(runtime, "HotLines").command()?;
            command.arg("3600000");
            let program = Program::start(command)?;
            program.expect("ready")?;
            let pid = program.child.id().to_string();
            let duration = (4 * longer).to_string();
            let options = ["--lines", "--json", "--budget", "50", "--rate", "500", "--duration", &duration];
            let output = corprof()?.arg("top").arg(pid).args(options).output()?;
            ensure!(output.status.success(), "{output:?}");
            let table: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
            let rows = table["methods"].as_array().context("no methods")?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let lines = rows.iter().map(|row| Line {
                method: text(&row["method"]),
                file: text(&row["file"]),
                line: row["line"].as_u64().unwrap_or_default(),
                own: row["own_seconds"].as_f64().unwrap_or_default(),
                total: row["total_seconds"].as_f64().unwrap_or_default(),
            });
            check(&lines.collect::<Vec<_>>())
        })
    }
}

#[test]
fn without_a_pdb_there_are_no_lines() -> Result<()> {
    patiently(runtimes()?, |runtime, longer| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("lines.html");
        let mut command = corprof()?;
        command.arg("record").arg("-o").arg(&file).arg("--").args(application(runtime, "Shares")?);
        let output = command.arg((1500 * longer).to_string()).output()?;
        // On a busy machine there may be no sample.
        ensure_or_longer!(output.status.success(), "{output:?}");
        let page = fs::read_to_string(&file)?;
        ensure_or_longer!(page.contains("Shares.Sixty"), "few samples");
        let lines = of_page(&page)?;
        let known: Vec<_> = lines.iter().map(|line| format!("{} {}:{}", line.method, line.file, line.line)).collect();
        ensure!(known.is_empty(), "{known:?}");
        Ok(())
    })
}

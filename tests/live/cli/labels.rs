//! `corprof view --by label:endpoint`, `--label` and `--slowest` on recordings with activities.

use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::super::*;

/// The document of `corprof view`.
fn view(file: &Path, arguments: &[&str]) -> Result<Value> {
    let output = corprof()?.arg("view").arg(file).arg("--json").args(arguments).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The weight of the samples with a method on the stack, or with a label.
fn weight(document: &Value, name: &str) -> u64 {
    let rows = document["rows"].as_array().into_iter().flatten();
    let is_it = |row: &&Value| row["name"].as_str().is_some_and(|row| row.starts_with(name));
    rows.filter(is_it).filter_map(|row| row["total"].as_u64()).sum()
}

/// The usual weight of a sample, in nanoseconds: 500 a second.
const SAMPLE: u64 = 2_000_000;

#[test]
fn samples_have_the_requests_that_they_are_of() -> Result<()> {
    let runtimes = Runtime::all_for_modern("WebLabels")?.into_iter();
    let runtimes = runtimes.filter(|runtime| !runtime.is_windows() && !runtime.is_emulated());
    patiently(runtimes.collect(), |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("web.nettrace");
        let mut command = corprof()?;
        command.arg("record").arg("-o").arg(&file).args(["--rate", "500", "--events", "cpu,activity", "--"]);
        let output = command.args(application(runtime, "WebLabels")?).arg((3500 * times).to_string()).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let tells_operations = runtime.has(Difference::AsyncOperations);
        let all = view(&file, &[])?;
        let labels = view(&file, &["--by", "label:endpoint"])?;
        let of = |path: &str| view(&file, &["--label", &format!("endpoint={path}")]);
        let [early, late] = [of("/early")?, of("GET /late")?];
        let [before, after] = ["Shop.Before(", "Shop.After("].map(|name| weight(&all, name));
        println!(
            "{runtime}: Before {before} ({} in /early, {} in /late), After {after} ({} in /late, {} in /early), labels {}",
            weight(&early, "Shop.Before("),
            weight(&late, "Shop.Before("),
            weight(&late, "Shop.After("),
            weight(&early, "Shop.After("),
            labels["rows"]
        );
        ensure_or_longer!(before > 100 * SAMPLE && after > 100 * SAMPLE, "{runtime}: {before} and {after} ns");
        // What comes before the first await is known on each runtime, the last second is not told.
        ensure_or_longer!(weight(&early, "Shop.Before(") * 10 >= before * 8, "{runtime}: of {before}: {early}");
        ensure!(weight(&late, "Shop.Before(") == 0, "{runtime}: {late}");
        // Where the end of a run is not told any more, its thread counts for that request until this ends. What comes after
        // an await has no label where operations are not told.
        ensure_or_longer!(weight(&early, "Shop.After(") * 20 <= after, "{runtime}: {early}");
        ensure!(weight(&labels, "GET /early") > 0 && weight(&labels, "[no label]") > 0, "{runtime}: {labels}");
        let traces = view(&file, &["--label", "endpoint=/early", "--by", "label:trace"])?;
        let is_trace = |row: &Value| row["name"].as_str().is_some_and(|name| name.len() == 32);
        let traces = traces["rows"].as_array().context("no traces")?;
        ensure!(traces.iter().all(is_trace), "{runtime}: {traces:?}");
        ensure_or_longer!(traces.len() > 20, "{runtime}: {traces:?}");
        if !tells_operations {
            return Ok(());
        }
        ensure_or_longer!(weight(&late, "Shop.After(") * 10 >= after * 8, "{runtime}: of {after}: {late}");
        let rare = of("/rare")?;
        let slowest = view(&file, &["--label", "endpoint=/rare", "--slowest", "2%"])?;
        let [slow, quick] = ["Shop.Slow(", "Shop.Quick("].map(|name| (weight(&rare, name), weight(&slowest, name)));
        println!("{runtime}: Slow {slow:?}, Quick {quick:?}");
        ensure_or_longer!(slow.0 > 20 * SAMPLE && quick.0 > 20 * SAMPLE, "{runtime}: {slow:?} and {quick:?}");
        // On a busy machine, others may be slower at times.
        ensure_or_longer!(slow.1 * 10 >= slow.0 * 8, "{runtime}: {slow:?}");
        ensure_or_longer!(quick.1 * 10 <= quick.0 * 2, "{runtime}: {quick:?}");
        // The same file for the command that is about requests.
        let output = corprof()?.arg("requests").arg(&file).arg("--json").output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        let early = endpoints.iter().find(|endpoint| endpoint["endpoint"] == "GET /early");
        let running = early.and_then(|early| early["running_ms"].as_f64()).context("nothing of /early")?;
        ensure_or_longer!(running > 100.0, "{runtime}: {report}");
        // And for the one that is about waits: the file has the names of methods that wait.
        let output = corprof()?.arg("waits").arg(&file).arg("--json").output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let places = report["places"].as_array().context("no places")?;
        let waits = places.iter().find(|place| place["method"] == "Shop.Early (async)");
        let waits = waits.with_context(|| format!("{runtime}: {report}"))?;
        ensure!(waits["is_mine"] == true, "{runtime}: {waits}");
        Ok(())
    })
}

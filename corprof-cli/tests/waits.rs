//! `corprof waits FILE` against the numbers of another decoder (`../shared/nettrace/async`).

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The report about a packed trace, and the numbers of the other decoder; none without the traces.
fn report(name: &str) -> Result<Option<(Value, Value)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/nettrace/async");
    let Ok(packed) = File::open(folder.join(format!("{name}.nettrace.xz"))) else {
        println!("SKIPPED: there are no traces in {}", folder.display());
        return Ok(None);
    };
    let mut trace = tempfile::NamedTempFile::new()?;
    std::io::copy(&mut lzma_rust2::XzReader::new(packed, true), &mut trace)?;
    let mut corprof = Command::new(env!("CARGO_BIN_EXE_corprof"));
    let output = corprof.arg("waits").arg(trace.path()).args(["--all", "--json"]).output()?;
    ensure!(output.status.success(), "{output:?}");
    let expected = File::open(folder.join(format!("{name}.expected.json")))?;
    Ok(Some((serde_json::from_slice(&output.stdout)?, serde_json::from_reader(expected)?)))
}

/// The number of waits and their milliseconds, at places whose innermost method is this one.
fn sums(report: &Value, method: &str) -> Result<(u64, f64)> {
    let places = report["places"].as_array().context("no places")?.iter();
    let is_it = |place: &Value| {
        place["method"].as_str().and_then(|name| name.split_once('(')).is_some_and(|(name, _)| name == method)
    };
    let of = places.filter(|place| is_it(place) && place["inner"].is_null());
    Ok(of.fold((0, 0.0), |sums, place| added(sums, &place["waits"], &place["total_ms"])))
}

fn added((count, ms): (u64, f64), more: &Value, more_ms: &Value) -> (u64, f64) {
    (count + more.as_u64().unwrap_or_default(), ms + more_ms.as_f64().unwrap_or_default())
}

#[test]
fn waits_of_a_service_are_those_of_another_decoder() -> Result<()> {
    let Some((report, expected)) = report("web_ra")? else { return Ok(()) };
    let known = expected["waits_ms"].as_object().context("no waits")?;
    for method in ["Slow.Wait80", "Repo.Query"] {
        let of = known.iter().filter(|(names, _)| names.starts_with(&format!("{method} < ")));
        let (count, total) = of.fold((0, 0.0), |sums, (_, sum)| added(sums, &sum["count"], &sum["total"]));
        let (waits, ms) = sums(&report, method)?;
        assert!(count > 1000 && waits == count, "{method}: {waits} for {count}");
        assert!((ms - total).abs() < 0.01, "{method}: {ms} for {total}");
    }
    Ok(())
}

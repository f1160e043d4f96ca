//! `corprof requests FILE` on traces whose requests are known (`corprof-async/tests/traces`).

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The packed traces: of methods that the runtime suspends, and of state machines.
const TRACES: [&str; 2] = ["requests_ra", "requests_sm"];

fn unpacked(name: &str) -> Result<tempfile::NamedTempFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corprof-async/tests/traces");
    let packed = File::open(folder.join(format!("{name}.nettrace.xz")))?;
    let mut trace = tempfile::NamedTempFile::new()?;
    std::io::copy(&mut lzma_rust2::XzReader::new(packed, true), &mut trace)?;
    Ok(trace)
}

#[test]
fn requests_of_a_file_are_counted_by_endpoint_in_the_order_asked_for() -> Result<()> {
    for name in TRACES {
        let trace = unpacked(name)?;
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("requests.html");
        let mut corprof = Command::new(env!("CARGO_BIN_EXE_corprof"));
        corprof.arg("requests").arg(trace.path()).args(["--json", "--sort", "p99", "-o"]).arg(&page);
        let output = corprof.output()?;
        ensure!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let endpoints = report["endpoints"].as_array().context("no endpoints")?;
        let count = |path: &str| -> Result<u64> {
            let endpoint = endpoints.iter().find(|endpoint| endpoint["endpoint"] == format!("GET {path}"));
            endpoint.with_context(|| format!("no {path}: {report}"))?["requests"].as_u64().context("no number")
        };
        let counts = [count("/orders")?, count("/slow")?, count("/stock")?, count("/users")?];
        assert_eq!(counts, [30, 30, 30, 60], "{name}");
        // It waits for 80 ms, and the others for a few.
        assert_eq!(endpoints[0]["endpoint"], "GET /slow", "{name}: {report}");
        let orders = endpoints.iter().find(|endpoint| endpoint["endpoint"] == "GET /orders");
        let calls = orders.context("no orders")?["calls"].as_array().context("no calls")?;
        assert!(calls.len() == 1 && calls[0]["calls"] == 30, "{name}: {calls:?}");
        let slowest = &report["slowest"][0];
        let sum: f64 =
            slowest["timeline"].as_array().into_iter().flatten().filter_map(|part| part["ms"].as_f64()).sum();
        let all = slowest["ms"].as_f64().context("no time")?;
        assert!(slowest["endpoint"] == "GET /slow" && (sum - all).abs() < 0.01, "{name}: {slowest}");
        let page = fs::read_to_string(&page)?;
        assert!(page.contains("<summary>GET /slow<") && page.contains("Flame graphs"), "{name}: {page}");
    }
    Ok(())
}

#[test]
fn only_as_many_endpoints_as_asked_for_are_printed() -> Result<()> {
    let trace = unpacked("requests_ra")?;
    let output =
        Command::new(env!("CARGO_BIN_EXE_corprof")).arg("requests").arg(trace.path()).args(["--rows", "1"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let rows = text.lines().filter(|line| line.contains("  GET /") && !line.starts_with("slowest"));
    assert!(rows.count() == 1 && text.contains("\n3 more endpoints: --rows\n"), "{text}");
    Ok(())
}

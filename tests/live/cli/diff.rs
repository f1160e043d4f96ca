//! `corprof diff` of two runs: what is the same is not called changed, and what is slower is found.

use serde_json::Value;

use super::*;

/// The samples that a recording has at least. The share of a method of 40 % grows by 2.3 points if it is a tenth
/// slower; of 10,000 samples on a calm machine the error of that is 0.55 points, which is enough in one of four pairs
/// only.
const SAMPLES: u64 = 20_000;

/// Records `Turns` at a sample a millisecond. Its first method does `percent` of its usual work.
fn record(runtime: &Runtime, file: &Path, turns: u64, percent: u64) -> Result<()> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(["--rate", "1000", "--"]).args(application(runtime, "Turns")?);
    let output = command.args([turns.to_string(), percent.to_string()]).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// What `corprof diff` says of the two.
fn diff(base: &Path, new: &Path) -> Result<Value> {
    let output = corprof()?.arg("diff").args([base, new]).arg("--json").output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The rows that are called changed.
fn changed(document: &Value) -> Result<Vec<String>> {
    let rows = document["rows"].as_array().context("no rows")?;
    let is_changed = |row: &&Value| row["own"]["changed"] == true || row["total"]["changed"] == true;
    let names = rows.iter().filter(is_changed).map(|row| row["name"].as_str().unwrap_or_default().to_owned());
    Ok(names.collect())
}

/// Each pair computes for more than a minute.
mod long {
    use corprof_tests::{ensure_or_longer, patiently, repetitions};

    use super::*;

    /// Of 12 ms each.
    const TURNS: u64 = 2_200;

    #[test]
    fn a_slower_method_is_found_and_the_same_program_is_the_same() -> Result<()> {
        let newest: Vec<_> = runtimes()?.into_iter().take(1).collect();
        patiently(newest, |runtime, times| {
            let folder = tempfile::tempdir()?;
            let [base, same, slower] =
                ["base", "same", "slower"].map(|name| folder.path().join(format!("{name}.nettrace")));
            for pair in 0..repetitions(2, 10) {
                record(runtime, &base, TURNS * times, 100)?;
                record(runtime, &same, TURNS * times, 100)?;
                record(runtime, &slower, TURNS * times, 110)?;
                let equal = diff(&base, &same)?;
                let samples = equal["base"]["samples"].as_u64().context("no number of samples")?;
                ensure_or_longer!(samples >= SAMPLES, "pair {pair}: {samples} samples");
                let found = changed(&equal)?;
                ensure!(found.is_empty(), "{runtime}, pair {pair}: the same program: {found:?}: {equal}");
                let differs = diff(&base, &slower)?;
                let found = changed(&differs)?;
                ensure!(found.iter().any(|name| name == "Turns.First(int)"), "{runtime}, pair {pair}: {differs}");
            }
            Ok(())
        })
    }
}

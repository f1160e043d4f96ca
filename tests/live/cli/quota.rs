//! A process that may use half a processor, by a control group, as in a container.

use corprof_tests::{ensure_or_longer, patiently};

use super::*;

/// A control group with half a processor. Dropping this value removes it, if its processes have ended.
struct HalfProcessor(PathBuf);

impl HalfProcessor {
    /// None if this system or user cannot make one.
    fn make() -> Option<Self> {
        let name = format!("corprof-{}", std::process::id());
        // Version 1, then version 2.
        for (root, quota) in [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")] {
            let folder = Path::new(root).join(&name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let made = Self(folder);
            let limit = if quota == "cpu.max" { "50000 100000" } else { "50000" };
            let file = made.0.join(quota);
            if file.exists() && fs::write(&file, limit).is_ok() {
                return Some(made);
            }
        }
        println!("SKIPPED: this system or user cannot make a control group with a quota");
        None
    }

    /// The command, in the group.
    fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("/bin/sh");
        inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

impl Drop for HalfProcessor {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        // A process that was killed leaves its group a little later.
        while fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The weight of the stacks with this method.
fn weight(folded: &str, method: &str) -> f64 {
    let of = folded.lines().filter(|line| line.contains(method));
    of.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[test]
fn half_a_processor_is_told_and_the_shares_are_right() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let Some(group) = HalfProcessor::make() else { return Ok(()) };
        let mut shares = Run::new(runtime, "Shares").command()?;
        shares.args(["600000", "2"]);
        let mut child = group.within(&shares).stdout(Stdio::null()).spawn()?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.folded");
        // Compilation at half a processor takes its time.
        thread::sleep(Duration::from_secs(2));
        let mut record = corprof()?;
        record.args(["record", "-p", &child.id().to_string(), "--rate", "500", "--duration", &(3 * times).to_string()]);
        let output = record.arg("-o").arg(&file).output();
        child.kill()?;
        child.wait()?;
        let (_, stderr) = texts(&output?);
        ensure_or_longer!(file.is_file(), "{runtime}: {stderr}");
        let told = "periods in which the control group stopped the process (it allows 0.5 processors)";
        ensure!(stderr.contains(told), "{runtime}: {stderr}");
        let folded = fs::read_to_string(&file)?;
        let [sixty, thirty, ten] = ["Shares.Sixty", "Shares.Thirty", "Shares.Ten"].map(|name| weight(&folded, name));
        let all = sixty + thirty + ten;
        for (share, expected) in [(sixty, 0.6), (thirty, 0.3), (ten, 0.1)] {
            ensure_or_longer!((share / all - expected).abs() < 0.1, "{runtime}: {sixty} {thirty} {ten}: {stderr}");
        }
        Ok(())
    })
}

//! A process that may use a part of a processor and little memory, by control groups, as in a container.

use corprof_tests::{ensure_or_longer, patiently};
use serde_json::Value;

use super::*;

/// Control groups with limits. Dropping this value removes them, if their processes have ended.
struct Limits {
    groups: Vec<PathBuf>,
}

/// Where a limit is set: the folder of all groups, and the file in each.
type Place = (&'static str, &'static str);

/// For control groups of version 1, then of version 2.
const PROCESSOR: [Place; 2] = [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"), ("/sys/fs/cgroup", "cpu.max")];
const MEMORY: [Place; 2] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

impl Limits {
    /// So many hundredths of a processor, and megabytes if they are limited. None if this system or user cannot make
    /// such groups.
    fn make(hundredths: u32, megabytes: Option<u32>) -> Option<Self> {
        let mut made = Self { groups: Vec::new() };
        let quota = format!("{hundredths}000");
        let bytes = megabytes.map(|megabytes| format!("{megabytes}000000"));
        let is_set = made.set(PROCESSOR, &quota, &format!("{quota} 100000"))
            && bytes.is_none_or(|bytes| made.set(MEMORY, &bytes, &bytes));
        if !is_set {
            println!("SKIPPED: this system or user cannot make a control group with such limits");
        }
        is_set.then_some(made)
    }

    /// Sets a limit in the first place that takes it: the first value in groups of version 1, else the second.
    fn set(&mut self, places: [Place; 2], first: &str, second: &str) -> bool {
        let name = format!("corprof-{}", std::process::id());
        places.iter().zip([first, second]).any(|((root, file), limit)| {
            let group = Path::new(root).join(&name);
            if !self.groups.contains(&group) {
                if fs::create_dir(&group).is_err() {
                    return false;
                }
                self.groups.push(group.clone());
            }
            group.join(file).exists() && fs::write(group.join(file), limit).is_ok()
        })
    }

    /// The command, in the group.
    fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("/bin/sh");
        let enter: String =
            self.groups.iter().map(|group| format!("echo $$ > {}/cgroup.procs && ", group.display())).collect();
        inside.args(["-c", &format!("{enter} exec \"$0\" \"$@\"")]);
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

impl Drop for Limits {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        for group in &self.groups {
            // A process that was killed leaves its group a little later.
            while fs::remove_dir(group).is_err() && Instant::now() < end {
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// The weight of the stacks with this method.
fn weight(folded: &str, method: &str) -> f64 {
    let of = folded.lines().filter(|line| line.contains(method));
    of.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Records a program of known shares within limits; and other commands answer.
fn shares_are_right(runtime: &Runtime, limits: &Limits, told: &str, times: u64) -> Result<()> {
    let mut shares = Run::new(runtime, "Shares").command()?;
    shares.args(["600000", "2"]);
    let mut child = limits.within(&shares).stdout(Stdio::null()).spawn()?;
    let pid = child.id().to_string();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("p.folded");
    // Compilation takes its time.
    thread::sleep(Duration::from_secs(2));
    let mut record = corprof()?;
    record.args(["record", "-p", &pid, "--rate", "500", "--duration", &(3 * times).to_string()]);
    let output = record.arg("-o").arg(&file).output();
    let stacks = corprof()?.args(["stacks", &pid, "--json"]).output();
    let heap = corprof()?.args(["heap", &pid]).output();
    child.kill()?;
    child.wait()?;
    let (_, stderr) = texts(&output?);
    ensure_or_longer!(file.is_file(), "{runtime}: {stderr}");
    // On a busy machine it may have got less than it is allowed.
    ensure_or_longer!(stderr.contains(&format!("({told})")), "{runtime}: {stderr}");
    let folded = fs::read_to_string(&file)?;
    let [sixty, thirty, ten] = ["Shares.Sixty", "Shares.Thirty", "Shares.Ten"].map(|name| weight(&folded, name));
    let all = sixty + thirty + ten;
    for (share, expected) in [(sixty, 0.6), (thirty, 0.3), (ten, 0.1)] {
        ensure_or_longer!((share / all - expected).abs() < 0.1, "{runtime}: {sixty} {thirty} {ten}: {stderr}");
    }
    let stacks = stacks?;
    let threads: Value = serde_json::from_slice(&stacks.stdout).with_context(|| format!("{runtime}: {stacks:?}"))?;
    ensure!(threads.to_string().contains("Shares.Main"), "{runtime}: {threads}");
    let (report, stderr) = texts(&heap?);
    ensure!(report.contains("System.String"), "{runtime}: {report}{stderr}");
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn half_a_processor_is_told_and_the_shares_are_right() -> Result<()> {
        patiently(runtimes()?, |runtime, times| match Limits::make(50, None) {
            Some(limits) => shares_are_right(runtime, &limits, "it allows 0.5 processors", times),
            None => Ok(()),
        })
    }

    #[test]
    fn a_quarter_of_a_processor_and_512_megabytes_are_enough() -> Result<()> {
        patiently(runtimes()?, |runtime, times| match Limits::make(25, Some(512)) {
            Some(limits) => shares_are_right(runtime, &limits, "it allows 0.25 processors", times),
            None => Ok(()),
        })
    }
}

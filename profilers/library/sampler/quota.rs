//! The quota of processor time that a control group allows, as of a container with half a processor: such a process
//! runs for a part of each period, and nothing of it can be sampled in the rest.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted: those of the processor in version 1, then all in version 2.
const MOUNTS: [(&str, &str); 3] =
    [("cpu", "/sys/fs/cgroup/cpu"), ("cpu", "/sys/fs/cgroup/cpu,cpuacct"), ("", "/sys/fs/cgroup")];

/// The quota of this process.
pub(super) struct Quota {
    folder: PathBuf,
    /// In processors.
    processors: f64,
    /// The periods before the start in which it was used up.
    before: u64,
}

impl Quota {
    /// That of this process; none if it has none.
    pub(super) fn of_process() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&groups, |mount| PathBuf::from(mount))
    }

    /// The quota of the innermost group that has one, by the lines of `/proc/self/cgroup`.
    fn find(groups: &str, mounted: impl Fn(&str) -> PathBuf) -> Option<Self> {
        for (controller, mount) in MOUNTS {
            let Some(path) = path_of(groups, controller) else { continue };
            let mount = mounted(mount);
            // A container may see its own group as the root, and not the path that its host has for it.
            let inner = mount.join(path.trim_start_matches('/'));
            let folders = inner.ancestors().take_while(|folder| folder.starts_with(&mount));
            let quota = folders.chain([mount.as_path()]).find_map(|folder| {
                let processors = processors(folder)?;
                Some(Self { folder: folder.to_owned(), processors, before: used_up(folder)? })
            });
            if quota.is_some() {
                return quota;
            }
        }
        None
    }

    /// The periods since the start in which the quota was used up.
    pub(super) fn periods(&self) -> u64 {
        used_up(&self.folder).unwrap_or(self.before).saturating_sub(self.before)
    }

    /// What such a period is, in words.
    pub(super) fn reason(&self) -> String {
        let plural = if (self.processors - 1.0).abs() < 1e-9 { "" } else { "s" };
        format!(
            "periods in which the control group stopped the process (it allows {} processor{plural})",
            self.processors
        )
    }
}

/// The path of the group of this controller.
fn path_of<'g>(groups: &'g str, controller: &str) -> Option<&'g str> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let is_it = parts.next()?.split(',').any(|name| name == controller);
        parts.next().filter(|_| is_it)
    })
}

/// The processors that a group allows; none if it does not limit them.
fn processors(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let (quota, period) = match read("cpu.max") {
        Some(both) => {
            let (quota, period) = both.trim().split_once(' ')?;
            (number(quota)?, number(period)?)
        }
        None => (number(&read("cpu.cfs_quota_us")?)?, number(&read("cpu.cfs_period_us")?)?),
    };
    // Version 1 has -1 for no limit.
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// The periods in which the group used up its quota.
fn used_up(folder: &Path) -> Option<u64> {
    let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_innermost_quota_counts() {
        let root = tempfile::tempdir().unwrap();
        let mounted = |mount: &str| root.path().join(mount.trim_start_matches('/'));
        let cpu = mounted("/sys/fs/cgroup/cpu");
        let stat = |count: u32| format!("nr_periods 90\nnr_throttled {count}\nthrottled_time 5\n");
        let of_1 = |quota: &str, count| {
            vec![
                ("cpu.cfs_quota_us", quota.to_owned()),
                ("cpu.cfs_period_us", "100000\n".to_owned()),
                ("cpu.stat", stat(count)),
            ]
        };
        let write = |folder: &Path, files: Vec<(&str, String)>| {
            group(folder, &files.iter().map(|(name, text)| (*name, text.as_str())).collect::<Vec<_>>());
        };
        write(&cpu.join("a"), of_1("25000\n", 7));
        write(&cpu.join("a/b"), of_1("-1\n", 0));
        let groups = "5:memory:/x\n4:cpu,cpuacct:/a/b\n0::/else\n";
        let quota = Quota::find(groups, mounted).unwrap();
        assert!(quota.reason().ends_with("(it allows 0.25 processors)"), "{}", quota.reason());
        assert_eq!(quota.periods(), 0);
        write(&cpu.join("a"), of_1("25000\n", 12));
        assert_eq!(quota.periods(), 5);
        assert!(Quota::find("4:cpu:/other\n", mounted).is_none());

        // Version 2, in a container that sees its group as the root.
        let all = mounted("/sys/fs/cgroup");
        group(&all, &[("cpu.max", "100000 100000\n"), ("cpu.stat", "usage_usec 1\nnr_throttled 3\n")]);
        let quota = Quota::find("0::/docker/1234\n", mounted).unwrap();
        assert!(quota.reason().ends_with("(it allows 1 processor)"), "{}", quota.reason());
        group(&all, &[("cpu.max", "max 100000\n")]);
        assert!(Quota::find("0::/docker/1234\n", mounted).is_none());
    }
}

//! A cache for downloads: one folder per entry, complete or absent.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::process::env_path;

/// The prefix of an entry's name while it is being filled; a random part follows.
const PARTIAL: &str = ".partial-";

/// After this long an unfinished entry is abandoned: its run was interrupted.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of all downloads.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache of this user: `$CORPROF_CACHE`, else `$XDG_CACHE_HOME/corprof`, else `~/.cache/corprof`.
    ///
    /// # Errors
    /// If none of the three variables is set, or the folder cannot be made.
    pub fn open() -> Result<Self> {
        let root = env_path("CORPROF_CACHE")
            .or_else(|| env_path("XDG_CACHE_HOME").map(|dir| dir.join("corprof")))
            .or_else(|| env::home_dir().map(|dir| dir.join(".cache").join("corprof")))
            .context("no place for the cache: set CORPROF_CACHE to a folder")?;
        Self::at(&root)
    }

    /// A cache in `root`; makes the folder if necessary.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root)
            .and_then(|()| root.canonicalize())
            .map(|root| Self { root })
            .with_context(|| format!("cannot make the cache folder {}; CORPROF_CACHE can name another", root.display()))
    }

    /// The path of the entry `name`, present or not.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The entry `name`; if it does not exist yet, `fill` writes its content to the given folder.
    ///
    /// The content gets its name by one rename, so an interrupted run leaves nothing that a later run could take for
    /// complete, and of two concurrent runs the first to finish wins.
    ///
    /// # Errors
    /// The error of `fill`, or the reason why the folder could not be made or renamed.
    pub fn install(&self, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let entry = self.path(name);
        if entry.is_dir() {
            return Ok(entry);
        }
        self.sweep();
        let partial = tempfile::Builder::new()
            .prefix(PARTIAL)
            .tempdir_in(&self.root)
            .with_context(|| format!("cannot make a folder in the cache {}", self.root.display()))?;
        // A folder inside, because the temporary one is readable by its owner alone and stays so after a rename.
        let content = partial.path().join("content");
        fs::create_dir(&content).with_context(|| format!("cannot make {}", content.display()))?;
        fill(&content)?;
        if let Err(error) = fs::rename(&content, &entry)
            && !entry.is_dir()
        {
            return Err(error).with_context(|| format!("cannot move {name} into the cache {}", self.root.display()));
        }
        Ok(entry)
    }

    /// Removes the remains of interrupted runs, as far as possible: they do no harm.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let is_partial = entry.file_name().to_string_lossy().starts_with(PARTIAL);
            let changed = entry.metadata().and_then(|metadata| metadata.modified());
            let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
            if is_partial && age.is_some_and(|age| age > ABANDONED_AFTER) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_filled_once() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(&dir.path().join("a/b")).unwrap();
        let path = cache.install("thing", |dir| Ok(fs::write(dir.join("f"), "1")?)).unwrap();
        let again = cache.install("thing", |_| anyhow::bail!("filled twice")).unwrap();
        assert_eq!((fs::read_to_string(again.join("f")).unwrap().as_str(), path), ("1", again));
    }

    #[test]
    fn a_failed_fill_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let failed = cache.install("thing", |dir| {
            fs::write(dir.join("half"), "")?;
            anyhow::bail!("interrupted")
        });
        assert_eq!(failed.unwrap_err().to_string(), "interrupted");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(cache.install("thing", |_| Ok(())).is_ok());
    }

    #[test]
    fn a_fill_that_lost_the_race_takes_the_winner_s_content() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let path =
            cache.install("thing", |_| cache.install("thing", |dir| Ok(fs::write(dir.join("winner"), "")?)).map(drop));
        assert!(path.unwrap().join("winner").is_file());
    }
}

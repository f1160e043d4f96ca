//! Assemblies by folder: types are looked up in the assemblies of the same folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corprof_il::file::{Assemblies, Assembly, FileError, InAssembly};

/// The assemblies of a folder; some are selected.
pub(super) struct Set {
    all: Assemblies,
    meant: Vec<(usize, PathBuf)>,
}

impl Set {
    /// The files, or those in the folders, by folder. What lies beside them is found by name, and what lies in the folders
    /// `with`. In a folder, files without managed code are passed over.
    pub(super) fn open(paths: &[PathBuf], with: &[PathBuf]) -> Result<Vec<Self>> {
        let mut folders: BTreeMap<PathBuf, (BTreeSet<PathBuf>, bool)> = BTreeMap::new();
        for path in paths {
            let is_folder = path.is_dir();
            let files = if is_folder { assemblies_in(path)? } else { vec![path.clone()] };
            let folder = if is_folder { path } else { path.parent().unwrap_or(path) };
            let (all, is_whole) = folders.entry(folder.to_owned()).or_default();
            all.extend(files);
            *is_whole |= is_folder;
        }
        folders
            .into_iter()
            .map(|(folder, (files, is_whole))| Self::of_folder(&folder, &files, is_whole, with))
            .collect()
    }

    fn of_folder(folder: &Path, files: &BTreeSet<PathBuf>, is_whole: bool, with: &[PathBuf]) -> Result<Self> {
        let mut set = Self { all: Assemblies::new(), meant: Vec::new() };
        let mut count = 0;
        for path in files {
            match Assembly::open(path) {
                Ok(assembly) => {
                    set.all.add(assembly);
                    set.meant.push((count, path.clone()));
                    count += 1;
                }
                Err(FileError::NoMetadata | FileError::Pe(_)) if is_whole => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        let beside = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        for folder in std::iter::once(beside).chain(with.iter().map(PathBuf::as_path)) {
            for path in assemblies_in(folder)? {
                let is_meant = files.iter().any(|file| file.file_name() == path.file_name());
                // The types of an unreadable file stay unknown.
                if let (false, Ok(assembly)) = (is_meant, Assembly::open(&path)) {
                    set.all.add(assembly);
                }
            }
        }
        Ok(set)
    }

    /// The selected assemblies, with their files.
    pub(super) fn meant(&self) -> impl Iterator<Item = (&Path, InAssembly<'_>)> {
        self.all.iter().enumerate().filter_map(|(number, assembly)| {
            let (_, path) = self.meant.iter().find(|(meant, _)| *meant == number)?;
            Some((path.as_path(), assembly))
        })
    }
}

fn assemblies_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "dll" || extension == "exe"));
    files.sort();
    Ok(files)
}

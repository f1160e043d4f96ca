//! Assemblies by folder: types are looked up in the assemblies of the same folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use corprof_il::file::{Assemblies, Assembly, FileError, InAssembly};

use super::bundle;

/// The assemblies of a folder; some are selected.
pub(super) struct Set {
    all: Assemblies,
    /// The file of each assembly, by its number.
    files: Vec<PathBuf>,
    /// The numbers of those that are selected.
    meant: BTreeSet<usize>,
    /// The numbers of those that are in single-file applications.
    bundled: BTreeSet<usize>,
}

/// An assembly that is selected.
pub(super) struct Meant<'a> {
    /// Its file; in a single-file application, its path there behind that of the application.
    pub(super) file: &'a Path,
    pub(super) assembly: InAssembly<'a>,
    pub(super) is_bundled: bool,
}

impl Set {
    /// The files, or those in the folders, by folder. What they name is looked up in the folders `with`, then among the
    /// files themselves, then beside them. In a folder, files without managed code are passed over.
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
        let mut set =
            Self { all: Assemblies::new(), files: Vec::new(), meant: BTreeSet::new(), bundled: BTreeSet::new() };
        for folder in with {
            set.add_folder(folder)?;
        }
        for path in files {
            match read(path) {
                Ok(Content::Assembly(assembly)) => {
                    set.add_meant(*assembly, path);
                }
                Ok(Content::Application(assemblies)) => {
                    for (path, assembly) in assemblies {
                        let number = set.add_meant(assembly, &path);
                        set.bundled.insert(number);
                    }
                }
                Ok(Content::NotManaged) if is_whole => {}
                Ok(Content::NotManaged) => {
                    return Err(FileError::NoMetadata).with_context(|| format!("cannot read {}", path.display()));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            }
        }
        set.add_folder(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
        Ok(set)
    }

    /// Adds the assemblies of a folder for look-ups. The types of an unreadable file stay unknown.
    fn add_folder(&mut self, folder: &Path) -> Result<()> {
        for path in assemblies_in(folder)? {
            let is_known = self.files.contains(&path);
            if let (false, Ok(assembly)) = (is_known, Assembly::open(&path)) {
                self.add(assembly, &path);
            }
        }
        Ok(())
    }

    fn add_meant(&mut self, assembly: Assembly, path: &Path) -> usize {
        let number = self.add(assembly, path);
        self.meant.insert(number);
        // The same file may be in a folder for look-ups.
        if let Some(file) = self.files.get_mut(number) {
            path.clone_into(file);
        }
        number
    }

    fn add(&mut self, assembly: Assembly, path: &Path) -> usize {
        let number = self.all.add(assembly);
        if number == self.files.len() {
            self.files.push(path.to_owned());
        }
        number
    }

    /// The selected assemblies, with their files.
    pub(super) fn meant(&self) -> impl Iterator<Item = Meant<'_>> {
        self.all.iter().filter(|assembly| self.meant.contains(&assembly.number())).filter_map(|assembly| {
            let is_bundled = self.bundled.contains(&assembly.number());
            Some(Meant { file: self.file(&assembly)?, assembly, is_bundled })
        })
    }

    /// The file of an assembly.
    pub(super) fn file(&self, assembly: &InAssembly<'_>) -> Option<&Path> {
        self.files.get(assembly.number()).map(PathBuf::as_path)
    }
}

/// The content of a file.
enum Content {
    Assembly(Box<Assembly>),
    /// A single-file application: its assemblies.
    Application(Vec<(PathBuf, Assembly)>),
    NotManaged,
}

fn read(path: &Path) -> Result<Content> {
    match Assembly::open(path) {
        Ok(assembly) => return Ok(Content::Assembly(Box::new(assembly))),
        Err(FileError::NoMetadata | FileError::Pe(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let Some(bundled) = bundle::assemblies(&fs::read(path)?)? else { return Ok(Content::NotManaged) };
    let assemblies = bundled.into_iter().map(|file| {
        let assembly = Assembly::parse(file.bytes).with_context(|| format!("cannot read {} in it", file.path))?;
        Ok((path.join(file.path), assembly))
    });
    assemblies.collect::<Result<_>>().map(Content::Application)
}

fn assemblies_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "dll" || extension == "exe"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "that is how it fails")]

    use corprof_il::Token;

    use super::*;

    /// The files of a .NET, if there is one in the cache.
    fn framework() -> Option<PathBuf> {
        let cache = std::env::home_dir()?.join(".cache/corprof");
        let folder = cache.join("dotnet-8.0.4-linux-x64/shared/Microsoft.NETCore.App/8.0.4");
        if !folder.is_dir() {
            eprintln!("skipped: there is no {}", folder.display());
        }
        folder.is_dir().then_some(folder)
    }

    fn name(path: &Path) -> String {
        path.file_name().unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn the_assemblies_of_an_application_in_a_single_file_are_meant() {
        let Some(framework) = framework() else { return };
        let linq = fs::read(framework.join("System.Linq.dll")).unwrap();
        let web = fs::read(framework.join("System.Web.dll")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let app = folder.path().join("App");
        let files: [(&str, &[u8]); 2] = [("System.Linq.dll", &linq), ("sub/System.Web.dll", &web)];
        fs::write(&app, bundle::tests::application(6, &files)).unwrap();
        let sets = Set::open(std::slice::from_ref(&app), &[]).unwrap();
        let found: Vec<_> = sets.iter().flat_map(Set::meant).map(|meant| (meant.file, meant.is_bundled)).collect();
        assert_eq!(found, [(&*app.join("System.Linq.dll"), true), (&*app.join("sub/System.Web.dll"), true)]);
        // What is neither an assembly nor an application.
        let other = folder.path().join("Other");
        fs::write(&other, "MZ").unwrap();
        assert!(Set::open(&[other], &[]).is_err());
    }

    #[test]
    fn a_folder_for_look_ups_goes_before_the_files_beside() {
        let Some(framework) = framework() else { return };
        let beside = tempfile::tempdir().unwrap();
        let with = tempfile::tempdir().unwrap();
        let http = beside.path().join("System.Net.Http.dll");
        fs::copy(framework.join("System.Net.Http.dll"), &http).unwrap();
        let mut primitives = fs::read(framework.join("System.Net.Primitives.dll")).unwrap();
        fs::write(with.path().join("System.Net.Primitives.dll"), &primitives).unwrap();
        // Another file: a byte of the message for DOS differs.
        primitives[0x50] ^= 1;
        fs::write(beside.path().join("System.Net.Primitives.dll"), &primitives).unwrap();
        let file_of_primitives = |with: &[PathBuf]| {
            let sets = Set::open(std::slice::from_ref(&http), with).unwrap();
            let meant = sets[0].meant().next().unwrap();
            assert_eq!(name(meant.file), "System.Net.Http.dll");
            let tokens = (1..1000).map(|row| Token::from_raw(0x0100_0000 | row));
            let is_it = |token: &Token| {
                meant.assembly.token_name(*token).is_some_and(|name| name.starts_with("[System.Net.Primitives]"))
            };
            let there = tokens.filter(is_it).find_map(|token| meant.assembly.defined_in(token)).unwrap();
            sets[0].file(&there).unwrap().to_owned()
        };
        assert_eq!(file_of_primitives(&[]), beside.path().join("System.Net.Primitives.dll"));
        assert_eq!(
            file_of_primitives(&[with.path().to_owned()]),
            with.path().join("System.Net.Primitives.dll"),
            "the folder that was named"
        );
        // The same file twice is one.
        let sets = Set::open(std::slice::from_ref(&http), &[beside.path().to_owned()]).unwrap();
        assert_eq!(sets[0].all.iter().count(), 2);
        assert_eq!(sets[0].meant().next().unwrap().file, http);
    }
}

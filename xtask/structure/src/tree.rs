//! [`Tree`]: the modules of a crate, and the targets of the names in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta, UseTree};

use super::paths::{imports, is_counted, paths_in};

/// The limit on re-exports before a definition; more are a circle.
const MOST_EXPORTS: usize = 16;

/// The modules of a crate.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    modules: BTreeMap<Vec<String>, Module>,
}

/// One source file.
pub(super) struct File {
    /// Its path below `src`.
    pub(super) name: String,
    /// Its module, from the root.
    pub(super) module: Vec<String>,
    /// The paths in it: the module of the code, and the path as written.
    paths: Vec<(Vec<String>, Vec<String>)>,
}

#[derive(Default)]
struct Module {
    file: usize,
    /// The items defined here.
    items: BTreeSet<String>,
    /// The imports, by their names here.
    imports: BTreeMap<String, Vec<String>>,
    /// The modules that are imported by a glob.
    globs: Vec<Vec<String>>,
}

/// The target of a path.
#[derive(Clone)]
enum Target {
    Module(Vec<String>),
    File(usize),
}

impl Tree {
    /// Reads the files of a crate, from its `lib.rs` on.
    pub(super) fn read(src: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_file(src, &src.join("lib.rs"), &[])?;
        Ok(tree)
    }

    fn read_file(&mut self, src: &Path, path: &Path, module: &[String]) -> Result<()> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let name = path.strip_prefix(src).unwrap_or(path).display().to_string().replace('\\', "/");
        let number = self.files.len();
        let paths = paths_in(&parsed, module);
        self.files.push(File { name, module: module.to_owned(), paths });
        // The files of declared modules are beside `lib.rs` and `mod.rs`, and for other files in a folder of the file's
        // name.
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let beside = path.parent().unwrap_or(src).to_owned();
        let below = if ["lib", "mod"].contains(&stem.as_str()) { beside.clone() } else { beside.join(stem) };
        self.add_items(src, &beside, &below, number, module, &parsed.items)
    }

    fn add_items(
        &mut self,
        src: &Path,
        beside: &Path,
        below: &Path,
        file: usize,
        module: &[String],
        items: &[Item],
    ) -> Result<()> {
        let mut found = Module { file, ..Module::default() };
        for item in items {
            match item {
                Item::Mod(item) if is_counted(&item.attrs) => {
                    let module = [module, &[item.ident.to_string()]].concat();
                    match &item.content {
                        Some((_, items)) => self.add_items(src, beside, below, file, &module, items)?,
                        None => {
                            for path in files_of(item, beside, below) {
                                self.read_file(src, &path, &module)?;
                            }
                        }
                    }
                }
                Item::Use(item) if is_counted(&item.attrs) => found.import(&item.tree),
                item => found.items.extend(name_of(item)),
            }
        }
        // If a module has a file for each system, definitions of all of them are found.
        let module = self.modules.entry(module.to_owned()).or_insert_with(|| Module { file, ..Module::default() });
        module.items.append(&mut found.items);
        module.imports.append(&mut found.imports);
        module.globs.append(&mut found.globs);
        Ok(())
    }

    /// The name of a file.
    pub(super) fn name(&self, file: usize) -> String {
        self.files.get(file).map_or_else(String::new, |file| file.name.clone())
    }

    /// The pairs of files of which the first names an item of the second, by number.
    pub(super) fn arrows(&self) -> BTreeSet<(usize, usize)> {
        let mut arrows = BTreeSet::new();
        for (number, file) in self.files.iter().enumerate() {
            let targets = file.paths.iter().filter_map(|(module, path)| self.find(module, path, 0));
            let targets = targets.filter_map(|target| match target {
                Target::Module(module) => self.modules.get(&module).map(|module| module.file),
                Target::File(file) => Some(file),
            });
            arrows.extend(targets.filter(|&target| target != number).map(|target| (number, target)));
        }
        arrows
    }

    /// The target of `path`, written in `module`; none for another crate.
    fn find(&self, module: &[String], path: &[String], exports: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" | "$crate" => Target::Module(Vec::new()),
            "self" => Target::Module(module.to_owned()),
            "super" => Target::Module(module.split_last()?.1.to_owned()),
            name => self.find_name(module, name, exports)?,
        };
        for name in rest {
            target = match target {
                Target::Module(module) if name == "super" => Target::Module(module.split_last()?.1.to_owned()),
                Target::Module(module) if name == "*" || name == "self" => Target::Module(module),
                // A name that is not found is made by a macro.
                Target::Module(module) => match self.find_name(&module, name, exports) {
                    Some(target) => target,
                    None => Target::File(self.modules.get(&module)?.file),
                },
                Target::File(file) => Target::File(file),
            };
        }
        Some(target)
    }

    /// The target of a name in `module`.
    fn find_name(&self, module: &[String], name: &str, exports: usize) -> Option<Target> {
        let child = [module, &[name.to_owned()]].concat();
        if self.modules.contains_key(&child) {
            return Some(Target::Module(child));
        }
        let known = self.modules.get(module)?;
        if known.items.contains(name) {
            return Some(Target::File(known.file));
        }
        if exports >= MOST_EXPORTS {
            return None;
        }
        if let Some(path) = known.imports.get(name) {
            // A path that begins with the name itself belongs to another crate, as in `use libc;`.
            let is_itself = path.first().is_some_and(|first| first == name);
            return if is_itself { None } else { self.find(module, path, exports + 1) };
        }
        known.globs.iter().find_map(|glob| match self.find(module, glob, exports + 1)? {
            Target::Module(other) if other != module => self.find_name(&other, name, exports + 1),
            _ => None,
        })
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree) {
        for (path, name) in imports(tree, &[]) {
            match name {
                Some(name) => _ = self.imports.insert(name, path),
                None => self.globs.push(path),
            }
        }
    }
}

/// The possible files of a module without a body: several if that depends on the system.
fn files_of(item: &ItemMod, beside: &Path, below: &Path) -> Vec<PathBuf> {
    let mut named = Vec::new();
    item.attrs.iter().for_each(|attribute| paths_of(attribute, &mut named));
    if !named.is_empty() {
        return named.into_iter().map(|path| beside.join(path)).collect();
    }
    let name = item.ident.to_string();
    let candidates = [below.join(format!("{name}.rs")), below.join(&name).join("mod.rs")];
    candidates.into_iter().filter(|path| path.is_file()).collect()
}

/// The value of `#[path = "…"]`, also inside `cfg_attr`.
fn paths_of(attribute: &Attribute, found: &mut Vec<String>) {
    let mut look = |meta: &Meta| {
        if let Meta::NameValue(pair) = meta
            && pair.path.is_ident("path")
            && let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &pair.value
        {
            found.push(path.value());
        }
    };
    look(&attribute.meta);
    if attribute.path().is_ident("cfg_attr")
        && let Ok(parts) =
            attribute.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated)
    {
        parts.iter().for_each(look);
    }
}

/// The name that an item defines.
fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

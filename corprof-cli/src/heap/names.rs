//! Names of classes in a dump over the diagnostics port, in the spelling of C#.
//!
//! Profilers spell the same class in the same way (`Names::csharp` of corprof), so that snapshots of both kinds can be
//! compared. The runtime reports the name of a nested type without the types around it: these come from the metadata of
//! the module's file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use corprof_export::Relative;
use corprof_il::csharp::{array, as_argument, nested};
use corprof_il::file::Assembly;
use corprof_il::token::{Token, TypeDef};
use corprof_launch::processes;
use corprof_nettrace::events::views::{BulkType, ModuleDCEnd};

/// The limit on parts of one name: a type may be made with itself in broken data.
const MAX_PARTS: u32 = 1000;
/// The nesting limit for types in one name.
const MAX_DEPTH: u32 = 48;

/// Bits of a type's flags.
const ARRAY: u32 = 8;
/// The element type of a pointer.
const POINTER: u8 = 0x0f;

/// Names of types and modules, as they come.
#[derive(Debug, Default)]
pub(super) struct Names {
    types: HashMap<u64, TypeName>,
    modules: HashMap<u64, PathBuf>,
}

#[derive(Debug)]
struct TypeName {
    /// The names of the types around it and its own, the outermost first, with the suffixes for type parameters.
    levels: Vec<String>,
    kind: Kind,
    module: u64,
    definition: u32,
    /// Its type arguments; the element of an array or pointer.
    parameters: Vec<u64>,
    /// The method that tells for what a compiler has made it.
    method: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Defined,
    /// With its rank.
    Array(u32),
    Pointer,
}

impl Names {
    /// Takes names of types.
    pub(super) fn add(&mut self, types: BulkType<'_>) {
        for ty in types.values {
            let kind = match ty.cor_element_type {
                _ if ty.flags & ARRAY != 0 => Kind::Array((ty.flags >> 8 & 0x3f).max(1)),
                POINTER => Kind::Pointer,
                _ => Kind::Defined,
            };
            let parameters: Vec<u64> = ty.type_parameters.collect();
            let mut name = ty.name.to_string();
            // `List`1[System.String]`: the arguments come as numbers, too.
            if let (false, Some(arguments)) = (parameters.is_empty(), name.find('[')) {
                name.truncate(arguments);
            }
            let module = ty.module_id;
            let definition = ty.type_name_id;
            self.types.insert(
                ty.type_id,
                TypeName { levels: vec![name], kind, module, definition, parameters, method: None },
            );
        }
    }

    /// Takes the path of a module's file.
    pub(super) fn module(&mut self, module: &ModuleDCEnd<'_>) {
        self.modules.insert(module.module_id, PathBuf::from(module.il_path.to_string()));
    }

    /// Completes the names of nested types by the files of the modules, as far as these can be read.
    pub(super) fn read_metadata(&mut self, pid: u32) {
        let mut by_module: HashMap<u64, Vec<&mut TypeName>> = HashMap::new();
        for ty in self.types.values_mut().filter(|ty| ty.kind == Kind::Defined) {
            by_module.entry(ty.module).or_default().push(ty);
        }
        for (module, types) in by_module {
            let path = self.modules.get(&module).filter(|path| !path.as_os_str().is_empty());
            // A module in memory or in a bundle has no file.
            let Some(Ok(assembly)) = path.map(|path| Assembly::open(processes::file_of(pid, path))) else { continue };
            for ty in types {
                let Ok(definition) = TypeDef::try_from(Token::from_raw(ty.definition)) else { continue };
                // Otherwise the file is another one than the process has loaded.
                if let Some(levels) = assembly.type_path(definition)
                    && levels.last() == ty.levels.last()
                {
                    ty.method = levels.last().and_then(|name| telling_method(&assembly, definition, name));
                    ty.levels = levels;
                }
            }
        }
    }

    /// Name and assembly of a class.
    pub(super) fn of(&self, key: u64) -> Option<(String, String)> {
        let innermost = self.innermost(key)?;
        let assembly = self.modules.get(&innermost.module).map(|path| stem(path)).unwrap_or_default();
        let name = self.spelled(key, MAX_DEPTH, &mut 0)?;
        // Obfuscated names may contain line breaks.
        Some((name.replace(char::is_control, " "), assembly))
    }

    /// The method that tells for what a compiler has made a class, or the class of an array's elements.
    pub(super) fn method_of(&self, key: u64) -> Option<&str> {
        self.innermost(key)?.method.as_deref()
    }

    /// The class of the innermost elements of an array or pointer; another class itself.
    fn innermost(&self, key: u64) -> Option<&TypeName> {
        let mut innermost = self.types.get(&key)?;
        for _ in 0..MAX_DEPTH {
            let element = innermost.parameters.first().filter(|_| innermost.kind != Kind::Defined);
            match element.and_then(|element| self.types.get(element)) {
                Some(element) => innermost = element,
                None => break,
            }
        }
        Some(innermost)
    }

    fn spelled(&self, key: u64, depth: u32, parts: &mut u32) -> Option<String> {
        let ty = self.types.get(&key)?;
        let depth = depth.checked_sub(1)?;
        *parts += 1;
        if *parts > MAX_PARTS {
            return None;
        }
        let mut argument = |&key: &u64| self.spelled(key, depth, parts).map_or_else(|| "?".to_owned(), as_argument);
        match ty.kind {
            Kind::Array(rank) => Some(array(ty.parameters.first().map_or_else(|| "?".to_owned(), argument), rank)),
            Kind::Pointer => Some(format!("{}*", ty.parameters.first().map_or_else(|| "?".to_owned(), argument))),
            Kind::Defined => {
                let arguments: Vec<String> = ty.parameters.iter().map(&mut argument).collect();
                Some(nested(&ty.levels, &arguments))
            }
        }
    }
}

/// The method that tells for what a compiler has made a type, by the file of its module.
fn telling_method(assembly: &Assembly, definition: TypeDef, name: &str) -> Option<String> {
    let outer = assembly.enclosing_type(definition);
    corprof_export::telling_method(name, |relative| {
        let ty = match relative {
            Relative::Itself => Some(definition),
            Relative::Outer => outer,
            Relative::Sibling(name) => outer.and_then(|outer| assembly.nested_type(outer, name)),
        };
        ty.map(|ty| assembly.method_names(ty).map(str::to_owned).collect()).unwrap_or_default()
    })
}

/// The name of a file without folder and extension, for paths of any system.
fn stem(path: &Path) -> String {
    let path = path.to_string_lossy();
    let file = path.rsplit(['/', '\\']).next().unwrap_or(&path);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of types, each with its number, its levels, its kind and the types that it is made of.
    fn names(types: &[(u64, &[&str], Kind, &[u64])]) -> Names {
        let mut names = Names::default();
        for &(key, levels, kind, parameters) in types {
            let levels = levels.iter().map(|level| (*level).to_owned()).collect();
            let parameters = parameters.to_vec();
            names
                .types
                .insert(key, TypeName { levels, kind, module: key.min(7), definition: 0, parameters, method: None });
        }
        names.modules.insert(1, r"C:\net\System.Private.CoreLib.dll".into());
        names.modules.insert(7, "/app/Shop.dll".into());
        names
    }

    const STRING: (u64, &[&str], Kind, &[u64]) = (1, &["System.String"], Kind::Defined, &[]);

    #[test]
    fn classes_are_spelled_as_in_csharp() {
        let names = names(&[
            STRING,
            (2, &["System.Int32"], Kind::Defined, &[]),
            (8, &["System.Collections.Generic.Dictionary`2"], Kind::Defined, &[1, 9]),
            (9, &[""], Kind::Array(1), &[2]),
            (10, &[""], Kind::Array(2), &[9]),
            (11, &["N.Outer`1", "Plain", "Inner`2"], Kind::Defined, &[1, 2, 8]),
            (12, &["System.Nullable`1"], Kind::Defined, &[2]),
            (13, &[""], Kind::Array(1), &[12]),
            (14, &["Program", "<>c__DisplayClass0_0"], Kind::Defined, &[]),
            (15, &["System.Int32*"], Kind::Pointer, &[2]),
            (16, &[""], Kind::Array(1), &[15]),
            (17, &["Outer", "Inner"], Kind::Defined, &[2]),
        ]);
        let spelled = |key| names.of(key).unwrap().0;
        assert_eq!(spelled(1), "System.String", "keywords stand inside a name only");
        assert_eq!(spelled(8), "System.Collections.Generic.Dictionary<string, int[]>");
        assert_eq!(spelled(10), "int[,][]", "a matrix of lines");
        assert_eq!(
            spelled(11),
            "N.Outer<string>.Plain.Inner<int, System.Collections.Generic.Dictionary<string, int[]>>"
        );
        assert_eq!((spelled(12), spelled(13)), ("System.Nullable<int>".to_owned(), "int?[]".to_owned()));
        assert_eq!(spelled(14), "Program.<>c__DisplayClass0_0");
        assert_eq!(spelled(16), "int*[]");
        assert_eq!(spelled(17), "Outer.Inner<int>", "arguments that no suffix claims are the innermost type's");
    }

    #[test]
    fn an_array_is_of_the_assembly_of_its_elements() {
        let names = names(&[STRING, (8, &[""], Kind::Array(1), &[1]), (9, &[""], Kind::Array(1), &[8])]);
        assert_eq!(names.of(9).unwrap(), ("string[][]".to_owned(), "System.Private.CoreLib".to_owned()));
    }

    #[test]
    fn names_that_cannot_be_whole_end() {
        let names = names(&[
            (8, &["Self`2"], Kind::Defined, &[8, 8]),
            (9, &[""], Kind::Array(1), &[9]),
            (10, &[""], Kind::Array(1), &[99]),
        ]);
        assert!(names.of(8).unwrap().0.len() < 20_000);
        assert!(names.of(9).unwrap().0.len() < 200);
        assert_eq!(names.of(10).unwrap(), ("?[]".to_owned(), "Shop".to_owned()));
        assert!(names.of(11).is_none());
    }
}

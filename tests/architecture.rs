//! The documents against the tree: the paths that they name exist, and the countable house rules hold.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// A map is read before the first change, so it stays short.
const LONGEST_MAP: usize = 165;
const LONGEST_SOURCE: usize = 800;

fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The text of a file, named from the root.
fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = root().join(path);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// How a file is named from the root.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// Everything under `dir` that is neither hidden nor made by a build.
fn files(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if dir.join("CACHEDIR.TAG").is_file() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if !is_hidden {
                files(&path, found)?;
            }
        } else {
            found.push(path);
        }
    }
    Ok(())
}

fn files_with(extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    files(root(), &mut found)?;
    found.retain(|path| path.extension().is_some_and(|e| e == extension));
    Ok(found)
}

/// The texts in backticks.
fn code_spans(markdown: &str) -> Vec<String> {
    let options = pulldown_cmark::Options::ENABLE_TABLES;
    let events = Parser::new_ext(markdown, options).filter_map(|event| match event {
        Event::Code(text) => Some(text.to_string()),
        _ => None,
    });
    events.collect()
}

/// Whether a text in backticks means a file or a folder of this repository. `NAME` is a placeholder.
fn is_path(text: &str) -> bool {
    let has_extension = Path::new(text).extension().is_some_and(|extension| {
        ["rs", "md", "toml", "idl", "json", "cs", "c", "lock", "stderr"].iter().any(|known| extension == *known)
    });
    let is_word = !text.contains([' ', '$', '~', '"', '(', '<', '=', ':']) && !text.contains("NAME");
    is_word && !text.starts_with(['-', '/']) && (text.contains('/') || (has_extension && !text.starts_with('.')))
}

/// The lines of a document that are typed into a shell: whole blocks of it, and commands in backticks.
fn typed_lines(markdown: &str) -> Vec<String> {
    let mut lines = code_spans(markdown);
    let mut is_shell = false;
    for event in Parser::new(markdown) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => is_shell = language.as_ref() == "sh",
            Event::End(TagEnd::CodeBlock) => is_shell = false,
            Event::Text(text) if is_shell => lines.extend(text.lines().map(str::to_owned)),
            _ => {}
        }
    }
    lines.retain(|line| !line.trim_start().starts_with('#'));
    lines
}

/// Every document with commands in it.
fn documents() -> Result<Vec<(String, String)>> {
    let book = files_with("md")?.into_iter().filter(|path| path.starts_with(root().join("book/src")));
    let others = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    book.chain(others).map(|path| Ok((shown(&path), read(path)?))).collect()
}

#[test]
fn the_map_is_short() -> Result<()> {
    let lines = read("ARCHITECTURE.md")?.lines().count();
    assert!(lines <= LONGEST_MAP, "ARCHITECTURE.md has {lines} lines, and {LONGEST_MAP} are enough");
    Ok(())
}

#[test]
fn every_path_that_the_documents_name_exists() -> Result<()> {
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let paths: Vec<_> = code_spans(&read(document)?).into_iter().filter(|text| is_path(text)).collect();
        assert!(paths.len() > 10, "{document} names {} paths only: are they recognised?", paths.len());
        for path in paths {
            let found = root().join(&path);
            assert!(found.exists(), "{document} names `{path}`, which does not exist");
            assert!(!path.ends_with('/') || found.is_dir(), "{document}: `{path}` is not a folder");
        }
    }
    Ok(())
}

/// The rows of the table of contexts in a document, without the links of rustdoc.
fn context_table(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim_start_matches("//! "));
    let table = lines.skip_while(|line| !line.starts_with("| context |")).take_while(|line| line.starts_with('|'));
    table.map(|line| line.replace("[`", "`").replace("`]", "`")).collect()
}

#[test]
fn the_tables_of_contexts_agree() -> Result<()> {
    let rust = read("corprof/src/context.rs")?;
    let expected = context_table(&rust);
    assert_eq!(expected.len(), 10, "{expected:#?}");
    let document = "book/src/who-may-call-what.md";
    assert_eq!(context_table(&read(document)?), expected, "{document} and corprof/src/context.rs differ");
    let exported = read("corprof/src/lib.rs")?;
    for row in &expected[2..] {
        let context = row.split('`').nth(1).unwrap_or_default();
        assert!(exported.contains(context), "corprof exports no {context}");
    }
    Ok(())
}

/// Paths below the root that comments of sources and tables name in backticks or brackets.
fn paths_in_comments(text: &str, sign: &str) -> Vec<String> {
    let comments = text.lines().filter_map(|line| line.split_once(sign).map(|(_, comment)| comment));
    let words = comments.flat_map(|comment| comment.split([' ', '`', '(', ')', '[', ']', ',', ';', '"', '\'']));
    let paths = words.map(|word| word.trim_end_matches(['.', ':'])).filter(|word| word.contains('/') && is_path(word));
    paths.map(str::to_owned).collect()
}

#[test]
fn every_file_that_comments_name_exists() -> Result<()> {
    let mut missing = Vec::new();
    let sources = files_with("rs")?.into_iter().map(|path| (path, "//"));
    for (path, sign) in sources.chain(files_with("toml")?.into_iter().map(|path| (path, "#"))) {
        let text = read(&path)?;
        if text.starts_with("// @generated") {
            continue;
        }
        for named in paths_in_comments(&text, sign) {
            let is_file = [".rs", ".md", ".toml", ".cs", ".c"].iter().any(|extension| named.ends_with(extension));
            // From the root, from the package, or from the folder of the file.
            let is_there = path.ancestors().any(|folder| folder.starts_with(root()) && folder.join(&named).exists())
                || path
                    .ancestors()
                    .any(|folder| folder.starts_with(root()) && folder.join("src").join(&named).exists());
            let is_the_runtimes = ["src/coreclr/", "docs/design/coreclr/"].iter().any(|root| named.starts_with(root));
            if is_file && !named.starts_with("..") && !named.contains('*') && !is_the_runtimes && !is_there {
                missing.push(format!("{}: {named}", shown(&path)));
            }
        }
        for note in ["NOTES (", "NOTES.md"] {
            if text.contains(note) && !path.ends_with("architecture.rs") {
                missing.push(format!("{}: {note}", shown(&path)));
            }
        }
    }
    assert!(missing.is_empty(), "comments name files that are not in the repository: {missing:#?}");
    Ok(())
}

#[test]
fn the_map_has_every_package() -> Result<()> {
    let map = code_spans(&read("ARCHITECTURE.md")?);
    for manifest in files_with("toml")?.into_iter().filter(|path| path.ends_with("Cargo.toml")) {
        let package = shown(&manifest).replace("Cargo.toml", "");
        let is_named = package.is_empty() || map.contains(&package);
        assert!(is_named, "ARCHITECTURE.md does not name the package `{package}`");
    }
    Ok(())
}

#[test]
fn sources_written_by_hand_are_short() -> Result<()> {
    let mut too_long = Vec::new();
    for path in files_with("rs")? {
        let text = read(&path)?;
        let lines = text.lines().count();
        if lines > LONGEST_SOURCE && !text.starts_with("// @generated") {
            too_long.push(format!("{}: {lines} lines", shown(&path)));
        }
    }
    assert!(too_long.is_empty(), "split by subject what has more than {LONGEST_SOURCE} lines: {too_long:#?}");
    Ok(())
}

#[test]
fn every_command_that_the_documents_give_exists() -> Result<()> {
    let dispatch = read("xtask/src/main.rs")?;
    let mut count = 0;
    for (document, text) in documents()? {
        for line in typed_lines(&text) {
            let mut words =
                line.split_whitespace().skip_while(|word| word.contains('=')).take_while(|word| *word != "#");
            if (words.next(), words.next()) != (Some("cargo"), Some("xtask")) {
                continue;
            }
            let Some(command) = words.next() else { continue };
            assert!(dispatch.contains(&format!("{command}::run(")), "{document}: `{line}`: no command `{command}`");
            let source = read(format!("xtask/src/{command}.rs"))?;
            let options: Vec<_> = words.take_while(|word| *word != "--").collect();
            for option in options.iter().filter_map(|word| word.strip_prefix("--")) {
                let field = format!("    {}: ", option.replace('-', "_"));
                assert!(source.contains(&field), "{document}: `{line}`: `{command}` has no option `--{option}`");
            }
            if let ("demo", Some(example)) = (command, options.first().filter(|word| !word.starts_with('-'))) {
                let folders = ["examples", "profilers/library"];
                let is_file = |folder| root().join(format!("{folder}/{example}.rs")).is_file();
                let is_there = *example == "NAME" || folders.into_iter().any(is_file);
                assert!(is_there, "{document}: `{line}`: no example or built-in profiler `{example}`");
            }
            count += 1;
        }
    }
    assert!(count > 10, "{count} commands only: are they recognised?");
    Ok(())
}

/// What a release does that the runtime cannot be asked has a name, and its reason, in one file.
#[test]
fn versions_are_compared_in_one_file() -> Result<()> {
    // The second one shows versions, and the last one names runtimes that are too old.
    const KNOW_VERSIONS: [&str; 3] = ["releases.rs", "runtime_info.rs", "runtime.rs"];
    let session = root().join("corprof/src/session");
    let mut sources = Vec::new();
    files(&root().join("corprof/src"), &mut sources)?;
    for path in sources {
        let may_know = KNOW_VERSIONS.iter().any(|name| path == session.join(name));
        assert!(may_know || !read(&path)?.contains(".major"), "{} compares versions", shown(&path));
    }
    Ok(())
}

#[test]
fn the_readme_has_every_example() -> Result<()> {
    let readme = read("README.md")?;
    for path in files_with("rs")?.into_iter().filter(|path| path.parent() == Some(&root().join("examples"))) {
        let link = format!("({})", shown(&path));
        assert!(readme.contains(&link), "README.md does not list {link}");
    }
    for profiler in corprof_profilers::table::ALL {
        let link = format!("(profilers/library/{}.rs)", profiler.name);
        assert!(readme.contains(&link), "README.md does not list {link}");
    }
    Ok(())
}

/// Names in the signatures of callbacks that need no import.
const BUILT_IN: [&str; 2] = ["Option", "Self"];

#[test]
fn the_prelude_has_the_types_of_all_callbacks() -> Result<()> {
    let prelude = read("corprof/src/prelude.rs")?;
    let names: Vec<&str> = prelude.split(|c: char| !c.is_alphanumeric()).collect();
    let table = read("corprof-macros/src/generated.rs")?;
    let signatures: Vec<&str> = table.lines().filter(|line| line.contains("signature: \"fn ")).collect();
    assert!(signatures.len() > 90, "the table looks different");
    for signature in signatures {
        let words = signature.split(|c: char| !c.is_alphanumeric());
        for ty in words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase())) {
            assert!(names.contains(&ty) || BUILT_IN.contains(&ty), "the prelude lacks {ty}: {signature}");
        }
    }
    Ok(())
}

#[test]
fn the_first_page_of_the_documentation_leads_to_every_module() -> Result<()> {
    let page = read("corprof/src/lib.rs")?;
    for module in page.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')) {
        let links = [format!("[`{module}`]"), format!("[`{module}::"), format!("`{module}`")];
        let is_linked =
            page.lines().any(|line| line.starts_with("//! |") && links.iter().any(|link| line.contains(link)));
        assert!(is_linked || module == "prelude", "no row of the table leads to `{module}`");
    }
    Ok(())
}

/// The most lines of an example that is not named in [`SLIDES`].
const SLIDE: usize = 55;

/// The most lines of single examples.
const SLIDES: [(&str, usize); 8] = [
    ("allocations", 40),
    ("beeper", 25),
    ("exceptions", 30),
    ("leaks", 50),
    ("logger", 40),
    ("sampler", 50),
    ("timer", 50),
    ("tracer", 50),
];

/// What makes an example long, or not safe. Settings are for the profilers that the command has built in.
const NOT_IN_EXAMPLES: [&str; 5] = ["OnceLock", "cfg_attr", "env::var", "unsafe", "allow("];

#[test]
fn examples_are_short_shown_whole_and_run() -> Result<()> {
    let mut book = String::new();
    let mut live = String::new();
    for page in files_with("md")?.into_iter().filter(|path| path.starts_with(root().join("book/src"))) {
        book += &read(page)?;
    }
    for test in files_with("rs")?.into_iter().filter(|path| path.starts_with(root().join("tests/live"))) {
        live += &read(test)?;
    }
    for path in files_with("rs")?.into_iter().filter(|path| path.parent() == Some(&root().join("examples"))) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let code = read(&path)?;
        let most = SLIDES.iter().find(|(slide, _)| *slide == name).map_or(SLIDE, |(_, most)| *most);
        let lines = code.lines().count();
        assert!(lines <= most, "{name} has {lines} lines, and at most {most} are a slide");
        for word in NOT_IN_EXAMPLES {
            assert!(!code.contains(word), "{name} has `{word}`");
        }
        let include = format!("{{{{#include ../../examples/{name}.rs}}}}");
        assert!(book.contains(&include), "no page of the book has {include}");
        assert!(live.contains(&format!("\"{name}\"")), "no live test runs {name}");
    }
    Ok(())
}

#[test]
fn paths_are_told_from_other_code() {
    for path in ["corprof/", "corprof/src/lib.rs", "Cargo.toml", ".ci/run", "README.md"] {
        assert!(is_path(path), "{path}");
    }
    for other in
        ["corprof::testing", "examples/NAME.rs", "cargo xtask test", "--check", ".stderr", "$CORPROF_IDL", "&mut self"]
    {
        assert!(!is_path(other), "{other}");
    }
}

/// The names of the differences between .NET 10 and 11.
fn differences() -> Result<Vec<String>> {
    let text = read("tests/src/differences.rs")?;
    let (_, versions) = text.split_once("match self {").context("no versions of differences")?;
    let mut differences = Vec::new();
    for arm in versions.split(",\n") {
        let Some((names, range)) = arm.split_once(" => ") else { continue };
        if range.starts_with("11..") || range.ends_with("..=10") {
            let names = names.split("Self::").skip(1).map(|name| name.trim_end_matches([' ', '|', '\n']));
            differences.extend(names.map(|name| format!("Difference::{name}")));
        }
    }
    Ok(differences)
}

/// A test that depends on what differs between .NET 10 and 11 is run on both at each change, because it says so by its
/// place.
#[test]
fn tests_of_what_differs_stand_in_differs() -> Result<()> {
    let mut declared = Vec::new();
    for declaring in ["tests/live/main.rs", "tests/live/cli/mod.rs"] {
        let text = read(declaring)?;
        let (_, differs) = text.split_once("\nmod differs {").with_context(|| declaring.to_owned())?;
        let modules = differs.lines().filter_map(|line| line.trim().split_once("mod ")?.1.strip_suffix(';'));
        declared.extend(modules.map(|module| root().join(declaring).with_file_name(module).with_extension("rs")));
    }
    assert!(declared.len() > 10, "few modules differ: {declared:?}");
    let differences = differences()?;
    assert!(differences.len() > 5, "few differences: {differences:?}");
    let mut live = Vec::new();
    files(&root().join("tests/live"), &mut live)?;
    for file in live {
        let text = read(&file)?;
        let outside = text.split("\nmod differs {").next().unwrap_or_default();
        let differs = differences.iter().any(|name| outside.contains(name.as_str()));
        let is_declared = declared.contains(&file) || !differs;
        assert!(is_declared, "{} asks for a difference: move the test into a module `differs`", shown(&file));
    }
    Ok(())
}

//! The workspace as cargo sees it: its folder, its packages, and the output of builds.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;

/// The library of the built-in profilers, an example of the package `corprof-profilers`.
pub const BUILT_IN: &str = "corprof_profilers";
/// The package of the profilers in tests/profilers.
pub(crate) const TEST_PROFILERS: &str = "corprof-test-profilers";

/// What cargo builds for this system: all, as it builds the tests, so that features unify in one way and nothing is
/// built twice.
pub(crate) const HERE: [&str; 3] = ["--workspace", "--features", "corprof-tests/live"];
/// What cargo builds for another system: the command and the profilers. The tests run on this one.
pub(crate) const ELSEWHERE: [&str; 10] = [
    "-p",
    "corprof-cli",
    "-p",
    "corprof-profilers",
    "-p",
    "corprof-examples",
    "-p",
    TEST_PROFILERS,
    "-p",
    "corprof-smoke",
];

/// The folder of the workspace.
#[must_use]
pub fn workspace_root() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        // Cargo sets the folder of the running package; two checkouts that share a target folder share one binary.
        let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
        // Each package is a direct subfolder of the workspace.
        PathBuf::from(&package).parent().map_or_else(|| package.into(), Path::to_owned)
    });
    &ROOT
}

/// A `cargo` command in the workspace.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_root());
    command
}

/// The output of `cargo metadata`.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    /// The folder of builds.
    pub target_directory: PathBuf,
}

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    pub(crate) version: String,
    pub(crate) description: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) readme: Option<String>,
    pub(crate) documentation: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// The registries it may be published to; all if absent.
    publish: Option<Vec<String>>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    name: String,
    kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// A profiler that can be built.
#[derive(Debug, PartialEq)]
pub struct Example {
    /// Its name in cargo.
    pub name: String,
    /// The first line of its documentation.
    pub summary: String,
}

impl Metadata {
    /// Runs `cargo metadata`.
    ///
    /// # Errors
    /// If cargo fails.
    pub fn load() -> Result<Self> {
        let text = process::output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
        serde_json::from_str(&text).context("cannot understand the output of `cargo metadata`")
    }

    /// The package `name`.
    ///
    /// # Errors
    /// If the workspace has none.
    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        self.packages.iter().find(|package| package.name == name).with_context(|| format!("no package {name}"))
    }

    /// The packages that are to be published.
    #[must_use]
    pub fn published(&self) -> Vec<&Package> {
        self.packages.iter().filter(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty())).collect()
    }

    /// The examples of `package`, in the order of its manifest.
    #[must_use]
    pub fn examples(&self, package: &str) -> Vec<Example> {
        let targets =
            self.packages.iter().filter(|candidate| candidate.name == package).flat_map(|package| &package.targets);
        let examples = targets.filter(|target| target.kind.iter().any(|kind| kind == "example"));
        examples.map(|target| Example { name: target.name.clone(), summary: summary(&target.src_path) }).collect()
    }
}

/// The first line of a source file's own documentation.
fn summary(source: &Path) -> String {
    let text = fs::read_to_string(source).unwrap_or_default();
    let first = text.lines().find_map(|line| line.strip_prefix("//!"));
    first.unwrap_or_default().trim().to_owned()
}

/// Has `command`, which builds the workspace for this system, embed the built-in profilers into the command `corprof`.
///
/// The build script of corprof-cli would build them with a cargo of its own, and nearly all crates once more. This
/// builds them with all other examples.
///
/// # Errors
/// If they cannot be built; the compiler has printed its messages on standard error.
pub fn embed_profilers(command: &mut Command, is_release: bool) -> Result<()> {
    let mut build = cargo();
    build.arg("build");
    build.args(HERE).arg("--examples");
    embed_profilers_of(build, command, is_release)
}

/// As [`embed_profilers`], for another system: `build` is a `cargo build` for it of examples, with that library among
/// them.
///
/// # Errors
/// As [`embed_profilers`].
pub fn embed_profilers_of(mut build: Command, command: &mut Command, is_release: bool) -> Result<()> {
    build.args(is_release.then_some("--release"));
    let libraries = build_examples(&mut build)?;
    let built_in = libraries.into_iter().find(|(name, _)| name == BUILT_IN);
    let (_, library) = built_in.context("the library of the built-in profilers was not built")?;
    command.env("CORPROF_BUNDLE", library);
    Ok(())
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    executable: Option<PathBuf>,
}

/// The program `name` of this workspace, which it builds.
///
/// As part of the whole: `cargo run --package` would compile what the program depends on with fewer features, and the
/// build of the tests once more. With a test, cargo counts the features that tests want; this one needs little.
///
/// # Errors
/// If the build fails; the compiler has printed its messages on standard error.
pub(crate) fn program(name: &str) -> Result<Command> {
    let mut build = cargo();
    build.args(["build", "--quiet"]).args(HERE).args(["--bin", name, "--test", "complaints"]);
    let messages = build_messages(&mut build)?;
    let is_it = |message: &Message| message.target.as_ref().is_some_and(|target| target.name == name);
    let program = messages.into_iter().filter(is_it).find_map(|message| message.executable);
    let mut command = Command::new(program.with_context(|| format!("cargo built no program {name}"))?);
    command.current_dir(workspace_root());
    Ok(command)
}

/// Runs a `cargo build` command that builds examples, and returns the built libraries by example.
///
/// # Errors
/// If the build fails; the compiler has printed its messages on standard error.
pub fn build_examples(command: &mut Command) -> Result<Vec<(String, PathBuf)>> {
    Ok(libraries(build_messages(command)?))
}

/// What the `cargo build` command says of what it has built.
fn build_messages(command: &mut Command) -> Result<Vec<Message>> {
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start `{}`", process::shown(command)))?;
    if !output.status.success() {
        bail!("the build failed: `{}`: {}", process::shown(command), output.status);
    }
    Ok(messages(&String::from_utf8_lossy(&output.stdout)))
}

fn messages(output: &str) -> Vec<Message> {
    output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn libraries(messages: Vec<Message>) -> Vec<(String, PathBuf)> {
    let artifacts = messages.into_iter().filter(|message| message.reason == "compiler-artifact");
    artifacts
        .filter_map(|message| {
            let target = message.target.filter(|target| target.kind.iter().any(|kind| kind == "example"))?;
            // For any system. An import library for Windows ends in `.dll.a`.
            let is_library = |file: &PathBuf| {
                file.extension().is_some_and(|extension| ["so", "dll", "dylib"].iter().any(|one| extension == *one))
            };
            Some((target.name, message.filenames.into_iter().find(is_library)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_knows_this_package() {
        let metadata = Metadata::load().unwrap();
        assert!(metadata.packages.iter().any(|package| package.name == env!("CARGO_PKG_NAME")));
        assert_eq!(metadata.examples("no-such-package"), []);
    }

    #[test]
    fn libraries_are_those_of_examples() {
        let artifact = |kind: &str, name: &str, file: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"name":"{name}","kind":["{kind}"],"src_path":"x.rs"}},"filenames":["{file}"]}}"#
            )
        };
        let library = format!("target/examples/{}logger{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
        let output = [
            artifact("lib", "corprof", "target/libcorprof.rlib"),
            "not JSON".to_owned(),
            artifact("example", "logger", &library),
            artifact("example", "beeper", r#"target/libbeeper.dll.a","target/beeper.dll"#),
            artifact("example", "tool", "target/examples/tool"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let expected = [("logger", library.as_str()), ("beeper", "target/beeper.dll")];
        assert_eq!(
            libraries(messages(&output.join("\n"))),
            expected.map(|(name, file)| (name.to_owned(), PathBuf::from(file)))
        );
    }
}

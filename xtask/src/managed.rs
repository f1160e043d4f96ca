//! Managed programs: compiles a `.cs` or `.il` file for `dotnet`.
//!
//! Programs in tests/managed are C# 7 and run on every runtime. Those in tests/managed/modern are in today's C#: each
//! has a line `// target: 8.0`, `10.0` or `11.0` with the libraries that it is compiled against; no older runtime runs
//! it.

mod compiler_process;

use std::ffi::OsString;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::cargo::workspace_root;
use crate::folder::Folder;
use crate::known;
use crate::process;
use crate::runtime::{Runtime, Version};
use crate::tools;
use crate::wheel::hex;

use compiler_process::CompilerProcess;

/// Declares the runtimes of the program: 8 or later, the newest available, without ICU.
const RUNTIME_CONFIG: &str = r#"{
  "runtimeOptions": {
    "framework": { "name": "Microsoft.NETCore.App", "version": "8.0.0" },
    "rollForward": "LatestMajor",
    "configProperties": { "System.Globalization.Invariant": true }
  }
}
"#;

/// The same for a program with ASP.NET, which includes the CLR's framework.
const WEB_CONFIG: &str = r#"{
  "runtimeOptions": {
    "framework": { "name": "Microsoft.AspNetCore.App", "version": "10.0.0" },
    "rollForward": "LatestMajor",
    "configProperties": { "System.Globalization.Invariant": true }
  }
}
"#;

/// The folder of the managed sources.
#[must_use]
pub fn sources_dir() -> PathBuf {
    workspace_root().join("tests").join("managed")
}

/// The folder of the managed sources in today's C#.
#[must_use]
pub fn modern_dir() -> PathBuf {
    sources_dir().join("modern")
}

/// The target of a source in [`modern_dir`]: the `8.0` of its line `// target: 8.0`.
///
/// # Errors
/// If it has no such line.
pub fn target(source: &str) -> Result<&str> {
    let target = source.lines().find_map(|line| line.strip_prefix("// target: ")).map(str::trim);
    target.context("no line `// target: 8.0`, `10.0` or `11.0`")
}

/// Whether a source uses ASP.NET, by a line `// framework: aspnet`.
fn is_web(source: &str) -> bool {
    source.lines().any(|line| line.trim_end() == "// framework: aspnet")
}

/// Whether a source needs source generators, by a line `// generators: yes`. To load them takes as long as to compile.
fn needs_generators(source: &str) -> bool {
    source.lines().any(|line| line.trim_end() == "// generators: yes")
}

/// Compiles bench/Service.cs, a web service, into `dir`; none if the runtime has no ASP.NET, or there is no compiler
/// for it.
///
/// # Errors
/// If it cannot be compiled.
pub(crate) fn service(runtime: &Runtime, dir: &Path) -> Result<Option<PathBuf>> {
    web_service(runtime, "Service.cs", dir)
}

/// The same with async methods that the runtime itself suspends: bench/AsyncService.cs.
///
/// # Errors
/// If it cannot be compiled.
pub(crate) fn async_service(runtime: &Runtime, dir: &Path) -> Result<Option<PathBuf>> {
    web_service(runtime, "AsyncService.cs", dir)
}

fn web_service(runtime: &Runtime, source: &str, dir: &Path) -> Result<Option<PathBuf>> {
    if web_framework(&runtime.framework).is_none() || runtime.version.major < 10 {
        return Ok(None);
    }
    let compiler = match Compiler::for_modern("10.0", &Cache::open()?)? {
        Some(compiler) => compiler,
        None => Compiler::for_runtime(runtime)?,
    };
    if !matches!(compiler, Compiler::Csc { .. }) {
        return Ok(None);
    }
    compile(&compiler, &workspace_root().join("bench").join(source), dir).map(Some)
}

/// The newest ASP.NET of an installation, from the folder of the CLR's framework: `shared/NAME/VERSION` both.
fn web_framework(framework: &Path) -> Option<PathBuf> {
    let web = framework.ancestors().nth(2)?.join("Microsoft.AspNetCore.App");
    let versions = fs::read_dir(web).ok()?.flatten();
    let version = |folder: &Path| folder.file_name()?.to_str()?.parse::<Version>().ok();
    versions
        .map(|version| version.path())
        .filter(|folder| version(folder).is_some())
        .max_by_key(|folder| version(folder))
}

/// A compiler of C#, or of IL.
#[derive(Debug)]
pub enum Compiler {
    /// Mono's assembler for IL, for code that C# cannot express. Its output runs on every runtime.
    Ilasm(PathBuf),
    /// Mono's. Its output runs on every runtime.
    Mcs(PathBuf),
    /// The compiler of a .NET SDK, with the libraries to compile against. Its output runs on their version and on newer
    /// ones.
    Csc {
        /// The host that runs the compiler.
        host: PathBuf,
        /// `csc.dll`.
        csc: PathBuf,
        /// The folder of the framework.
        framework: PathBuf,
        /// The folder of source generators, for sources that need them.
        generators: Option<PathBuf>,
    },
}

impl Compiler {
    /// The compiler for programs that need to run on `runtime` only: an SDK's if there is one.
    ///
    /// # Errors
    /// If there is none and none can be installed.
    pub fn for_runtime(runtime: &Runtime) -> Result<Self> {
        // The SDK may belong to another host than the one that will run the program.
        let own = Runtime::own().and_then(Result::ok);
        let with_sdk = [Some(runtime), own.as_ref()].into_iter().flatten().find_map(|host| Some((host, host.csc()?)));
        match with_sdk {
            Some((host, csc)) => {
                let host = host.host.clone();
                let framework = runtime.framework.clone();
                Ok(Self::Csc { host, csc, framework, generators: None })
            }
            None => Self::for_every_runtime(),
        }
    }

    /// The compiler for programs that run on every runtime that corprof supports.
    ///
    /// # Errors
    /// If there is none and none can be installed.
    pub fn for_every_runtime() -> Result<Self> {
        tools::mcs().map(Self::Mcs)
    }

    /// The compiler for programs in today's C#, against the libraries of .NET `target`: it needs .NET 10 to run, and
    /// comes from the folder of runtimes. None if the folder lacks it or the libraries.
    ///
    /// # Errors
    /// If it cannot be unpacked.
    pub fn for_modern(target: &str, cache: &Cache) -> Result<Option<Self>> {
        const ENTRY: &str = "csharp";
        const LIBRARIES_OF_11: &str = "csharp-11";
        let Some(folder) = Folder::find().filter(|folder| folder.has(ENTRY)) else { return Ok(None) };
        let Ok(runtime) = known::here("10", cache) else { return Ok(None) };
        let tools = folder.unpack(ENTRY, cache)?;
        let framework = match target {
            "11.0" if !folder.has(LIBRARIES_OF_11) => return Ok(None),
            "11.0" => folder.unpack(LIBRARIES_OF_11, cache)?,
            _ => tools.clone(),
        };
        let framework = framework.join("ref").join(target);
        ensure!(
            framework.is_dir(),
            "there are no libraries to compile against for .NET {target}: {}",
            framework.display()
        );
        let csc = tools.join("roslyn").join("csc.dll");
        Ok(Some(Self::Csc { host: runtime.host, csc, framework, generators: Some(tools.join("analyzers")) }))
    }

    /// The compiler's options for programs with ASP.NET: its libraries are those of the installation, or, in the folder
    /// of runtimes, beside those of .NET.
    fn web_libraries(&self) -> Result<Vec<OsString>> {
        let Self::Csc { framework, .. } = self else { bail!("{self} has no ASP.NET to compile against") };
        let web = web_framework(framework).unwrap_or_else(|| {
            let mut web = framework.as_os_str().to_owned();
            web.push("-aspnet");
            web.into()
        });
        Ok(managed_libraries(&web)?.iter().map(|library| option("-r:", library)).collect())
    }

    /// The compiler's options for programs with source generators.
    fn source_generators(&self) -> Result<Vec<OsString>> {
        let Self::Csc { generators: Some(generators), .. } = self else { bail!("{self} has no source generators") };
        Ok(managed_libraries(generators)?.iter().map(|library| option("-analyzer:", library)).collect())
    }

    fn command(&self) -> Result<Command> {
        const C_SHARP: [&str; 3] = ["-target:exe", "-optimize+", "-unsafe+"];
        match self {
            Self::Ilasm(ilasm) => {
                let mut command = Command::new(ilasm);
                command.args(["-quiet", "-exe"]);
                Ok(command)
            }
            Self::Mcs(mcs) => {
                let mut command = Command::new(mcs);
                // Not for csc: a later version may have new warnings.
                command.arg("-warnaserror+").args(C_SHARP);
                Ok(command)
            }
            Self::Csc { host, csc, framework, .. } => {
                let mut command = Command::new(host);
                command.arg("exec").arg(csc).args(["-nologo", "-nostdlib", "-noconfig"]).args(C_SHARP);
                command.args(managed_libraries(framework)?.iter().map(|library| option("-r:", library)));
                Ok(command)
            }
        }
    }
}

impl std::fmt::Display for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ilasm(tool) | Self::Mcs(tool) => write!(f, "{}", tool.display()),
            Self::Csc { csc, framework, .. } => write!(f, "{} against {}", csc.display(), framework.display()),
        }
    }
}

/// The managed libraries of a framework; beside them lie native ones, some of them with the same extension.
fn managed_libraries(framework: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(framework).with_context(|| format!("cannot read {}", framework.display()))?;
    let is_managed = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_framework =
            ["System.", "Microsoft.", "mscorlib.", "netstandard."].iter().any(|prefix| name.starts_with(prefix));
        is_framework && name.ends_with(".dll") && !name.ends_with(".Native.dll")
    };
    let mut libraries: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_managed).collect();
    libraries.sort();
    Ok(libraries)
}

/// An option of the compiler that names a file.
fn option(name: &str, file: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(file);
    option
}

/// The libraries that a C# source needs from mcs: one line `// reference: NAME` each.
fn references(source: &str) -> impl Iterator<Item = String> {
    source.lines().filter_map(|line| line.strip_prefix("// reference: ")).map(|name| format!("-r:{}.dll", name.trim()))
}

/// The compiler options of a source: one line `// option: -features:runtime-async=on` each.
fn options(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.strip_prefix("// option: ")).map(str::trim)
}

/// The file with the code of a source that is compiled in another way: a line `// code: NAME.cs` names it, beside the
/// source.
fn code_elsewhere(text: &str, source: &Path) -> Option<PathBuf> {
    let name = text.lines().find_map(|line| line.strip_prefix("// code: "))?;
    Some(source.with_file_name(name.trim()))
}

/// Compiles `source` into `dir` as a program, unless that was done before, and returns the path of its `.dll`.
///
/// # Errors
/// If the source cannot be read or does not compile.
pub fn compile(compiler: &Compiler, source: &Path, dir: &Path) -> Result<PathBuf> {
    compile_by(compiler, source, dir, process::run_as_progress)
}

/// The same; `run` runs the compiler.
fn compile_by(
    compiler: &Compiler,
    source: &Path,
    dir: &Path,
    run: impl FnOnce(&mut Command) -> Result<()>,
) -> Result<PathBuf> {
    let name = source.file_stem().with_context(|| format!("{} is not a source file", source.display()))?;
    let program = |extension: &str| dir.join(name).with_extension(extension);
    let dll = program("dll");
    let config = program("runtimeconfig.json");
    let stamp = program("stamp");

    // The stamp contains the inputs of the library. Dates would not do, because a checkout changes them.
    let text = fs::read_to_string(source).with_context(|| format!("cannot read {}", source.display()))?;
    let code = code_elsewhere(&text, source).unwrap_or_else(|| source.to_owned());
    let code_text = fs::read_to_string(&code).with_context(|| format!("cannot read {}", code.display()))?;
    let made_of = format!("{} by {compiler}\n", hex(&Sha256::digest(format!("{text}{code_text}"))));
    if dll.is_file() && config.is_file() && fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == made_of) {
        return Ok(dll);
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let out = option("-out:", &dll);
    let mut command = compiler.command()?;
    // csc receives all libraries of the framework.
    if matches!(compiler, Compiler::Mcs(_)) {
        command.args(references(&text));
    }
    if is_web(&text) {
        command.args(compiler.web_libraries()?);
    }
    if needs_generators(&text) {
        command.args(compiler.source_generators()?);
    }
    command.args(options(&text));
    run(command.arg(out).arg(code)).with_context(|| format!("cannot compile {}", source.display()))?;
    let write =
        |path: &Path, text: &str| fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    write(&config, if is_web(&text) { WEB_CONFIG } else { RUNTIME_CONFIG })?;
    write(&stamp, &made_of)?;
    Ok(dll)
}

/// The program that calls the compiler of an SDK many times.
fn many_compilations() -> PathBuf {
    workspace_root().join("xtask").join("src").join("managed").join("ManyCompilations.cs")
}

/// Compiles each of these into `dir`, as many at once as there are processors: a compiler works in one thread for most
/// of its time.
fn compile_each(sources: Vec<(&Compiler, PathBuf)>, dir: &Path) -> Result<()> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let of_an_sdk = sources.iter().map(|(compiler, _)| *compiler).find(|of| matches!(of, Compiler::Csc { .. }));
    let many = of_an_sdk.map(|compiler| compile(compiler, &many_compilations(), &dir.join("compiler"))).transpose()?;
    let queue = Mutex::new(sources.into_iter());
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut started = None;
        while let Some((compiler, source)) = take() {
            compile_by(compiler, &source, dir, |command| {
                let (Compiler::Csc { host, csc, .. }, Some(many)) = (compiler, &many) else {
                    return process::run_as_progress(command);
                };
                let process = match started.take() {
                    Some(process) => process,
                    None => CompilerProcess::start(host, many, csc)?,
                };
                started.insert(process).run(command)
            })?;
        }
        anyhow::Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Compiles every source of `tests/managed` into `dir`, those in C# by `compiler`, and returns how many there are.
///
/// # Errors
/// As [`compile`], or if there are no sources, or no assembler for IL.
pub fn compile_all(compiler: &Compiler, dir: &Path) -> Result<usize> {
    let folder = sources_dir();
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let in_language = |language: &'static str| {
        files.iter().filter(move |path| path.extension().is_some_and(|extension| extension == language)).cloned()
    };
    let mut sources: Vec<_> = in_language("cs").map(|source| (compiler, source)).collect();
    let assembler;
    if in_language("il").next().is_some() {
        assembler = Compiler::Ilasm(tools::ilasm()?);
        sources.extend(in_language("il").map(|source| (&assembler, source)));
    }
    let count = sources.len();
    if count == 0 {
        bail!("no sources in {}", folder.display());
    }
    compile_each(sources, dir)?;
    Ok(count)
}

/// Compiles the sources of `tests/managed/modern` into `dir`, those that this machine has a compiler and libraries for,
/// and returns their number, and that of the others.
///
/// # Errors
/// As [`compile`].
pub fn compile_modern(dir: &Path, cache: &Cache) -> Result<(usize, usize)> {
    let folder = modern_dir();
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut compilers = Vec::new();
    let mut missing = 0;
    for source in entries.flatten().map(|entry| entry.path()) {
        let text = fs::read_to_string(&source).with_context(|| format!("cannot read {}", source.display()))?;
        let target = target(&text).with_context(|| format!("cannot compile {}", source.display()))?;
        match Compiler::for_modern(target, cache)? {
            Some(compiler) => compilers.push((compiler, source)),
            None => missing += 1,
        }
    }
    let sources: Vec<_> = compilers.iter().map(|(compiler, source)| (compiler, source.clone())).collect();
    let count = sources.len();
    compile_each(sources, dir)?;
    Ok((count, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_libraries_are_not_referenced() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            "System.Runtime.dll",
            "mscorlib.dll",
            "System.IO.Compression.Native.dll",
            "clrjit.dll",
            "System.Private.CoreLib.so",
        ];
        for file in files {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let names: Vec<_> =
            managed_libraries(dir.path()).unwrap().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["System.Runtime.dll", "mscorlib.dll"]);
    }

    /// A compiler that appends to its output, so that the output tells how often it ran.
    #[cfg(unix)]
    #[test]
    fn a_source_is_compiled_again_only_when_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let compiler = dir.path().join("compiler");
        let source = dir.path().join("App.cs");
        let out = dir.path().join("out");
        let script = "#!/bin/sh\nfor a; do case $a in -out:*) echo ran >> \"${a#-out:}\";; esac; done\n";
        crate::process::testing::write_script(&compiler, script);
        let compiler = Compiler::Mcs(compiler);
        let runs = || fs::read_to_string(compile(&compiler, &source, &out).unwrap()).unwrap().lines().count();
        fs::write(&source, "one").unwrap();
        assert_eq!((runs(), runs()), (1, 1));
        fs::write(&source, "two").unwrap();
        assert_eq!((runs(), runs()), (2, 2));
        assert!(out.join("App.runtimeconfig.json").is_file());
    }
}

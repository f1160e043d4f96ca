//! Builds the library of the built-in profilers and has the command embed it.
//!
//! Cargo cannot depend on a shared library, so this calls the same cargo once more, in a folder of its own, for the
//! package corprof-profilers. That is a build dependency only so that cargo brings its sources: from the checkout or
//! from the registry.
//!
//! `CORPROF_BUNDLE` names a built library to embed instead (as the tests do, which build it with all other crates);
//! empty, it leaves the profilers out, as the feature `profilers` does if it is off. `CORPROF_BUNDLE_OTHER` names a
//! library for Linux's other C library to embed as well, musl beside glibc or glibc beside musl, as releases have it:
//! for processes that are running.

use std::env;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CORPROF_BUNDLE");
    println!("cargo::rerun-if-env-changed=CORPROF_BUNDLE_OTHER");
    let library = match env::var_os("CORPROF_BUNDLE") {
        Some(given) if given.is_empty() => None,
        Some(given) => Some(fs::canonicalize(given)?),
        // docs.rs has no network.
        None if env::var_os("DOCS_RS").is_some() => None,
        None => build()?,
    };
    embed(library, "library.rs")?;
    let other = env::var_os("CORPROF_BUNDLE_OTHER").filter(|given| !given.is_empty());
    embed(other.map(fs::canonicalize).transpose()?, "other_library.rs")
}

/// Writes the code that embeds a library, with a hash of it, so that the command need not read it all at each start.
fn embed(library: Option<PathBuf>, code: &str) -> Result<(), Box<dyn Error>> {
    let text = match library {
        Some(library) => {
            println!("cargo::rerun-if-changed={}", library.display());
            let hash = format!("{:x}", Sha256::digest(fs::read(&library)?));
            format!("Some(Embedded {{ bytes: include_bytes!({:?}), hash: {hash:?} }})", library.display().to_string())
        }
        None => "None".to_owned(),
    };
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join(code), text)?;
    Ok(())
}

#[cfg(not(feature = "profilers"))]
fn build() -> Result<Option<PathBuf>, Box<dyn Error>> {
    Ok(None)
}

#[cfg(feature = "profilers")]
fn build() -> Result<Option<PathBuf>, Box<dyn Error>> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let target = variable("TARGET")?;
    let (profile, folder) = if variable("PROFILE")? == "release" { ("release", "release") } else { ("dev", "debug") };
    // Beside the builds of this workspace rather than in the folder of this one, which is another for each set of
    // features.
    let out = PathBuf::from(variable("OUT_DIR")?);
    let beside = out.ancestors().nth(2).filter(|build| build.ends_with("build")).and_then(|build| build.parent());
    let target_dir = beside.unwrap_or(&out).join("corprof-profilers");
    let mut cargo = std::process::Command::new(variable("CARGO")?);
    cargo.arg("build").arg("--manifest-path").arg(PathBuf::from(corprof_profilers::FOLDER).join("Cargo.toml"));
    cargo.args(["--example", "corprof_profilers", "--profile", profile, "--target", &target]);
    cargo.arg("--target-dir").arg(&target_dir);
    // A library for users, whatever the workspace around it wants of its own builds.
    for setting in ["debug=false", "strip=\"symbols\"", "panic=\"unwind\""] {
        cargo.args(["--config", &format!("profile.{profile}.{setting}")]);
    }
    // `cargo clippy` would have its compiler used here as well.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS");
    if !cargo.status()?.success() {
        return Err("the built-in profilers cannot be built; what cargo said is above. Without them: \
                    `cargo install corprof-cli --no-default-features`"
            .into());
    }
    let name = match variable("CARGO_CFG_TARGET_OS")?.as_str() {
        "windows" => "corprof_profilers.dll",
        "macos" => "libcorprof_profilers.dylib",
        _ => "libcorprof_profilers.so",
    };
    let built = target_dir.join(target).join(folder).join("examples");
    // Cargo writes there which files of a checkout the library is made of.
    let sources = fs::read_to_string(built.join(name).with_extension("d"))?;
    for source in sources.lines().filter_map(|line| line.split_once(": ")).flat_map(|(_, all)| words(all)) {
        println!("cargo::rerun-if-changed={source}");
    }
    Ok(Some(built.join(name)))
}

/// The words of a line in which a space within a word stands behind a backslash.
#[cfg(feature = "profilers")]
fn words(line: &str) -> Vec<String> {
    let line = line.replace("\\ ", "\0");
    line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('\0', " ")).collect()
}

//! The small inputs in `sample/`, and a workspace made of them.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};

use corprof_gen::{Context, Emitter, Error, Facts, Input, Options, Output, Report, SourceFile, Sources, emit};

/// The emitter under test; others want tables that the sample does not have.
pub(crate) const EMITTERS: &[Emitter] = &[emit::outputs];

pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sample").join(name)
}

pub(crate) fn text(input: Input) -> String {
    std::fs::read_to_string(sample(input.file_name())).expect("a sample")
}

/// The sample, with the text of some inputs replaced.
pub(crate) fn context(replaced: &[(Input, &str)], facts: &Facts, sources: &Sources) -> Result<Context, Error> {
    let files = Input::ALL
        .into_iter()
        .map(|input| {
            let other = replaced.iter().find(|(replaced, _)| *replaced == input);
            SourceFile::new(input, other.map_or_else(|| text(input), |(_, text)| (*text).to_owned()))
        })
        .collect();
    let (model, warnings) = corprof_gen::model(files, sources, facts)?;
    let contracts = corprof_gen::Contracts::read(&sample("contracts.toml"))?;
    contracts.check(&model)?;
    Ok(Context { model, facts: facts.clone(), contracts, directory: sample(""), warnings })
}

pub(crate) fn facts() -> Facts {
    Facts::read(&sample("facts.toml")).expect("facts")
}

pub(crate) fn sources() -> Sources {
    Sources::read(&sample("sources.toml")).expect("sources")
}

/// The files generated from the sample, with the text of some inputs replaced.
pub(crate) fn outputs(replaced: &[(Input, &str)]) -> Result<Vec<Output>, Error> {
    let context = context(replaced, &facts(), &sources())?;
    corprof_gen::outputs(&context, EMITTERS)
}

/// The complaint about the sample with one input replaced.
pub(crate) fn complaint(input: Input, text: &str) -> corprof_gen::Diagnostic {
    match outputs(&[(input, text)]) {
        Err(Error::Input(diagnostic)) => *diagnostic,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it was understood"),
    }
}

/// A workspace with the sample as its generator's tables, and its inputs beside it.
pub(crate) struct Workspace {
    root: tempfile::TempDir,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for (directory, names) in [
            ("corprof-sys/gen", &["facts.toml", "sources.toml", "contracts.toml", "supplement.idl"][..]),
            ("idl", &["corprof.idl", "corhdr.idl", "metadata.idl", "corerror.h"][..]),
        ] {
            let directory = root.path().join(directory);
            std::fs::create_dir_all(&directory).expect("a directory");
            for name in names {
                std::fs::copy(sample(name), directory.join(name)).expect("a copy");
            }
        }
        Self { root }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn generate(&self, check: bool) -> Result<Report, Error> {
        let options = Options { idl: self.path("idl"), root: self.root.path().to_owned(), check };
        corprof_gen::run_with(&options, EMITTERS)
    }
}

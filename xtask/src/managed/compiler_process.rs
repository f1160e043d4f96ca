//! The compiler of C# in one process for many programs: to start it takes six times as long as to compile one of ours.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process;

/// The process, which ends when this is dropped.
pub(super) struct CompilerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl CompilerProcess {
    /// Starts `ManyCompilations.dll` for a compiler.
    pub(super) fn start(host: &Path, many_compilations: &Path, csc: &Path) -> Result<Self> {
        let mut command = Command::new(host);
        command.arg("exec").arg(many_compilations).arg(csc);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start `{}`", process::shown(&command)))?;
        let output = child.stdout.take().context("its output is a pipe")?;
        Ok(Self { input: child.stdin.take(), output: BufReader::new(output), child })
    }

    /// Does what `command` would, which starts the same compiler, and shows what the compiler says.
    pub(super) fn run(&mut self, command: &Command) -> Result<()> {
        // After `exec` and the compiler.
        let arguments: Option<Vec<_>> = command.get_args().skip(2).map(|argument| argument.to_str()).collect();
        let arguments = arguments.context("the compiler has an argument that is not UTF-8")?;
        let input = self.input.as_mut().context("the input is open until the end")?;
        writeln!(input, "{}", arguments.join("\t"))?;
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.output.read_line(&mut line)? > 0, "the compiler has ended: `{}`", process::shown(command));
            match line.trim_end().strip_prefix("exit code ") {
                Some("0") => return Ok(()),
                Some(code) => bail!("`{}` failed: exit code {code}", process::shown(command)),
                None => eprint!("{line}"),
            }
        }
    }
}

impl Drop for CompilerProcess {
    fn drop(&mut self) {
        // It ends with its input.
        self.input = None;
        let _ = self.child.wait();
    }
}

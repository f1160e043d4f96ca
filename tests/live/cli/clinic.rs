//! Fifteen questions about a service that runs already (`tests/managed/modern/Clinic.cs`), one command each. They are
//! asked one after the other, and the table of `book/src/questions.md` is made from what this prints:
//!
//!     cargo xtask test --live-only --runtime 10 -- clinic --nocapture
//!
//! `CORPROF_CLINIC_COMMAND=PATH` asks by another command, such as a release's, and `CORPROF_CLINIC_TOOLS=1` asks
//! Microsoft's tools, too.

use xtask::cache::Cache;
use xtask::folder::Folder;

use super::*;

/// A question, the command, and what a line of its answer has.
struct Question {
    question: &'static str,
    /// `PID` stands for the process.
    command: &'static str,
    /// Beginnings of the words that a line of the answer has, in the order of the lines.
    answer: &'static [&'static [&'static str]],
    asks: Asks,
    /// What Microsoft's tools are asked, one after the other.
    tools: &'static [&'static str],
}

/// Whether it gathers for a time.
#[derive(PartialEq)]
enum Asks {
    /// What is so now.
    Now,
    /// For some seconds, and for longer if they do not suffice on a busy machine.
    During,
}

const QUESTIONS: [Question; 15] = [
    Question {
        question: "What uses the processor?",
        command: "record -p PID -o p.html",
        answer: &[&["%", "Checks.Hash"]],
        asks: Asks::During,
        tools: &[
            "dotnet-trace collect -p PID --duration 00:00:00:05 -o p.nettrace",
            "dotnet-trace report p.nettrace topN",
        ],
    },
    Question {
        question: "Which lines?",
        command: "top PID --lines",
        answer: &[&["Clinic.Checks.Hash(", "Clinic.cs:"]],
        asks: Asks::During,
        tools: &[],
    },
    Question {
        question: "What do the threads do now?",
        command: "stacks PID",
        answer: &[&["Clinic.Wards.Lock(", "Clinic.cs:"]],
        asks: Asks::Now,
        tools: &["dotnet-stack report -p PID"],
    },
    Question {
        question: "Is it a deadlock?",
        command: "stacks PID",
        answer: &[&["deadlock: 2 threads wait for each other"]],
        asks: Asks::Now,
        tools: &[],
    },
    Question {
        question: "Which lock is slow, and who holds it?",
        command: "locks PID",
        answer: &[&["Clinic.Prices.Of("], &["owner of the lock: thread"]],
        asks: Asks::During,
        tools: &["dotnet-counters collect -p PID --duration 00:00:00:05 --format csv -o locks.csv"],
    },
    Question {
        question: "Why are there pauses?",
        command: "pauses PID",
        answer: &[&["generation"]],
        asks: Asks::During,
        tools: &["dotnet-trace collect -p PID --profile gc-collect --duration 00:00:00:05 -o gc.nettrace"],
    },
    Question {
        question: "Who allocates?",
        command: "allocations PID",
        answer: &[&["byte[]"]],
        asks: Asks::During,
        tools: &["dotnet-trace collect -p PID --profile gc-verbose --duration 00:00:00:05 -o allocations.nettrace"],
    },
    Question {
        question: "What is thrown, where, how often?",
        command: "exceptions PID",
        answer: &[&["Clinic.NoSuchPatientException"], &["thrown in Clinic.Patients.", "Clinic.cs:"]],
        asks: Asks::During,
        tools: &["dotnet-counters collect -p PID --duration 00:00:00:05 --format csv -o exceptions.csv"],
    },
    Question {
        question: "What is in the heap?",
        command: "heap PID",
        answer: &[&["byte[]"], &["System.Collections.Generic.Dictionary<int, byte[]>"]],
        asks: Asks::Now,
        tools: &["dotnet-gcdump collect -p PID -o heap.gcdump", "dotnet-gcdump report heap.gcdump"],
    },
    Question {
        question: "What leaks?",
        command: "leaks PID --first 0.5",
        answer: &[&["static field Clinic.Patients.files"]],
        asks: Asks::During,
        tools: &[],
    },
    Question {
        question: "Which requests are slow, and why?",
        command: "requests PID",
        answer: &[&["/beds"], &["/blocking"]],
        asks: Asks::During,
        tools: &[],
    },
    Question {
        question: "Where does async code wait?",
        command: "waits PID",
        answer: &[&["Clinic.Beds.Free"]],
        asks: Asks::During,
        tools: &[],
    },
    Question {
        question: "What is pending now?",
        command: "tasks PID",
        answer: &[&["Clinic.Beds."]],
        asks: Asks::Now,
        tools: &[],
    },
    Question {
        question: "How are the counters?",
        command: "counters PID",
        answer: &[&["System.Runtime"]],
        asks: Asks::During,
        tools: &["dotnet-counters collect -p PID --duration 00:00:00:05 --format csv -o counters.csv"],
    },
    // The last one: its clients keep the service busy for a while.
    Question {
        question: "Is the pool starved, and by whom?",
        command: "starvation PID",
        answer: &[&["Clinic.Archive.Read("]],
        asks: Asks::During,
        tools: &["dotnet-counters collect -p PID --duration 00:00:00:05 --format csv -o pool.csv"],
    },
];

/// What was said to a question.
struct Answer {
    elapsed: Duration,
    is_success: bool,
    text: String,
}

fn ask(mut command: Command) -> Result<Answer> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    let elapsed = start.elapsed();
    let (stdout, stderr) = texts(&output);
    Ok(Answer { elapsed, is_success: output.status.success(), text: stdout + &stderr })
}

impl Answer {
    /// The lines that answer; none if one is missing.
    fn lines(&self, expected: &[&[&str]]) -> Option<Vec<&str>> {
        let line = |words: &&[&str]| self.text.lines().find(|line| words.iter().all(|word| line.contains(word)));
        expected.iter().map(line).collect()
    }
}

/// The service, with somebody who asks it.
struct Clinic {
    service: Program,
    client: Program,
    folder: tempfile::TempDir,
    has_web: bool,
}

impl Clinic {
    fn start(runtime: &Runtime, app: &str) -> Result<Self> {
        // The first generation would be as large as the caches of the processor: hundreds of megabytes on a server.
        let service = Run::new(runtime, app).env("DOTNET_GCgen0size", "1000000");
        let service = Program::start(service.command()?)?;
        let line = service.lines.recv_timeout(PATIENCE).context("it is never ready")?;
        let address = line.strip_prefix("ready ").with_context(|| format!("not ready: {line}"))?;
        let client = Program::start(Run::new(runtime, app).args(["ask", address]).command()?)?;
        client.expect("asks")?;
        Ok(Self { service, client, folder: tempfile::tempdir()?, has_web: app == "Clinic" })
    }

    /// Words with the process in the place of `PID`.
    fn words(&self, line: &str) -> Vec<String> {
        let pid = self.service.child.id().to_string();
        line.split(' ').map(|word| if word == "PID" { pid.clone() } else { word.to_owned() }).collect()
    }

    /// Asks by `corprof`, for `seconds`.
    fn ask(&self, question: &Question, seconds: u32) -> Result<Answer> {
        let mut command = corprof()?;
        if let Some(other) = env::var_os("CORPROF_CLINIC_COMMAND") {
            command = Command::new(other);
        }
        command.current_dir(self.folder.path()).args(self.words(question.command));
        if question.asks == Asks::During {
            command.args(["--duration", &seconds.to_string()]);
        }
        ask(command)
    }

    /// The time that Microsoft's tools need for it, and whether they succeed.
    fn ask_tools(&self, tools: &Tools, question: &Question) -> Result<String> {
        let mut times = Vec::new();
        for line in question.tools {
            let words = self.words(line);
            let mut command = tools.command(&words[0]);
            command.current_dir(self.folder.path()).args(&words[1..]);
            let answer = ask(command)?;
            ensure!(answer.is_success, "{line}: {}", answer.text);
            times.push(format!("`{line}` {:.1} s", answer.elapsed.as_secs_f64()));
        }
        Ok(if times.is_empty() { "–".to_owned() } else { times.join(", ") })
    }

    /// Why a question is not answered on this runtime, of which the command says so.
    fn lacks(&self, runtime: &Runtime, question: &Question) -> Option<&'static str> {
        match question.command.split(' ').next() {
            Some("requests") if !self.has_web => Some("no ASP.NET"),
            Some("waits") if !runtime.has(Difference::AsyncOperations) => Some("tells no async operations"),
            _ => None,
        }
    }
}

/// Microsoft's tools, and the runtime for them.
struct Tools {
    host: PathBuf,
    folder: PathBuf,
}

impl Tools {
    /// If they are asked for.
    fn wanted() -> Result<Option<Self>> {
        if env::var_os("CORPROF_CLINIC_TOOLS").is_none() {
            return Ok(None);
        }
        let folder = Folder::find().context("there is no folder of runtimes")?;
        let cache = Cache::open()?;
        let host = folder.unpack("dotnet-10-linux-x64", &cache)?.join("dotnet");
        Ok(Some(Self { host, folder: folder.unpack("dotnet-tools-linux", &cache)? }))
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(&self.host);
        command.arg("exec").arg(self.folder.join(tool).join(tool).with_extension("dll"));
        command.env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
        command
    }
}

/// It asks for a minute.
mod long {
    use super::*;

    #[test]
    fn fifteen_questions_are_answered_by_a_command_each() -> Result<()> {
        let tools = Tools::wanted()?;
        for runtime in runtimes()? {
            let has = |app: &str| -> Result<bool> {
                Ok(Runtime::all_for_modern(app)?.iter().any(|other| other.major == runtime.major))
            };
            let apps = ["Clinic", "ClinicListener"];
            let app = apps.into_iter().find(|app| has(app).is_ok_and(|has| has)).context("no such program")?;
            let mut clinic = Clinic::start(&runtime, app)?;
            for question in &QUESTIONS {
                answers(&mut clinic, &runtime, question, tools.as_ref())?;
            }
            let Clinic { service, client, .. } = clinic;
            client.end()?;
            let (code, stderr) = service.end()?;
            ensure!(code == Some(0) && stderr.is_empty(), "{runtime}: {code:?}: {stderr}");
        }
        Ok(())
    }

    /// Asks one question, and prints its row.
    fn answers(clinic: &mut Clinic, runtime: &Runtime, question: &Question, tools: Option<&Tools>) -> Result<()> {
        let Question { question: text, command, answer: expected, asks, .. } = question;
        if let Some(why) = clinic.lacks(runtime, question) {
            println!("| {text} | `{command}` | {runtime}: no: {why} |");
            return Ok(());
        }
        let tries: &[u32] = if *asks == Asks::Now { &[0, 0, 0] } else { &[5, 10, 20] };
        let mut last = String::new();
        for seconds in tries {
            if command.starts_with("starvation") {
                clinic.client.tell("crowd")?;
            }
            let answer = clinic.ask(question, *seconds)?;
            last = answer.text.clone();
            let Some(lines) = answer.lines(expected).filter(|_| answer.is_success) else { continue };
            let lines: Vec<_> = lines.into_iter().map(str::trim).collect();
            let elapsed = answer.elapsed.as_secs_f64();
            let others = tools.map(|tools| clinic.ask_tools(tools, question)).transpose()?;
            let others = others.map(|others| format!(" {others} |")).unwrap_or_default();
            println!("| {text} | `{command}` | {runtime}: {elapsed:.1} s | {} |{others}", lines.join("; "));
            return Ok(());
        }
        anyhow::bail!("{runtime}: {command}: no lines {expected:?}: {last}")
    }
}

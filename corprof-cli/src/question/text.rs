//! What the help says of each question.

use corprof_profilers::table::{ALLOCATIONS, EXCEPTIONS, LEAKS, LOCKS, PAUSES, Profiler, STARVATION, TIMER, TRACER};

use crate::attached_profiler;

/// A question in words.
pub(super) struct Words {
    pub(super) profiler: &'static Profiler,
    /// In one line.
    pub(super) about: &'static str,
    /// What else a user should know.
    pub(super) more: &'static str,
}

/// All questions.
pub(super) static ALL: [Words; 8] = [
    Words {
        profiler: &LOCKS,
        about: "Show which threads wait for locks, for how long, and what the owners do",
        more: "Counts waits for `lock` (Monitor) and System.Threading.Lock that begin while it watches. Deadlocks and waits that \
               began before come first, with the stacks of waiter and owner, and threads that wait for a SemaphoreSlim, which \
               has no owner. Those that await SemaphoreSlim.WaitAsync are no threads: see `corprof tasks`. In async code the \
               stacks go on with the methods that await the one that runs.",
    },
    Words {
        profiler: &STARVATION,
        about: "Show which code blocks the thread pool while it is starved",
        more: "The pool is starved if work waits and all threads of the pool are blocked. Nothing is stopped otherwise.",
    },
    Words {
        profiler: &PAUSES,
        about: "Show why the application paused, who caused it, and which threads delayed it",
        more: "A pause is a suspension of all managed threads, such as that of a collection.",
    },
    Words {
        profiler: &EXCEPTIONS,
        about: "Count exceptions by class, thrower, catcher and message",
        more: "The thrower is the innermost method of the application, with file and line where a PDB tells. `throw;` throws a \
               new exception. The message is the one that the exception object holds. If the thrower runs in a resumed async \
               method, `called by` has the methods below it, and those that await them. With --tree, each exception is also \
               printed when it happens, with the methods that the search for a handler visits; from a running process, before \
               the answer.",
    },
    Words {
        profiler: &ALLOCATIONS,
        about: "Show which classes are allocated, and by which code",
        more: "In a running process the runtime reports a sample of the objects, one every 100 KB: the bytes are those that \
               the samples represent. From the start of an application, every object is counted, unless there is --by stack. \
               In async code the callers in the file are those that await a resumed method.",
    },
    Words {
        profiler: &LEAKS,
        about: "Compare two snapshots of the heap: what has grown, and what keeps it",
        more: "For each snapshot the application stands still while the runtime collects. Ctrl-C between the two takes the \
               second one at once. Between the two nothing is in a running process: other commands can ask it meanwhile.",
    },
    Words {
        profiler: &TIMER,
        about: "Count and time the calls of each method",
        more: "In a running process methods have hooks from their next call on, as inserted code.",
    },
    Words {
        profiler: &TRACER,
        about: "Write every call, as a trace for the Perfetto UI or as a tree",
        more: "In a running process methods have hooks from their next call on, as inserted code. Without -o, the tree of \
               all calls is the answer.",
    },
];

/// The words of the question of this name.
pub(super) fn named(name: &str) -> Option<&'static Words> {
    ALL.iter().find(|words| words.profiler.name == name)
}

/// Whether the profiler always changes code, so that the runtime keeps it once it was attached.
pub(super) fn changes_code(profiler: &Profiler) -> bool {
    [TIMER.name, TRACER.name].contains(&profiler.name)
}

/// The long help.
pub(super) fn long(words: &Words) -> String {
    let Words { profiler, about, more } = words;
    let name = profiler.name;
    let with_command = format!(
        "With a command, starts the application under the profiler, as `corprof run {name}` does, which prints the answer on \
         standard error: at the end of the application, after --duration, or at Ctrl-C or SIGTERM, which then ends the \
         application. A second Ctrl-C ends it at once."
    );
    if name == LEAKS.name {
        return format!(
            "{about}.\n\n{more}\n\nWith a process id, takes the snapshots of a running process, as `corprof heap` does, and \
             prints the answer on standard output.\n\n{with_command}"
        );
    }
    let leaves = if changes_code(profiler) {
        format!("Then {}.", attached_profiler::stays(&format!("`{name}`")))
    } else {
        "Then it detaches: the process runs on, and can be asked again. So it does if this command is killed, and on \
         request of `corprof detach`."
            .to_owned()
    };
    format!(
        "{about}.\n\n{more}\n\nWith a process id, attaches the built-in profiler `{name}` to a running process, gathers until \
         Ctrl-C or for --duration, and prints the answer on standard output. The process prints nothing. {leaves}\n\n\
         {with_command}"
    )
}

/// Examples, and where to read on.
pub(super) fn examples(words: &Words) -> String {
    let name = words.profiler.name;
    let ends = if name == LEAKS.name { "35 s, or until Ctrl-C" } else { "until Ctrl-C" };
    format!(
        "Examples:\n  corprof {name} 4711                 {ends}\n  corprof {name} 4711 --duration 10\n  corprof {name} -- dotnet \
         App.dll\n\nThe exit code is 1 if the runtime refused the profiler, and 124 if there is no answer; with a command, it is that of \
         the\napplication, or 0 if Ctrl-C ended it and there is an answer. Exit codes: corprof help exit-codes"
    )
}

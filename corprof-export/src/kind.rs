//! The kind of a frame, if the profiler has not set it: by the name of the module, else by the namespace.

use crate::{Frame, FrameKind};

/// Prefixes of module file names and full names that belong to .NET.
const FRAMEWORK: [&str; 5] = ["System.", "Microsoft.", "Internal.", "mscorlib.", "netstandard."];
/// Folders that a shared framework is installed in.
const FRAMEWORK_FOLDERS: [&str; 2] = ["/shared/Microsoft.", "/packs/Microsoft."];

/// Methods in which a thread waits. Prefixes of names; nested types by dots.
const WAITS: [&str; 36] = [
    "System.Threading.Thread.Sleep",
    "System.Threading.Thread.Join",
    "System.Threading.Thread.UninterruptibleSleep",
    "System.Threading.WaitHandle.Wait",
    "System.Threading.WaitHandle.SignalAndWait",
    "System.Threading.WaitSubsystem.Wait",
    "System.Threading.WaitSubsystem.ThreadWaitInfo.Wait",
    "System.Threading.WaitSubsystem.ThreadWaitInfo.Sleep",
    "System.Threading.Monitor.Wait",
    "System.Threading.Monitor.ObjWait",
    "System.Threading.Monitor.Enter",
    "System.Threading.Monitor.ReliableEnter",
    "System.Threading.Monitor.TryEnter",
    "System.Threading.Lock.TryEnterSlow",
    "System.Threading.Condition.Wait",
    "System.Threading.SemaphoreSlim.Wait",
    "System.Threading.ManualResetEventSlim.Wait",
    "System.Threading.CountdownEvent.Wait",
    "System.Threading.Barrier.SignalAndWait",
    "System.Threading.LowLevelLifoSemaphore.Wait",
    "System.Threading.LowLevelLifoSemaphore.Block",
    "System.Threading.LowLevelThreadBlocker.Wait",
    "System.Threading.LowLevelThreadBlocker.TimedWait",
    "System.Threading.LowLevelFutex.Wait",
    "System.Threading.LowLevelSpinWaiter.Wait",
    "System.Threading.LowLevelMonitor.Wait",
    "System.Threading.LowLevelLock.WaitAndAcquire",
    "System.Threading.Tasks.Task.Wait",
    "System.Threading.Tasks.Task.InternalWait",
    "System.Threading.Tasks.Task.SpinThenBlockingWait",
    "Interop.Sys.WaitForSocketEvents",
    "Interop.Sys.LowLevelMonitor_",
    "Interop.Sys.LowLevelFutex_Wait",
    "Interop.Kernel32.GetQueuedCompletionStatus",
    "System.Console.ReadLine",
    "System.IO.FileSystemWatcher.RunningInstance.TryReadEvent",
];

/// Native functions in which a thread waits, by their whole name; and the frames under which profilers put waits.
const NATIVE_WAITS: [&str; 22] = [
    "[waits]",
    "futex",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "nanosleep",
    "clock_nanosleep",
    "epoll_wait",
    "epoll_pwait",
    "sem_wait",
    "sem_timedwait",
    "sigwait",
    "sigwaitinfo",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "__futex_abstimed_wait_common",
    "NtWaitForSingleObject",
    "NtWaitForMultipleObjects",
    "NtDelayExecution",
    "NtRemoveIoCompletion",
];

/// Names that no source file has; `<Main>`, which calls an asynchronous `Main`, is one as well.
const GENERATED: [&str; 6] =
    ["<dynamic method ", "<stub ", "<PrivateImplementationDetails>", "<Module>", "DynamicClass.", "lambda_method"];

impl Frame<'_> {
    /// Its kind: as it was given, or, of managed code, by module and namespace.
    pub fn kind_found(&self) -> FrameKind {
        of(self)
    }
}

/// The kind of a frame, by its rules of thumb. Only managed code is judged, and whether native code waits.
pub(crate) fn of(frame: &Frame<'_>) -> FrameKind {
    match frame.kind {
        FrameKind::Managed => managed(frame),
        FrameKind::Native if is_native_wait(frame.name) => FrameKind::Wait,
        kind => kind,
    }
}

fn managed(frame: &Frame<'_>) -> FrameKind {
    let name = frame.name.replace('+', ".");
    if WAITS.iter().any(|wait| name.starts_with(wait)) {
        FrameKind::Wait
    } else if GENERATED.iter().any(|generated| name.starts_with(generated)) || name.contains(".<Main>(") {
        FrameKind::Generated
    } else if name.starts_with("Interop.") {
        // The methods of these classes are native: a thread on top of one is in native code.
        FrameKind::Native
    } else if frame.module.map_or_else(|| is_framework(&name), is_framework_module) {
        FrameKind::Framework
    } else {
        FrameKind::User
    }
}

fn is_framework(name: &str) -> bool {
    FRAMEWORK.iter().any(|prefix| name.starts_with(prefix))
}

fn is_framework_module(module: &str) -> bool {
    let path = module.replace('\\', "/");
    if FRAMEWORK_FOLDERS.iter().any(|folder| path.contains(folder)) {
        return true;
    }
    let file = path.rsplit('/').next().unwrap_or_default();
    // `System.dll` and `System.Private.CoreLib` alike.
    is_framework(file) || is_framework(&format!("{file}."))
}

/// Linux' libraries decorate names: `__poll`, `libc.so.6!futex`, `epoll_wait@@GLIBC_2.3.2`.
fn is_native_wait(name: &str) -> bool {
    let name = name.rsplit('!').next().unwrap_or(name);
    let name = name.split(['@', '(']).next().unwrap_or(name);
    let plain = name.trim_start_matches('_');
    NATIVE_WAITS.iter().any(|wait| name == *wait || plain == *wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_tell_user_code_from_frameworks() {
        let kind = |name, module| of(&Frame::managed(name).in_module(module));
        assert_eq!(kind("Shop.Program.Main()", "/app/Shop.dll"), FrameKind::User);
        assert_eq!(kind("Shop.Program.Main()", "Systematic.dll"), FrameKind::User);
        assert_eq!(kind("System.Linq.Enumerable.ToList()", "C:\\net\\System.Linq.dll"), FrameKind::Framework);
        assert_eq!(kind("System.String.Concat()", "System.Private.CoreLib.dll"), FrameKind::Framework);
        assert_eq!(kind("Helper.Run()", "/usr/share/dotnet/shared/Microsoft.AspNetCore.App/10.0.0/X.dll"), {
            FrameKind::Framework
        });
        // A polyfill of the application's is the application's.
        assert_eq!(kind("System.Index.Of()", "/app/Shop.dll"), FrameKind::User);
    }

    #[test]
    fn without_a_module_the_namespace_tells() {
        let kind = |name| of(&Frame::managed(name));
        assert_eq!(kind("Program.Main()"), FrameKind::User);
        assert_eq!(kind("Microsoft.AspNetCore.Builder.WebApplication.Run()"), FrameKind::Framework);
        assert_eq!(kind("Interop+Sys.Read(int32)"), FrameKind::Native);
        assert_eq!(kind("<dynamic method lambda_method1>"), FrameKind::Generated);
    }

    #[test]
    fn waits_are_told_from_work() {
        for name in [
            "System.Threading.Thread.Sleep(int32)",
            "System.Threading.LowLevelLifoSemaphore.WaitForSignal(int32)",
            "System.Threading.Monitor.Enter(object, bool&)",
            // .NET 11.
            "System.Threading.LowLevelLifoSemaphore.Block(int32)",
            "System.Threading.LowLevelThreadBlocker.TimedWait(int32)",
            "System.Threading.LowLevelFutex.WaitOnAddressTimeout(int32*, int32, int32)",
            "System.Threading.WaitSubsystem+ThreadWaitInfo.Sleep(int32, bool)",
            "Interop+Sys.WaitForSocketEvents(native int)",
        ] {
            assert_eq!(of(&Frame::managed(name)), FrameKind::Wait, "{name}");
        }
        for name in ["__poll", "libc.so.6!epoll_wait", "pthread_cond_wait@@GLIBC_2.3.2", "futex"] {
            assert_eq!(of(&Frame::native(name)), FrameKind::Wait, "{name}");
        }
        assert_eq!(of(&Frame::native("libc.so.6!memset")), FrameKind::Native);
        assert_eq!(of(&Frame::managed("Shop.Waiter.Wait()")), FrameKind::User);
        assert_eq!(of(&Frame::runtime("poll")), FrameKind::Runtime);
    }
}

//! What classes of the framework's tasks mean.

use corprof_export::{Frame, FrameKind};

/// Stands for a method whose name is not known.
pub(super) const UNKNOWN: &str = "[unknown method]";

/// The class of the task of an async method with a state machine, before the state machine's class. .NET 11 makes the
/// last while somebody listens to async operations.
const BOXES: [&str; 3] =
    [".AsyncStateMachineBox<", ".DebugFinalizableAsyncStateMachineBox<", ".AsyncProfilerAsyncStateMachineBox<"];

/// The classes of tasks by which one awaits something, and what it is.
const KNOWN: [(&str, &str); 16] = [
    (PROMISE, "a promise (TaskCompletionSource)"),
    ("System.Threading.Tasks.Task.DelayPromise", "Task.Delay"),
    ("System.Threading.Tasks.Task.DelayPromiseWithCancellation", "Task.Delay"),
    ("System.Threading.Tasks.Task.CancellationPromise", "Task.WaitAsync"),
    ("System.Threading.Tasks.Task.WhenAllPromise", "Task.WhenAll"),
    ("System.Threading.Tasks.Task.WhenAnyPromise", "Task.WhenAny"),
    ("System.Threading.Tasks.Task.TwoTaskWhenAnyPromise", "Task.WhenAny"),
    ("System.Threading.Tasks.TaskFactory.CompleteOnInvokePromise", "Task.WhenAny"),
    ("System.Threading.Tasks.UnwrapPromise", "Task.Unwrap"),
    ("System.Threading.Tasks.ContinuationTaskFromTask", "Task.ContinueWith"),
    ("System.Threading.Tasks.ContinuationTaskFromResultTask", "Task.ContinueWith"),
    ("System.Threading.Tasks.ContinuationResultTaskFromTask", "Task.ContinueWith"),
    ("System.Threading.Tasks.ContinuationResultTaskFromResultTask", "Task.ContinueWith"),
    ("System.Threading.SemaphoreSlim.TaskNode", "SemaphoreSlim.WaitAsync"),
    ("System.Runtime.CompilerServices.AsyncHelpers.RuntimeAsyncTask", "an async method, which runs or is queued"),
    ("System.Threading.Tasks.ValueTask.ValueTaskSourceAsTask", "ValueTask.AsTask"),
];

/// The class of tasks that code completes.
pub(super) const PROMISE: &str = "System.Threading.Tasks.Task";

/// Beginnings and endings of names of classes between a task and those that await it.
const LISTS: [&str; 4] = ["System.Collections.Generic.List<", "object[]", "System.Action", "System.Func<"];
const LINKS: [&str; 3] = ["Continuation", "ContinuationWrapper", "CompletionActionInvoker"];

/// The method whose task this is, by the task's class: as the runtime names it.
pub(super) fn state_machine(class: &str) -> Option<String> {
    let (_, rest) = BOXES.iter().find_map(|of| class.split_once(of))?;
    let machine = rest.strip_suffix('>')?;
    Some(format!("{machine}.MoveNext()"))
}

/// Whether a method is the application's.
pub(super) fn is_mine(name: &str) -> bool {
    name != UNKNOWN && Frame::managed(name).kind_found() == FrameKind::User
}

/// What is awaited if it is a task of this class: how code comes by one.
pub(super) fn task(class: &str, is_work: bool) -> String {
    if is_work {
        return "code of Task.Run or a TaskFactory, which is queued or runs".to_owned();
    }
    let known = KNOWN.iter().find(|(name, _)| of(class, name));
    match (known, pooled(class)) {
        (Some((_, meaning)), _) => (*meaning).to_owned(),
        (None, Some(method)) => format!("{method}, by a pooled ValueTask"),
        (None, None) => format!("a task of the class {}", short(class)),
    }
}

/// The async method whose pooled box has this class.
fn pooled(class: &str) -> Option<String> {
    let rest = class.strip_prefix("System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder<")?;
    let machine = rest.split_once(">.StateMachineBox<")?.1.strip_suffix('>')?;
    Some(Frame::managed(&format!("{machine}.MoveNext()")).label())
}

/// Whether a class is this one, with or without type arguments.
pub(super) fn of(class: &str, name: &str) -> bool {
    class.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('<'))
}

/// A class without its namespace.
pub(super) fn short(class: &str) -> String {
    Frame::managed(&format!("{class}.M()")).label().trim_end_matches(".M").to_owned()
}

/// Whether those who await a task are behind objects of this class.
pub(super) fn leads_to_awaiter(class: &str) -> bool {
    if LISTS.iter().any(|list| class.starts_with(list)) {
        return true;
    }
    let class = class.split_once('<').map_or(class, |(class, _)| class);
    class.starts_with("System.") && LINKS.iter().any(|link| class.ends_with(link))
}

/// Whether a thread waits until an object of this class is told that a task has ended.
pub(super) fn wakes_thread(class: &str) -> bool {
    class.ends_with(".SetOnInvokeMres") || class.ends_with(".SetOnCountdownMres")
}

/// Whether objects of this class do no more than refer to tasks: they complete none.
pub(super) fn only_holds(class: &str) -> bool {
    if let Some(element) = class.strip_suffix("[]") {
        return of(element, PROMISE);
    }
    leads_to_awaiter(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_machine_names_its_method() {
        let class = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder<System.Threading.Tasks.VoidTaskResult>\
                     .AsyncStateMachineBox<Shop.Orders<int>.<LoadAsync>d__5<string>>";
        let method = state_machine(class).unwrap();
        assert_eq!(method, "Shop.Orders<int>.<LoadAsync>d__5<string>.MoveNext()");
        assert!(is_mine(&method) && !is_mine("System.IO.Stream.<CopyToAsync>d__1.MoveNext()"));
        assert_eq!(state_machine("System.Threading.Tasks.Task<int>"), None);
    }

    #[test]
    fn classes_of_tasks_are_told_apart() {
        assert_eq!(task("System.Threading.Tasks.Task<int>", false), "a promise (TaskCompletionSource)");
        assert_eq!(task("System.Threading.Tasks.Task.WhenAllPromise<int>", false), "Task.WhenAll");
        assert_eq!(task("Shop.Own<int>", false), "a task of the class Own<int>");
        let pooled =
            "System.Runtime.CompilerServices.PoolingAsyncValueTaskMethodBuilder<int>.StateMachineBox<Shop.<Read>d__3>";
        assert_eq!(task(pooled, false), "Shop.Read (async), by a pooled ValueTask");
        assert!(task("System.Threading.Tasks.Task<int>", true).contains("Task.Run"));
        assert!(leads_to_awaiter("System.Threading.Tasks.ContinueWithTaskContinuation"));
        assert!(leads_to_awaiter("System.Collections.Generic.List<object>") && leads_to_awaiter("object[]"));
        assert!(!leads_to_awaiter("System.Threading.Tasks.ThreadPoolTaskScheduler"));
        assert!(!leads_to_awaiter("Shop.Continuation"));
        assert!(only_holds("System.Threading.Tasks.Task<int>[]"));
        assert!(!only_holds("System.Threading.Tasks.TaskCompletionSource<int>") && !only_holds("Shop.Task[]"));
    }
}

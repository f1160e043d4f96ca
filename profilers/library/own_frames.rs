//! What profilers with stacks share: whose a frame is. The runtime's own frames are not shown, so that a stack begins
//! with the application's `Main` on every runtime; what happens in a framework is told of the method that has called
//! it.

use corprof::prelude::*;
use corprof_export::{Frame, FrameKind};

/// Whether this is a frame of the runtime's own: the method in which threads stop for a suspension when they return
/// from native code, or one by which the runtime calls managed code.
pub(crate) fn is_of_the_runtime(cx: &InNoGc<'_>, function: FunctionId, name: &str) -> bool {
    let in_poll = ["System.Threading.Thread.PollGC", "System.Threading.Thread.<PollGC>"];
    in_poll.iter().any(|poll| name.starts_with(poll)) || cx.is_runtime_entry(function)
}

/// Whether a method is one of .NET, by its name.
pub(crate) fn is_of_framework(name: &str) -> bool {
    // Most are.
    if name.starts_with("System.") || name.starts_with("Microsoft.") {
        return true;
    }
    // Methods in which threads wait, and those of the classes `Interop`, which are native, are of it too.
    let kind = Frame::managed(name).kind_found();
    [FrameKind::Framework, FrameKind::Wait, FrameKind::Native].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_the_runtime_are_told_from_those_of_the_application() {
        let framework = [
            "System.IO.File.OpenRead(string)",
            "Internal.Runtime.CompilerHelpers.ThrowHelpers.ThrowIndexOutOfRangeException()",
            "Interop.ThrowExceptionForIoErrno(Interop.ErrorInfo, string, bool)",
            "System.Threading.Monitor.Enter(object)",
        ];
        framework.iter().for_each(|name| assert!(is_of_framework(name), "{name}"));
        let own = ["Shop.Orders.Save(int)", "Interoperability.Call()", "Program.<Main>()", "DynamicClass.f(object)"];
        own.iter().for_each(|name| assert!(!is_of_framework(name), "{name}"));
    }
}

//! What of the framework a called method may use: types whose members do no harm to memory, whatever they are passed.
//!
//! Members that are `unsafe`, or are known to run code that they are passed, are left out. So are those that end the
//! process or wait for somebody outside of it.

/// Types all of whose members may be used, with the types nested in them.
const TYPES: &[&str] = &[
    "System.Boolean",
    "System.Byte",
    "System.Char",
    "System.Collections.Concurrent.ConcurrentDictionary`2",
    "System.Collections.Concurrent.ConcurrentQueue`1",
    "System.Collections.Generic.Dictionary`2",
    "System.Collections.Generic.HashSet`1",
    "System.Collections.Generic.KeyValuePair`2",
    "System.Collections.Generic.List`1",
    "System.Collections.Generic.Queue`1",
    "System.Collections.Generic.Stack`1",
    "System.Convert",
    "System.DateTime",
    "System.DateTimeOffset",
    "System.Decimal",
    "System.Diagnostics.Stopwatch",
    "System.Double",
    "System.Guid",
    "System.Int16",
    "System.Int32",
    "System.Int64",
    "System.Math",
    "System.Nullable`1",
    "System.Random",
    "System.Runtime.CompilerServices.DefaultInterpolatedStringHandler",
    "System.SByte",
    "System.Single",
    "System.String",
    "System.Text.StringBuilder",
    "System.TimeSpan",
    "System.UInt16",
    "System.UInt32",
    "System.UInt64",
    "System.ValueTuple`1",
    "System.ValueTuple`2",
    "System.ValueTuple`3",
    "System.ValueTuple`4",
    "System.Version",
];

/// Types of which only these members may be used.
const MEMBERS: &[(&str, &[&str])] = &[
    ("System.Array", &["Empty", "GetLength", "get_Length", "get_Rank"]),
    ("System.Console", &["Write", "WriteLine", "get_Error", "get_Out"]),
    (
        "System.Diagnostics.Trace",
        &["TraceError", "TraceInformation", "TraceWarning", "Write", "WriteIf", "WriteLine", "WriteLineIf"],
    ),
    ("System.Diagnostics.Tracing.EventSource", &[".ctor", "IsEnabled", "WriteEvent"]),
    (
        "System.Environment",
        &["get_CurrentManagedThreadId", "get_NewLine", "get_ProcessId", "get_TickCount", "get_TickCount64"],
    ),
    ("System.Globalization.CultureInfo", &["get_CurrentCulture", "get_InvariantCulture"]),
    ("System.IO.TextWriter", &["Flush", "Write", "WriteLine"]),
    // Not `MemberwiseClone`: two objects would own what one has.
    ("System.Object", &[".ctor", "Equals", "GetHashCode", "GetType", "ReferenceEquals", "ToString"]),
    ("System.Reflection.MemberInfo", &["get_Name"]),
    ("System.Runtime.CompilerServices.RuntimeHelpers", &["InitializeArray"]),
    (
        "System.Threading.Interlocked",
        &["Add", "And", "CompareExchange", "Decrement", "Exchange", "Increment", "MemoryBarrier", "Or", "Read"],
    ),
    ("System.Threading.Monitor", &["Enter", "Exit", "TryEnter"]),
    ("System.Threading.Thread", &["get_CurrentThread", "get_IsThreadPoolThread", "get_ManagedThreadId", "get_Name"]),
    ("System.Threading.Volatile", &["Read", "Write"]),
    (
        "System.Type",
        &["GetTypeFromHandle", "ToString", "get_FullName", "get_Name", "get_Namespace", "op_Equality", "op_Inequality"],
    ),
];

/// Members that may be used only on structs of the framework, whose own they then are.
const OF_STRUCTS: &[(&str, &str)] =
    &[("System.Collections.IEnumerator", "MoveNext"), ("System.IDisposable", "Dispose")];

/// Types that only stand in the signatures of the members above.
const PASSED: &[&str] = &[
    "System.Guid",
    "System.IFormatProvider",
    "System.ReadOnlySpan`1",
    "System.RuntimeFieldHandle",
    "System.RuntimeTypeHandle",
];

/// Types with members for `unsafe` code.
const UNSAFE: &[&str] = &[
    "System.Buffers.",
    "System.Runtime.CompilerServices.Unsafe",
    "System.Runtime.InteropServices.",
    "System.Runtime.Intrinsics.",
];

/// The tokens of the keys that the framework's libraries are signed with.
const KEYS: [[u8; 8]; 4] = [
    [0xb0, 0x3f, 0x5f, 0x7f, 0x11, 0xd5, 0x0a, 0x3a],
    [0xb7, 0x7a, 0x5c, 0x56, 0x19, 0x34, 0xe0, 0x89],
    [0x7c, 0xec, 0x85, 0xd7, 0xbe, 0xa7, 0x79, 0x8e],
    [0xcc, 0x7b, 0x13, 0xff, 0xcd, 0x2d, 0xdd, 0x51],
];

/// Whether an assembly with this name and key token is of the framework.
pub(super) fn is_framework(name: &str, key: &[u8]) -> bool {
    let is_named_so = name == "mscorlib" || name == "netstandard" || name == "System" || name.starts_with("System.");
    is_named_so && KEYS.iter().any(|known| known == key)
}

/// Whether a member of a type of the framework may be used. `on_struct`: the member is called on a struct of the
/// framework.
pub(super) fn may_use(ty: &str, member: &str, on_struct: bool) -> bool {
    let is_exception =
        ty.strip_prefix("System.").is_some_and(|name| !name.contains('.') && name.ends_with("Exception"));
    is_exception
        || TYPES.contains(&ty)
        || MEMBERS.iter().any(|(known, members)| *known == ty && members.contains(&member))
        || on_struct && OF_STRUCTS.contains(&(ty, member))
}

/// Whether a type of the framework may stand in the parameters of a member that is used. Delegates may not: the member
/// may call them.
pub(super) fn may_pass(ty: &str) -> bool {
    TYPES.contains(&ty)
        || PASSED.contains(&ty)
        || MEMBERS.iter().any(|(known, _)| *known == ty)
        || may_use(ty, "", false)
}

/// Whether a type of the framework is made for `unsafe` code.
pub(super) fn is_for_unsafe(ty: &str) -> bool {
    UNSAFE.iter().any(|known| ty.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_addresses_or_code_may_not_be_used() {
        for (ty, member) in [
            ("System.Runtime.InteropServices.Marshal", "FreeHGlobal"),
            ("System.Runtime.CompilerServices.Unsafe", "As"),
            ("System.Runtime.CompilerServices.RuntimeHelpers", "PrepareMethod"),
            ("System.Environment", "FailFast"),
            ("System.Environment", "Exit"),
            ("System.Action", "Invoke"),
            ("System.Action`1", "Invoke"),
            ("System.Object", "MemberwiseClone"),
            ("System.Reflection.MethodBase", "Invoke"),
            ("System.Threading.Thread", "Sleep"),
            ("System.Threading.Thread", ".ctor"),
            ("System.Console", "ReadLine"),
            ("System.Diagnostics.Debug", "Fail"),
            ("System.Span`1", "get_Item"),
            ("System.IDisposable", "Dispose"),
            ("System.IO.BadException", ".ctor"),
            ("Exception", ".ctor"),
        ] {
            assert!(!may_use(ty, member, false), "{ty}.{member}");
        }
        for ty in ["System.Action", "System.Predicate`1", "System.Collections.Generic.IEnumerable`1", "System.IntPtr"] {
            assert!(!may_pass(ty), "{ty}");
        }
    }

    #[test]
    fn what_a_line_of_text_needs_may_be_used() {
        for (ty, member) in [
            ("System.Console", "WriteLine"),
            ("System.String", "Concat"),
            ("System.Int32", "ToString"),
            ("System.InvalidOperationException", ".ctor"),
            ("System.Threading.Interlocked", "Increment"),
        ] {
            assert!(may_use(ty, member, false), "{ty}.{member}");
        }
        assert!(may_use("System.IDisposable", "Dispose", true));
    }

    #[test]
    fn an_assembly_is_of_the_framework_by_its_name_and_its_key() {
        assert!(is_framework("System.Console", &KEYS[0]) && is_framework("mscorlib", &KEYS[1]));
        assert!(!is_framework("System.Console", &[]) && !is_framework("System.Console", &[1; 8]));
        assert!(!is_framework("SystemX", &KEYS[0]) && !is_framework("Shop", &KEYS[0]));
    }
}

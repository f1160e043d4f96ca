//! What calls cost the application.

/// Calls that are made less often than the others, by this factor, and why.
const DEAR: &[(&str, u64, &str)] = &[
    ("EnumerateGCHeapObjects", 10, "it stops all threads"),
    ("EnumerateNonGCObjects", 5, "it lists every frozen object"),
    ("EnumJITedFunctions", 10, "it lists all that is compiled"),
    ("EnumJITedFunctions2", 10, "it lists all that is compiled"),
    ("EventPipeAddProviderToSession", 50, "a session is started and stopped, which rundown makes slow"),
    ("EventPipeStartSession", 50, "the same"),
    ("EventPipeStopSession", 50, "the same"),
    ("EventPipeCreateProvider", 20, "the provider stays for good"),
    ("EventPipeCreateProvider2", 20, "the provider stays for good"),
    ("EventPipeDefineEvent", 20, "the event stays for good"),
    ("ForceGC", 20, "it is a whole collection"),
    ("RequestReJIT", 10, "it stops all threads, and has the method compiled"),
    ("RequestReJITWithInliners", 10, "the same"),
    ("RequestRevert", 10, "it stops all threads"),
];

/// By how much a call is dearer than others.
pub(crate) fn price(method: &str) -> u64 {
    DEAR.iter().find(|(name, ..)| *name == method).map_or(1, |(_, price, _)| *price)
}

//! What profilers share that name threads: the runtime reports a thread's name when it is set, and not to a profiler
//! that was attached later.

/// Whether a thread of this process has ended. False where the system does not tell.
pub(crate) fn is_gone(os_id: u32) -> bool {
    cfg!(target_os = "linux") && !std::path::Path::new(&format!("/proc/self/task/{os_id}")).exists()
}

/// The first 15 bytes of a thread's name, which Linux knows. An unnamed thread has the name of the process there.
pub(crate) fn name_by_system(os_id: u32) -> Option<String> {
    let read = |file: String| std::fs::read_to_string(file).ok();
    let name = read(format!("/proc/self/task/{os_id}/comm"))?;
    let is_own = os_id == std::process::id() || read("/proc/self/comm".to_owned()).as_ref() != Some(&name);
    is_own.then(|| name.trim_end().to_owned())
}

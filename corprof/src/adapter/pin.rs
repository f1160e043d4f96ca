//! Keeping the library in memory, whatever the runtime does.
//!
//! The runtime unloads a profiler's library when `Initialize` fails, and does not ask `DllCanUnloadNow` first. A thread that
//! the profiler has started would then run in memory that is gone.

/// Keeps the library that this code is in loaded for as long as the process lives.
#[cfg(unix)]
pub(super) fn library() {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is that of a function; `dladdr` writes the structure if it knows the address; `dlopen` gets the
    // name that it gave, does not load anything (RTLD_NOLOAD), and only marks what is there.
    unsafe {
        if libc::dladdr(library as *const libc::c_void, found.as_mut_ptr()) != 0 {
            let name = found.assume_init().dli_fname;
            if !name.is_null() {
                libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
            }
        }
    }
}

/// Keeps the library that this code is in loaded for as long as the process lives.
#[cfg(windows)]
pub(super) fn library() {
    use windows_sys::Win32::System::LibraryLoader::{
        GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
    };

    let mut module = std::ptr::null_mut();
    let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
    // SAFETY: with these flags the second argument is an address in the library; the call writes one handle.
    unsafe { GetModuleHandleExW(flags, library as *const u16, &mut module) };
}

//! Symbols of a loaded library, and where a waiting thread's stack ends.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs;
use std::mem::MaybeUninit;

pub(in crate::system) fn symbol_beside(code: usize, name: &CStr) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` compares the address with those of the libraries and reads nothing from it; it writes the
    // structure if it knows the address. `dlopen` gets the name from it, loads nothing (RTLD_NOLOAD), and what it
    // counts `dlclose` takes back. `dlsym` gets a library that is open and a text that ends with a NUL.
    let symbol = unsafe {
        if libc::dladdr(std::ptr::without_provenance(code), found.as_mut_ptr()) == 0 {
            return None;
        }
        let path = found.assume_init().dli_fname;
        if path.is_null() {
            return None;
        }
        let library = libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let symbol = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        symbol
    };
    (!symbol.is_null()).then(|| symbol.addr())
}

pub(in crate::system) fn first_symbol(name: &CStr) -> Option<usize> {
    /// The handler of `dl_iterate_phdr`: adds the name of a library.
    ///
    /// # Safety
    /// The structure is the system's, and `names` a vector that has no other user during the call.
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: a text of the system's that ends with a NUL, and stays during the call.
            names.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the handler is called during the call only, on this thread. It allocates, which does not load libraries.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut names).cast()) };
    // In the order in which they were loaded; the program itself has no name.
    names.iter().filter(|path| !path.is_empty()).find_map(|path| symbol_of(path, name))
}

/// The address of a symbol of a library that is loaded, or of those that it needs. The library stays loaded then.
fn symbol_of(path: &CStr, name: &CStr) -> Option<usize> {
    let find = |flags: c_int| {
        // SAFETY: `dlopen` gets a name and loads nothing (RTLD_NOLOAD), and what it counts `dlclose` takes back.
        // `dlsym` gets a library that is open and a text that ends with a NUL.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | flags);
            if library.is_null() {
                return None;
            }
            let symbol = libc::dlsym(library, name.as_ptr());
            libc::dlclose(library);
            (!symbol.is_null()).then(|| symbol.expose_provenance())
        }
    };
    find(0)?;
    find(libc::RTLD_NODELETE)
}

pub(in crate::system) fn stack_pointer(os_thread_id: u32) -> Option<usize> {
    let text = fs::read_to_string(format!("/proc/self/task/{os_thread_id}/syscall")).ok()?;
    // The number of the system call and its arguments, or -1; the stack pointer; the program counter. Of a running
    // thread only the word `running`.
    let pointer = text.split_whitespace().rev().nth(1)?;
    usize::from_str_radix(pointer.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_symbol_is_found_in_the_library_of_an_address() {
        let getpid = libc::getpid as *const () as usize;
        assert_eq!(symbol_beside(getpid, c"getpid"), Some(getpid));
        assert_eq!(symbol_beside(getpid, c"no such function"), None);
        assert_eq!(symbol_beside(0, c"getpid"), None);
    }

    #[test]
    fn the_first_library_with_a_symbol_is_found() {
        let getpid = libc::getpid as *const () as usize;
        assert_eq!(first_symbol(c"getpid"), Some(getpid));
        assert_eq!(first_symbol(c"no such function"), None);
    }

    #[test]
    fn a_waiting_thread_has_a_stack_pointer_below_its_variables() {
        let (sender, receiver) = channel();
        let (end, ended) = channel::<()>();
        let waiting = thread::spawn(move || {
            let on_stack = 0_u8;
            sender.send((crate::system::os_thread_id(), std::ptr::from_ref(&on_stack).addr())).unwrap();
            let _ = ended.recv();
            on_stack
        });
        let (id, variable) = receiver.recv().unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        let pointer = loop {
            match stack_pointer(id) {
                Some(pointer) => break pointer,
                None => assert!(Instant::now() < patience, "it never waits"),
            }
            thread::yield_now();
        };
        assert!(pointer < variable && variable - pointer < 0x10_0000, "{pointer:#x} {variable:#x}");
        drop(end);
        waiting.join().unwrap();
        assert_eq!(stack_pointer(u32::MAX), None);
    }
}

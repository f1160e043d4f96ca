//! Symbols of a loaded library, and where a waiting thread's stack ends.

use std::ffi::CStr;
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

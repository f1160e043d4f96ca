//! Keeps a library loaded, with `dladdr` and `dlopen`, which every Unix has.

use std::mem::MaybeUninit;

pub(in crate::system) fn pin_library() {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is that of a function; `dladdr` writes the structure if it knows the address; `dlopen` gets
    // the name from it, loads nothing (RTLD_NOLOAD), and only marks the loaded library.
    unsafe {
        if libc::dladdr(pin_library as *const libc::c_void, found.as_mut_ptr()) != 0 {
            let name = found.assume_init().dli_fname;
            if !name.is_null() {
                libc::dlopen(name, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
            }
        }
    }
}

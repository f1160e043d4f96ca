//! A seccomp sandbox for tests, as an application may enter one.

/// Makes every further `call` of the calling thread, and of threads that it starts, fail with EPERM.
pub(crate) fn forbid(call: libc::c_long) {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code: u16, k: u32| libc::sock_filter { code, jt: 0, jf: 0, k };
    let mut steps = [
        // The number of the call comes first in the data that the filter reads.
        step((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
        libc::sock_filter { jf: 1, ..step((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, call as u32) },
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(RETURN, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: both calls take numbers, and the second a program that the system copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

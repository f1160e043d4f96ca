//! Suspension rule 3: no lock is held during a call that can start a collection.
use corprof::{prelude::*, sync::Mutex};

fn count(table: &Mutex<u32>, cx: &mut InCallback<'_>, domain: AppDomainId) {
    let mut guard = table.lock(cx);
    let _ = cx.app_domain_info(domain);
    *guard += 1;
}

fn main() {}

//! During a collection no call may start another.
use corprof::prelude::*;

fn garbage_collection_finished(cx: &InNoGc<'_>, domain: AppDomainId) {
    let _ = cx.app_domain_info(domain);
}

fn main() {}

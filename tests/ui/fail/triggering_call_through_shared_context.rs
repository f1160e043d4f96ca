//! A call that may start a collection needs the context for itself.
use corprof::prelude::*;

fn ask(cx: &InCallback<'_>, domain: AppDomainId) {
    let _ = cx.app_domain_info(domain);
}

fn main() {}

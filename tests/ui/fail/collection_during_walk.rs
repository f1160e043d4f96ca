//! No collection can be started in the middle of a walk.
use corprof::prelude::*;
use std::ops::ControlFlow;

fn domains(cx: &mut InCallback<'_>, domain: AppDomainId) -> Result<()> {
    cx.walk_own_stack(|_| {
        let _ = cx.app_domain_info(domain);
        ControlFlow::Continue(())
    })
}

fn main() {}

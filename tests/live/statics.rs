//! Static fields, and generations without the flags that they need: the errors say why.

use anyhow::{Result, ensure};
use corprof_tests::{Difference, Run, Runtime};

#[test]
fn static_fields_of_generic_classes_and_constants_are_refused_with_the_reason() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Statics").profiler_named("statics", "Asks").run()?;
        outcome.exited_with(0)?;
        let per_thread =
            if runtime.has(Difference::MissingThreadStatics) { "CORPROF_E_DATAINCOMPLETE" } else { "E_INVALIDARG" };
        for expected in [
            "address of Plain.Count: ()",
            "kind of Plain.Literal: error GetStaticFieldInfo(field): E_INVALIDARG (0x80070057): the runtime has no such field",
            "address of Plain.Literal: error GetAppDomainStaticAddress: CORPROF_E_LITERALS_HAVE_NO_ADDRESS",
            "kind of Plain.Instance: COR_PRF_STATIC_TYPE(0x0)",
            "kind of Generic<int32>.Count: COR_PRF_STATIC_TYPE(COR_PRF_FIELD_APP_DOMAIN_STATIC)",
            "address of Generic<int32>.Count: error GetAppDomainStaticAddress(generic class): CORPROF_E_DATAINCOMPLETE",
            "address of Generic<string>.Last: error GetAppDomainStaticAddress(generic class): CORPROF_E_DATAINCOMPLETE",
        ] {
            ensure!(outcome.stderr.contains(&format!("statics| {expected}")), "not told: {expected}: {outcome}");
        }
        let line =
            outcome.stderr.lines().find(|line| line.contains("profiler thread's Generic<int32>.PerThread: error "));
        ensure!(line.is_some_and(|line| line.contains(per_thread)), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_generation_without_its_flag_is_refused_with_the_flags_name() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Throw").profiler_named("statics", "LacksCollections").run()?;
        outcome.exited_with(0)?;
        let refused =
            |call| format!("error {call}(generations): E_FAIL (0x80004005): the runtime keeps the ranges of its");
        for expected in ["generation: ()".to_owned(), format!("bounds: {}", refused("GetGenerationBounds"))] {
            ensure!(outcome.stderr.contains(&format!("statics| {expected}")), "not told: {expected}: {outcome}");
        }
    }
    Ok(())
}

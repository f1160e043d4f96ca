//! Each outcome once, by construction: the program's output shows what took effect.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use corprof::edit::{CallCounter, EditError, MethodEdit};
use corprof::info::ModuleInfo;
use corprof::instrumentation::{Instrumentation, Outcome, Rewrite, Selector};
use corprof::metadata::MethodDef;
use corprof::metadata::signature::{CallingConvention, MethodSignature, Primitive, Type};
use corprof::prelude::*;
use corprof_il::Opcode;

static ROUNDS: CallCounter = CallCounter::new();
static OTHERS: CallCounter = CallCounter::new();

/// Long enough for the slowest machine: the program gives up earlier.
const LONG: Duration = Duration::from_secs(280);

const STEP: Duration = Duration::from_millis(5);

/// The modules with a name, as they were loaded; a dead one stays.
type Modules = Arc<Mutex<Vec<(String, ModuleId)>>>;

/// Instruments the methods of the program, one after the other.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2B01", no_export)]
pub(crate) struct Outcomes {
    modules: Modules,
}

#[callbacks]
impl Callbacks for Outcomes {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let instrumentation = cx.start_instrumentation()?;
        profiler.begin(cx, instrumentation)?;
        Ok(profiler)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, _data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let instrumentation = cx.start_instrumentation()?;
        for module in cx.enum_modules()? {
            profiler.note(cx, module);
        }
        profiler.begin(cx, instrumentation)?;
        Ok(profiler)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        self.note(cx, module);
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, module: ModuleId, _assembly: AssemblyId) {
        self.note(cx, module);
    }
}

impl Outcomes {
    fn begin(&self, cx: &InCallback<'_>, instrumentation: Instrumentation) -> Result<(), BoxError> {
        let modules = Arc::clone(&self.modules);
        cx.spawn_profiler_thread("script", move |cx| {
            let script = Script { instrumentation, modules };
            if script.run(cx).is_none() {
                eprintln!("outcomes| stopped early");
            }
        })?;
        Ok(())
    }

    fn note(&self, cx: &InNoGc<'_>, module: ModuleId) {
        if let Ok(metadata) = cx.metadata(module)
            && let Ok(name) = metadata.module_name()
        {
            let mut modules = self.modules.lock().unwrap();
            if !modules.contains(&(name.clone(), module)) {
                modules.push((name, module));
            }
        }
    }
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Preparing => "preparing".to_owned(),
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::Rejected(errors) => {
            format!("rejected: {:?}", errors.iter().map(|error| error.rule).collect::<Vec<_>>())
        }
        Outcome::Waiting { .. } => "waiting".to_owned(),
        Outcome::Active(_) => "active".to_owned(),
        Outcome::Failed(error, compiled) => {
            let errors = compiled.iter().filter(|compiled| compiled.error.is_some()).count();
            format!("failed in {errors}: {error}")
        }
        Outcome::Superseded => "superseded".to_owned(),
        Outcome::Reverted => "reverted".to_owned(),
        Outcome::Unloaded => "unloaded".to_owned(),
        other => format!("unknown: {other:?}"),
    }
}

/// Calls a method that does not exist, which the verifier cannot know.
fn calls_nothing(edit: &mut MethodEdit<'_>) -> Result<(), EditError> {
    let assembly = edit.metadata().assembly_refs()?.into_iter().next().unwrap();
    let assembly = edit.metadata().assembly_ref(assembly)?.name;
    let class = edit.type_ref(&assembly, "System.Object")?;
    let void = Type::Primitive(Primitive::Void);
    let signature = MethodSignature {
        convention: CallingConvention::Default,
        has_this: false,
        explicit_this: false,
        generic_parameters: 0,
        return_type: void,
        parameters: Vec::new(),
        sentinel: None,
    };
    let missing = edit.method_ref(class, "DoesNotExist", &signature)?;
    // SAFETY: nothing is on the stack; the call throws when it is compiled.
    let body = unsafe { edit.body_mut() };
    let first = body.first().unwrap();
    body.before(first)?.call(missing);
    Ok(())
}

struct Script {
    instrumentation: Instrumentation,
    modules: Modules,
}

impl Script {
    fn run(&self, cx: &mut ProfilerThread<'_>) -> Option<()> {
        let tick =
            self.instrumentation.select(Selector::method("Instrumented", "Tick"), |edit| edit.count_calls(&ROUNDS));
        self.until(cx, || !tick.rewrites().is_empty())?;
        self.rounds(cx)?;
        let module = tick.rewrites().first()?.module();
        let method = |cx: &mut ProfilerThread<'_>, class: &str, name: &str| {
            let metadata = cx.metadata(module).unwrap();
            let class = metadata.find_type_def(class, None).unwrap().unwrap();
            metadata.methods_named(class, name).unwrap()[0]
        };
        let program = |cx: &mut ProfilerThread<'_>, name: &str| method(cx, "Instrumented", name);
        let says = |rewrite: &Rewrite, name: &str| eprintln!("outcomes| {name}: {}", shown(&rewrite.outcome()));

        // Taken back in both ways, and put back.
        let greet = program(cx, "Greet");
        for (text, is_restored) in [("goodbye", false), ("again", true)] {
            let rewrite = self.replaces(module, greet, "hello", text);
            rewrite.wait(cx, LONG);
            says(&rewrite, "Greet");
            self.rounds(cx)?;
            if is_restored {
                rewrite.restore()
            } else {
                rewrite.revert()
            };
            self.until(cx, || matches!(rewrite.outcome(), Outcome::Reverted))?;
            says(&rewrite, "Greet");
            self.rounds(cx)?;
        }
        let first = self.replaces(module, greet, "hello", "last but one");
        first.wait(cx, LONG);
        self.rounds(cx)?;
        let last = first.replace(|edit| edit.replace_strings("hello", "last").map(drop));
        last.wait(cx, LONG);
        self.rounds(cx)?;
        says(&first, "Greet");
        says(&last, "Greet");

        // Two clients, in their order, each time from the original.
        let both = program(cx, "Both");
        let one = self.replaces(module, both, "one", "two");
        let fails = self.instrumentation.edit(module, both, |_| Err(EditError::Other("on purpose".into())));
        let two = self.replaces(module, both, "two", "three");
        for rewrite in [&one, &fails, &two] {
            rewrite.wait(cx, LONG);
            says(rewrite, "Both");
        }
        self.rounds(cx)?;
        one.revert();
        self.until(cx, || matches!(one.outcome(), Outcome::Reverted))?;
        self.rounds(cx)?;
        says(&two, "Both");

        // Into its caller, and out of it.
        let inlined = self.replaces(module, program(cx, "Inlined"), "inlined", "changed");
        inlined.wait(cx, LONG);
        self.rounds(cx)?;
        inlined.revert();
        self.until(cx, || matches!(inlined.outcome(), Outcome::Reverted))?;
        self.rounds(cx)?;
        let instantiated = self.replaces(module, method(cx, "Box`1", "Name"), "box of ", "crate of ");
        self.until(cx, || matches!(instantiated.outcome(), Outcome::Active(compiled) if compiled.len() == 2))?;
        if let Outcome::Active(compiled) = instantiated.outcome() {
            // One for numbers, and one for all references.
            for compiled in compiled {
                let info = cx.function_info(compiled.function).unwrap();
                eprintln!("outcomes| instantiation of {}", info.type_args.len() + usize::from(info.class.is_some()));
            }
        }
        self.rounds(cx)?;

        self.failures(cx, module, method)?;

        let done = self.replaces(module, program(cx, "Done"), "no", "yes");
        self.until(cx, || matches!(done.outcome(), Outcome::Active(_)))?;
        Some(())
    }

    /// What is refused, rejected, fails, waits or has gone.
    fn failures(
        &self,
        cx: &mut ProfilerThread<'_>,
        module: ModuleId,
        method: impl Fn(&mut ProfilerThread<'_>, &str, &str) -> MethodDef,
    ) -> Option<()> {
        let says = |rewrite: &Rewrite, name: &str| eprintln!("outcomes| {name}: {}", shown(&rewrite.outcome()));
        let broken = self.instrumentation.edit(module, method(cx, "Instrumented", "Broken"), calls_nothing);
        broken.wait(cx, LONG);
        self.rounds(cx)?;
        says(&broken, "Broken");
        broken.revert();
        let unsound = self.instrumentation.edit(module, method(cx, "Instrumented", "Unsound"), |edit| {
            // SAFETY: the verifier refuses it.
            let body = unsafe { edit.body_mut() };
            let last = body.last().unwrap();
            body.before(last)?.op(Opcode::Conv_I4)?.op(Opcode::Add)?;
            Ok(())
        });
        unsound.wait(cx, LONG);
        says(&unsound, "Unsound");
        let never = self.replaces(module, method(cx, "Instrumented", "Never"), "never", "ever");
        self.until(cx, || matches!(never.outcome(), Outcome::Waiting { .. }))?;
        says(&never, "Never");
        let nothing = |method| self.instrumentation.edit(module, method, |_| Ok(()));
        for (name, method) in [
            ("Shape.Name", method(cx, "Shape", "Name")),
            ("no method", MethodDef::from_raw(0x06FF_FFFF)),
            ("nil", MethodDef::NIL),
            ("another table", MethodDef::from_raw(0x0200_0002)),
        ] {
            let rewrite = nothing(method);
            rewrite.wait(cx, LONG);
            says(&rewrite, name);
        }
        let known = self.modules.lock().unwrap().clone();
        for (name, module) in known {
            let is_dynamic = |info: ModuleInfo| info.flags.contains(corprof::sys::COR_PRF_MODULE_DYNAMIC);
            let is_dynamic = cx.module_info(module).is_ok_and(is_dynamic);
            let name = if is_dynamic { "dynamic".to_owned() } else { name };
            if ["Throw.dll", "Generics.dll", "dynamic"].contains(&name.as_str()) {
                let rewrite = self.instrumentation.edit(module, MethodDef::from_raw(0x0600_0001), |_| Ok(()));
                rewrite.wait(cx, LONG);
                says(&rewrite, &name);
            }
        }
        let spans = Selector::class("System.Span`1").in_assembly("System.Private.CoreLib");
        let spans = self.instrumentation.select(spans, |edit| edit.count_calls(&OTHERS));
        self.until(cx, || !spans.rewrites().is_empty())?;
        let (send, all) = mpsc::channel();
        for rewrite in spans.rewrites() {
            send.send(shown(&rewrite.wait(cx, LONG))).unwrap();
        }
        drop(send);
        let refused = all.iter().filter(|outcome| outcome.contains("[NonVersionable]")).count();
        eprintln!("outcomes| spans: {}", refused > 5);
        self.rounds(cx)
    }

    fn replaces(&self, module: ModuleId, method: MethodDef, old: &'static str, new: &'static str) -> Rewrite {
        self.instrumentation.edit(module, method, move |edit| edit.replace_strings(old, new).map(drop))
    }

    /// Waits for something; none if the application ends first.
    fn until(&self, cx: &mut ProfilerThread<'_>, mut is_so: impl FnMut() -> bool) -> Option<()> {
        while !is_so() {
            cx.wait(STEP).is_continue().then_some(())?;
        }
        Some(())
    }

    /// Waits until the program has called all its methods.
    fn rounds(&self, cx: &mut ProfilerThread<'_>) -> Option<()> {
        let now = ROUNDS.get();
        self.until(cx, || ROUNDS.get() > now + 2)
    }
}

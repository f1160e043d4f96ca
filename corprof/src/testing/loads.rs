//! Loads and unloads assemblies with their module, classes and arrays.

use std::time::Duration;

use windows_core::HRESULT;

use crate::event_mask::Event;
use crate::id::{AssemblyId, ClassId, ModuleId};

use super::clr::{FakeClr, made, make, misuse};
use super::contract::Release;
use super::metadata::{Metadata, primitive};
use super::runtime::lock;
use super::spec::ClassSpec;
use super::world::{Array, Assembly, Class, Module};
use corprof_sys as sys;

/// The release that reports the loads of arrays, and makes classes without metadata, as seen on .NET 11.
const NET_11: Release = Release(11, 0);

/// `S_OK`, as the status of a success.
const OK: HRESULT = HRESULT(0);

impl FakeClr {
    /// Loads an assembly of one module: `AssemblyLoadStarted`, `ModuleLoadStarted`, `ModuleLoadFinished`,
    /// `ModuleAttachedToAssembly`, `AssemblyLoadFinished`. Returns the module, to which classes belong;
    /// [`assembly_of`](Self::assembly_of) returns the assembly.
    pub fn load_assembly(&self, name: &str) -> ModuleId {
        self.current_thread();
        let mut world = self.runtime.world_mut();
        let assembly = world.new_id();
        let module = world.new_id();
        world.assemblies.insert(assembly, Assembly { name: name.to_owned(), module, alive: false });
        let new = Module {
            path: format!("/fake/{name}.dll"),
            base: world.new_code(0x1_0000).start,
            assembly: 0,
            alive: false,
            metadata: Metadata::new(&format!("{name}.dll")),
        };
        world.modules.insert(module, new);
        drop(world);
        make!(self, AssemblyLoadStarted, |callback| callback.AssemblyLoadStarted(assembly));
        make!(self, ModuleLoadStarted, |callback| callback.ModuleLoadStarted(module));
        self.change_module(module, |module| module.alive = true);
        make!(self, ModuleLoadFinished, |callback| callback.ModuleLoadFinished(module, OK));
        self.change_module(module, |module| module.assembly = assembly);
        make!(self, ModuleAttachedToAssembly, |callback| callback.ModuleAttachedToAssembly(module, assembly));
        self.change_assembly(assembly, true);
        make!(self, AssemblyLoadFinished, |callback| callback.AssemblyLoadFinished(assembly, OK));
        made(ModuleId::from_raw(module))
    }

    /// The core library's module, `System.Private.CoreLib`; loads it the first time.
    pub fn core_module(&self) -> ModuleId {
        // Another thread may be loading it.
        let _one_at_a_time = lock(&self.loading);
        let known = self.runtime.world().core;
        if let Some(core) = ModuleId::from_raw(known) {
            return core;
        }
        let core = self.load_assembly("System.Private.CoreLib");
        self.runtime.world_mut().core = core.as_raw();
        core
    }

    /// A class of the core library, such as `System.Int32`; loads it the first time.
    pub fn core_class(&self, class: impl Into<ClassSpec>) -> ClassId {
        self.load_class(self.core_module(), class)
    }

    /// Loads a class: `ClassLoadStarted`, `ClassLoadFinished`. A class that is already loaded is only looked up.
    ///
    /// # Panics
    /// If there is no such module.
    #[track_caller]
    pub fn load_class(&self, module: ModuleId, class: impl Into<ClassSpec>) -> ClassId {
        let spec = class.into();
        let type_args: Vec<usize> = spec.args.iter().map(|arg| arg.as_raw()).collect();
        let mut world = self.runtime.world_mut();
        let Some(home) = world.modules.get_mut(&module.as_raw()).filter(|module| module.alive) else {
            misuse(format_args!("{module:?} is not loaded"));
        };
        let outermost = spec.enclosing.iter().fold(0, |outer, name| home.metadata.type_def(name, outer, &[]));
        let arity = spec.enclosing.iter().chain([&spec.name]).map(|name| arity(name)).sum();
        let params = spec.generic_params.clone().unwrap_or_else(|| param_names(arity));
        let token = home.metadata.type_def(&spec.name, outermost, &params);
        drop(world);
        let parent = spec.parent.map_or(0, |parent| parent.as_raw());
        let module = module.as_raw();
        self.introduce(Class { module, token, parent, type_args, array: None, is_bare: false, alive: false })
    }

    /// Loads the class of arrays of these elements, with this many dimensions. .NET 11 reports the load of such a
    /// class, but not its unload; earlier releases report neither.
    ///
    /// # Panics
    /// If there is no such class.
    #[track_caller]
    pub fn load_array(&self, element: ClassId, rank: u32) -> ClassId {
        let world = self.runtime.world();
        let Some(of) = world.classes.get(&element.as_raw()) else {
            misuse(format_args!("{element:?} is not loaded"));
        };
        let nested = if of.array.is_some() { sys::ELEMENT_TYPE_SZARRAY } else { sys::ELEMENT_TYPE_CLASS };
        let element_type = primitive(&world, element.as_raw()).unwrap_or(nested);
        let array = Some(Array { element_type, element: element.as_raw(), rank });
        let module = of.module;
        drop(world);
        self.introduce(Class {
            module,
            token: 0,
            parent: 0,
            type_args: Vec::new(),
            array,
            is_bare: false,
            alive: false,
        })
    }

    /// Loads a class without metadata, as .NET 11 makes them for methods that it suspends itself (runtime async). A
    /// name that corprof spells is `System.Runtime.CompilerServices.Continuation`.
    ///
    /// # Panics
    /// If the [release](super::Builder::release) is older than .NET 11, or there is no such module.
    #[track_caller]
    pub fn load_continuation(&self, module: ModuleId) -> ClassId {
        if self.runtime.release < NET_11 {
            misuse(format_args!("a class without metadata needs .NET 11: `FakeClr::builder().release(11, 0)`"));
        }
        let module = module.as_raw();
        if !self.runtime.world().modules.get(&module).is_some_and(|module| module.alive) {
            misuse(format_args!("module {module:#x} is not loaded"));
        }
        self.introduce(Class {
            module,
            token: 0,
            parent: 0,
            type_args: Vec::new(),
            array: None,
            is_bare: true,
            alive: false,
        })
    }

    fn introduce(&self, class: Class) -> ClassId {
        self.current_thread();
        let is_told = class.array.is_none() || self.runtime.release >= NET_11;
        let mut world = self.runtime.world_mut();
        let known =
            if class.is_bare { 0 } else { world.find_class(class.module, class.token, &class.type_args, class.array) };
        if let Some(known) = ClassId::from_raw(known) {
            drop(world);
            self.await_class(known.as_raw());
            return known;
        }
        let raw = world.new_id();
        // Two threads must not both load it: it can be found from here on, though no call about it works yet.
        world.classes.insert(raw, class);
        drop(world);
        if is_told {
            make!(self, ClassLoadStarted, |callback| callback.ClassLoadStarted(raw));
        }
        if let Some(class) = self.runtime.world_mut().classes.get_mut(&raw) {
            class.alive = true;
        }
        if is_told {
            make!(self, ClassLoadFinished, |callback| callback.ClassLoadFinished(raw, OK));
        }
        made(ClassId::from_raw(raw))
    }

    /// Waits for the thread that loads a class.
    fn await_class(&self, class: usize) {
        let is_loading = || self.runtime.world().classes.get(&class).is_some_and(|class| !class.alive);
        while is_loading() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// The assembly of a module.
    ///
    /// # Panics
    /// If there is no such module.
    #[track_caller]
    pub fn assembly_of(&self, module: ModuleId) -> AssemblyId {
        let world = self.runtime.world();
        let assembly = world.modules.get(&module.as_raw()).map_or(0, |module| module.assembly);
        let Some(assembly) = AssemblyId::from_raw(assembly) else {
            misuse(format_args!("{module:?} is not loaded"));
        };
        assembly
    }

    /// Unloads a module's assembly with all that is in it: `AssemblyUnloadStarted` (from .NET 8 on),
    /// `ModuleUnloadStarted`, `ClassUnloadStarted` and `ClassUnloadFinished` for each class, `ModuleUnloadFinished`,
    /// `AssemblyUnloadFinished`. A runtime does this on its finalizer's thread.
    ///
    /// # Panics
    /// If there is no such module.
    #[track_caller]
    pub fn unload_assembly(&self, module: ModuleId) {
        let assembly = self.assembly_of(module).as_raw();
        self.current_thread();
        let module = module.as_raw();
        let mut classes: Vec<(usize, bool)> = {
            let world = self.runtime.world();
            let of_module = world.classes.iter().filter(|(_, class)| class.module == module && class.alive);
            of_module.map(|(&id, class)| (id, class.array.is_some())).collect()
        };
        classes.sort_unstable();
        make!(self, AssemblyUnloadStarted, |callback| callback.AssemblyUnloadStarted(assembly));
        make!(self, ModuleUnloadStarted, |callback| callback.ModuleUnloadStarted(module));
        for (class, is_array) in classes {
            if !is_array {
                make!(self, ClassUnloadStarted, |callback| callback.ClassUnloadStarted(class));
            }
            self.runtime.world_mut().classes.remove(&class);
            if !is_array {
                make!(self, ClassUnloadFinished, |callback| callback.ClassUnloadFinished(class, OK));
            }
        }
        self.change_module(module, |module| module.alive = false);
        self.runtime.world_mut().functions.retain(|_, function| function.module != module);
        make!(self, ModuleUnloadFinished, |callback| callback.ModuleUnloadFinished(module, OK));
        self.change_assembly(assembly, false);
        self.change_module(module, |module| module.assembly = 0);
        make!(self, AssemblyUnloadFinished, |callback| callback.AssemblyUnloadFinished(assembly, OK));
    }

    fn change_module(&self, module: usize, change: impl FnOnce(&mut Module)) {
        if let Some(module) = self.runtime.world_mut().modules.get_mut(&module) {
            change(module);
        }
    }

    fn change_assembly(&self, assembly: usize, alive: bool) {
        if let Some(assembly) = self.runtime.world_mut().assemblies.get_mut(&assembly) {
            assembly.alive = alive;
        }
    }

    /// How many times a callback has been made.
    pub fn count(&self, event: Event) -> usize {
        self.delivered().into_iter().filter(|&delivered| delivered == event).count()
    }
}

/// The number behind the backtick of a metadata name.
fn arity(name: &str) -> usize {
    name.rsplit_once('`').and_then(|(_, arity)| arity.parse().ok()).unwrap_or(0)
}

/// `T`, or `T0`, `T1`, ….
fn param_names(count: usize) -> Vec<String> {
    if count == 1 { vec!["T".to_owned()] } else { (0..count).map(|at| format!("T{at}")).collect() }
}

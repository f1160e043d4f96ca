//! Profilers that ask for metadata and names, and print the answers: for `live/metadata.rs`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use corprof::metadata::MethodDef;
use corprof::metadata::signature::{MethodSignature, PropertySignature, Type};
use corprof::metadata::{
    AssemblyIdentity, MemberRef, MetadataEmit, MetadataImport, MethodSpec, StandAloneSignature, Token, TypeDef,
    TypeSpec, UserString,
};
use corprof::prelude::*;
use corprof::sys;

type Answer<T = ()> = Result<T, BoxError>;

/// Prints everything about the module Facts.dll.
#[derive(Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0101", no_export)]
struct TellsFacts;

#[callbacks]
impl Callbacks for TellsFacts {
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, status: Result<()>) {
        if status.is_ok() && cx.names().module(module) == "mscorlib.dll" {
            match moved(cx, module) {
                Ok((name, assembly)) => eprintln!("moved: {name} to {assembly}"),
                Err(error) => eprintln!("reading failed: {error}"),
            }
        }
        if status.is_ok() && cx.names().module(module) == "Facts.dll" {
            for (what, told) in [("reading", tell(cx, module)), ("adding", add(cx, module))] {
                if let Err(error) = told {
                    eprintln!("{what} failed: {error}");
                }
            }
        }
    }
}

/// Where `String` has gone from the assembly that it was in when the program was compiled.
fn moved(cx: &InNoGc<'_>, module: ModuleId) -> Answer<(String, String)> {
    let import = cx.metadata(module)?;
    let string = import.find_exported_type("System.String", None)?.ok_or("no String")?;
    if !import.exported_types()?.contains(&string) || import.find_exported_type("System.Nobody", None)?.is_some() {
        return Err("an enumeration that does not fit".into());
    }
    let props = import.exported_type(string)?;
    let assembly = import.assembly_ref(props.implementation.try_into()?)?;
    Ok((props.name, assembly.name))
}

fn tell(cx: &InNoGc<'_>, module: ModuleId) -> Answer {
    let import = cx.metadata(module)?;
    assembly(&import)?;
    let names: Answer<Vec<_>> = import.type_defs()?.iter().map(|&row| Ok(import.type_def(row)?.name)).collect();
    eprintln!("types: {}", names?.join(" "));
    let known = import.find_type_def("Facts.Known`2", None)?.ok_or("no Known")?;
    class(&import, known)?;
    members(cx, module, &import, known)?;
    native(&import)?;
    strings(&import)?;
    eprintln!("nobody: {:?}", import.find_type_def("Facts.Nobody", None)?);
    eprintln!("valid: {} {}", import.is_valid_token(known), import.is_valid_token(TypeDef::from_raw(0x0200_ffff)));
    eprintln!("absent: {}", import.type_def(TypeDef::from_raw(0x0200_ffff)).is_err());
    Ok(())
}

fn assembly(import: &MetadataImport<'_>) -> Answer {
    let own = import.assembly()?.ok_or("no manifest")?;
    let AssemblyIdentity { name, version, culture, public_key, .. } = import.assembly_identity(own)?;
    eprintln!("assembly: {name} {version:?} {culture:?} {public_key:x?}");
    eprintln!("module: {} {}", import.module_name()?, import.module()?);
    for reference in import.assembly_refs()? {
        let AssemblyIdentity { name, version, culture, public_key, .. } = import.assembly_ref(reference)?;
        eprintln!("reference: {name} {version:?} {culture:?} {public_key:x?}");
    }
    let marker = import.custom_attribute_named(own, "Facts.MarkerAttribute")?;
    eprintln!("attribute of the assembly: {:?}", marker.as_deref().map(attribute_text));
    eprintln!("attribute of nobody: {:?}", import.custom_attribute_named(own, "Facts.NobodyAttribute")?);
    Ok(())
}

/// The text that is the first argument.
fn attribute_text(value: &[u8]) -> String {
    let text = value.get(3..).and_then(|rest| rest.get(..usize::from(value[2]))).unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn field_name(import: &MetadataImport<'_>, token: Token) -> Answer<String> {
    Ok(import.field(token.try_into()?)?.name)
}

/// The name of a type of any table.
fn type_name(import: &MetadataImport<'_>, token: Token) -> Answer<String> {
    if let Ok(definition) = token.try_into() {
        return Ok(import.type_def(definition)?.name);
    }
    if let Ok(reference) = token.try_into() {
        return Ok(import.type_ref(reference)?.name);
    }
    let spec = import.type_spec(token.try_into()?)?;
    Ok(format!("{:?}", Type::decode(&spec)?))
}

fn class(import: &MetadataImport<'_>, known: TypeDef) -> Answer {
    let props = import.type_def(known)?;
    let base = props.extends.ok_or("no base")?;
    eprintln!("base: {}", type_name(import, base.token())?);
    for row in import.interface_impls(known)? {
        let implemented = import.interface_impl(row)?;
        eprintln!("interface: {} {}", type_name(import, implemented.interface)?, implemented.class == known);
    }
    let nested = import.find_type_def("Nested", Some(known))?.ok_or("no Nested")?;
    eprintln!("nested: {} {}", import.type_def(nested)?.is_nested(), import.enclosing_class(nested)? == Some(known));
    for param in import.generic_params(known)? {
        let constraints = import.generic_param_constraints(param.token)?;
        let names: Answer<Vec<_>> = constraints.iter().map(|&token| type_name(import, token)).collect();
        eprintln!("generic: {} {} {:?}", param.index, param.name, names?);
    }
    Ok(())
}

fn members(cx: &InNoGc<'_>, module: ModuleId, import: &MetadataImport<'_>, known: TypeDef) -> Answer {
    for field in import.fields(known)? {
        let props = import.field(field)?;
        let spelt = Type::decode_field(&props.signature)?;
        let is_static = props.flags.contains(sys::fdStatic);
        eprintln!("field: {} static={is_static} {:?} {:?}", props.name, props.constant, spelt);
        for attribute in import.custom_attributes(field)? {
            let props = import.custom_attribute(attribute)?;
            let class = match MethodDef::try_from(props.constructor) {
                Ok(constructor) => import.method(constructor)?.class.into(),
                Err(_) => import.member_ref(props.constructor.try_into()?)?.parent,
            };
            let class = type_name(import, class)?;
            let text = attribute_text(&props.value);
            eprintln!("attribute of {}: {class} {text:?} {}", field_name(import, props.owner)?, props.value.len());
        }
    }
    let [method] = import.methods_named(known, "Method")?[..] else { return Err("not one Method".into()) };
    eprintln!("in IL: {}", cx.names().method_def(module, method));
    eprintln!("in C#: {}", cx.names().csharp().method_def(module, method));
    eprintln!("among all: {}", import.methods(known)?.contains(&method));
    for param in import.params(method)? {
        let props = import.param(param)?;
        let is_out = props.flags.contains(sys::pdOut);
        eprintln!("param: {} {} out={is_out} {:?}", props.sequence, props.name, props.constant);
    }
    for property in import.properties(known)? {
        let props = import.property(property)?;
        let signature = PropertySignature::decode(&props.signature)?;
        let name = |method: Option<MethodDef>| method.map(|method| import.method(method).map(|method| method.name));
        let getter = name(props.getter).transpose()?;
        let setter = name(props.setter).transpose()?;
        eprintln!(
            "property: {} {:?} {} {getter:?} {setter:?}",
            props.name,
            signature.value,
            signature.parameters.len()
        );
    }
    for event in import.events(known)? {
        let props = import.event(event)?;
        let add = import.method(props.add.ok_or("no add")?)?.name;
        eprintln!("event: {} {} {add}", props.name, type_name(import, props.handler)?);
    }
    Ok(())
}

fn native(import: &MetadataImport<'_>) -> Answer {
    let native = import.find_type_def("Facts.Native", None)?.ok_or("no Native")?;
    let [answer] = import.methods(native)?[..] else { return Err("not one method in Native".into()) };
    let map = import.pinvoke_map(answer)?.ok_or("no native function")?;
    let is_cdecl = map.flags & sys::pmCallConvMask == sys::pmCallConvCdecl;
    eprintln!("native: {} in {} cdecl={is_cdecl}", map.name, import.module_ref(map.module)?);
    eprintln!("libraries: {}", import.module_refs()?.len());
    let program = import.find_type_def("Facts.Program", None)?.ok_or("no Program")?;
    let main = import.methods_named(program, "Main")?[0];
    eprintln!("native behind Main: {:?}", import.pinvoke_map(main)?);
    Ok(())
}

fn strings(import: &MetadataImport<'_>) -> Answer {
    for string in import.user_strings()? {
        eprintln!("string: {:?}", import.user_string(string)?);
    }
    for signature in import.signatures()? {
        let locals = Type::decode_locals(&import.signature(signature)?);
        eprintln!("locals decode: {}", locals.is_ok());
    }
    let mut specs = import.type_specs()?.into_iter();
    eprintln!(
        "type specs decode: {}",
        specs.all(|spec| import.type_spec(spec).is_ok_and(|it| Type::decode(&it).is_ok()))
    );
    for spec in import.method_specs()? {
        let props = import.method_spec(spec)?;
        let parent = import.member_ref(props.parent.try_into()?)?.name;
        eprintln!("method spec: {parent} {:?}", Type::decode_method_spec(&props.signature)?);
    }
    let mut count = 0;
    for reference in import.type_refs()? {
        let props = import.type_ref(reference)?;
        if import.find_type_ref(props.scope, &props.name)? != Some(reference) {
            eprintln!("not found again: {}", props.name);
        }
        for member in import.member_refs(reference)? {
            let props = import.member_ref(member)?;
            if props.name == "WriteLine" {
                let signature = MethodSignature::decode(&props.signature)?;
                eprintln!("member: {} {:?}", type_name(import, props.parent)?, signature.parameters);
            }
            count += 1;
        }
    }
    eprintln!("several members: {}", count > 3);
    Ok(())
}

/// `void M(string)`
const VOID_STRING: &[u8] = &[0x00, 0x01, 0x01, 0x0e];

fn add(cx: &InNoGc<'_>, module: ModuleId) -> Answer {
    let before = cx.metadata(module)?;
    let emit = cx.metadata_emit(module)?;
    let string = emit.define_user_string("added: ñ \0 and all")?;
    let library = emit.define_assembly_ref(&AssemblyIdentity {
        name: "Added.Library".to_owned(),
        version: [1, 2, 3, 4],
        culture: "de-AT".to_owned(),
        public_key: vec![1, 2, 3, 4, 5, 6, 7, 8],
        flags: sys::CorAssemblyFlags::empty(),
    })?;
    let helper = emit.define_type_ref(library, "Added.Helper")?;
    let member = emit.define_member_ref(helper, "Help", VOID_STRING)?;
    let locals = emit.define_signature(&[0x07, 0x02, 0x08, 0x0e])?;
    let spec = emit.define_type_spec(&[0x1d, 0x0e])?;
    // void G<T>(), and G<int>
    let generic = emit.define_member_ref(helper, "G", &[0x10, 0x01, 0x00, 0x01])?;
    let instance = emit.define_method_spec(generic, &[0x0a, 0x01, 0x08])?;
    let defined = define(&emit, &emit.import()?)?;
    eprintln!("nul: {}", emit.define_module_ref("a\0b").is_err());

    for (who, import) in [("before", &before), ("emit", &emit.import()?), ("after", &cx.metadata(module)?)] {
        let rows = (string, member, locals, spec, instance);
        match read_back(import, rows).and_then(|()| read_defined(import, defined)) {
            Ok(()) => eprintln!("{who} sees all"),
            Err(error) => eprintln!("{who} does not see: {error}"),
        }
        let AssemblyIdentity { name, version, culture, public_key, .. } = import.assembly_ref(library)?;
        eprintln!("{who}: {name} {version:?} {culture} {public_key:x?}");
    }
    eprintln!("named: {}", cx.names().csharp().method_def(module, defined));
    Ok(())
}

fn define(emit: &MetadataEmit<'_>, import: &MetadataImport<'_>) -> Answer<MethodDef> {
    let outer_flags = sys::tdPublic | sys::tdAbstract | sys::tdSealed;
    let base =
        import.type_refs()?.into_iter().find(|&row| import.type_ref(row).is_ok_and(|it| it.name == "System.Object"));
    let base = corprof::metadata::TypeDefOrRef::Ref(base.ok_or("no Object")?);
    let flags = sys::mdPublic | sys::mdStatic | sys::mdHideBySig;
    // SAFETY: nothing of the application's is called Added, the types can be loaded, and no code uses them.
    let method = unsafe {
        let outer = emit.define_type("Added.Type", outer_flags, Some(base), &[], None)?;
        let inner = emit.define_type("Inner", sys::tdNestedPublic, Some(base), &[], Some(outer))?;
        let method =
            emit.define_method(inner, "Native", flags | sys::mdPinvokeImpl, sys::miPreserveSig, VOID_STRING)?;
        emit.define_param(method, 1, "text", sys::pdIn)?;
        emit.define_field(inner, "count", sys::fdPublic | sys::fdStatic, &[0x06, 0x08])?;
        method
    };
    let library = emit.define_module_ref("added")?;
    let marker = import.find_type_def("Facts.MarkerAttribute", None)?.ok_or("no Marker")?;
    let constructor = import.methods_named(marker, ".ctor")?[0];
    // SAFETY: no code calls the method, and the value is the constructor's argument.
    unsafe {
        emit.define_pinvoke_map(method, sys::pmCallConvCdecl, "added_native", library)?;
        emit.define_custom_attribute(method, constructor, &[1, 0, 3, b'n', b'e', b'w', 0, 0])?;
    }
    Ok(method)
}

fn read_back(
    import: &MetadataImport<'_>,
    (string, member, locals, spec, instance): (UserString, MemberRef, StandAloneSignature, TypeSpec, MethodSpec),
) -> Answer {
    assert_eq!(import.user_string(string)?, "added: ñ \0 and all");
    let member = import.member_ref(member)?;
    assert_eq!((member.name.as_str(), member.signature.as_slice()), ("Help", VOID_STRING));
    assert_eq!(type_name(import, member.parent)?, "Added.Helper");
    assert_eq!(import.signature(locals)?, [0x07, 0x02, 0x08, 0x0e]);
    assert_eq!(import.type_spec(spec)?, [0x1d, 0x0e]);
    assert_eq!(import.method_spec(instance)?.signature, [0x0a, 0x01, 0x08]);
    Ok(())
}

fn read_defined(import: &MetadataImport<'_>, method: MethodDef) -> Answer {
    let props = import.method(method)?;
    assert_eq!((props.name.as_str(), props.code_rva), ("Native", 0));
    let outer = import.enclosing_class(props.class)?.ok_or("not nested")?;
    assert_eq!(import.type_def(outer)?.name, "Added.Type");
    assert_eq!(import.field(import.fields(props.class)?[0])?.name, "count");
    assert_eq!(import.param(import.params(method)?[0])?.name, "text");
    assert_eq!(import.pinvoke_map(method)?.ok_or("no map")?.name, "added_native");
    let value = import.custom_attribute_named(method, "Facts.MarkerAttribute")?.ok_or("no attribute")?;
    assert_eq!(attribute_text(&value), "new");
    Ok(())
}

/// Names every function that is compiled, in both spellings, and asks the metadata whether the name can be right; so
/// does it with each module that goes, and from threads that end.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0102", no_export)]
struct NamesAll {
    first: OnceLock<FunctionId>,
    named: AtomicUsize,
    wrong: AtomicUsize,
    unloads: AtomicUsize,
    threads: AtomicUsize,
}

impl NamesAll {
    fn check(&self, cx: &InNoGc<'_>, function: FunctionId) -> Option<()> {
        let info = cx.function_info(function).ok().filter(|info| !info.token.is_nil())?;
        let real = cx.metadata(info.module).ok()?.method(info.token).ok()?.name;
        let il = cx.names().function(function);
        let csharp = cx.names().csharp().function(function);
        self.named.fetch_add(1, SeqCst);
        self.first.get_or_init(|| function);
        if ![&il, &csharp].iter().all(|name| name.contains(&format!(".{real}")) && !name.contains("<unknown")) {
            self.wrong.fetch_add(1, SeqCst);
            eprintln!("wrong: {il} and {csharp} for {real}");
        }
        if il.starts_with("Kinds.") {
            eprintln!("in IL: {il}\nin C#: {csharp}");
        }
        Some(())
    }
}

#[callbacks]
impl Callbacks for NamesAll {
    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        _status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        self.check(cx, function);
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        self.unloads.fetch_add(1, SeqCst);
        if cx.names().module(module).contains('<') {
            eprintln!("wrong: {}", cx.names().module(module));
        }
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        // Known or not, in any state of the ending thread: no panic.
        let Some(function) = self.first.get().copied() else { return };
        let Ok(info) = cx.function_info(function) else { return };
        let known = cx.names().function(function);
        let new = cx.names().csharp().method_def(info.module, info.token);
        if !known.contains('<') && !new.contains("<unknown") {
            self.threads.fetch_add(1, SeqCst);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let counts = [&self.named, &self.wrong, &self.unloads, &self.threads];
        let [named, wrong, unloads, threads] = counts.map(|count| count.load(SeqCst));
        eprintln!("wrong={wrong} unloads={unloads} threads={threads}");
        eprintln!("{named} functions named");
    }
}

corprof::export!(TellsFacts, NamesAll);

//! The methods of samples: their frames in a profile, with their places in the source.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use corprof::inlined_frames::{InlinedFrames, InlinedMethod};
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::sampler::{Round, Sample, SampledFrame};
use corprof_export::{self as export, FrameId, Profile, SourceLines, as_inlined};

use super::recording::Recording;
use crate::async_callers::{Machine, Role, StackFrame};
use crate::line_counts::{LineCounts, LineOwner};
use crate::own_frames::is_of_the_runtime;

/// The managed methods seen so far.
#[derive(Default)]
pub(super) struct Methods {
    /// By id: after an unload the runtime may reuse the id for another method.
    known: HashMap<FunctionId, Method>,
    /// The state machines that are no frames of stacks.
    machines: HashMap<Machine, FrameId>,
    /// The inlined methods, by module and definition. After an unload another module may have the same id.
    inlined: HashMap<(usize, MethodDef), (Name, FrameId)>,
    /// The names of native functions.
    natives: HashSet<Arc<str>>,
    /// The methods without a look-up of file and line so far.
    unplaced: Vec<Unplaced>,
    /// The methods whose lines are not known.
    unlined: HashSet<FrameId>,
    lines: SourceLines,
}

#[derive(Clone)]
pub(super) struct Method {
    pub(super) name: Name,
    /// None for the runtime's own.
    pub(super) frame: Option<FrameId>,
    role: Role,
}

struct Unplaced {
    frame: FrameId,
    module: PathBuf,
    token: MethodDef,
}

impl Methods {
    /// The frames of a sample, and between them the methods that were inlined; the innermost first.
    pub(super) fn stack(
        &mut self,
        profile: &mut Profile,
        mut recording: Option<&mut Recording>,
        round: &Round<'_, '_>,
        sample: &Sample<'_>,
        inlined: &InlinedFrames,
    ) -> Box<[StackFrame]> {
        let frames = sample.frames();
        let mut stack = Vec::with_capacity(frames.len());
        for (depth, frame) in frames.iter().enumerate() {
            stack.push(self.stack_frame(profile, recording.as_deref_mut(), round, sample, depth, frame));
            let Some(caller) = frames.get(depth + 1) else { break };
            for method in inlined.between(round.cx(), caller, frame).iter().rev() {
                let address = recording.as_deref_mut().map(|recording| recording.logical(&as_inlined(&method.name)));
                stack.push(StackFrame::Inlined(Arc::clone(method), address.unwrap_or_default()));
            }
        }
        stack.into()
    }

    fn stack_frame(
        &mut self,
        profile: &mut Profile,
        recording: Option<&mut Recording>,
        round: &Round<'_, '_>,
        sample: &Sample<'_>,
        depth: usize,
        frame: &SampledFrame,
    ) -> StackFrame {
        let method = frame.function.map(|function| (function, self.managed(profile, round.cx(), function)));
        let method = method.filter(|(function, _)| round.is_still(*function, sample));
        if let Some((function, method)) = method {
            let address = recording.map(|recording| recording.managed(function, &method.name, depth, frame));
            return StackFrame::Managed(function, method.role, address.unwrap_or_default());
        }
        // The address of a caller's frame is the return address, which may be behind the end of the function.
        let address = frame.ip.saturating_sub(usize::from(depth > 0));
        let native = round.native_function(address);
        let name = native.as_ref().map_or("[native code]", |native| &native.name);
        let address = recording.map(|recording| match &native {
            Some(native) => recording.native(native, address),
            None => recording.logical(name),
        });
        let address = address.unwrap_or_default();
        if let Some(known) = self.natives.get(name) {
            return StackFrame::Native(Arc::clone(known), address);
        }
        let name: Arc<str> = name.into();
        self.natives.insert(Arc::clone(&name));
        StackFrame::Native(name, address)
    }

    pub(super) fn managed(&mut self, profile: &mut Profile, cx: &InNoGc<'_>, function: FunctionId) -> Method {
        let name = cx.names().csharp().function(function);
        if let Some(known) = self.known.get(&function)
            && known.name == name
        {
            return known.clone();
        }
        let role = Role::of(&name);
        let frame = (!is_of_the_runtime(cx, function, &name)).then(|| self.new_frame(profile, cx, function, &name));
        let method = Method { name, frame, role };
        self.known.insert(function, method.clone());
        method
    }

    fn new_frame(&mut self, profile: &mut Profile, cx: &InNoGc<'_>, function: FunctionId, name: &str) -> FrameId {
        let Some((module, token)) = Self::definition(cx, function) else {
            return profile.frame(export::Frame::managed(name));
        };
        let frame = profile.frame(export::Frame::managed(name).in_module(&module));
        self.unplaced.push(Unplaced { frame, module: module.into(), token });
        frame
    }

    /// The frame of a state machine that is not on the stack.
    pub(super) fn machine(&mut self, profile: &mut Profile, cx: &InNoGc<'_>, machine: &Machine) -> FrameId {
        if let Some(known) = self.machines.get(machine) {
            return *known;
        }
        let frame = self.frame_of(profile, cx, &machine.name, machine.module, machine.method);
        self.machines.insert(machine.clone(), frame);
        frame
    }

    /// The frame of a method that was inlined.
    pub(super) fn inlined(&mut self, profile: &mut Profile, cx: &InNoGc<'_>, method: &InlinedMethod) -> FrameId {
        let key = (method.module.as_raw(), method.method);
        if let Some((name, frame)) = self.inlined.get(&key)
            && *name == method.name
        {
            return *frame;
        }
        let frame = self.frame_of(profile, cx, &as_inlined(&method.name), method.module, method.method);
        self.inlined.insert(key, (method.name.clone(), frame));
        frame
    }

    /// A new frame of this name, of a method by its definition.
    fn frame_of(
        &mut self,
        profile: &mut Profile,
        cx: &InNoGc<'_>,
        name: &str,
        module: ModuleId,
        token: MethodDef,
    ) -> FrameId {
        let frame = export::Frame::managed(name);
        let Ok(module) = cx.module_info(module) else {
            return profile.frame(frame); // its module has gone
        };
        let frame = profile.frame(frame.in_module(&module.path));
        self.unplaced.push(Unplaced { frame, module: module.path.into(), token });
        frame
    }

    /// Forgets the methods, of which a new profile has no frames.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.machines.clear();
        self.inlined.clear();
    }

    /// The path of a method's module, and its token there. Dynamic methods have neither.
    fn definition(cx: &InNoGc<'_>, function: FunctionId) -> Option<(String, MethodDef)> {
        let info = cx.function_info(function).ok()?;
        if info.token.is_nil() {
            return None;
        }
        Some((cx.module_info(info.module).ok()?.path, info.token))
    }

    /// Looks up file and line of new methods. This reads files, so it must not be done during a round.
    pub(super) fn place(&mut self, profile: &mut Profile) {
        for Unplaced { frame, module, token } in self.unplaced.drain(..) {
            match self.lines.of_method(&module, token.as_raw()) {
                Some((file, line)) => profile.place(frame, file, line),
                None => {
                    self.unlined.insert(frame);
                }
            }
        }
    }

    /// What a function of a sample counts for in lines.
    pub(super) fn line_owner(&self, function: FunctionId) -> LineOwner<FrameId> {
        match self.known.get(&function).map(|method| method.frame) {
            Some(Some(frame)) if !self.unlined.contains(&frame) => LineOwner::Method(frame),
            Some(None) => LineOwner::Hidden,
            _ => LineOwner::Unlined,
        }
    }

    /// Looks up the lines of what was counted. This reads files, so it must not be done during a round.
    pub(super) fn place_lines(&mut self, profile: &mut Profile, counts: &mut LineCounts<FrameId>) {
        for ((frame, place), times) in counts.take() {
            let Some((file, line)) = place.and_then(|place| place.in_source(&mut self.lines)) else { continue };
            profile.add_line(frame, file, line, times.own.as_nanos() as u64, times.total.as_nanos() as u64);
        }
    }
}

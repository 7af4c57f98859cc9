//! What a component is made of, counted before anything compiles it.
//!
//! Compiling takes time and memory by what is in a component, and a few kilobytes can stand for very much of it: a
//! component that instantiates another twice, which instantiates a third twice, is instantiated 2^n times by the compiler,
//! which lays all of them out. Counting is one pass over the file's structure, without looking into code; what is beyond
//! the limits is refused by the name of the limit. What lies within them and still costs too much is left to the process
//! that compiles ([`crate::compile`]), which has limits of its own.
//!
//! How often things are instantiated is only known where it is known what is instantiated: a component that was defined
//! here, or in a component around it. One that comes out of an instance or from outside is refused; nothing that is built
//! from a program does that.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind,
    ComponentTypeRef, Encoding, Parser, Payload,
};

use crate::error::Refusal;
use crate::limits::ComponentLimits;
use crate::plugin::printable;

/// Counts, and refuses what is beyond the limits.
pub(crate) fn survey(bytes: &[u8], limits: &ComponentLimits) -> Result<(), Refusal> {
    let mut survey = Survey { limits, counts: Counts::default(), scopes: Vec::new() };
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| Refusal::Invalid(printable(&error.to_string())))?;
        survey.see(payload)?;
    }
    Ok(())
}

struct Survey<'a> {
    limits: &'a ComponentLimits,
    counts: Counts,
    scopes: Vec<Scope>,
}

#[derive(Default)]
struct Counts {
    functions: u64,
    locals: u64,
    segments: u64,
}

/// A component or module that is being read.
#[derive(Default)]
struct Scope {
    component: bool,
    /// What instantiating each component of its index space makes; `None` where that is not known.
    components: Vec<Option<u64>>,
    /// Instances that one of this component makes, itself included.
    instances: u64,
}

fn within(what: &'static str, found: u64, limit: u64) -> Result<(), Refusal> {
    if found > limit { Err(Refusal::Excessive { what, found, limit }) } else { Ok(()) }
}

impl Survey<'_> {
    fn see(&mut self, payload: Payload<'_>) -> Result<(), Refusal> {
        let limits = self.limits;
        match payload {
            Payload::Version { encoding, .. } => {
                let component = encoding == Encoding::Component;
                self.scopes.push(Scope { component, components: Vec::new(), instances: 1 });
                let levels = u64::try_from(self.scopes.len()).unwrap_or(u64::MAX);
                within("levels of components", levels, limits.levels)?;
            }
            Payload::End(_) => self.leave(),
            Payload::FunctionSection(section) => {
                self.counts.functions += u64::from(section.count());
                within("functions", self.counts.functions, limits.functions)?;
            }
            Payload::CodeSectionEntry(body) => self.see_body(&body)?,
            Payload::DataSection(section) => self.see_segments(section.count())?,
            Payload::ElementSection(section) => self.see_segments(section.count())?,
            Payload::InstanceSection(section) => self.make(u64::from(section.count()))?,
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    let instance = instance
                        .map_err(|error| Refusal::Invalid(printable(&error.to_string())))?;
                    self.see_instance(&instance)?;
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.see_alias(
                        &alias.map_err(|error| Refusal::Invalid(printable(&error.to_string())))?,
                    );
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import =
                        import.map_err(|error| Refusal::Invalid(printable(&error.to_string())))?;
                    if matches!(import.ty, ComponentTypeRef::Component(_)) {
                        self.define(None);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export =
                        export.map_err(|error| Refusal::Invalid(printable(&error.to_string())))?;
                    // An export is a name of its own in the index space.
                    if export.kind == ComponentExternalKind::Component {
                        self.define(None);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn see_body(&mut self, body: &wasmparser::FunctionBody<'_>) -> Result<(), Refusal> {
        let invalid =
            |error: wasmparser::BinaryReaderError| Refusal::Invalid(printable(&error.to_string()));
        let length = u64::try_from(body.range().len()).unwrap_or(u64::MAX);
        within("bytes of one function", length, self.limits.function_bytes)?;
        for local in body.get_locals_reader().map_err(invalid)? {
            let (count, _) = local.map_err(invalid)?;
            self.counts.locals = self.counts.locals.saturating_add(u64::from(count));
        }
        within("local variables", self.counts.locals, self.limits.locals)
    }

    fn see_segments(&mut self, count: u32) -> Result<(), Refusal> {
        self.counts.segments += u64::from(count);
        within("segments of data and elements", self.counts.segments, self.limits.segments)
    }

    fn see_instance(&mut self, instance: &ComponentInstance<'_>) -> Result<(), Refusal> {
        let ComponentInstance::Instantiate { component_index, .. } = instance else {
            return self.make(1);
        };
        let scope = self.scopes.last();
        let component =
            scope.and_then(|scope| scope.components.get(usize::try_from(*component_index).ok()?));
        // An index beyond the space is refused by the validation, with its place.
        let made = component.copied().unwrap_or(Some(1)).ok_or(Refusal::UnknownInstance)?;
        self.make(made)
    }

    fn see_alias(&mut self, alias: &ComponentAlias<'_>) {
        match alias {
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => {
                self.define(None);
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                let outer = |count: u32, index: u32| {
                    let mut scopes = self.scopes.iter().rev().filter(|scope| scope.component);
                    let scope = scopes.nth(usize::try_from(count).ok()?)?;
                    *scope.components.get(usize::try_from(index).ok()?)?
                };
                let made = outer(*count, *index);
                self.define(made);
            }
            _ => {}
        }
    }

    /// A component gets the next place of the index space.
    fn define(&mut self, made: Option<u64>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.components.push(made);
        }
    }

    fn make(&mut self, instances: u64) -> Result<(), Refusal> {
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        scope.instances = scope.instances.saturating_add(instances);
        within("instances", scope.instances, self.limits.instances)
    }

    fn leave(&mut self) {
        if let Some(scope) = self.scopes.pop()
            && scope.component
        {
            self.define(Some(scope.instances));
        }
    }
}

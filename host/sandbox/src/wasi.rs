//! The empty WASI.
//!
//! The standard library of a guest for `wasm32-wasip2` imports a dozen interfaces, used or not. They are here, and empty:
//! no environment, no arguments, no directories, an input that has ended, a clock that shows the commit time of the
//! batch, random numbers that its position seeds (both real where they are granted). What a guest prints is kept in part, for its author. Everything else
//! of these interfaces is a trap that names the function. So a guest is deterministic, and has nothing to leak by.
//!
//! Why not wasmtime's own implementation, with an empty context: it is 93 crates and six CPU-minutes more to say no in,
//! sized for web servers (a guest may ask it for 64 MiB of random bytes), and its clocks and randomness would have to be
//! replaced anyway. These stubs are the functions that the standard library calls on the way to a panic.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentNamedList, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource,
    ResourceType, Val,
};
use wasmtime::{Result, StoreContextMut, bail};

use crate::host::Host;

/// The interfaces that are linked, of any version 0.2.
const INTERFACES: [&str; 20] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure-seed",
    "wasi:random/insecure",
    "wasi:random/random",
];

/// What an output stream takes at a time.
const WRITE_BYTES: u64 = 4 << 10;
/// A guest that asks for more at once is not seeding a hash table.
const RANDOM_BYTES_MAX: u64 = 4 << 10;

/// Every handle of the empty WASI: a stream, an error, a pollable. There is nothing behind it.
struct Handle;

/// WASI's `stream-error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[expect(dead_code, reason = "a case of the interface; nothing here fails")]
    LastOperationFailed(Resource<Handle>),
    #[component(name = "closed")]
    Closed,
}

/// A guest called a function that plugins are not given.
#[derive(Debug, thiserror::Error)]
#[error("called {0}, which plugins are not given")]
pub(crate) struct Denied(String);

/// A guest called `exit`.
#[derive(Debug, thiserror::Error)]
#[error("called exit")]
pub(crate) struct Exited;

/// The interface's name without its version, where it is one of the empty WASI.
pub(crate) fn interface(import: &str) -> Option<&'static str> {
    let (name, version) = import.split_once('@')?;
    let known = INTERFACES.into_iter().find(|known| *known == name)?;
    version.starts_with("0.2.").then_some(known)
}

/// Links what the component imports of the empty WASI.
pub(crate) fn link(linker: &mut Linker<Host>, component: &Component) -> Result<()> {
    let engine = component.engine().clone();
    for (import, item) in component.component_type().imports(&engine) {
        let (Some(interface), ComponentItem::ComponentInstance(instance)) =
            (interface(import), item.ty)
        else {
            continue;
        };
        let mut linked = linker.instance(import)?;
        for (name, export) in instance.exports(&engine) {
            match export.ty {
                ComponentItem::ComponentFunc(_) => link_function(&mut linked, interface, name)?,
                ComponentItem::Resource(_) => {
                    linked.resource(name, ResourceType::host::<Handle>(), |mut caller, _| {
                        caller.data_mut().drop_handle();
                        Ok(())
                    })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

type Caller<'a> = StoreContextMut<'a, Host>;

/// Links one function: counts the call, then answers.
fn give<P, R>(
    linked: &mut LinkerInstance<'_, Host>,
    name: &str,
    answer: impl Fn(&mut Host, P) -> Result<R> + Send + Sync + 'static,
) -> Result<()>
where
    P: ComponentNamedList + Lift + 'static,
    R: ComponentNamedList + Lower + 'static,
{
    linked.func_wrap(name, move |mut caller: Caller<'_>, parameters: P| {
        let host = caller.data_mut();
        host.count_call()?;
        answer(host, parameters)
    })
}

fn link_function(linked: &mut LinkerInstance<'_, Host>, interface: &str, name: &str) -> Result<()> {
    match (interface, name) {
        ("wasi:cli/environment", "get-environment") => {
            give(linked, name, |_, (): ()| Ok((Vec::<(String, String)>::new(),)))
        }
        ("wasi:cli/environment", "get-arguments") => {
            give(linked, name, |_, (): ()| Ok((Vec::<String>::new(),)))
        }
        ("wasi:cli/environment", "initial-cwd") => {
            give(linked, name, |_, (): ()| Ok((None::<String>,)))
        }
        ("wasi:cli/exit", _) => linked.func_new(name, |_, _, _, _| Err(Exited.into())),
        ("wasi:cli/stdin", "get-stdin")
        | ("wasi:cli/stdout", "get-stdout")
        | ("wasi:cli/stderr", "get-stderr") => {
            give(linked, name, |host, (): ()| Ok((handle(host)?,)))
        }
        (
            "wasi:cli/terminal-stdin" | "wasi:cli/terminal-stdout" | "wasi:cli/terminal-stderr",
            _,
        ) => give(linked, name, |_, (): ()| Ok((None::<Resource<Handle>>,))),
        ("wasi:clocks/monotonic-clock", "now") => {
            give(linked, name, |host, (): ()| Ok((host.now_micros().saturating_mul(1_000),)))
        }
        ("wasi:clocks/wall-clock", "now") => linked.func_new(name, wall_clock_now),
        ("wasi:filesystem/preopens", "get-directories") => {
            give(linked, name, |_, (): ()| Ok((Vec::<(Resource<Handle>, String)>::new(),)))
        }
        // The only things to wait for are streams, since clocks give no pollables; and those are always ready.
        ("wasi:io/poll", "[method]pollable.ready") => {
            give(linked, name, |_, (_,): (Resource<Handle>,)| Ok((true,)))
        }
        ("wasi:io/poll", "[method]pollable.block") => {
            give(linked, name, |_, (_,): (Resource<Handle>,)| Ok(()))
        }
        ("wasi:io/poll", "poll") => {
            give(linked, name, |_, (pollables,): (Vec<Resource<Handle>>,)| {
                Ok(((0..).zip(pollables).map(|(index, _)| index).collect::<Vec<u32>>(),))
            })
        }
        ("wasi:io/streams", _) => link_stream(linked, name),
        ("wasi:random/random", "get-random-u64")
        | ("wasi:random/insecure", "get-insecure-random-u64") => {
            give(linked, name, |host, (): ()| Ok((host.random_word()?,)))
        }
        ("wasi:random/random", "get-random-bytes")
        | ("wasi:random/insecure", "get-insecure-random-bytes") => {
            give(linked, name, |host, (length,): (u64,)| Ok((random_bytes(host, length)?,)))
        }
        ("wasi:random/insecure-seed", _) => {
            give(linked, name, |host, (): ()| Ok(((host.random_word()?, host.random_word()?),)))
        }
        _ => link_denied(linked, interface, name),
    }
}

/// A handle of the host costs it memory that is no part of the guest's, so they are counted.
fn handle(host: &mut Host) -> Result<Resource<Handle>> {
    host.count_handle()?;
    Ok(Resource::new_own(0))
}

fn link_denied(linked: &mut LinkerInstance<'_, Host>, interface: &str, name: &str) -> Result<()> {
    let function = format!("{interface} {name}");
    linked.func_new(name, move |_, _, _, _| Err(Denied(function.clone()).into()))
}

fn link_stream(linked: &mut LinkerInstance<'_, Host>, name: &str) -> Result<()> {
    match name {
        "[method]output-stream.check-write" => {
            give(linked, name, |_, (_,): (Resource<Handle>,)| {
                Ok((Ok::<u64, StreamError>(WRITE_BYTES),))
            })
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            give(linked, name, |host, (_, bytes): (Resource<Handle>, Vec<u8>)| {
                host.print(&bytes);
                Ok((Ok::<(), StreamError>(()),))
            })
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            give(linked, name, |_, (_,): (Resource<Handle>,)| Ok((Ok::<(), StreamError>(()),)))
        }
        "[method]output-stream.subscribe" | "[method]input-stream.subscribe" => {
            give(linked, name, |host, (_,): (Resource<Handle>,)| Ok((handle(host)?,)))
        }
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            give(linked, name, |_, (_, _): (Resource<Handle>, u64)| {
                Ok((Err::<Vec<u8>, StreamError>(StreamError::Closed),))
            })
        }
        _ => link_denied(linked, "wasi:io/streams", name),
    }
}

fn set(results: &mut [Val], value: Val) -> Result<()> {
    let [result] = results else { bail!("a function of the empty wasi has one result") };
    *result = value;
    Ok(())
}

fn wall_clock_now(
    mut caller: Caller<'_>,
    _: wasmtime::component::types::ComponentFunc,
    _: &[Val],
    results: &mut [Val],
) -> Result<()> {
    let host = caller.data_mut();
    host.count_call()?;
    let micros = host.now_micros();
    let nanoseconds = u32::try_from(micros % 1_000_000 * 1_000)?;
    let now = vec![
        ("seconds".to_owned(), Val::U64(micros / 1_000_000)),
        ("nanoseconds".to_owned(), Val::U32(nanoseconds)),
    ];
    set(results, Val::Record(now))
}

fn random_bytes(host: &mut Host, length: u64) -> Result<Vec<u8>> {
    if length > RANDOM_BYTES_MAX {
        return Err(Denied("get-random-bytes for more than 4,096 bytes".into()).into());
    }
    let length = usize::try_from(length)?;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        bytes.extend(host.random_word()?.to_le_bytes());
    }
    bytes.truncate(length);
    Ok(bytes)
}

//! Whether a pool of instances would be worth having: the same guest, instantiated and called under both of wasmtime's
//! allocators, by turns in one process, and the address space that each reserves.
//!
//! Prints one figure a line, `figure NAME VALUE UNIT`. The guest is the identity plugin; its imports are traps, and the
//! call is `describe`, which needs none. The pool is as large as it would have to be: 16 lanes of 4 plugins, each with the
//! 80 core instances that an interpreter has, and 256 MiB of memory.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Instant;

use support::guest;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker, Val};
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Result, Store,
};

const INSTANCES: u32 = 16 * 4;
const CORE_INSTANCES: u32 = 80;
const ROUNDS: usize = 2_000;
/// Instances that live at the same time while memory is looked at.
const ALIVE: usize = 16;

fn main() -> Result<()> {
    let component = guest("identity-packed");
    let pool = InstanceAllocationStrategy::Pooling(pool());
    let allocators = [("on_demand", InstanceAllocationStrategy::OnDemand), ("pooled", pool)];
    let mut sides = Vec::new();
    for (name, strategy) in allocators {
        let before = megabytes("VmSize:");
        let side = Side::new(strategy, &component)?;
        figure(&format!("allocation_reserved_{name}"), megabytes("VmSize:") - before, "MB");
        sides.push((name, side, Vec::new(), Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (_, side, starts, calls) in &mut sides {
            let (start, call) = side.round()?;
            starts.push(start);
            calls.push(call);
        }
    }
    let mut medians = Vec::new();
    for (name, side, starts, calls) in sides {
        let (start, call) = (median(starts) / 1_000.0, median(calls) / 1_000.0);
        figure(&format!("allocation_instantiate_{name}"), start, "us");
        figure(&format!("allocation_first_call_{name}"), call, "us");
        let (size, resident) = (megabytes("VmSize:"), megabytes("VmRSS:"));
        let alive = (0..ALIVE).map(|_| side.start()).collect::<Result<Vec<_>>>()?;
        figure(&format!("allocation_alive_{name}"), megabytes("VmSize:") - size, "MB");
        figure(&format!("allocation_resident_{name}"), megabytes("VmRSS:") - resident, "MB");
        drop(alive);
        medians.push(start + call);
    }
    if let [on_demand, pooled] = medians[..] {
        figure("allocation_pooled_vs_on_demand", pooled / on_demand, "ratio");
    }
    Ok(())
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    let all = INSTANCES * CORE_INSTANCES;
    pool.total_component_instances(INSTANCES)
        .total_core_instances(all)
        .total_memories(INSTANCES)
        .total_tables(all)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_tables_per_component(CORE_INSTANCES)
        .max_memory_size(256 << 20);
    pool
}

struct Side {
    guest: InstancePre<()>,
    describe: ComponentExportIndex,
}

impl Side {
    fn new(strategy: InstanceAllocationStrategy, component: &[u8]) -> Result<Self> {
        let mut config = Config::new();
        config.concurrency_support(false).allocation_strategy(strategy);
        let engine = Engine::new(&config)?;
        let component = Component::new(&engine, component)?;
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component)?;
        let lifecycle = component.get_export_index(None, "dovetail:plugin/lifecycle@0.1.0");
        let describe = component
            .get_export_index(lifecycle.as_ref(), "describe")
            .ok_or_else(|| wasmtime::Error::msg("a guest describes itself"))?;
        Ok(Self { guest: linker.instantiate_pre(&component)?, describe })
    }

    fn start(&self) -> Result<Store<()>> {
        let mut store = Store::new(self.guest.engine(), ());
        let instance = self.guest.instantiate(&mut store)?;
        black_box(instance);
        Ok(store)
    }

    /// Nanoseconds to instantiate, and to call once; letting go of the instance belongs to the former.
    fn round(&self) -> Result<(u128, u128)> {
        let started = Instant::now();
        let mut store = Store::new(self.guest.engine(), ());
        let instance = self.guest.instantiate(&mut store)?;
        let start = started.elapsed();

        let calling = Instant::now();
        let describe = instance
            .get_func(&mut store, self.describe)
            .ok_or_else(|| wasmtime::Error::msg("it is a function"))?;
        let mut described = [Val::Bool(false)];
        describe.call(&mut store, &[Val::String(String::new())], &mut described)?;
        black_box(described);
        let call = calling.elapsed();

        let ending = Instant::now();
        drop(store);
        Ok(((start + ending.elapsed()).as_nanos(), call.as_nanos()))
    }
}

/// Of this process, from `/proc/self/status`.
fn megabytes(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a field of it");
    let kibibytes = line.split_whitespace().nth(1).expect("a number");
    kibibytes.parse::<f64>().expect("a number") / 1_024.0
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.1} {unit}");
}

fn median(mut samples: Vec<u128>) -> f64 {
    samples.sort_unstable();
    let middle = samples.get(samples.len() / 2).copied().unwrap_or_default();
    u32::try_from(middle).map_or(f64::INFINITY, f64::from)
}

//! Pins a position and its views again and again while writers commit, and looks for rows that are in neither.
//!
//! ```text
//! race --server mysql-9.7 --rung gtid --pins 500     one order
//! race --server mysql-9.7 --order-commits off        every order that there is for a server set up so
//! race --server mariadb-11.8 --small-files on        the log changes files all the time
//! race --pins 25                                     every order on every server that is installed
//! ```
//!
//! Six writers commit single rows with ids of their own, and a monitor asks for the server's status all the time (on
//! MariaDB another one does so from an older snapshot). For every pin the harness keeps where the stream would start, what
//! the fence says, and which ids the views show. When all pins are taken, the server's log is read by another reader than
//! the engine's, and every id near a pin is judged:
//!
//! - *lost*: not shown by every connection of the view, and not streamed either (or streamed, but the fence says that the
//!   view shows it).
//! - *doubled*: shown by a connection of the view and streamed, and the fence does not say so, although it claims to be
//!   exact.
//! - *split*: shown by one connection of a view and not by another; one of the two is lost or doubled then.
//!
//! The engine's rungs must have none of these. The orders that are forbidden, which only this harness knows, must lose
//! rows: otherwise nothing says that it would see a loss.

mod bed;
mod judge;
mod order;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use dovetail_tests::mysql::Version;

use bed::{Bed, Plan};
use judge::{Found, Log};
use order::Order;

/// Small, so that all orders on all servers take about two minutes.
const PINS: u32 = 25;

/// These are cheap.
const FORBIDDEN_PINS: u32 = 200;

struct Arguments {
    server: Option<Version>,
    order: Option<Order>,
    pins: u32,
    order_commits: Option<bool>,
    gtids: Option<bool>,
    small_files: Option<bool>,
}

impl Arguments {
    fn parse() -> Result<Self> {
        let mut parsed = Self {
            server: None,
            order: None,
            pins: PINS,
            order_commits: None,
            gtids: None,
            small_files: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--server" => parsed.server = Some(value.parse()?),
                "--rung" => parsed.order = Some(value.parse()?),
                "--pins" => parsed.pins = value.parse().context("--pins takes a number")?,
                "--order-commits" => parsed.order_commits = Some(switch(&value)?),
                "--gtids" => parsed.gtids = Some(switch(&value)?),
                "--small-files" => parsed.small_files = Some(switch(&value)?),
                _ => bail!(
                    "{name}: there are --server mysql-9.7, --rung gtid, --pins 500, --order-commits off, --gtids off \
                     and --small-files on"
                ),
            }
        }
        ensure!(parsed.pins > 0, "--pins 0 proves nothing");
        Ok(parsed)
    }

    fn plans(&self) -> Result<Vec<Plan>> {
        let servers = match self.server {
            Some(server) => vec![server],
            None => Version::installed()?,
        };
        for missing in Version::ALL.into_iter().filter(|it| !servers.contains(it)) {
            if self.server.is_none() {
                println!("race: {missing} IS NOT INSTALLED and left out (tests/install {missing})");
            }
        }
        let mut plans: Vec<_> = servers.into_iter().flat_map(Plan::all).collect();
        let set_up = [self.order_commits, self.gtids, self.small_files];
        let chosen = set_up.iter().any(Option::is_some) || self.order.is_some();
        if chosen {
            plans.retain(|plan| {
                plan.order_commits == self.order_commits.unwrap_or(true)
                    && plan.gtids == self.gtids.unwrap_or(true)
                    && plan.small_files == self.small_files.unwrap_or(false)
            });
        }
        if let Some(order) = self.order {
            plans.iter_mut().for_each(|plan| plan.orders.retain(|it| *it == order));
            plans.retain(|plan| !plan.orders.is_empty());
        }
        ensure!(!plans.is_empty(), "there is no such order on such a server");
        Ok(plans)
    }
}

fn switch(text: &str) -> Result<bool> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("{text} is neither on nor off"),
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse()?;
    let mut wrong = 0;
    for plan in arguments.plans()? {
        wrong += race(&plan, arguments.pins).await.with_context(|| plan.to_string())?;
    }
    println!("race: {wrong} orders did what they must not");
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many orders did what they must not.
async fn race(plan: &Plan, pins: u32) -> Result<u32> {
    let bed = Bed::start(plan).await?;
    let mut taken = Vec::new();
    for order in &plan.orders {
        let mut samples = Vec::new();
        // Chance must not make a loss stay unseen.
        let pins = if order.is_forbidden() { pins.max(FORBIDDEN_PINS) } else { pins };
        bed.write_large_rows(order.is_forbidden());
        for number in 0..pins {
            let sample = order::sample(*order, &bed, number).await;
            samples.push(sample.with_context(|| format!("{order}, pin {number}"))?);
        }
        taken.push((*order, samples));
    }
    let server = bed.stop().await?;
    let log = Log::of(server.logged().await?)?;
    let mut wrong = 0;
    for (order, samples) in taken {
        let mut found = Found::default();
        samples.iter().for_each(|sample| log.judge(sample, &mut found));
        let good = if order.is_forbidden() { found.lost_pins > 0 } else { found.is_clean() };
        let verdict = match (order.is_forbidden(), good) {
            (false, true) => "ok",
            (true, true) => "loses, as it must",
            (false, false) => "WRONG",
            (true, false) => "NOT SEEN TO LOSE",
        };
        println!("race: {plan}, {order}: {found}: {verdict}");
        if !order.is_forbidden() {
            found.examples().iter().for_each(|example| println!("  {example}"));
        }
        wrong += u32::from(!good);
    }
    Ok(wrong)
}

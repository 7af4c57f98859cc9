//! Whether the log will still be there when the scan is over.

use super::super::server::Settings;
use super::Finding;

/// Below what a scan moves on common machines: a guess that is too slow warns too early.
const BYTES_PER_SECOND: u64 = 10 << 20;
const SECONDS_A_DAY: f64 = 86_400.0;

/// `bytes` are to be scanned. The log is read after the scan, so it has to last as long.
pub(super) fn judge(settings: &Settings, bytes: u64, findings: &mut Vec<Finding>) {
    let Some(kept) = kept_seconds(settings) else { return };
    let scan = bytes / BYTES_PER_SECOND;
    let percent = scan.saturating_mul(100).checked_div(kept).unwrap_or(u64::MAX);
    if percent < 50 {
        return;
    }
    let risk = if percent >= 80 { "HIGH RISK: " } else { "" };
    let fix = match settings.get("binlog_expire_logs_seconds") {
        Some(_) => format!("SET GLOBAL binlog_expire_logs_seconds = {}", scan.saturating_mul(4)),
        None => "SET GLOBAL expire_logs_days = 7".to_owned(),
    };
    findings.push(
        Finding::warning(
            format!("{risk}the log is kept for {kept} s, and the scan may take {scan} s"),
            "what is removed from the log before the scan is over cannot be streamed: the pipeline would have to start anew",
        )
        .fix(fix),
    );
}

/// `None` where files are kept for ever.
fn kept_seconds(settings: &Settings) -> Option<u64> {
    let number =
        |name: &str| settings.get(name)?.parse::<f64>().ok().filter(|number| *number > 0.0);
    let seconds = number("binlog_expire_logs_seconds");
    let seconds = seconds.or_else(|| Some(number("expire_logs_days")? * SECONDS_A_DAY))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range of u32"
    )]
    let seconds = seconds.clamp(0.0, f64::from(u32::MAX)) as u64;
    Some(seconds)
}

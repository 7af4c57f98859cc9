//! Durations and sizes with their unit: a bare number never says which one was meant.

use std::time::Duration;

/// `500ms`, `10s`, `5m` or `1h`.
pub(in crate::config) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

/// `512KiB`, `64MiB` or `2GiB`, in bytes.
pub(in crate::config) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bytes = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let (number, unit) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit())?)?;
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_need_a_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("10 s"), Some(Duration::from_secs(10)));
        assert_eq!(duration("2h"), Some(Duration::from_secs(7200)));
        assert_eq!(size("64MiB"), Some(64 << 20));
        for wrong in ["", "10", "s", "-1s", "1.5s", "10 seconds", "99999999999999999h"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        for wrong in ["64", "64MB", "64mib", "18446744073709551615GiB"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}

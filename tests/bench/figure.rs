//! What is printed: one figure a line, `figure NAME VALUE UNIT`, so that nobody has to read prose by machine.
//!
//! A ratio is the median of the ratios of repetitions that alternate between the two sides: whatever else the machine does,
//! and it changes by the minute, falls on both. The repetitions themselves are printed as `figure NAME_raw ...`.

use std::fmt::Display;

pub(crate) fn print(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.3} {unit}");
}

/// One repetition: each measured value with its name and unit.
pub(crate) fn print_raw(name: &str, values: &[(&str, f64, &str)]) {
    let values: Vec<String> =
        values.iter().map(|(what, value, unit)| format!("{what} {value:.3} {unit}")).collect();
    println!("figure {name}_raw {}", values.join(", "));
}

/// What is being done, beside the figures.
pub(crate) fn say(what: impl Display) {
    eprintln!("bench: {what}");
}

/// The middle one; of an even number the greater of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

pub(crate) fn greatest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_does_not_follow_an_outlier() {
        assert_eq!(median([3.0, 1.0, 900.0]).to_bits(), 3.0_f64.to_bits());
        assert!(median([]).is_nan());
    }
}

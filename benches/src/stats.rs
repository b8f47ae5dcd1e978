//! Medians, and how sure they are.

/// A median with its 95 % interval.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How many samples it is made of.
    pub samples: usize,
}

const RESAMPLES: usize = 4_000;

impl Estimate {
    /// The median of samples, and the interval that 95 % of the medians of resamples are in
    /// (bootstrap, always with the same seed).
    ///
    /// There is at least one.
    pub fn of(samples: &[f64]) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let mut resample = vec![0.0; samples.len()];
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                for slot in &mut resample {
                    *slot = samples[random.usize(..samples.len())];
                }
                median(&mut resample)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        Self {
            median: median(&mut samples.to_vec()),
            low: medians[RESAMPLES / 40],
            high: medians[RESAMPLES - 1 - RESAMPLES / 40],
            samples: samples.len(),
        }
    }

    /// A number that was counted, not sampled.
    #[must_use]
    pub fn counted(value: f64) -> Self {
        Self {
            median: value,
            low: value,
            high: value,
            samples: 1,
        }
    }
}

/// The middle of the values, which are sorted for it.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    /// The interval holds the median, and narrows with the spread.
    #[test]
    fn an_interval_is_as_wide_as_the_spread() {
        let wide: Vec<f64> = (0..41).map(f64::from).collect();
        let narrow: Vec<f64> = wide.iter().map(|value| 20.0 + value / 100.0).collect();
        let (wide, narrow) = (Estimate::of(&wide), Estimate::of(&narrow));
        assert!((wide.median - 20.0).abs() < f64::EPSILON);
        assert!(wide.low < 20.0 && 20.0 < wide.high);
        assert!((wide.high - wide.low) > 50.0 * (narrow.high - narrow.low));
    }

    /// Of an even number of samples the median is between the two in the middle.
    #[test]
    fn an_even_number_has_a_median() {
        let estimate = Estimate::of(&[4.0, 1.0, 3.0, 2.0]);
        assert!((estimate.median - 2.5).abs() < f64::EPSILON);
    }
}

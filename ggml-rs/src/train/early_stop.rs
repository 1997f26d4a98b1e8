//! Stopping once a model does not get better.

/// When to stop: the loss of the validation set decides, after each epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EarlyStop {
    /// How many epochs in a row may pass without a better loss; the last of them stops the run.
    pub patience: u64,
    /// By how much a loss must be below the best one to be better: finite, and at least 0.
    pub min_delta: f64,
}

/// The best epoch so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Best {
    pub loss: f64,
    pub epoch: u64,
    /// The epochs since then.
    pub waited: u64,
    /// Of each parameter.
    pub weights: Vec<Vec<f32>>,
}

impl EarlyStop {
    /// Whether `loss` is better than the best one. NaN never is.
    pub(super) fn improves(&self, best: Option<&Best>, loss: f64) -> bool {
        match best {
            Some(best) => loss < best.loss - self.min_delta,
            None => !loss.is_nan(),
        }
    }

    /// Whether it is time to stop.
    pub(super) fn is_over(&self, best: Option<&Best>) -> bool {
        best.is_some_and(|best| best.waited >= self.patience.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(loss: f64, waited: u64) -> Best {
        Best {
            loss,
            epoch: 0,
            waited,
            weights: Vec::new(),
        }
    }

    #[test]
    fn better_is_below_by_the_delta() {
        let rule = EarlyStop {
            patience: 2,
            min_delta: 0.125,
        };
        assert!(rule.improves(None, 3.0) && !rule.improves(None, f64::NAN));
        let best = best(1.0, 0);
        assert!(rule.improves(Some(&best), 0.75));
        assert!(!rule.improves(Some(&best), 0.875));
        assert!(!rule.improves(Some(&best), f64::NAN));
    }

    #[test]
    fn patience_ends() {
        let rule = |patience| EarlyStop {
            patience,
            min_delta: 0.0,
        };
        assert!(!rule(2).is_over(None));
        assert!(!rule(2).is_over(Some(&best(1.0, 1))));
        assert!(rule(2).is_over(Some(&best(1.0, 2))));
        // One epoch without progress is the least that tells something.
        assert!(!rule(0).is_over(Some(&best(1.0, 0))));
        assert!(rule(0).is_over(Some(&best(1.0, 1))));
    }
}

//! The order of an epoch's samples.
//!
//! The order is a pure function of the seed, the epoch and the number of samples: whoever knows those three, such as a
//! checkpoint, has the generator's whole state. It is a Fisher-Yates shuffle on the stream `epoch` of ChaCha with 8 rounds, the
//! key of which is the seed in little-endian order and zeros. It is the same on every machine, and a test holds it to that.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The order in which an epoch visits `len` samples: each once.
///
/// ```
/// use ggml_rs::train::shuffled;
///
/// let mut order = shuffled(7, 0, 5);
/// assert_eq!(order, shuffled(7, 0, 5));
/// assert_ne!(order, shuffled(7, 1, 5));
/// order.sort_unstable();
/// assert_eq!(order, [0, 1, 2, 3, 4]);
/// ```
#[must_use]
pub fn shuffled(seed: u64, epoch: u64, len: usize) -> Vec<usize> {
    let mut order = vec![0; len];
    shuffle(seed, epoch, &mut order);
    order
}

/// [`shuffled`], in memory that is there.
pub(super) fn shuffle(seed: u64, epoch: u64, order: &mut [usize]) {
    in_order(order);
    let mut random = generator(seed, epoch);
    for i in (1..order.len()).rev() {
        order.swap(i, below(&mut random, i as u64 + 1) as usize);
    }
}

/// Every sample at its own place.
pub(super) fn in_order(order: &mut [usize]) {
    for (place, sample) in order.iter_mut().enumerate() {
        *sample = place;
    }
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = ChaCha8Rng::from_seed(key);
    random.set_stream(stream);
    random
}

/// A number below `bound`, each as likely as the others: draws from the incomplete last lap are thrown away.
fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    let laps = u64::MAX - u64::MAX % bound;
    loop {
        let drawn = random.next_u64();
        if drawn < laps {
            return drawn % bound;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_comes_once() {
        for len in [0, 1, 2, 17, 1000] {
            let mut order = shuffled(3, 9, len);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..len));
        }
    }

    /// Checkpoints rest on it: a generator that changes must not resume them. The orders were computed with another implementation
    /// of ChaCha.
    #[test]
    fn the_order_is_this_one() {
        assert_eq!(shuffled(1, 0, 8), [1, 3, 2, 6, 4, 0, 5, 7]);
        assert_eq!(shuffled(1, 1, 8), [5, 6, 7, 3, 0, 1, 2, 4]);
        assert_eq!(shuffled(2, 0, 8), [6, 5, 7, 0, 2, 3, 4, 1]);
    }

    /// 24 orders of four samples, 500 of each expected: the statistic has 23 degrees of freedom, and is below 49.7 in 99.9% of
    /// all seeds.
    #[test]
    fn orders_are_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        for epoch in 0..12_000 {
            *counts.entry(shuffled(5, epoch, 4)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 24);
        let statistic: f64 = counts
            .values()
            .map(|&count| f64::from(count - 500_i32).powi(2) / 500.0)
            .sum();
        assert!(statistic < 49.7, "{statistic}");
    }
}

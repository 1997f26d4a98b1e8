//! What is counted.

use std::collections::BTreeMap;

/// Counts by name, and the largest errors, as parts of what was allowed.
#[derive(Default)]
pub struct Table {
    pub counts: BTreeMap<String, [u64; 3]>,
    pub most: BTreeMap<&'static str, f64>,
}

impl Table {
    pub fn add(&mut self, name: &str, counts: [u64; 3]) {
        let sums = self.counts.entry(name.to_owned()).or_default();
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    pub fn most(&mut self, kind: &'static str, part: f64) {
        let most = self.most.entry(kind).or_default();
        *most = most.max(part);
    }
}

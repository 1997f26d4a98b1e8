//! In which order worker processes take cases.

/// Cases that wait for a worker.
///
/// They are taken in their order, so that reports, which keep to it, flow from the start; but one worker of several takes the
/// long ones first, the longest before all, so that none is left to the end, when the others have nothing more to do.
pub(crate) struct Queue {
    /// From the shortest to the longest.
    long: Vec<usize>,
    next: usize,
    taken: Vec<bool>,
}

impl Queue {
    /// All cases, by their costs.
    pub(crate) fn new(costs: &[f64]) -> Self {
        let long_cost = costs.iter().sum::<f64>() / 100.0;
        let mut long: Vec<usize> = (0..costs.len())
            .filter(|&i| costs[i] >= long_cost)
            .collect();
        long.sort_by(|&a, &b| costs[a].total_cmp(&costs[b]));
        Self {
            long,
            next: 0,
            taken: vec![false; costs.len()],
        }
    }

    /// The next case.
    pub(crate) fn take(&mut self, long_first: bool) -> Option<usize> {
        let case = match long_first {
            true => self.longest().or_else(|| self.first()),
            false => self.first(),
        }?;
        self.taken[case] = true;
        Some(case)
    }

    fn longest(&mut self) -> Option<usize> {
        while let Some(case) = self.long.pop() {
            if !self.taken[case] {
                return Some(case);
            }
        }
        None
    }

    fn first(&mut self) -> Option<usize> {
        let rest = self.taken.get(self.next..)?;
        self.next += rest.iter().position(|taken| !taken)?;
        Some(self.next)
    }

    /// Nothing more is to be done.
    pub(crate) fn clear(&mut self) {
        self.long.clear();
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_takes_the_long_cases_and_the_others_go_in_order() {
        let mut costs = vec![1.0; 200];
        costs[1] = 20.0;
        costs[7] = 50.0;
        costs[150] = 90.0;
        let mut queue = Queue::new(&costs);
        assert_eq!(queue.take(false), Some(0));
        assert_eq!(queue.take(true), Some(150));
        assert_eq!(queue.take(false), Some(1));
        assert_eq!(queue.take(true), Some(7));
        let rest: Vec<_> = std::iter::from_fn(|| queue.take(true)).collect();
        let expected: Vec<_> = (2..200).filter(|i| ![7, 150].contains(i)).collect();
        assert_eq!(rest, expected);
        assert_eq!((queue.take(true), queue.take(false)), (None, None));
    }

    #[test]
    fn a_cleared_queue_is_empty() {
        let mut queue = Queue::new(&[1.0; 3]);
        assert_eq!(queue.take(false), Some(0));
        queue.clear();
        assert_eq!((queue.take(true), queue.take(false)), (None, None));
    }
}

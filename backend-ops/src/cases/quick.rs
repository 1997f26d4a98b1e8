//! The quick set: of each op every value of every parameter at least once, in few and small cases.

use std::collections::HashSet;

use crate::case::Case;
use crate::case::cost;

/// A case that costs more is left to the full set: about five seconds on the simulated device.
const MOST: f64 = 3e8;

/// Which of the cases belong to the set, in their order.
///
/// The cheapest case comes first. A case is taken when it has a `name=value` pair that no case of its op that was taken before
/// has. So nothing is chosen by hand: a new case with a new value is in the set as soon as it exists.
pub(crate) fn select(cases: Vec<Box<dyn Case>>) -> Vec<Box<dyn Case>> {
    let mut by_cost: Vec<_> = (0..cases.len()).map(|i| (cost(&*cases[i]), i)).collect();
    by_cost.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut covered = HashSet::new();
    let mut ops = HashSet::new();
    let mut taken = HashSet::new();
    for (cost, index) in by_cost {
        let case = &cases[index];
        let mut is_new = false;
        for pair in pairs(&case.params()) {
            is_new |= covered.insert((case.op(), pair));
        }
        // An op is there even if its smallest case is large.
        let is_first = ops.insert(case.op());
        if is_first || (is_new && cost <= MOST) {
            taken.insert(index);
        }
    }
    let mut index = 0..;
    let mut cases = cases;
    cases.retain(|_| index.next().is_some_and(|index| taken.contains(&index)));
    cases
}

/// `name=value` pairs; commas in brackets belong to a value.
fn pairs(params: &str) -> Vec<String> {
    let mut pairs = vec![String::new()];
    let mut depth = 0_i32;
    for c in params.chars() {
        match c {
            ',' if depth == 0 => pairs.push(String::new()),
            _ => {
                depth += i32::from(c == '[') - i32::from(c == ']');
                if let Some(pair) = pairs.last_mut() {
                    pair.push(c);
                }
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cases::Set;

    #[test]
    fn pairs_keep_their_brackets() {
        assert_eq!(pairs("m=1,bs=[1,3],v=0"), ["m=1", "bs=[1,3]", "v=0"]);
    }

    #[test]
    fn every_value_of_every_parameter_is_there() {
        let values = |cases: &[Box<dyn Case>]| {
            (cases.iter().filter(|case| cost(&***case) <= MOST))
                .flat_map(|case| {
                    pairs(&case.params())
                        .into_iter()
                        .map(|pair| (case.op(), pair))
                })
                .collect::<BTreeSet<_>>()
        };
        let all = Set::Upstream.cases();
        let quick = Set::Quick.cases();
        assert_eq!(values(&quick), values(&all));
        assert!(
            quick.len() * 3 < all.len(),
            "{} of {}",
            quick.len(),
            all.len()
        );
    }

    #[test]
    fn the_set_keeps_the_order_of_the_list() {
        let all: Vec<_> = Set::Upstream
            .cases()
            .iter()
            .map(|case| case.name())
            .collect();
        let mut at = 0;
        for case in Set::Quick.cases() {
            let name = case.name();
            let found = all[at..].iter().position(|other| *other == name);
            at += found.expect("in the list, behind the last one") + 1;
        }
    }
}

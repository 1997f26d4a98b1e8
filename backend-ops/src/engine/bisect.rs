//! `--bisect`: the smallest form of a failing case that still fails alike.

use std::collections::HashSet;

use crate::case::Case;

/// How many forms are run for a case. A form is smaller than the last, so that a search takes about as long as so many runs of
/// the case at most, and mostly far less.
const MAX_RUNS: usize = 400;

/// What a search found.
pub struct Found {
    /// The smallest form; `None` where no smaller one fails.
    pub smallest: Option<Box<dyn Case>>,
    /// How many forms were run.
    pub runs: usize,
    /// Whether more would have had to be run.
    pub cut_short: bool,
}

/// Goes from a failing case to a smaller form that fails, as long as there is one.
///
/// # Errors
/// Those of `fails`.
pub fn search<E>(
    case: &dyn Case,
    fails: impl FnMut(&dyn Case) -> Result<bool, E>,
) -> Result<Found, E> {
    search_within(MAX_RUNS, case, fails)
}

fn search_within<E>(
    most: usize,
    case: &dyn Case,
    mut fails: impl FnMut(&dyn Case) -> Result<bool, E>,
) -> Result<Found, E> {
    let mut found = Found {
        smallest: None,
        runs: 0,
        cut_short: false,
    };
    let mut known = HashSet::from([case.name()]);
    'smaller: loop {
        let forms = found.smallest.as_deref().unwrap_or(case).smaller();
        for form in forms {
            if !known.insert(form.name()) {
                continue;
            }
            if found.runs == most {
                found.cut_short = true;
                break 'smaller;
            }
            found.runs += 1;
            if fails(&*form)? {
                found.smallest = Some(form);
                continue 'smaller;
            }
        }
        break;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use ggml_rs::Tensor;

    use super::*;
    use crate::case::{Leaves, smaller};
    use crate::data::Operand;

    /// A case that is nothing but its sizes.
    #[derive(Clone)]
    struct Sizes([usize; 4]);

    impl Case for Sizes {
        fn op(&self) -> &'static str {
            "NONE"
        }

        fn params(&self) -> String {
            crate::vars::Vars::new().with("ne", self.0).to_string()
        }

        fn operands(&self) -> Vec<Operand> {
            vec![Operand::new("a", ggml_rs::DType::F32, self.0)]
        }

        fn smaller(&self) -> Vec<Box<dyn Case>> {
            smaller(self, |case| case.0.iter_mut().collect())
        }

        fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
            Ok(leaves[0])
        }
    }

    fn size(case: &dyn Case) -> Vec<usize> {
        case.operands()[0].ne.to_vec()
    }

    fn smallest(case: &dyn Case, fails: impl Fn(&[usize]) -> bool) -> Option<Vec<usize>> {
        let found = search(case, |form| Ok::<_, Infallible>(fails(&size(form))));
        let Ok(found) = found;
        assert!(!found.cut_short);
        found.smallest.as_deref().map(size)
    }

    #[test]
    fn each_size_goes_down_to_what_the_failure_needs() {
        let case = Sizes([1280, 7, 3, 5]);
        let found = smallest(&case, |ne| ne[0] > 33 && ne[3] >= 2);
        assert_eq!(found, Some(vec![34, 1, 1, 2]));
        assert_eq!(smallest(&case, |_| true), Some(vec![1; 4]));
        assert_eq!(smallest(&case, |_| false), None);
    }

    #[test]
    fn a_search_ends() {
        let case = Sizes([1000, 1000, 1, 1]);
        let Ok(found) = search_within(30, &case, |_| Ok::<_, Infallible>(false));
        assert!(found.cut_short && found.runs == 30);
        assert!(found.smallest.is_none());
    }
}

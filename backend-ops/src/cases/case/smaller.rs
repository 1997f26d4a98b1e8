//! Smaller forms of a case: what a failing case is shrunk to.

use std::collections::BTreeSet;

use super::Case;

/// Blocks of quantized types and widths of kernels: a size that is a multiple of one may fail where its neighbours are refused.
const GRANULES: [usize; 2] = [32, 256];

/// The case with one of its sizes smaller: 1, a half, three quarters and so on up to one less, and these as multiples of
/// blocks. The smallest come first. Some may be refused by ggml-rs: that is seen when they run.
///
/// One less is always among them, so that every smaller form can be reached by steps.
pub(crate) fn smaller<C: Case + Clone + 'static>(
    case: &C,
    sizes: for<'a> fn(&'a mut C) -> Vec<&'a mut usize>,
) -> Vec<Box<dyn Case>> {
    let present: Vec<usize> = sizes(&mut case.clone()).iter().map(|size| **size).collect();
    let mut forms: Vec<Box<dyn Case>> = Vec::new();
    for (place, &size) in present.iter().enumerate() {
        for step in steps(size) {
            let mut form = case.clone();
            *sizes(&mut form)[place] = step;
            forms.push(Box::new(form));
        }
    }
    forms
}

fn steps(size: usize) -> BTreeSet<usize> {
    let shares =
        std::iter::successors(Some(size), |rest| Some(rest / 2)).take_while(|&rest| rest > 0);
    let steps = shares.skip(1).map(|rest| size - rest).chain([1, size / 2]);
    steps
        .flat_map(|step| {
            GRANULES
                .map(|granule| step / granule * granule)
                .into_iter()
                .chain([step])
        })
        .chain([size.saturating_sub(1)])
        .filter(|&step| (1..size).contains(&step))
        .collect()
}

/// A case by its string: one of these, or a smaller form of one.
pub(crate) fn find<'c>(
    cases: impl IntoIterator<Item = &'c dyn Case>,
    op: &str,
    params: &str,
) -> Option<Box<dyn Case>> {
    let wanted = Pattern::of(params);
    cases
        .into_iter()
        .filter(|case| case.op() == op && wanted.may_be_smaller(&case.params()))
        .find_map(|case| descend(case, params, &wanted))
}

/// Goes down from a case by the largest steps that do not lead past the wanted sizes.
fn descend(case: &dyn Case, params: &str, wanted: &Pattern) -> Option<Box<dyn Case>> {
    let below = |case: &dyn Case| {
        let mut forms = case.smaller().into_iter();
        forms.find(|form| wanted.may_be_smaller(&form.params()))
    };
    let mut form = below(case)?;
    while form.params() != params {
        form = below(&*form)?;
    }
    Some(form)
}

/// A parameter list as sizes and the text between them.
struct Pattern {
    text: String,
    sizes: Vec<usize>,
}

impl Pattern {
    fn of(params: &str) -> Self {
        let mut pattern = Self {
            text: String::new(),
            sizes: Vec::new(),
        };
        // A size stands alone between these: not in `q4_0`, nor in `0.500000`.
        for part in params.split_inclusive(['=', ',', '[', ']']) {
            let word = part.trim_end_matches(['=', ',', '[', ']']);
            match word.parse() {
                Ok(size) => {
                    pattern.sizes.push(size);
                    pattern.text.push_str(&part[word.len()..]);
                }
                Err(_) => pattern.text.push_str(part),
            }
        }
        pattern
    }

    /// Whether sizes are all that differs, and none is larger than that of `params`.
    fn may_be_smaller(&self, params: &str) -> bool {
        let other = Self::of(params);
        self.text == other.text
            && self.sizes.len() == other.sizes.len()
            && self
                .sizes
                .iter()
                .zip(&other.sizes)
                .all(|(own, other)| own <= other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Set;

    #[test]
    fn steps_lead_from_one_to_one_less() {
        let all = |size| steps(size).into_iter().collect::<Vec<_>>();
        assert_eq!(all(1), Vec::<usize>::new());
        assert_eq!(all(2), [1]);
        assert_eq!(all(10), [1, 5, 8, 9]);
        assert!(
            all(768).contains(&512) && all(768).contains(&767),
            "{:?}",
            all(768)
        );
    }

    /// `find` relies on it: a size that a case string leaves out at its default cannot be among them.
    #[test]
    fn every_smaller_form_has_smaller_sizes_and_nothing_else() {
        let mut wrong = BTreeSet::new();
        // Not all of them: there are thousands, with dozens of forms each.
        for case in Set::Quick.cases() {
            for form in case.smaller() {
                let wanted = Pattern::of(&form.params());
                let is_smaller = wanted.may_be_smaller(&case.params());
                if !is_smaller || form.name() == case.name() {
                    wrong.insert(format!("{} of {}", form.name(), case.name()));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_form_between_two_steps_is_found_by_its_string() {
        let cases = Set::Upstream.cases();
        let params =
            "type_a=q4_K,type_b=f32,m=11,n=13,k=256,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1";
        let found = find(cases.iter().map(|case| &**case), "MUL_MAT", params);
        assert_eq!(found.map(|case| case.params()).as_deref(), Some(params));
        let larger = params.replace("m=11", "m=1000000");
        assert!(find(cases.iter().map(|case| &**case), "MUL_MAT", &larger).is_none());
    }
}

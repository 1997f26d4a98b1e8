//! Which cases a run is about, and whether what is asked of them applies.

use std::collections::{BTreeSet, HashMap};

use regex::Regex;

use super::Error;
use super::filter::OpFilter;
use super::test_file::Named;
use crate::case::{Case, find_smaller};
use crate::cases::Set;
use crate::cli::{RouteArg, StagingArg};

/// What case strings select that are the name of no case.
#[derive(Default)]
struct Inexact<'f> {
    /// Smaller forms of cases that have the name.
    smaller: Vec<Box<dyn Case>>,
    /// The other strings, as op and parameters: cases with all of their fields.
    fields: Vec<(&'f str, &'f str)>,
}

/// Which cases to run.
pub struct CaseFilter {
    /// The list to choose from.
    pub set: Set,
    /// `-o`.
    pub ops: OpFilter,
    /// `-p`.
    pub params: Option<Regex>,
    /// The content of `--test-file`: of the set, only what it names, in its order.
    pub named: Option<Vec<Named>>,
}

impl CaseFilter {
    /// The cases selected, in the set's order. A case string names the case that it is the whole name of, else the smaller form of one,
    /// else the cases that have all of its fields.
    ///
    /// # Errors
    /// When there are none.
    pub fn select(&self) -> Result<Vec<Box<dyn Case>>, Error> {
        let mut cases = self.set.cases();
        if let Some(named) = &self.named {
            cases = self.named_cases(cases, named)?;
        }
        self.check_ops(&cases)?;
        let Inexact { smaller, fields } = self.inexact(&cases);
        cases.retain(|case| {
            let (op, params) = (case.op(), case.params());
            self.ops.matches(op, &params) || OpFilter::fields_match(&fields, op, &params)
        });
        cases.extend(smaller);
        let candidates = cases.len();
        if let Some(params) = &self.params {
            cases.retain(|case| params.is_match(&case.params()));
        }
        if cases.is_empty() {
            Err(self.no_case(candidates))
        } else {
            Ok(cases)
        }
    }

    /// The case strings of `-o` that are the name of no case in the list.
    fn inexact(&self, cases: &[Box<dyn Case>]) -> Inexact<'_> {
        let mut inexact = Inexact::default();
        for (op, params) in self.ops.case_strings() {
            let mut all = cases.iter().map(|case| &**case);
            if all.any(|case| case.op() == op && case.params() == params) {
                continue;
            }
            match find_smaller(cases.iter().map(|case| &**case), op, params) {
                Some(form) => inexact.smaller.push(form),
                None => inexact.fields.push((op, params)),
            }
        }
        inexact
    }

    fn named_cases(
        &self,
        cases: Vec<Box<dyn Case>>,
        named: &[Named],
    ) -> Result<Vec<Box<dyn Case>>, Error> {
        let places: HashMap<String, usize> = (cases.iter().enumerate())
            .map(|(place, case)| (case.name(), place))
            .collect();
        let mut cases: Vec<_> = cases.into_iter().map(Some).collect();
        let mut selected = Vec::new();
        for line in named {
            let name = format!("{}({})", line.op, line.params);
            let whole = places.get(&name).copied();
            // A line that stands twice runs once.
            let case = match whole {
                Some(place) => cases[place].take(),
                None => {
                    let all = cases.iter().flatten().map(|case| &**case);
                    let form = find_smaller(all, &line.op, &line.params);
                    Some(form.ok_or_else(|| Error::UnknownCase {
                        line: line.line,
                        set: self.set.to_string(),
                        name,
                    })?)
                }
            };
            selected.extend(case);
        }
        Ok(selected)
    }

    fn check_ops(&self, cases: &[Box<dyn Case>]) -> Result<(), Error> {
        let known: BTreeSet<_> = cases.iter().map(|case| case.op()).collect();
        match self.ops.ops().find(|op| !known.contains(op)) {
            None => Ok(()),
            Some(op) => Err(Error::UnknownOp {
                op: op.to_owned(),
                set: self.set.to_string(),
                known: known.into_iter().collect(),
            }),
        }
    }

    fn no_case(&self, candidates: usize) -> Error {
        let filters = match (&self.params, &self.named) {
            (Some(params), _) => format!("-p \"{params}\""),
            (None, Some(named)) if named.is_empty() => "--test-file, which names none".to_owned(),
            (None, _) => "the case string given to -o, nor has its fields".to_owned(),
        };
        Error::NoCase {
            set: self.set.to_string(),
            filters,
            candidates,
        }
    }
}

/// Refuses a route that no selected case takes.
///
/// # Errors
/// When no selected case is of an op that has the route, or a staging that it does not have is asked for.
pub fn route_applies(
    route: Option<RouteArg>,
    staging: Option<StagingArg>,
    cases: &[Box<dyn Case>],
) -> Result<(), Error> {
    let ops = match route {
        None => return Ok(()),
        Some(RouteArg::Auto) => "MUL_MAT,OUT_PROD",
        Some(RouteArg::MatVec) => "MUL_MAT",
        Some(RouteArg::Direct) => "OUT_PROD",
    };
    if !cases
        .iter()
        .any(|case| ops.split(',').any(|op| op == case.op()))
    {
        return Err(Error::NoRoute { ops });
    }
    match (route, staging) {
        (Some(RouteArg::Direct), Some(StagingArg::Half)) => Err(Error::DirectIsFloat),
        _ => Ok(()),
    }
}

/// Refuses a staging that no selected case has, one of one operand alone where an op with a staging does not have it, and any
/// where a case runs in all.
///
/// # Errors
/// When no selected case is a product, one has only stagings of both operands, or one is a study of them.
pub fn staging_applies(staging: Option<StagingArg>, cases: &[Box<dyn Case>]) -> Result<(), Error> {
    let is_product = |op| matches!(op, "MUL_MAT" | "MUL_MAT_ID" | "OUT_PROD");
    if staging.is_some() && !cases.iter().any(|case| is_product(case.op())) {
        return Err(Error::NoProduct);
    }
    let one_operand = matches!(
        staging,
        Some(StagingArg::FloatWeights | StagingArg::FloatActivations)
    );
    if let (Some(_), Some(case)) = (staging, cases.iter().find(|case| case.study().is_some())) {
        return Err(Error::EveryStaging { op: case.op() });
    }
    let whole = cases
        .iter()
        .map(|case| case.op())
        .find(|op| matches!(*op, "MUL_MAT" | "OUT_PROD"));
    match whole {
        Some(op) if one_operand => Err(Error::NoStaging { op }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::filter::{params_regex, split_case};

    fn filter(set: Set, ops: &str, params: Option<&str>) -> CaseFilter {
        CaseFilter {
            set,
            ops: OpFilter::parse(ops).expect("a valid -o"),
            params: params.map(|p| params_regex(p).expect("a valid -p")),
            named: None,
        }
    }

    #[test]
    fn a_route_is_refused_where_nothing_has_it() {
        let cases = |ops| {
            let selected = filter(Set::Quick, ops, None).select();
            selected.expect("the op has cases")
        };
        let refused = |route, staging, ops| {
            let verdict = route_applies(Some(route), staging, &cases(ops));
            verdict.err().map(|error| error.to_string())
        };
        for (route, has, lacks) in [
            (RouteArg::MatVec, "MUL_MAT", "OUT_PROD"),
            (RouteArg::Direct, "OUT_PROD", "MUL_MAT"),
        ] {
            assert_eq!(refused(route, None, has), None);
            let why = refused(route, None, lacks).expect("refused");
            assert!(why.contains(&format!("-o {has}")), "{why}");
        }
        assert_eq!(refused(RouteArg::Auto, None, "OUT_PROD"), None);
        let half = Some(StagingArg::Half);
        assert_eq!(refused(RouteArg::MatVec, half, "MUL_MAT"), None);
        let why = refused(RouteArg::Direct, half, "OUT_PROD").expect("refused");
        assert!(why.contains("stages in float"), "{why}");
    }

    fn message(filter: &CaseFilter) -> String {
        filter
            .select()
            .err()
            .expect("nothing is selected")
            .to_string()
    }

    #[test]
    fn a_case_string_selects_that_case() {
        let name = "OUT_PROD(type_a=f32,type_b=f32,m=32,n=32,k=32,bs=[1,1],nr=[1,1],trans_b=0)";
        let cases = filter(Set::Gate, name, None)
            .select()
            .expect("the gate has it");
        assert_eq!(
            cases.iter().map(|case| case.name()).collect::<Vec<_>>(),
            [name]
        );
    }

    #[test]
    fn a_case_string_without_newer_fields_finds_its_case() {
        let names = |given| {
            let cases = filter(Set::Gate, given, None).select();
            let cases = cases.expect("the gate has some");
            cases.iter().map(|case| case.name()).collect::<Vec<_>>()
        };
        let older = names("OUT_PROD(type_a=f32,type_b=f32,m=32,n=32,k=32,bs=[1,1])");
        let whole = "OUT_PROD(type_a=f32,type_b=f32,m=32,n=32,k=32,bs=[1,1],nr=[1,1],trans_b=0)";
        assert_eq!(older, [whole]);
        assert_eq!(names("OUT_PROD(trans_b=0,m=32)"), [whole]);
        let ranged = names("OUT_PROD(n=64,type_a=q8_0)");
        assert_eq!(ranged.len(), 2, "{ranged:?}");
        // A whole name selects no case that has more fields than it.
        let plain = &names("OUT_PROD(type_a=f32,m=256,n=16)")[0];
        assert_eq!(names(plain), std::slice::from_ref(plain));
    }

    #[test]
    fn a_smaller_form_of_a_case_is_one_too() {
        let name = "OUT_PROD(type_a=f32,type_b=f32,m=7,n=31,k=2,bs=[1,1],nr=[1,1],trans_b=0)";
        let cases = filter(Set::Gate, name, None)
            .select()
            .expect("smaller than 32x32x32");
        assert_eq!(
            cases.iter().map(|case| case.name()).collect::<Vec<_>>(),
            [name]
        );
    }

    #[test]
    fn a_file_names_cases_in_its_own_order() {
        let gate = Set::Gate.cases();
        let named = |line, case: &str| {
            let (op, params) = split_case(case).expect("a case string");
            let (op, params) = (op.to_owned(), params.to_owned());
            Named { line, op, params }
        };
        let smaller = gate[0].smaller()[0].name();
        let names = [gate[2].name(), smaller, gate[0].name(), gate[2].name()];
        let lines: Vec<_> = names.iter().map(|name| named(1, name)).collect();
        let mut all = filter(Set::Gate, "OUT_PROD", None);
        all.named = Some(lines);
        let selected = all.select().expect("they exist");
        let selected: Vec<_> = selected.iter().map(|case| case.name()).collect();
        assert_eq!(selected, names[..3], "a line that stands twice runs once");
        all.named = Some(vec![named(9, "OUT_PROD(m=1)")]);
        let text = message(&all);
        assert!(
            text.contains("line 9") && text.contains("OUT_PROD(m=1)"),
            "{text}"
        );
    }

    #[test]
    fn params_filter_within_the_ops() {
        let cases = filter(Set::Gate, "OUT_PROD", Some("b_range"))
            .select()
            .expect("four of them");
        assert_eq!(cases.len(), 4);
    }

    #[test]
    fn an_unknown_op_lists_those_with_cases() {
        let text = message(&filter(Set::Gate, "OUT_PORD", None));
        assert_eq!(
            text,
            "-o: no cases for operation \"OUT_PORD\" in set gate; operations with cases: OUT_PROD"
        );
    }

    #[test]
    fn an_empty_selection_says_what_emptied_it() {
        let text = message(&filter(Set::Gate, "OUT_PROD", Some("m=99999")));
        assert!(
            text.contains("-p \"m=99999\"") && text.contains("37 cases"),
            "{text}"
        );
        let text = message(&filter(Set::Gate, "OUT_PROD(m=1)", None));
        assert!(text.contains("the case string given to -o"), "{text}");
    }
}

//! Lists of names in errors.

/// How many names an error lists.
const MOST: usize = 16;

/// Names for an error: each in quotes, not more than a reader looks through, and words where there are none.
pub(crate) fn some<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let mut listed: Vec<String> = names.iter().take(MOST).map(|n| format!("`{n}`")).collect();
    match names.len().checked_sub(MOST) {
        Some(more) if more > 0 => listed.push(format!("and {more} more")),
        _ if names.is_empty() => return "none".to_owned(),
        _ => {}
    }
    listed.join(", ")
}

#[cfg(test)]
mod tests {
    use super::some;

    #[test]
    fn names_are_quoted_and_bounded() {
        assert_eq!(some(["w", "b"].into_iter()), "`w`, `b`");
        assert_eq!(some([].into_iter()), "none");
        let many = some(std::iter::repeat_n("w", 18));
        assert!(many.ends_with("`w`, and 2 more"), "{many}");
    }
}

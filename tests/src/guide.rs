//! The pages of docs/guide, whose blocks of Rust are run as doctests of this package, as they are and as they were.

/// One item for each page: a macro, so that a page is one line.
macro_rules! pages {
    ($($page:ident: $file:literal),* $(,)?) => {
        $(
            #[doc = include_str!(concat!("../../docs/guide/", $file))]
            #[allow(dead_code, reason = "only its documentation is of use")]
            struct $page;
        )*
    };
}

pages! {
    FirstGraph: "first-graph.md",
    Training: "training.md",
    Devices: "devices.md",
    Precision: "precision.md",
    Files: "files.md",
    CustomOps: "custom-ops.md",
    Porting: "porting.md",
}

/// The first program.
#[doc = include_str!("../../README.md")]
#[allow(dead_code, reason = "only its documentation is of use")]
struct Readme;

/// Programs written before public names changed, against the aliases that keep them.
#[doc = include_str!("../older/guide.md")]
#[allow(dead_code, reason = "only its documentation is of use")]
struct Older;

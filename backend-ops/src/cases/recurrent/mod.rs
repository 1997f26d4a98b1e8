//! State space models, linear attention and other recurrences.

mod dsv4_hc;
pub(crate) mod gated_delta_net;
mod linear;
pub(crate) mod ssm_conv;
pub(crate) mod ssm_scan;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(ssm_conv::cases())
        .chain(boxed(ssm_conv::fused_cases()))
        .chain(boxed(ssm_scan::cases()))
        .chain(boxed(linear::cases()))
        .chain(boxed(gated_delta_net::cases()))
        .chain(boxed(dsv4_hc::comb_cases()))
        .chain(boxed(dsv4_hc::pre_cases()))
        .chain(boxed(dsv4_hc::post_cases()))
        .collect()
}

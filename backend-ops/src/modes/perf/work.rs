//! What a simulated device did for a case, its product apart from the rest.

use ggml_rs::sim::Counters;
use ggml_rs::trace::Dispatch;

/// What every matrix product is named after, and OUT_PROD's direct kernel.
const PRODUCTS: [&str; 2] = ["kernel_mul_m", "kernel_out_prod_"];

/// The product of an op, and what it does besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The product's pipeline, without its function constants.
    pub pipeline: String,
    /// Threadgroup memory of one threadgroup of the product.
    pub threadgroup_bytes: usize,
    /// Dispatches of the product.
    pub products: u64,
    /// Other dispatches: copies into temporaries, and sums of blocks.
    pub others: u64,
    /// Threadgroups of both, where they can be told apart.
    pub threadgroups: Option<[u64; 2]>,
}

/// Tells the product from the rest; `None` where there is none.
///
/// Counters know no kernels, but only the product asks for threadgroup memory, so the sum of that memory counts its
/// threadgroups. Memory stays with an encoder, though: what is dispatched after a product has it too. So threadgroups are told
/// apart only where a single product comes last, which is an OUT_PROD in one block.
#[must_use]
pub fn split(counters: &Counters, dispatches: &[Dispatch]) -> Option<Split> {
    let product = dispatches.iter().find(|dispatch| is_product(dispatch))?;
    let products = dispatches.iter().filter(|it| is_product(it)).count();
    let last = products == 1 && dispatches.last() == Some(product);
    let alone = dispatches
        .iter()
        .filter(|dispatch| dispatch.threadgroup_bytes > 0)
        .count()
        == 1;
    let bytes = product.threadgroup_bytes as u64;
    let threadgroups = (last && alone && counters.threadgroup_bytes.is_multiple_of(bytes))
        .then(|| counters.threadgroup_bytes / bytes)
        .and_then(|own| Some([own, counters.threadgroups.checked_sub(own)?]));
    Some(Split {
        pipeline: short(&product.pipeline).to_owned(),
        threadgroup_bytes: product.threadgroup_bytes,
        products: products as u64,
        others: (dispatches.len() - products) as u64,
        threadgroups,
    })
}

/// Whether a matrix product was dispatched.
#[must_use]
pub fn is_product(dispatch: &Dispatch) -> bool {
    PRODUCTS
        .iter()
        .any(|prefix| dispatch.pipeline.starts_with(prefix))
}

/// A pipeline's name without its function constants.
#[must_use]
pub fn short(pipeline: &str) -> &str {
    let constants = ["_bci=", "_checked="];
    let ends = constants.iter().filter_map(|name| pipeline.find(name));
    &pipeline[..ends.min().unwrap_or(pipeline.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(pipeline: &str, threadgroup_bytes: usize) -> Dispatch {
        Dispatch {
            pipeline: pipeline.into(),
            threadgroup_bytes,
        }
    }

    #[test]
    fn threadgroup_memory_tells_the_product_from_the_copies() {
        let counters = Counters {
            threadgroups: 40,
            threadgroup_bytes: 8 * 12288,
            ..Counters::default()
        };
        let product = dispatch("kernel_mul_mm_f32_f32_fp32_bci=0_bco=0", 12288);
        let copy = dispatch("kernel_cpy_f32_f32", 0);
        let split = split(&counters, &[copy.clone(), copy, product]).expect("a product");
        assert_eq!(split.pipeline, "kernel_mul_mm_f32_f32_fp32");
        assert_eq!((split.products, split.others), (1, 2));
        assert_eq!(split.threadgroups, Some([8, 32]));
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_guessed() {
        let counters = Counters {
            threadgroups: 4,
            threadgroup_bytes: 4 * 512,
            ..Counters::default()
        };
        let product = || dispatch("kernel_mul_mm_f32_f32", 512);
        let threadgroups = |dispatches: &[Dispatch]| {
            split(&counters, dispatches).and_then(|split| split.threadgroups)
        };
        assert_eq!(split(&counters, &[]), None);
        assert_eq!(threadgroups(&[product()]), Some([4, 0]));
        // A second block, a kernel with memory of its own, a kernel that keeps the product's.
        let copy = || dispatch("kernel_cpy_f32_f32", 0);
        assert_eq!(threadgroups(&[product(), copy(), product()]), None);
        assert_eq!(
            threadgroups(&[dispatch("kernel_soft_max", 128), product()]),
            None
        );
        assert_eq!(threadgroups(&[product(), copy()]), None);
        assert_eq!(
            threadgroups(&[dispatch("kernel_mul_mm_f32_f32", 1000)]),
            None
        );
        assert_eq!(threadgroups(&[dispatch("kernel_mul_mv_f32_f32", 0)]), None);
    }
}

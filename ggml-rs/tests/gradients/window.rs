//! Parts of tensors: ACC, SET, CONCAT, PAD, patches and pooling.

use ggml_rs::check::Data;
use ggml_rs::{Result, Tensor};

use super::Case;

type Region = for<'g> fn(Tensor<'g>, Tensor<'g>, [usize; 3], usize) -> Result<Tensor<'g>>;

fn regions(name: &'static str, op: Region) -> Vec<Case> {
    vec![
        Case::new(name, "rows", move |t| {
            let (a, b) = (
                t.trained([4, 6], Data::unit())?,
                t.trained([4, 2], Data::unit())?,
            );
            let [_, nb1, nb2, nb3] = a.strides();
            op(a.mul(a)?, b.mul(b)?, [nb1, nb2, nb3], 3 * nb1)
        }),
        Case::new(name, "a block, strided", move |t| {
            let a = t.trained([6, 4, 3], Data::unit())?;
            let b = t.trained([3, 2, 2], Data::unit())?;
            let [_, nb1, nb2, nb3] = a.strides();
            op(a.mul(a)?, b, [2 * nb1, nb2, nb3], nb2 + 8)
        }),
        Case::new(name, "the first operand is used again", move |t| {
            let (a, b) = (
                t.trained([4, 3], Data::unit())?,
                t.trained([2, 1], Data::unit())?,
            );
            let [_, nb1, nb2, nb3] = a.strides();
            op(a, b, [nb1, nb2, nb3], nb1 + 4)?.mul(a)
        }),
    ]
}

fn concat() -> Vec<Case> {
    let along = |dim: usize| {
        Case::new("CONCAT", format!("along {dim}"), move |t| {
            let mut ne = [3, 4, 2, 2];
            let a = t.trained(ne, Data::unit())?;
            ne[dim] = 5;
            a.concat(t.trained(ne, Data::unit())?, dim)
        })
    };
    let mut cases: Vec<_> = (0..4).map(along).collect();
    cases.push(Case::new("CONCAT", "with itself", |t| {
        let a = t.trained([3, 4], Data::unit())?;
        a.mul(a)?.concat(a, 1)
    }));
    cases
}

fn pads() -> Vec<Case> {
    vec![
        Case::new("PAD", "behind", |t| {
            let a = t.trained([3, 2, 2], Data::unit())?;
            a.mul(a)?.pad([2, 1, 0, 1])
        }),
        Case::new("PAD", "on both sides", |t| {
            let a = t.trained([3, 2, 2, 2], Data::unit())?;
            a.pad_ext([1, 0, 2, 1], [2, 3, 0, 1])
        }),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut cases = regions("ACC", |a, b, nb, at| a.acc(b, nb, at));
    cases.extend(regions("SET", |a, b, nb, at| a.set(b, nb, at)));
    cases.extend(concat());
    cases.extend(pads());
    cases
}

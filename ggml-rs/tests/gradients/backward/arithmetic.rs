//! Arithmetic with repeated operands, reductions, products with shared matrices.

use ggml_rs::DType::F32;

use super::slopes::{POSITIVE, Values, WIDE, check};

#[test]
fn arithmetic_with_a_repeated_operand() {
    for b in [&[4, 3, 2][..], &[4], &[1, 3], &[2, 1, 2], &[1]] {
        let a = &[4, 3, 2][..];
        check(&format!("add {b:?}"), &[a, b], WIDE, &|_, p, _| {
            p[0].add(p[1])
        });
        check(&format!("sub {b:?}"), &[a, b], WIDE, &|_, p, _| {
            p[0].sub(p[1])
        });
        check(&format!("mul {b:?}"), &[a, b], WIDE, &|_, p, _| {
            p[0].mul(p[1])
        });
        check(&format!("div {b:?}"), &[a, b], POSITIVE, &|_, p, _| {
            p[0].div(p[1])
        });
    }
    check("one tensor twice", &[&[3, 2]], POSITIVE, &|_, p, _| {
        p[0].mul(p[0])?.div(p[0].scale(2.0)?)?.sub(p[0])
    });
}

#[test]
fn add1_adds_its_gradient_up() {
    check("add1", &[&[4, 3], &[1]], WIDE, &|_, p, _| p[0].add1(p[1]));
}

#[test]
fn means_of_several_rows() {
    check("mean_rows", &[&[4, 3, 2]], WIDE, &|_, p, _| {
        p[0].mul(p[0])?.mean_rows()
    });
    check(
        "mean_rows, one of two uses",
        &[&[4, 3]],
        WIDE,
        &|_, p, _| p[0].mul(p[0])?.sub(p[0].mean_rows()?),
    );
    check("mean", &[&[4, 3]], WIDE, &|_, p, _| p[0].mul(p[0])?.mean());
}

#[test]
fn sums_and_repeats() {
    check("sum_rows", &[&[4, 3, 2]], WIDE, &|_, p, _| {
        p[0].mul(p[0])?.sum_rows()
    });
    check("sum", &[&[4, 3]], WIDE, &|_, p, _| p[0].mul(p[0])?.sum());
    check("sum, one of two uses", &[&[4, 3]], WIDE, &|_, p, _| {
        p[0].mul(p[0].sum()?)
    });
    check("repeat", &[&[2, 1, 3]], WIDE, &|_, p, _| {
        p[0].repeat([4, 5, 3, 2])
    });
    check("repeat_back", &[&[4, 6]], WIDE, &|g, p, _| {
        p[0].mul(p[0])?.repeat_back(g.empty("like", F32, [2, 3])?)
    });
}

#[test]
fn products_with_shared_matrices() {
    for (a, b) in [
        (&[5, 4][..], &[5, 3][..]),
        (&[5, 4], &[5, 3, 2, 3]),
        (&[5, 4, 2], &[5, 3, 4, 3]),
        (&[5, 4, 2, 2], &[5, 3, 4, 4]),
        (&[5, 4, 1, 2], &[5, 3, 2, 4]),
        (&[5, 4, 3, 1], &[5, 3, 3, 2]),
    ] {
        check(
            &format!("mul_mat {a:?} {b:?}"),
            &[a, b],
            WIDE,
            &|_, p, _| p[0].mul_mat(p[1]),
        );
    }
}

#[test]
fn outer_products() {
    for (a, b) in [
        (&[5, 4][..], &[3, 4][..]),
        (&[5, 4, 2], &[3, 4, 4, 3]),
        (&[5, 4, 2, 2], &[3, 4, 2, 4]),
    ] {
        check(
            &format!("out_prod {a:?} {b:?}"),
            &[a, b],
            WIDE,
            &|_, p, _| p[0].out_prod(p[1]),
        );
    }
}

#[test]
fn parts_of_a_tensor() {
    check("set", &[&[4, 3], &[2, 2]], WIDE, &|_, p, _| {
        let [_, nb @ ..] = p[0].strides();
        p[0].mul(p[0])?.set(p[1], nb, 20)
    });
    check("acc", &[&[4, 3], &[2, 2]], WIDE, &|_, p, _| {
        let [_, nb @ ..] = p[0].strides();
        p[0].mul(p[0])?.acc(p[1], nb, 20)
    });
    for axis in 0..4 {
        let mut dims = [3, 2, 2, 2];
        dims[axis] = 1;
        check(
            &format!("concat along {axis}"),
            &[&[3, 2, 2, 2], &dims],
            WIDE,
            &|_, p, _| p[0].concat(p[1], axis),
        );
    }
    check("pad", &[&[3, 2, 1, 2]], WIDE, &|_, p, _| {
        p[0].mul(p[0])?.pad_ext([1, 0, 2, 1], [2, 1, 0, 1])
    });
}

#[test]
fn cross_entropy_with_any_labels() {
    check("cross entropy", &[&[5, 4]], WIDE, &|g, p, frozen| {
        let (labels, input) = g.input("labels", F32, [5, 4])?;
        // Rows that add up to something else than 1.
        let values = (0..20).map(|i| (i % 7) as f32 * 0.2).collect();
        frozen.push((input, Values::Floats(values)));
        p[0].scale(3.0)?.cross_entropy_loss(labels)
    });
}

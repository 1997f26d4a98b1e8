//! Gradients against central differences of the forward, where ggml's own backward is wrong, aborts or is missing, and the rules of
//! the API: what is refused, recomputing, optimizer steps.

mod common;

use common::values;
use ggml_rs::DType::F32;
use ggml_rs::{
    Builder, DType, Device, Error, Graph, Input, Output, Placement, Plan, PlanOptions, Result,
    Shape, Tensor,
};

/// One graph with its loss and the gradients of all parameters.
struct Run {
    plan: Plan,
    backend: ggml_rs::Backend,
    params: Vec<Input>,
    loss: Output,
    gradients: Vec<Output>,
}

/// `loss = sum(out * w)`, `w` fixed: every result counts, and none like another.
fn weighted<'g>(g: Builder<'g>, out: Tensor<'g>) -> Result<(Tensor<'g>, Input, Shape)> {
    let shape = out.shape();
    let (w, w_in) = g.input("weights of the loss", F32, shape)?;
    let out = if out.is_contiguous() {
        out
    } else {
        out.cont()?
    };
    Ok((out.mul(w)?.sum()?, w_in, shape))
}

impl Run {
    fn new(
        params: &[&[usize]],
        build: &dyn for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
    ) -> Result<Self> {
        let (graph, (inputs, w, shape, loss, gradients)) = Graph::build(|g| {
            let mut tensors = Vec::new();
            let mut inputs = Vec::new();
            for (i, dims) in params.iter().enumerate() {
                let (tensor, input) = g.input(&format!("p{i}"), F32, *dims)?;
                tensors.push(tensor.set_param()?);
                inputs.push(input);
            }
            let (loss, w, shape) = weighted(g, build(g, &tensors)?)?;
            let gradients = g.backward(loss)?;
            let mut outputs = Vec::new();
            for (i, &tensor) in tensors.iter().enumerate() {
                let gradient = gradients.of(tensor)?;
                assert_eq!(gradient.shape(), tensor.shape());
                assert_eq!(gradient.dtype(), F32);
                let gradient = gradient.cont()?;
                outputs.push(g.output(&format!("d{i}"), gradient)?);
            }
            Ok((inputs, w, shape, g.output("loss", loss)?, outputs))
        })?;
        let mut backend = Device::cpu()?.open()?;
        // Graphs are tiny and many: threads that wait for each other would take most of the time.
        backend.set_threads(1)?;
        let placement = Placement::Separate {
            sentinel_bytes: 256,
        };
        let mut plan = Plan::new(graph, &backend, PlanOptions { placement })?;
        plan.set_f32(&w, &values(shape.elements(), 77))?;
        Ok(Self {
            plan,
            backend,
            params: inputs,
            loss,
            gradients,
        })
    }

    fn loss(&mut self, i: usize, values: &[f32]) -> f64 {
        self.plan.set_f32(&self.params[i], values).unwrap();
        self.plan.run(&mut self.backend).unwrap();
        f64::from(self.plan.read_f32(&self.loss).unwrap()[0])
    }
}

/// Compares all gradients with differences of the loss: Richardson's of steps `h` and `h / 2`, whose error is of the order of h⁴.
/// Rounding leaves about 1e-7 of the loss over `h`; the tolerance is 2e-3 of the largest gradient.
fn check(
    what: &str,
    params: &[&[usize]],
    range: (f32, f32),
    build: &dyn for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) {
    let mut run = Run::new(params, build).unwrap_or_else(|error| panic!("{what}: {error}"));
    let start: Vec<Vec<f32>> = params
        .iter()
        .enumerate()
        .map(|(i, dims)| {
            let values = values(dims.iter().product(), 11 + i as u64).into_iter();
            let (low, high) = range;
            values
                .map(|x| low + (high - low) * (x + 1.0) / 2.0)
                .collect()
        })
        .collect();
    for (i, values) in start.iter().enumerate() {
        run.plan.set_f32(&run.params[i], values).unwrap();
    }
    run.plan.run(&mut run.backend).unwrap();
    let found: Vec<Vec<f32>> = run
        .gradients
        .iter()
        .map(|d| run.plan.read_f32(d).unwrap())
        .collect();
    run.plan.check_sentinels().unwrap();
    for (i, values) in start.iter().enumerate() {
        let expected: Vec<f64> = (0..values.len())
            .map(|k| slope(&mut run, i, values, k))
            .collect();
        run.loss(i, values);
        let scale = expected.iter().fold(1e-3_f64, |m, e| m.max(e.abs()));
        for (k, (&found, &expected)) in found[i].iter().zip(&expected).enumerate() {
            assert!(
                (f64::from(found) - expected).abs() <= 2e-3 * scale,
                "{what}: parameter {i}, element {k}: {found}, not {expected} (scale {scale})"
            );
        }
    }
}

fn slope(run: &mut Run, i: usize, values: &[f32], k: usize) -> f64 {
    let mut difference = |h: f32| {
        let mut moved = values.to_vec();
        moved[k] = values[k] + h;
        let (up, above) = (moved[k], run.loss(i, &moved));
        moved[k] = values[k] - h;
        (above - run.loss(i, &moved)) / f64::from(up - moved[k])
    };
    const H: f32 = 1.0 / 32.0;
    let (coarse, fine) = (difference(H), difference(H / 2.0));
    (4.0 * fine - coarse) / 3.0
}

const WIDE: (f32, f32) = (-1.0, 1.0);
const POSITIVE: (f32, f32) = (0.5, 1.5);

#[test]
fn arithmetic_with_a_repeated_operand() {
    for b in [&[4, 3, 2][..], &[4], &[1, 3], &[2, 1, 2], &[1]] {
        let what = format!("{b:?}");
        check(&format!("add {what}"), &[&[4, 3, 2], b], WIDE, &|_, p| {
            p[0].add(p[1])
        });
        check(&format!("sub {what}"), &[&[4, 3, 2], b], WIDE, &|_, p| {
            p[0].sub(p[1])
        });
        check(&format!("mul {what}"), &[&[4, 3, 2], b], WIDE, &|_, p| {
            p[0].mul(p[1])
        });
        check(
            &format!("div {what}"),
            &[&[4, 3, 2], b],
            POSITIVE,
            &|_, p| p[0].div(p[1]),
        );
    }
    check("one tensor twice", &[&[3, 2]], POSITIVE, &|_, p| {
        p[0].mul(p[0])?.div(p[0].scale(2.0)?)?.sub(p[0])
    });
}

#[test]
fn reductions_and_repeats() {
    check("mean of rows", &[&[4, 3, 2]], WIDE, &|_, p| {
        p[0].mul(p[0])?.mean_rows()
    });
    check("mean of rows, added to", &[&[4, 3]], WIDE, &|_, p| {
        p[0].mul(p[0])?.sub(p[0].mean_rows()?)
    });
    check("mean", &[&[4, 3]], WIDE, &|_, p| p[0].mul(p[0])?.mean());
    check("sum of rows", &[&[4, 3, 2]], WIDE, &|_, p| {
        p[0].mul(p[0])?.sum_rows()
    });
    check("sum", &[&[4, 3]], WIDE, &|_, p| p[0].mul(p[0])?.sum());
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
        check(&format!("mul_mat {a:?} {b:?}"), &[a, b], WIDE, &|_, p| {
            p[0].mul_mat(p[1])
        });
    }
    for (a, b) in [
        (&[5, 4][..], &[3, 4][..]),
        (&[5, 4, 2], &[3, 4, 4, 3]),
        (&[5, 4, 2, 2], &[3, 4, 2, 4]),
    ] {
        check(&format!("out_prod {a:?} {b:?}"), &[a, b], WIDE, &|_, p| {
            p[0].out_prod(p[1])
        });
    }
}

//! Builds, plans and runs one node with a request, and compares it with f64.

use std::collections::HashMap;
use std::rc::Rc;
use std::thread;

use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::{
    Backend, BackwardOptions, Builder, DType, Device, DeviceKind, Error, FlashAttn, Graph, Input,
    Output, Plan, PlanOptions, Result, Tensor,
};

use super::inputs::{Data, Kind};
use super::requests::{Check, Op, Request, checks, requests};
use super::table::{Row, Table, Verdict};

/// A multiple of every block.
const K: usize = 256;
const M: usize = 8;
const EXPERTS: usize = 4;
const USED: usize = 2;
/// Sizes that lead to different kernels: one row, a few, a batch of halves, a batch of floats.
const ROWS: [usize; 4] = [1, 5, 12, 40];

const ACTIVATIONS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// One node: its op, its types, and its number of rows, tokens or queries.
#[derive(Clone, Copy, Debug)]
struct Node {
    op: Op,
    a: DType,
    b: DType,
    rows: usize,
}

/// A device that is asked, and what it was asked with: quantizing and summing in f64 take longer than the device.
struct Bench {
    device: Device,
    backend: Backend,
    data: HashMap<String, Option<Rc<Data>>>,
    expected: HashMap<String, Rc<Vec<f64>>>,
    faults: Vec<String>,
}

/// Asks a device for every request, and notes what it did; what it took and did not keep is a fault. Ops are asked side by side.
pub fn device(device: Device, column: &'static str, seen: &mut Table, faults: &mut Vec<String>) {
    let ops = [
        Op::MulMat,
        Op::Hadamard,
        Op::MulMatId,
        Op::OutProd,
        Op::Flash,
        Op::Backward,
    ];
    let parts = ops
        .into_iter()
        .flat_map(|op| activations(op).iter().map(move |&b| (op, b)));
    thread::scope(|scope| {
        let started: Vec<_> = parts
            .map(|(op, b)| scope.spawn(move || part(device, column, op, b)))
            .collect();
        for part in started {
            let (table, found) = part.join().unwrap();
            seen.append(table);
            faults.extend(found);
        }
    });
}

/// One op with one type of activations.
fn part(device: Device, column: &'static str, op: Op, b: DType) -> (Table, Vec<String>) {
    let mut backend = device.open().unwrap();
    if device.kind() == DeviceKind::Cpu {
        // Such small nodes: threads would wait for each other.
        backend.set_threads(1).unwrap();
    }
    let mut seen = Table::default();
    let mut bench = Bench {
        device,
        backend,
        data: HashMap::new(),
        expected: HashMap::new(),
        faults: Vec::new(),
    };
    for a in weights(op) {
        // V is of the type of K.
        let b = if op == Op::Flash { a } else { b };
        let nodes = sizes(op).iter().map(|&rows| Node { op, a, b, rows });
        let runs: Vec<_> = nodes.filter(|&node| bench.runs(node)).collect();
        for request in requests(op) {
            let mut verdict = Verdict::default();
            for &node in &runs {
                verdict.add(bench.keeps(node, request));
            }
            seen.add(Row::new(op, request, b), column, a, verdict);
        }
    }
    (seen, bench.faults)
}

const fn activations(op: Op) -> &'static [DType] {
    match op {
        Op::Hadamard => &[DType::F32, DType::F16],
        Op::Flash | Op::Backward => &[DType::F32],
        _ => &ACTIVATIONS,
    }
}

fn weights(op: Op) -> Vec<DType> {
    let takes = |dtype: &DType| {
        dtype.dequantizes() || matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
    };
    match op {
        Op::Hadamard => vec![DType::F32],
        _ => DType::ALL.into_iter().filter(takes).collect(),
    }
}

const fn sizes(op: Op) -> &'static [usize] {
    match op {
        Op::MulMat => &ROWS,
        Op::MulMatId => &[3, 40],
        Op::Flash => &[1, 70],
        _ => &[12, 40],
    }
}

impl Bench {
    /// Whether the device runs the node without a request.
    fn runs(&self, node: Node) -> bool {
        build(node, Request::None)
            .is_ok_and(|(graph, ..)| self.device.unsupported(&graph).is_empty())
    }

    /// Whether the device takes the request, which it then has to keep.
    fn keeps(&mut self, node: Node, request: Request) -> bool {
        let what = format!("{}: {node:?} with {}", self.device.name(), request.name());
        let (graph, ..) = build(node, request).unwrap_or_else(|error| panic!("{what}: {error}"));
        if let Some(refused) = self.device.unsupported(&graph).into_iter().next() {
            let text = refused.reason.as_str();
            if !text.contains(request.named_as()) || !names_a_way_out(node.op, text) {
                let fault = format!("{what}: a refusal without the request or a way out: {text}");
                self.faults.push(fault);
            }
            let error = Plan::new(graph, &self.backend, PlanOptions::default()).err();
            assert!(matches!(error, Some(Error::Unsupported(_))), "{what}");
            return false;
        }
        let metal = self.device.registry_name() == "MTL";
        for check in checks(node.op, request, node.b, metal) {
            if let Some(nmse) = self
                .error(node, request, check)
                .filter(|&nmse| nmse > check.limit)
            {
                self.faults
                    .push(format!("{what}: {check:?} gives an NMSE of {nmse:e}"));
            }
        }
        true
    }
}

fn names_a_way_out(op: Op, text: &str) -> bool {
    let ways = [
        "cast",
        "Metal",
        "ask for",
        "Scheduler",
        "leave",
        "set_staging",
        "cont()",
    ];
    // Tests of the support tables have the texts of flash attention.
    op == Op::Flash || ways.iter().any(|way| text.contains(way))
}

type Built = (Graph, [Option<Input>; 3], Output);

fn build(node: Node, request: Request) -> Result<Built> {
    let (graph, (inputs, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", node.a, shape_a(node))?;
        let (b, b_in) = g.input("b", node.b, shape_b(node))?;
        let mut inputs = [Some(a_in), Some(b_in), None];
        let y = match node.op {
            Op::MulMat => request.set(a.mul_mat(b)?)?,
            Op::Hadamard => request.set(a.mul_mat_hadamard(b)?)?,
            Op::OutProd => request.set(a.out_prod(b)?)?,
            Op::MulMatId => {
                let (ids, ids_in) = g.expert_ids("ids", USED, node.rows, EXPERTS)?;
                inputs[2] = Some(ids_in);
                request.set(a.mul_mat_id(b, ids)?)?
            }
            Op::Flash => {
                let (q, q_in) = g.input("q", DType::F32, [64, node.rows])?;
                inputs[2] = Some(q_in);
                let options = FlashAttn::new(1.0);
                let options = if request == Request::None {
                    options
                } else {
                    options.float()
                };
                q.flash_attn_ext(a, b, options)?
            }
            Op::Backward => gradient(g, a, b, node, request, &mut inputs)?,
        };
        Ok((inputs, g.output("y", y)?))
    })?;
    Ok((graph, inputs, y))
}

/// The gradient of activations `x` with frozen weights `a`, where `b` is the gradient of the product: `out_prod(a, bᵀ)`.
fn gradient<'g>(
    g: Builder<'g>,
    a: Tensor<'g>,
    b: Tensor<'g>,
    node: Node,
    request: Request,
    inputs: &mut [Option<Input>; 3],
) -> Result<Tensor<'g>> {
    let (x, x_in) = g.input("x", DType::F32, [K, node.rows])?;
    inputs[2] = Some(x_in);
    let x = x.set_param()?;
    let loss = a.mul_mat(x)?.mul(b)?.sum()?;
    let options = match request {
        Request::Staging(staging) => BackwardOptions::default().staging(staging),
        Request::Route(route) => BackwardOptions::default().route(route),
        _ => BackwardOptions::default(),
    };
    g.backward_with(loss, options)?.of(x)?.cont()
}

/// The shape of `a`: weights, or K.
fn shape_a(node: Node) -> [usize; 3] {
    match node.op {
        Op::MulMat | Op::Backward => [K, M, 1],
        Op::Hadamard => [64, 64, 1],
        Op::MulMatId => [K, M, EXPERTS],
        Op::OutProd => [K, node.rows, 1],
        Op::Flash => [64, KEYS, 1],
    }
}

/// Enough that a half cannot count them: above 2048 its steps are 2.
const KEYS: usize = 4096;

/// The shape of `b`: activations, a gradient, or V.
fn shape_b(node: Node) -> [usize; 3] {
    match node.op {
        Op::MulMat => [K, node.rows, 1],
        Op::Hadamard => [64, node.rows, 1],
        Op::MulMatId => [K, 1, node.rows],
        Op::OutProd => [M, node.rows, 1],
        Op::Flash => [64, KEYS, 1],
        Op::Backward => [M, node.rows, 1],
    }
}

impl Bench {
    fn data(&mut self, dtype: DType, kind: Kind, shape: [usize; 3], seed: u64) -> Option<Rc<Data>> {
        let key = format!("{dtype} {kind:?} {shape:?} {seed}");
        let [row, rows, matrices] = shape;
        let make = || Data::new(dtype, kind, row, rows * matrices, seed).map(Rc::new);
        self.data.entry(key).or_insert_with(make).clone()
    }

    /// The NMSE of a node that the device has taken. `None` where the types do not hold such operands.
    fn error(&mut self, node: Node, request: Request, check: Check) -> Option<f64> {
        let a = match node.op {
            Op::Hadamard => Rc::new(hadamard()),
            _ => self.data(node.a, check.a, shape_a(node), 1)?,
        };
        let b = self.data(node.b, check.b, shape_b(node), 2)?;
        let (graph, [a_in, b_in, third], y) = build(node, request).unwrap();
        let mut plan = Plan::new(graph, &self.backend, PlanOptions::default()).unwrap();
        plan.set_bytes(&a_in.unwrap(), &a.bytes).unwrap();
        plan.set_bytes(&b_in.unwrap(), &b.bytes).unwrap();
        let ids = ids(node.rows);
        match (node.op, third) {
            (Op::MulMatId, Some(input)) => plan.set_i32(&input, &ids).unwrap(),
            (Op::Flash, Some(input)) => plan.set_f32(&input, &vec![0.0; 64 * node.rows]).unwrap(),
            (Op::Backward, Some(input)) => plan.set_f32(&input, &vec![0.5; K * node.rows]).unwrap(),
            _ => {}
        }
        plan.run(&mut self.backend).unwrap();
        let key = format!("{node:?} {:?} {:?}", check.a, check.b);
        let right = || Rc::new(expected(node, &a.values, &b.values, &ids));
        let expected = self.expected.entry(key).or_insert_with(right).clone();
        let found = compare(&expected, &plan.read_f32(&y).unwrap()).unwrap();
        Some(match found.mismatch {
            Some(_) => f64::INFINITY,
            None => found.nmse,
        })
    }
}

/// Two experts for each token, in changing order.
fn ids(tokens: usize) -> Vec<i32> {
    let first = (0..tokens).map(|i| i * 5 / 3 % EXPERTS);
    first
        .flat_map(|e| [e as i32, ((e + 1) % EXPERTS) as i32])
        .collect()
}

fn expected(node: Node, a: &[f32], b: &[f32], ids: &[i32]) -> Vec<f64> {
    let ne = |[x, y, z]: [usize; 3]| [x, y, z, 1];
    let left = Values::contiguous(a, ne(shape_a(node))).unwrap();
    let right = Values::contiguous(b, ne(shape_b(node))).unwrap();
    match node.op {
        Op::MulMat | Op::Hadamard => reference::mul_mat(left, right).unwrap(),
        Op::MulMatId => reference::mul_mat_id(left, right, ids).unwrap(),
        Op::OutProd => reference::out_prod(left, right).unwrap(),
        Op::Backward => reference::out_prod(left, right.transposed()).unwrap(),
        // Queries of 0 match all keys alike: the mean of V.
        Op::Flash => {
            let sum = |i: usize| {
                b[i..]
                    .iter()
                    .step_by(64)
                    .map(|&v| f64::from(v))
                    .sum::<f64>()
            };
            let mean: Vec<f64> = (0..64).map(|i| sum(i) / KEYS as f64).collect();
            mean.repeat(node.rows)
        }
    }
}

/// The normalized Hadamard matrix of 64 rows.
fn hadamard() -> Data {
    let sign = |i: usize| match ((i % 64) & (i / 64)).count_ones() % 2 {
        0 => 0.125,
        _ => -0.125,
    };
    let values: Vec<f32> = (0..64 * 64).map(sign).collect();
    let bytes = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    Data { bytes, values }
}

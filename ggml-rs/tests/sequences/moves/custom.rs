//! Closures, some of which panic.

use std::panic::resume_unwind;

use ggml_rs::{CustomTask, DType, Result, Tasks, Tensor};

use crate::draw::Draw;
use crate::table::family;

/// What a closure panics with when it is meant to.
#[derive(Debug)]
pub struct Deliberate;

type Closure = Box<dyn Fn(&mut CustomTask<'_>) + Send + Sync>;

/// Reads every byte of the operands, and writes every byte of the part.
fn work(task: &mut CustomTask<'_>) {
    let mut sum = task.index() as u8;
    for input in task.inputs() {
        sum = input
            .bytes()
            .iter()
            .fold(sum, |sum, byte| sum.wrapping_add(*byte));
        // Behind the last element is nothing.
        assert!(input.get::<f32>(input.shape().ne()).is_none());
    }
    for row in task.rows() {
        if let Some(values) = task.row_mut::<f32>(row) {
            values.fill(f32::from(sum));
        }
    }
    task.out_bytes().fill(sum);
}

fn closure(d: &mut Draw<'_>) -> (Tasks, Closure) {
    let tasks = d.pick(&[Tasks::One, Tasks::Threads]);
    let closure: Closure = match d.one_in(16) {
        // Without the panic's message.
        true => Box::new(|_| resume_unwind(Box::new(Deliberate))),
        false => Box::new(work),
    };
    (tasks, closure)
}

fn operands<'g>(d: &mut Draw<'g>) -> Result<Vec<Tensor<'g>>> {
    let count = if d.wild() { 9 } else { d.below(9) };
    (0..count).map(|_| d.of(&DType::ALL)).collect()
}

family! {
    map_custom1(d) { let a = d.of(&DType::ALL)?; let (tasks, work) = closure(d); } a(tasks, work);
    map_custom1_inplace(d) {
        let a = d.packed(&DType::ALL)?;
        let (tasks, work) = closure(d);
    } a(tasks, work);
    map_custom2(d) {
        let (a, b) = (d.of(&DType::ALL)?, d.of(&DType::ALL)?);
        let (tasks, work) = closure(d);
    } a(b, tasks, work);
    map_custom2_inplace(d) {
        let (a, b) = (d.packed(&DType::ALL)?, d.of(&DType::ALL)?);
        let (tasks, work) = closure(d);
    } a(b, tasks, work);
    map_custom3(d) {
        let (a, b, c) = (d.of(&DType::ALL)?, d.of(&DType::ALL)?, d.of(&DType::ALL)?);
        let (tasks, work) = closure(d);
    } a(b, c, tasks, work);
    map_custom3_inplace(d) {
        let (a, b, c) = (d.packed(&DType::ALL)?, d.of(&DType::ALL)?, d.of(&DType::ALL)?);
        let (tasks, work) = closure(d);
    } a(b, c, tasks, work);
    custom_inplace(d) {
        let (a, operands) = (d.packed(&DType::ALL)?, operands(d)?);
        let (tasks, work) = closure(d);
    } a(&operands, tasks, work);
    custom_4d(d) {
        let (g, operands) = (d.g, operands(d)?);
        let dtype = d.pick(&DType::ALL);
        let ne = d.shape(dtype);
        let ne = d.sizes(ne);
        let (tasks, work) = closure(d);
    } g(dtype, ne, &operands, tasks, work);
}

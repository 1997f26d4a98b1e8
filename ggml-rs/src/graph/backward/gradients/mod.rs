//! The gradient of each op, composed of ops that every backend runs.
//!
//! In comments g is the gradient of a node's result y, and x its source.

mod arithmetic;
mod arrange;
mod conv;
mod elements;
mod gated;
mod normalize;
mod products;
mod rows;
mod softmax;

use super::grad::Gradient;
use crate::graph::node::Op;

/// The gradient of an op, which is there where [`has_backward`](super::has_backward) says so.
pub(super) fn of(op: Op) -> Option<Gradient> {
    Some(match op {
        Op::View => arrange::view,
        Op::Dup | Op::Cpy | Op::Cont => arrange::copy,
        Op::Repeat => arrange::repeat,
        Op::RepeatBack => arrange::repeat_back,
        Op::Concat => arrange::concat,
        Op::Pad => arrange::pad,
        Op::DiagMaskInf | Op::DiagMaskZero => arrange::diag_mask,
        Op::Acc => arrange::acc,
        Op::Set => arrange::set,
        Op::Add | Op::Add1 => arithmetic::add,
        Op::Sub => arithmetic::sub,
        Op::Mul => arithmetic::mul,
        Op::Div => arithmetic::div,
        Op::Scale => arithmetic::scale,
        Op::Sum | Op::SumRows => arithmetic::sum,
        Op::Mean => arithmetic::mean,
        Op::Sqr => elements::sqr,
        Op::Sqrt => elements::sqrt,
        Op::Log => elements::log,
        Op::Sin => elements::sin,
        Op::Cos => elements::cos,
        Op::Clamp => elements::clamp,
        Op::LeakyRelu => elements::leaky_relu,
        Op::Unary(function) => return elements::unary(function),
        Op::Glu(_) => gated::glu,
        Op::Norm | Op::RmsNorm => normalize::norm,
        Op::GroupNorm => normalize::group_norm,
        Op::L2Norm => normalize::l2_norm,
        Op::SoftMax => softmax::soft_max,
        Op::CrossEntropyLoss => softmax::cross_entropy_loss,
        Op::Rope => softmax::rope,
        Op::MulMat => products::mul_mat,
        Op::OutProd => products::out_prod,
        Op::MulMatId => products::mul_mat_id,
        Op::AddId => rows::add_id,
        Op::GetRows => rows::get_rows,
        Op::SetRows => rows::set_rows,
        Op::Im2col => conv::im2col,
        Op::Pool2d => conv::pool_2d,
        _ => return None,
    })
}

//! A refusal of every public function that can fail, each call on the line of its name.

use std::io::Cursor;
use std::str::FromStr;

use ggml_rs::DType::{self, F16, F32, I32, I64, Q8_0, Q8_1};
use ggml_rs::check::{self, Interpreter, reference};
use ggml_rs::files::gguf::{self, Gguf};
use ggml_rs::files::safetensors::SafeTensors;
use ggml_rs::quantize::{dequantize, quantize, quantize_with_importance};
use ggml_rs::train::{Arrays, Fit, Forward, Task, TrainOptions, Trainer};
use ggml_rs::{
    Backend, BackwardOptions, Builder, Cancel, Conv1d, Conv2d, Conv3d, Device, FlashAttn,
    GatedDeltaNet, GluOp, Graph, Input, Interpolation, IntoShape, Output, Param, Params, Plan,
    PlanOptions, Pool, Pool1d, Pool2d, Precision, Result, Rope, Route, RowIds, RowIdsOptions,
    RunOptions, Scale, Scheduler, Shape, SoftMax, SortOrder, SsmScan, Staging, Tasks, Tensor,
    ThreadPool, ThreadPoolOptions, TriPart,
};

use super::Asked;
use crate::common::{if_free, repeated, traced, until};

/// Asks for one refusal, on one line.
macro_rules! refused {
    ($asked:ident, $name:literal, $call:expr) => {
        $asked.answer($name, line!(), $call)
    };
}

/// Asks all functions for their refusals.
pub fn all(asked: &mut Asked) {
    shapes(asked);
    conversions(asked);
    references(asked);
    graph(asked);
    backwards(asked);
    plans(asked);
    params(asked);
    backends(asked);
    interpreter(asked);
    checks(asked);
    files(asked);
    trainer(asked);
}

#[rustfmt::skip]
fn shapes(asked: &mut Asked) {
    refused!(asked, "Shape::new", Shape::new(&[0]));
    refused!(asked, "Shape::row_major", Shape::row_major(&[0]));
    refused!(asked, "Shape::bytes", Shape::new(&[3]).unwrap().bytes(Q8_0));
    refused!(asked, "IntoShape::into_shape", [0].into_shape());
    refused!(asked, "IntoShape::into_shape", (&[0][..]).into_shape());
    refused!(asked, "DType::row_bytes", Q8_0.row_bytes(3));
    refused!(asked, "DType::from_str", DType::from_str("f33"));
}

#[rustfmt::skip]
fn conversions(asked: &mut Asked) {
    refused!(asked, "quantize::quantize", quantize(Q8_0, &[1.0; 40], 40));
    refused!(asked, "quantize::quantize", quantize(Q8_0, &[1.0; 40], 32));
    refused!(asked, "quantize::quantize", quantize(Q8_0, &[f32::NAN; 32], 32));
    refused!(asked, "quantize::quantize", quantize(I32, &[1.0], 1));
    refused!(asked, "quantize::quantize_with_importance", quantize_with_importance(Q8_0, &[1.0; 32], 32, &[1.0]));
    refused!(asked, "quantize::quantize_with_importance", quantize_with_importance(Q8_0, &[1.0; 40], 40, &[1.0; 40]));
    refused!(asked, "quantize::dequantize", dequantize(Q8_0, &[0]));
    refused!(asked, "quantize::dequantize", dequantize(I32, &[0; 4]));
}

#[rustfmt::skip]
fn references(asked: &mut Asked) {
    use reference::Values;
    let (a, b) = (Values::contiguous(&[1.0; 6], [3, 2, 1, 1]).unwrap(), Values::contiguous(&[1.0; 4], [4, 1, 1, 1]).unwrap());
    refused!(asked, "Values::contiguous", Values::contiguous(&[], [1; 4]));
    refused!(asked, "Values::strided", Values::strided(&[], [1; 4], [1; 4]));
    refused!(asked, "reference::out_prod", reference::out_prod(a, b));
    refused!(asked, "reference::mul_mat", reference::mul_mat(a, b));
    refused!(asked, "reference::mul_mat_id", reference::mul_mat_id(a, b, &[0]));
    refused!(asked, "compare::compare", check::compare(&[1.0], &[]));
}

/// Builds a graph of one output besides what `build` makes of it.
fn with_graph(build: impl for<'g> FnOnce(Builder<'g>) -> Result<()>) -> Graph {
    let built = Graph::build(|g| {
        let (a, _) = g.input("a", F32, [1])?;
        g.output("b", a.scale(1.0)?)?;
        build(g)
    });
    built.unwrap().0
}

fn graph(asked: &mut Asked) {
    with_graph(|g| {
        let x = g.input("x", F32, [4, 6])?.0;
        let odd = g.input("odd", F32, [3, 5])?.0;
        let i = g.input("i", I32, [4, 6])?.0;
        let q = g.input("q", Q8_0, [32, 4])?.0;
        let ids = g.row_ids("ids", [5], 6)?.0;
        let many = g.row_ids("many", [5, 3], 7)?.0;
        let experts = g.expert_ids("experts", 2, 3, 9)?.0;
        builders(asked, g, x.transpose()?);
        row_ids(asked, ids);
        let folded = x.view([4, 2], [0, 96, 96], 0)?;
        ops(
            asked,
            [x, odd, x.transpose()?, i, q, folded],
            ids,
            many,
            experts,
        );
        Ok(())
    });
    no_output(asked);
}

#[rustfmt::skip]
fn no_output(asked: &mut Asked) {
    refused!(asked, "Graph::build", Graph::build(|_| Ok(())));
}

#[rustfmt::skip]
fn builders<'g>(asked: &mut Asked, g: Builder<'g>, t: Tensor<'g>) {
    refused!(asked, "Builder::input", g.input("a\0b", F32, [1]));
    refused!(asked, "Builder::input", g.input("a", Q8_0, [1]));
    refused!(asked, "Builder::input", g.input("a", F32, [0]));
    refused!(asked, "Builder::empty", g.empty("a\0b", F32, [1]));
    refused!(asked, "Builder::expert_ids", g.expert_ids("e", 3, 1, 2));
    refused!(asked, "Builder::row_ids", g.row_ids("a\0b", [1], 1));
    refused!(asked, "Builder::row_ids_with", g.row_ids_with("e", [3], RowIdsOptions::new(2).distinct()));
    refused!(asked, "Builder::output", g.output("t", t));
    refused!(asked, "Builder::output", g.output("a\0b", t.cont().unwrap()));
    refused!(asked, "Builder::arange", g.arange(1.0, 0.0, 1.0));
    refused!(asked, "Builder::custom_4d", g.custom_4d(F32, [0], &[], Tasks::One, |_| {}));
    refused!(asked, "Builder::custom_4d", g.custom_4d(F32, [1], &[t; 9], Tasks::One, |_| {}));
    refused!(asked, "Builder::backward", g.backward(t));
    refused!(asked, "Builder::backward_with", g.backward_with(t, BackwardOptions::default()));
    let q = params_of(&[("q", Q8_0, 32)]).get("q").unwrap();
    refused!(asked, "Builder::param", g.param(&q));
    let w = params_of(&[("w", F32, 1)]).get("w").unwrap();
    g.param(&w).unwrap();
    refused!(asked, "Builder::weight", g.weight(&w));
}

#[rustfmt::skip]
fn row_ids(asked: &mut Asked, ids: RowIds<'_>) {
    refused!(asked, "RowIds::reshape", ids.reshape([7]));
    refused!(asked, "RowIds::narrow", ids.narrow(4, 0, 1));
    refused!(asked, "RowIds::experts", ids.experts());
}

#[rustfmt::skip]
fn ops<'g>(asked: &mut Asked, [x, odd, t, i, q, folded]: [Tensor<'g>; 6], ids: RowIds<'g>, many: RowIds<'g>, experts: ggml_rs::ExpertIds<'g>) {
    refused!(asked, "Tensor::abs", t.abs());
    refused!(asked, "Tensor::abs_inplace", t.abs_inplace());
    refused!(asked, "Tensor::sgn", t.sgn());
    refused!(asked, "Tensor::sgn_inplace", t.sgn_inplace());
    refused!(asked, "Tensor::neg", t.neg());
    refused!(asked, "Tensor::neg_inplace", t.neg_inplace());
    refused!(asked, "Tensor::step", t.step());
    refused!(asked, "Tensor::step_inplace", t.step_inplace());
    refused!(asked, "Tensor::tanh", t.tanh());
    refused!(asked, "Tensor::tanh_inplace", t.tanh_inplace());
    refused!(asked, "Tensor::elu", t.elu());
    refused!(asked, "Tensor::elu_inplace", t.elu_inplace());
    refused!(asked, "Tensor::relu", t.relu());
    refused!(asked, "Tensor::relu_inplace", t.relu_inplace());
    refused!(asked, "Tensor::sigmoid", t.sigmoid());
    refused!(asked, "Tensor::sigmoid_inplace", t.sigmoid_inplace());
    refused!(asked, "Tensor::gelu", t.gelu());
    refused!(asked, "Tensor::gelu_inplace", t.gelu_inplace());
    refused!(asked, "Tensor::gelu_erf", t.gelu_erf());
    refused!(asked, "Tensor::gelu_erf_inplace", t.gelu_erf_inplace());
    refused!(asked, "Tensor::gelu_quick", t.gelu_quick());
    refused!(asked, "Tensor::gelu_quick_inplace", t.gelu_quick_inplace());
    refused!(asked, "Tensor::silu", t.silu());
    refused!(asked, "Tensor::silu_inplace", t.silu_inplace());
    refused!(asked, "Tensor::exp", t.exp());
    refused!(asked, "Tensor::exp_inplace", t.exp_inplace());
    refused!(asked, "Tensor::expm1", t.expm1());
    refused!(asked, "Tensor::expm1_inplace", t.expm1_inplace());
    refused!(asked, "Tensor::softplus", t.softplus());
    refused!(asked, "Tensor::softplus_inplace", t.softplus_inplace());
    refused!(asked, "Tensor::floor", t.floor());
    refused!(asked, "Tensor::floor_inplace", t.floor_inplace());
    refused!(asked, "Tensor::ceil", t.ceil());
    refused!(asked, "Tensor::ceil_inplace", t.ceil_inplace());
    refused!(asked, "Tensor::round", t.round());
    refused!(asked, "Tensor::round_inplace", t.round_inplace());
    refused!(asked, "Tensor::trunc", t.trunc());
    refused!(asked, "Tensor::trunc_inplace", t.trunc_inplace());
    refused!(asked, "Tensor::sqr", t.sqr());
    refused!(asked, "Tensor::sqr_inplace", t.sqr_inplace());
    refused!(asked, "Tensor::sqrt", t.sqrt());
    refused!(asked, "Tensor::sqrt_inplace", t.sqrt_inplace());
    refused!(asked, "Tensor::log", t.log());
    refused!(asked, "Tensor::log_inplace", t.log_inplace());
    refused!(asked, "Tensor::sin", t.sin());
    refused!(asked, "Tensor::sin_inplace", t.sin_inplace());
    refused!(asked, "Tensor::cos", t.cos());
    refused!(asked, "Tensor::cos_inplace", t.cos_inplace());
    refused!(asked, "Tensor::hardswish", t.hardswish());
    refused!(asked, "Tensor::hardsigmoid", t.hardsigmoid());
    refused!(asked, "Tensor::add", x.add(odd));
    refused!(asked, "Tensor::add_inplace", x.add_inplace(odd));
    refused!(asked, "Tensor::sub", x.sub(odd));
    refused!(asked, "Tensor::sub_inplace", x.sub_inplace(odd));
    refused!(asked, "Tensor::mul", x.mul(odd));
    refused!(asked, "Tensor::mul_inplace", x.mul_inplace(odd));
    refused!(asked, "Tensor::div", x.div(odd));
    refused!(asked, "Tensor::div_inplace", x.div_inplace(odd));
    refused!(asked, "Tensor::add_cast", x.add_cast(odd, F16));
    refused!(asked, "Tensor::add1", x.add1(odd));
    refused!(asked, "Tensor::add1_inplace", x.add1_inplace(odd));
    refused!(asked, "Tensor::scale", t.scale(1.0));
    refused!(asked, "Tensor::scale_inplace", t.scale_inplace(1.0));
    refused!(asked, "Tensor::scale_bias", t.scale_bias(1.0, 1.0));
    refused!(asked, "Tensor::scale_bias_inplace", t.scale_bias_inplace(1.0, 1.0));
    refused!(asked, "Tensor::concat", x.concat(odd, 0));
    refused!(asked, "Tensor::repeat_back", odd.repeat_back(x));
    refused!(asked, "Tensor::diag", x.diag());
    refused!(asked, "Tensor::diag_mask_inf", x.diag_mask_inf(usize::MAX));
    refused!(asked, "Tensor::diag_mask_inf_inplace", x.diag_mask_inf_inplace(usize::MAX));
    refused!(asked, "Tensor::diag_mask_zero", x.diag_mask_zero(usize::MAX));
    refused!(asked, "Tensor::diag_mask_zero_inplace", x.diag_mask_zero_inplace(usize::MAX));
    refused!(asked, "Tensor::tri", x.tri(TriPart::Lower));
    refused!(asked, "Tensor::pad", q.pad([1, 0, 0, 0]));
    refused!(asked, "Tensor::pad_circular", q.pad_circular([1, 0, 0, 0]));
    refused!(asked, "Tensor::pad_ext", q.pad_ext([1, 0, 0, 0], [0; 4]));
    refused!(asked, "Tensor::pad_ext_circular", q.pad_ext_circular([1, 0, 0, 0], [0; 4]));
    refused!(asked, "Tensor::pad_reflect_1d", x.pad_reflect_1d(4, 0));
    refused!(asked, "Tensor::roll", x.roll([4, 0, 0, 0]));
    refused!(asked, "Tensor::flash_attn_ext", x.flash_attn_ext(odd, odd, FlashAttn::new(1.0)));
    refused!(asked, "Tensor::dsv4_hc_comb", x.dsv4_hc_comb(x, x, 0.0, 1));
    refused!(asked, "Tensor::dsv4_hc_pre", x.dsv4_hc_pre(odd));
    refused!(asked, "Tensor::dsv4_hc_pre_gated", x.dsv4_hc_pre_gated(odd, 1.0));
    refused!(asked, "Tensor::dsv4_hc_post", x.dsv4_hc_post(odd, odd, None));
    refused!(asked, "Tensor::lightning_indexer", x.lightning_indexer(odd, odd, odd));
    refused!(asked, "Tensor::conv_1d", i.conv_1d(x, Conv1d::default()));
    refused!(asked, "Tensor::conv_1d_ph", i.conv_1d_ph(x, 1, 1));
    refused!(asked, "Tensor::conv_1d_dw", i.conv_1d_dw(x, Conv1d::default()));
    refused!(asked, "Tensor::conv_1d_dw_ph", i.conv_1d_dw_ph(x, 1, 1));
    refused!(asked, "Tensor::conv_2d", i.conv_2d(x, Conv2d::default()));
    refused!(asked, "Tensor::conv_2d_sk_p0", i.conv_2d_sk_p0(x));
    refused!(asked, "Tensor::conv_2d_s1_ph", i.conv_2d_s1_ph(x));
    refused!(asked, "Tensor::conv_2d_dw", i.conv_2d_dw(x, Conv2d::default()));
    refused!(asked, "Tensor::conv_3d", i.conv_3d(x, 1, Conv3d::default()));
    refused!(asked, "Tensor::conv_2d_direct", i.conv_2d_direct(x, Conv2d::default()));
    refused!(asked, "Tensor::conv_2d_dw_direct", i.conv_2d_dw_direct(x, Conv2d::default()));
    refused!(asked, "Tensor::conv_3d_direct", i.conv_3d_direct(x, 1, Conv3d::default()));
    refused!(asked, "Tensor::im2col", x.im2col(i, Conv2d::default(), F32));
    refused!(asked, "Tensor::im2col_1d", x.im2col_1d(i, Conv1d::default(), F32));
    refused!(asked, "Tensor::im2col_back", x.im2col_back(x, [9, 9], Conv2d::default()));
    refused!(asked, "Tensor::im2col_1d_back", x.im2col_1d_back(x, [9, 9], Conv1d::default()));
    refused!(asked, "Tensor::im2col_3d", x.im2col_3d(i, 0, Conv3d::default(), F32));
    refused!(asked, "Tensor::col2im_1d", x.col2im_1d(1, 0, 0));
    refused!(asked, "Tensor::pool_1d", i.pool_1d(Pool1d::new(Pool::Max, [2])));
    refused!(asked, "Tensor::pool_2d", i.pool_2d(Pool2d::new(Pool::Max, [2, 2])));
    refused!(asked, "Tensor::pool_2d_back", x.pool_2d_back(x, Pool2d::new(Pool::Max, [2, 2])));
    refused!(asked, "Tensor::conv_transpose_1d", i.conv_transpose_1d(x, 1));
    refused!(asked, "Tensor::conv_transpose_2d_p0", i.conv_transpose_2d_p0(x, 1));
    refused!(asked, "Tensor::dup_inplace", folded.dup_inplace());
    refused!(asked, "Tensor::cont_reshaped", x.cont_reshaped([5]));
    refused!(asked, "Tensor::cast", x.cast(Q8_0));
    refused!(asked, "Tensor::cpy", x.cpy(odd));
    refused!(asked, "Tensor::map_custom1_inplace", t.map_custom1_inplace(Tasks::One, |_| {}));
    refused!(asked, "Tensor::map_custom2_inplace", t.map_custom2_inplace(x, Tasks::One, |_| {}));
    refused!(asked, "Tensor::map_custom3_inplace", t.map_custom3_inplace(x, x, Tasks::One, |_| {}));
    refused!(asked, "Tensor::custom_inplace", t.custom_inplace(&[], Tasks::One, |_| {}));
    refused!(asked, "Tensor::mul_mat_id", x.mul_mat_id(odd, experts));
    refused!(asked, "Tensor::glu", odd.glu(GluOp::Swiglu));
    refused!(asked, "Tensor::glu_swapped", odd.glu_swapped(GluOp::Swiglu));
    refused!(asked, "Tensor::glu_split", x.glu_split(odd, GluOp::Swiglu));
    refused!(asked, "Tensor::swiglu_oai", x.swiglu_oai(odd, 1.0, 1.0));
    refused!(asked, "Tensor::swiglu_clamp", x.swiglu_clamp(odd, 1.0));
    refused!(asked, "Tensor::upscale", x.upscale(1, Scale::Nearest));
    refused!(asked, "Tensor::upscale_ext", i.upscale_ext([8, 12], Scale::Nearest));
    refused!(asked, "Tensor::interpolate", i.interpolate([8, 12], Interpolation::new(Scale::Nearest)));
    refused!(asked, "Tensor::timestep_embedding", x.timestep_embedding(2, 9));
    refused!(asked, "Tensor::get_rel_pos", x.get_rel_pos());
    refused!(asked, "Tensor::add_rel_pos", x.add_rel_pos(x, odd));
    refused!(asked, "Tensor::add_rel_pos_inplace", x.add_rel_pos_inplace(x, odd));
    refused!(asked, "Tensor::win_part", x.win_part(0));
    refused!(asked, "Tensor::win_unpart", x.win_unpart(1, 1));
    refused!(asked, "Tensor::out_prod", x.out_prod(odd));
    refused!(asked, "Tensor::mul_mat", x.mul_mat(odd));
    refused!(asked, "Tensor::mul_mat_hadamard", x.mul_mat_hadamard(odd));
    refused!(asked, "Tensor::norm", x.norm(-1.0));
    refused!(asked, "Tensor::norm_inplace", x.norm_inplace(-1.0));
    refused!(asked, "Tensor::rms_norm", x.rms_norm(-1.0));
    refused!(asked, "Tensor::rms_norm_inplace", x.rms_norm_inplace(-1.0));
    refused!(asked, "Tensor::rms_norm_back", x.rms_norm_back(odd, 0.0));
    refused!(asked, "Tensor::group_norm", x.group_norm(0, 0.0));
    refused!(asked, "Tensor::group_norm_inplace", x.group_norm_inplace(0, 0.0));
    refused!(asked, "Tensor::l2_norm", x.l2_norm(-1.0));
    refused!(asked, "Tensor::l2_norm_inplace", x.l2_norm_inplace(-1.0));
    refused!(asked, "Tensor::opt_step_adamw", x.opt_step_adamw(x, x, x, x));
    refused!(asked, "Tensor::opt_step_sgd", x.opt_step_sgd(odd, odd));
    refused!(asked, "Tensor::set_src_precision", x.set_src_precision(Precision::F32, 0));
    refused!(asked, "Tensor::set_staging", x.set_staging(Staging::Float));
    refused!(asked, "Tensor::set_route", x.set_route(Route::Direct));
    refused!(asked, "Tensor::gated_delta_net", x.gated_delta_net(GatedDeltaNet { k: x, v: x, g: x, beta: x, state: x, states: 1 }));
    refused!(asked, "Tensor::rwkv_wkv6", x.rwkv_wkv6(odd, odd, odd, odd, odd));
    refused!(asked, "Tensor::rwkv_wkv7", x.rwkv_wkv7(odd, odd, odd, odd, odd, odd));
    refused!(asked, "Tensor::gated_linear_attn", x.gated_linear_attn(odd, odd, odd, odd, 1.0));
    refused!(asked, "Tensor::ssm_conv", x.ssm_conv(odd));
    refused!(asked, "Tensor::ssm_scan", x.ssm_scan(SsmScan { x, dt: odd, a: odd, b: odd, c: odd, ids, states: 1 }));
    refused!(asked, "Tensor::solve_tri", x.solve_tri(odd));
    refused!(asked, "Tensor::max", i.max());
    refused!(asked, "Tensor::max_rows", i.max_rows());
    refused!(asked, "Tensor::min", i.min());
    refused!(asked, "Tensor::min_rows", i.min_rows());
    refused!(asked, "Tensor::sum", i.sum());
    refused!(asked, "Tensor::sum_rows", i.sum_rows());
    refused!(asked, "Tensor::mean", i.mean());
    refused!(asked, "Tensor::mean_rows", i.mean_rows());
    refused!(asked, "Tensor::repeat", x.repeat([5, 6]));
    refused!(asked, "Tensor::cumsum", i.cumsum());
    refused!(asked, "Tensor::argmax", x.reshape([4, 2, 3]).unwrap().argmax());
    refused!(asked, "Tensor::count_equal", x.count_equal(odd));
    refused!(asked, "Tensor::rope", x.rope(x, Rope::default()));
    refused!(asked, "Tensor::rope_inplace", x.rope_inplace(x, Rope::default()));
    refused!(asked, "Tensor::rope_back", x.rope_back(x, Rope::default()));
    refused!(asked, "Tensor::get_rows", x.get_rows(many));
    refused!(asked, "Tensor::get_rows_back", x.get_rows_back(many, odd));
    refused!(asked, "Tensor::set_rows", x.set_rows(odd, ids));
    refused!(asked, "Tensor::add_id", x.add_id(odd, experts));
    refused!(asked, "Tensor::soft_max", t.soft_max());
    refused!(asked, "Tensor::soft_max_inplace", t.soft_max_inplace());
    refused!(asked, "Tensor::soft_max_ext", x.soft_max_ext(SoftMax { max_bias: 1.0, ..SoftMax::default() }));
    refused!(asked, "Tensor::soft_max_ext_inplace", x.soft_max_ext_inplace(SoftMax { max_bias: 1.0, ..SoftMax::default() }));
    refused!(asked, "Tensor::soft_max_ext_back", x.soft_max_ext_back(odd, 1.0));
    refused!(asked, "Tensor::soft_max_ext_back_inplace", x.soft_max_ext_back_inplace(odd, 1.0));
    refused!(asked, "Tensor::cross_entropy_loss", x.cross_entropy_loss(odd));
    refused!(asked, "Tensor::cross_entropy_loss_back", x.cross_entropy_loss_back(x, odd));
    refused!(asked, "Tensor::argsort", i.argsort(SortOrder::Ascending));
    refused!(asked, "Tensor::argsort_top_k", x.argsort_top_k(0));
    refused!(asked, "Tensor::top_k", x.top_k(0));
    refused!(asked, "Tensor::leaky_relu", t.leaky_relu(0.1));
    refused!(asked, "Tensor::leaky_relu_inplace", t.leaky_relu_inplace(0.1));
    refused!(asked, "Tensor::clamp", x.clamp(1.0, 0.0));
    refused!(asked, "Tensor::clamp_inplace", x.clamp_inplace(1.0, 0.0));
    refused!(asked, "Tensor::xielu", t.xielu(1.0, 1.0, 1.0, 0.0));
    refused!(asked, "Tensor::fill", i.fill(1.0));
    refused!(asked, "Tensor::fill_inplace", i.fill_inplace(1.0));
    refused!(asked, "Tensor::silu_back", x.silu_back(odd));
    refused!(asked, "Tensor::transpose", q.transpose());
    refused!(asked, "Tensor::reshape", x.reshape([5]));
    refused!(asked, "Tensor::permute", x.permute([0; 4]));
    refused!(asked, "Tensor::view", x.view([5], [4, 4, 4], 1 << 20));
    refused!(asked, "Tensor::acc", x.acc(odd, [16, 96, 96], 1 << 20));
    refused!(asked, "Tensor::acc_inplace", x.acc_inplace(odd, [16, 96, 96], 1 << 20));
    refused!(asked, "Tensor::set", x.set(odd, [16, 96, 96], 1 << 20));
    refused!(asked, "Tensor::set_inplace", x.set_inplace(odd, [16, 96, 96], 1 << 20));
    refused!(asked, "Tensor::set_1d", x.set_1d(odd, 1 << 20));
    refused!(asked, "Tensor::set_1d_inplace", x.set_1d_inplace(odd, 1 << 20));
    refused!(asked, "Tensor::set_2d", x.set_2d(odd, 16, 1 << 20));
    refused!(asked, "Tensor::set_2d_inplace", x.set_2d_inplace(odd, 16, 1 << 20));
    refused!(asked, "Tensor::named", x.named("a\0b"));
    refused!(asked, "Tensor::set_param", i.set_param());
}

fn backwards(asked: &mut Asked) {
    with_graph(|g| {
        let w = g.input("w", F32, [4])?.0.set_param()?;
        let x = g.input("x", F32, [4])?.0;
        let loss = w.mul(x)?.sum()?;
        let argued = w.mul(x)?.floor()?.map_custom1(Tasks::One, |_| {})?.sum()?;
        differentiated(asked, g, [loss, argued, x, w]);
        Ok(())
    });
}

#[rustfmt::skip]
fn differentiated<'g>(asked: &mut Asked, g: Builder<'g>, [loss, argued, x, w]: [Tensor<'g>; 4]) {
    // No backward, no marked tensor, no scalar, and options that a backward does not have.
    refused!(asked, "Builder::backward", g.backward(argued));
    refused!(asked, "Builder::backward", g.backward(x.sum().unwrap()));
    refused!(asked, "Builder::backward", g.backward(w));
    refused!(asked, "Builder::backward_with", g.backward_with(loss, BackwardOptions::default().staging(Staging::FloatWeights)));
    refused!(asked, "Builder::backward_with", g.backward_with(loss, BackwardOptions::default().route(Route::MatVec)));
    let gradients = g.backward(loss).unwrap();
    refused!(asked, "Gradients::of", gradients.of(x));
    refused!(asked, "Gradients::accumulate", gradients.accumulate(x, x));
    refused!(asked, "Gradients::accumulate", gradients.accumulate(w, loss));
}

/// A plan of inputs of several types, and the tokens of another graph.
struct Planned {
    backend: Backend,
    plan: Plan,
    floats: Input,
    integers: Input,
    wide: Input,
    blocks: Input,
    rows: Input,
    unused: Input,
    sum: Output,
    best: Output,
    foreign: (Input, Output),
}

fn planned() -> Planned {
    let (graph, tokens) = Graph::build(|g| {
        let (x, floats) = g.input("x", F32, [4, 6])?;
        let (i, integers) = g.input("i", I32, [4])?;
        let (table, wide) = g.input("wide", I64, [4])?;
        let (q, blocks) = g.input("q", Q8_0, [32, 4])?;
        let (ids, rows) = g.row_ids("rows", [2], 6)?;
        let (_, unused) = g.input("unused", F32, [4])?;
        let sum = g.output("sum", x.get_rows(ids)?)?;
        let best = g.output("best", x.argmax()?)?;
        g.output("i", i)?;
        g.output("wide", table)?;
        g.output("q", q)?;
        Ok((floats, integers, wide, blocks, rows, unused, sum, best))
    })
    .unwrap();
    let (_, foreign) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [4, 6])?;
        Ok((x_in, g.output("y", x)?))
    })
    .unwrap();
    let backend = Device::cpu().unwrap().open().unwrap();
    let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let (floats, integers, wide, blocks, rows, unused, sum, best) = tokens;
    Planned {
        backend,
        plan,
        floats,
        integers,
        wide,
        blocks,
        rows,
        unused,
        sum,
        best,
        foreign,
    }
}

#[rustfmt::skip]
fn plans(asked: &mut Asked) {
    let Planned { mut backend, mut plan, floats, integers, wide, blocks, rows, unused, sum, best, foreign } = planned();
    refused!(asked, "Plan::needs", plan.needs(&foreign.0));
    // Another graph's token, the wrong number of values, the wrong type, an input without effect.
    refused!(asked, "Plan::set_f32", plan.set_f32(&foreign.0, &[0.0; 24]));
    refused!(asked, "Plan::set_f32", plan.set_f32(&floats, &[0.0; 23]));
    refused!(asked, "Plan::set_f32", plan.set_f32(&integers, &[0.0; 4]));
    refused!(asked, "Plan::set_f32", plan.set_f32(&blocks, &[f32::NAN; 128]));
    refused!(asked, "Plan::set_f32", plan.set_f32(&unused, &[0.0; 4]));
    refused!(asked, "Plan::set_i32", plan.set_i32(&foreign.0, &[0; 24]));
    refused!(asked, "Plan::set_i32", plan.set_i32(&floats, &[0; 24]));
    refused!(asked, "Plan::set_i32", plan.set_i32(&integers, &[0; 3]));
    refused!(asked, "Plan::set_i32", plan.set_i32(&rows, &[0, 6]));
    refused!(asked, "Plan::set_i64", plan.set_i64(&wide, &[0; 3]));
    refused!(asked, "Plan::set_i64", plan.set_i64(&integers, &[0; 4]));
    refused!(asked, "Plan::set_bytes", plan.set_bytes(&foreign.0, &[0; 96]));
    refused!(asked, "Plan::set_bytes", plan.set_bytes(&floats, &[0; 95]));
    refused!(asked, "Plan::set_bytes", plan.set_bytes(&rows, &[255; 8]));
    refused!(asked, "Plan::set_bytes", plan.set_bytes(&unused, &[0; 16]));
    // Before an input is set.
    refused!(asked, "Plan::run", plan.run(&mut backend));
    refused!(asked, "Plan::run_with", plan.run_with(&mut backend, if_free()));
    refused!(asked, "Plan::run_with", plan.run_with(&mut backend, until(&Cancel::new())));
    refused!(asked, "Plan::run_with", plan.run_with(&mut backend, repeated(2)));
    refused!(asked, "Plan::run_with", plan.run_with(&mut backend, repeated(0)));
    refused!(asked, "Plan::run_with", plan.run_with(&mut backend, traced()));
    refused!(asked, "Plan::run_with", plan.run_with(&mut backend, RunOptions { repeat: 2, ..until(&Cancel::new()) }));
    #[allow(deprecated, reason = "they are there for one release")]
    {
        refused!(asked, "Plan::try_run", plan.try_run(&mut backend));
        refused!(asked, "Plan::run_cancellable", plan.run_cancellable(&mut backend, &Cancel::new()));
        refused!(asked, "Plan::run_times", plan.run_times(&mut backend, 2));
        refused!(asked, "Plan::run_traced", plan.run_traced(&mut backend));
    }
    // Before a run.
    refused!(asked, "Plan::read_f32", plan.read_f32(&sum));
    refused!(asked, "Plan::read_i32", plan.read_i32(&best));
    refused!(asked, "Plan::read_bytes", plan.read_bytes(&sum));
    plan.set_f32(&floats, &[0.0; 24]).unwrap();
    plan.set_i32(&integers, &[0; 4]).unwrap();
    plan.set_i64(&wide, &[0; 4]).unwrap();
    plan.set_f32(&blocks, &[0.0; 128]).unwrap();
    plan.set_i32(&rows, &[0, 5]).unwrap();
    plan.run(&mut backend).unwrap();
    refused!(asked, "Plan::read_f32", plan.read_f32(&foreign.1));
    refused!(asked, "Plan::read_f32", plan.read_f32(&best));
    refused!(asked, "Plan::read_i32", plan.read_i32(&foreign.1));
    refused!(asked, "Plan::read_i32", plan.read_i32(&sum));
    refused!(asked, "Plan::read_i64", plan.read_i64(&best));
    refused!(asked, "Plan::read_bytes", plan.read_bytes(&foreign.1));
    refused!(asked, "Plan::check_sentinels", plan.check_sentinels());
    #[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
    {
        let mut other = Device::by_name("MTL0").unwrap().open().unwrap();
        refused!(asked, "Plan::run", plan.run(&mut other));
        refused!(asked, "Plan::run_with", plan.run_with(&mut other, traced()));
    }
    // With a parameter that has no values.
    let w = params_of(&[("w", F32, 1)]).get("w").unwrap();
    let (graph, ()) = Graph::build(|g| g.output("w", g.weight(&w)?).map(drop)).unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    refused!(asked, "Plan::run", plan.run(&mut backend));
}

/// Parameters by name, type and number of elements.
fn params_of(listed: &[(&str, DType, usize)]) -> Params {
    let mut builder = Params::builder();
    for (name, dtype, len) in listed {
        builder = builder.tensor(name, *dtype, [*len]).unwrap();
    }
    builder.allocate(Device::cpu().unwrap()).unwrap()
}

#[rustfmt::skip]
fn params(asked: &mut Asked) {
    let params = params_of(&[("w", F32, 1), ("i", I32, 2), ("q", Q8_0, 32), ("wide", I64, 1)]);
    let [w, i, q, wide]: [Param; 4] = ["w", "i", "q", "wide"].map(|name| params.get(name).unwrap());
    refused!(asked, "Params::get", params.get("v"));
    refused!(asked, "ParamsBuilder::tensor", Params::builder().tensor("w", Q8_0, [3]));
    refused!(asked, "ParamsBuilder::tensor", Params::builder().tensor("a\0b", F32, [3]));
    refused!(asked, "ParamsBuilder::tensor", Params::builder().tensor("w", F32, [0]));
    refused!(asked, "ParamsBuilder::tensor", Params::builder().tensor("w", F32, [1]).unwrap().tensor("w", F32, [1]));
    refused!(asked, "ParamsBuilder::allocate", Params::builder().allocate(Device::cpu().unwrap()));
    refused!(asked, "Param::set_f32", w.set_f32(&[]));
    refused!(asked, "Param::set_f32", i.set_f32(&[0.0; 2]));
    refused!(asked, "Param::set_f32", q.set_f32(&[f32::NAN; 32]));
    refused!(asked, "Param::set_bytes", w.set_bytes(&[]));
    refused!(asked, "Param::set_i32", w.set_i32(&[0]));
    refused!(asked, "Param::set_i32", i.set_i32(&[0]));
    refused!(asked, "Param::set_i64", wide.set_i64(&[]));
    refused!(asked, "Param::read_f32", w.read_f32());
    refused!(asked, "Param::read_bytes", w.read_bytes());
    refused!(asked, "Param::read_i32", i.read_i32());
    refused!(asked, "Param::read_i64", wide.read_i64());
    params.zero().unwrap();
    refused!(asked, "Param::read_f32", i.read_f32());
    refused!(asked, "Param::read_i32", w.read_i32());
    refused!(asked, "Param::read_i64", i.read_i64());
}

#[rustfmt::skip]
fn backends(asked: &mut Asked) {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    refused!(asked, "Backend::set_threads", backend.set_threads(0));
    refused!(asked, "Scheduler::new", Scheduler::new([]));
    let mut none = ThreadPoolOptions::default();
    none.threads = 0;
    refused!(asked, "ThreadPool::new", ThreadPool::new(none));
}

#[rustfmt::skip]
fn interpreter(asked: &mut Asked) {
    let Planned { floats, foreign, .. } = planned();
    let (graph, (x, i, q, y)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [4])?;
        let (i, i_in) = g.input("i", I32, [4])?;
        let (q, q_in) = g.input("q", Q8_0, [32])?;
        let y = g.output("y", x.scale(1.0)?)?;
        g.output("i", i)?;
        g.output("q", q)?;
        Ok((x_in, i_in, q_in, y))
    }).unwrap();
    let w = params_of(&[("w", F32, 1)]).get("w").unwrap();
    let mut at = Interpreter::new(&graph).unwrap();
    refused!(asked, "Interpreter::needs", at.needs(&floats));
    refused!(asked, "Interpreter::set", at.set(&floats, &[0.0; 24]));
    refused!(asked, "Interpreter::set", at.set(&x, &[0.0]));
    refused!(asked, "Interpreter::set_f32", at.set_f32(&floats, &[0.0; 24]));
    refused!(asked, "Interpreter::set_f32", at.set_f32(&q, &[f32::NAN; 32]));
    refused!(asked, "Interpreter::set_i32", at.set_i32(&i, &[0]));
    refused!(asked, "Interpreter::set_bytes", at.set_bytes(&q, &[0]));
    refused!(asked, "Interpreter::set_param", at.set_param(&w, &[0.0]));
    refused!(asked, "Interpreter::read_param", at.read_param(&w));
    refused!(asked, "Interpreter::run", at.run());
    refused!(asked, "Interpreter::run_changed", at.run_changed(&|_, _| {}));
    refused!(asked, "Interpreter::read", at.read(&y));
    refused!(asked, "Interpreter::read", at.read(&foreign.1));
    refused!(asked, "evaluate::evaluate", check::evaluate(&graph, &[], &y));
    let unread = params_of(&[("w", Q8_1, 32)]);
    unread.zero().unwrap();
    let (graph, ()) = Graph::build(|g| g.output("w", g.weight(&unread.get("w")?)?).map(drop)).unwrap();
    refused!(asked, "Interpreter::new", Interpreter::new(&graph));
}

#[rustfmt::skip]
fn checks(asked: &mut Asked) {
    use check::{Data, GradientOptions, gradients, gradients_of};
    let options = GradientOptions::default();
    refused!(asked, "gradients::gradients", gradients(&options, |inputs| inputs.fixed(F32, [2], Data::Within(0.0, 1.0))));
    refused!(asked, "gradients::gradients_of", gradients_of(&options, |g| Ok(check::Subject::new(g.input("x", F32, [2])?.0))));
    // The backward is the check's own.
    refused!(asked, "gradients::gradients", gradients(&options, move |inputs| inputs.trained([2], Data::Within(0.0, 1.0))?.map_custom1(Tasks::One, |_| {})));
    let _ = gradients(&options, |inputs| {
        refused_inputs(inputs);
        inputs.trained([2], Data::Within(0.0, 1.0))
    });
    fn refused_inputs(inputs: &mut check::Inputs<'_>) {
        let mut own = Asked::default();
        let asked = &mut own;
        refused!(asked, "Inputs::trained", inputs.trained([2], Data::Given(vec![1.0])));
        refused!(asked, "Inputs::fixed", inputs.fixed(F32, [0], Data::Within(0.0, 1.0)));
        refused!(asked, "Inputs::integers", inputs.integers([2], &[1]));
        refused!(asked, "Inputs::expert_ids", inputs.expert_ids(0, 2, &[1]));
        refused!(asked, "Inputs::row_ids", inputs.row_ids([2], RowIdsOptions::new(2), &[1]));
        assert!(own.wrong.is_empty(), "{:#?}", own.wrong);
    }
    for name in ["Inputs::trained", "Inputs::fixed", "Inputs::integers", "Inputs::expert_ids", "Inputs::row_ids"] {
        asked.names.insert(name);
    }
}

#[rustfmt::skip]
fn files(asked: &mut Asked) {
    let cpu = Device::cpu().unwrap();
    let builder = gguf::Builder::new;
    refused!(asked, "Builder::tensor", builder().tensor("w", Q8_0, [3]));
    let unset = params_of(&[("w", F32, 1)]);
    refused!(asked, "Builder::save", builder().save(Vec::new(), unset.iter()));
    let mut writer = builder().tensor("q", Q8_0, [32]).unwrap().begin(Vec::new()).unwrap();
    refused!(asked, "Writer::write_f32", writer.write_f32("q", &[f32::NAN; 32]));
    let empty = builder().save(Vec::new(), []).unwrap();
    let mut empty = Gguf::read(Cursor::new(empty)).unwrap();
    refused!(asked, "Gguf::load", empty.load(cpu));
    let params = params_of(&[("i", I32, 2), ("w", F32, 1), ("wide", I64, 1)]);
    params.zero().unwrap();
    let file = builder().save(Vec::new(), params.iter()).unwrap();
    let mut file = Gguf::read(Cursor::new(file)).unwrap();
    refused!(asked, "Gguf::load_where", file.load_where(cpu, |_| false));
    refused!(asked, "Gguf::read_f32", file.read_f32("i"));
    refused!(asked, "Gguf::read_i32", file.read_i32("w"));
    refused!(asked, "Gguf::read_i64", file.read_i64("i"));
    let header = br#"{"i":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat();
    let mut file = SafeTensors::read(Cursor::new(bytes)).unwrap();
    refused!(asked, "SafeTensors::load_where", file.load_where(cpu, |_| false));
    refused!(asked, "SafeTensors::read_f32", file.read_f32("i"));
    refused!(asked, "SafeTensors::read_i32", SafeTensors::read(Cursor::new(floats())).unwrap().read_i32("w"));
    refused!(asked, "SafeTensors::read_i64", file.read_i64("i"));
    let none = [&2_u64.to_le_bytes()[..], b"{}"].concat();
    refused!(asked, "SafeTensors::load", SafeTensors::read(Cursor::new(none)).unwrap().load(cpu));
}

/// A safetensors file of one float.
fn floats() -> Vec<u8> {
    let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat()
}

/// A trainer of one weight.
fn trainer_of(backend: &Backend, weights: &Params) -> Result<Trainer<Arrays>> {
    let w = weights.get("w")?;
    let data = Arrays::new(&[1], vec![1.0; 4], &[1], vec![2.0; 4])?;
    Trainer::new(
        backend,
        data,
        weights,
        TrainOptions::default(),
        move |g, batch| {
            let outputs = g.param(&w)?.mul_mat(batch.features)?;
            let error = outputs.sub(batch.labels)?;
            Ok(Forward {
                loss: error.mul(error)?.mean()?,
                outputs,
            })
        },
    )
}

#[rustfmt::skip]
fn trainer(asked: &mut Asked) {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let data = || Arrays::new(&[1], vec![1.0; 4], &[1], vec![2.0; 4]).unwrap();
    let weights = params_of(&[("w", F32, 1)]);
    // Outputs without samples, and a loss that is no scalar.
    let w = weights.get("w").unwrap();
    refused!(asked, "Trainer::new", Trainer::new(&backend, data(), &weights, TrainOptions::default(), move |g, batch| Ok(Forward { loss: g.param(&w)?.mul(batch.features)?, outputs: batch.features })));
    // A weight without values.
    let mut trainer = trainer_of(&backend, &weights).unwrap();
    refused!(asked, "Trainer::step", trainer.step(&mut backend));
    refused!(asked, "Trainer::fit", trainer.fit(&mut backend, Fit::epochs(1)));
    refused!(asked, "Trainer::evaluate", trainer.evaluate(&mut backend, &data(), Task::Regress));
    refused!(asked, "Trainer::predict", trainer.predict(&mut backend, &data()));
}

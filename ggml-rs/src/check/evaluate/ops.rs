//! Which definition belongs to which op.

use ggml_sys as sys;

use super::call::Call;
use super::memory::View;
use super::{
    attention, conv, convolve, elementwise, glu, image, matmul, norm, optimizer, recurrent, reduce,
    rope, rows, shape, softmax, streams, triangle, window,
};
use crate::error::Result;

/// Values in ne order, and where they are written.
pub type Writes = Vec<(View, Vec<f64>)>;

/// How a node is computed.
#[derive(Debug, Clone, Copy)]
pub enum Definition {
    /// Nothing is: an input, or another look at the same memory.
    View,
    /// The result in ne order.
    Result(fn(&Call<'_>) -> Result<Vec<f64>>),
    /// Everything that the op writes, the result first.
    Writes(fn(&Call<'_>) -> Result<Writes>),
}

/// The definition of an op; `None` where there is none. Parameter 0 names the function where an op has several.
pub fn definition(op: sys::ggml_op, params: &[i32; 16]) -> Option<Definition> {
    use Definition::{Result as Of, View as Look};
    Some(match op {
        sys::GGML_OP_NONE
        | sys::GGML_OP_RESHAPE
        | sys::GGML_OP_VIEW
        | sys::GGML_OP_PERMUTE
        | sys::GGML_OP_TRANSPOSE => Look,

        sys::GGML_OP_ADD => Of(|call| elementwise::zip(call, |a, b| a + b)),
        sys::GGML_OP_SUB => Of(|call| elementwise::zip(call, |a, b| a - b)),
        sys::GGML_OP_MUL => Of(|call| elementwise::zip(call, |a, b| a * b)),
        sys::GGML_OP_DIV => Of(|call| elementwise::zip(call, |a, b| a / b)),
        sys::GGML_OP_ADD1 => Of(elementwise::add1),
        sys::GGML_OP_SCALE => Of(elementwise::scale),
        sys::GGML_OP_SQR => Of(|call| elementwise::map(call, |x| x * x)),
        sys::GGML_OP_SQRT => Of(|call| elementwise::map(call, f64::sqrt)),
        sys::GGML_OP_LOG => Of(|call| elementwise::map(call, f64::ln)),
        sys::GGML_OP_SIN => Of(|call| elementwise::map(call, f64::sin)),
        sys::GGML_OP_COS => Of(|call| elementwise::map(call, f64::cos)),
        sys::GGML_OP_CLAMP => Of(elementwise::clamp),
        sys::GGML_OP_LEAKY_RELU => Of(elementwise::leaky_relu),
        sys::GGML_OP_SILU_BACK => Of(elementwise::silu_back),
        sys::GGML_OP_FILL => Of(elementwise::fill),
        sys::GGML_OP_ARANGE => Of(elementwise::arange),
        sys::GGML_OP_UNARY => {
            elementwise::function(params[0])?;
            Of(elementwise::unary)
        }
        sys::GGML_OP_GLU if glu::is_defined(params[0]) => Of(glu::glu),

        sys::GGML_OP_SUM => Of(reduce::sum),
        sys::GGML_OP_SUM_ROWS => Of(reduce::sum_rows),
        sys::GGML_OP_MEAN => Of(reduce::mean),
        sys::GGML_OP_COUNT_EQUAL => Of(reduce::count_equal),
        sys::GGML_OP_CUMSUM => Of(reduce::cumsum),
        sys::GGML_OP_REPEAT => Of(reduce::repeat),
        sys::GGML_OP_REPEAT_BACK => Of(reduce::repeat_back),

        sys::GGML_OP_CPY | sys::GGML_OP_CONT | sys::GGML_OP_DUP => Of(shape::copy),
        sys::GGML_OP_CONCAT => Of(shape::concat),
        sys::GGML_OP_ACC => Of(|call| shape::region(call, |a, b| a + b)),
        sys::GGML_OP_SET => Of(|call| shape::region(call, |_, b| b)),
        sys::GGML_OP_PAD => Of(shape::pad),
        sys::GGML_OP_DIAG => Of(shape::diag),
        sys::GGML_OP_DIAG_MASK_INF => Of(|call| shape::diag_mask(call, f64::NEG_INFINITY)),
        sys::GGML_OP_DIAG_MASK_ZERO => Of(|call| shape::diag_mask(call, 0.0)),

        sys::GGML_OP_NORM => Of(norm::norm),
        sys::GGML_OP_RMS_NORM => Of(norm::rms_norm),
        sys::GGML_OP_RMS_NORM_BACK => Of(norm::rms_norm_back),
        sys::GGML_OP_GROUP_NORM => Of(norm::group_norm),
        sys::GGML_OP_L2_NORM => Of(norm::l2_norm),

        sys::GGML_OP_SOFT_MAX => Of(softmax::soft_max),
        sys::GGML_OP_SOFT_MAX_BACK => Of(softmax::soft_max_back),
        sys::GGML_OP_CROSS_ENTROPY_LOSS => Of(softmax::cross_entropy_loss),
        sys::GGML_OP_CROSS_ENTROPY_LOSS_BACK => Of(softmax::cross_entropy_loss_back),

        sys::GGML_OP_ROPE => Of(|call| rope::rope(call, 1.0)),
        sys::GGML_OP_ROPE_BACK => Of(|call| rope::rope(call, -1.0)),

        sys::GGML_OP_MUL_MAT => Of(matmul::mul_mat),
        sys::GGML_OP_OUT_PROD => Of(matmul::out_prod),
        sys::GGML_OP_MUL_MAT_ID => Of(matmul::mul_mat_id),

        sys::GGML_OP_GET_ROWS => Of(rows::get_rows),
        sys::GGML_OP_GET_ROWS_BACK => Of(rows::get_rows_back),
        sys::GGML_OP_SET_ROWS => Of(rows::set_rows),
        sys::GGML_OP_ADD_ID => Of(rows::add_id),
        sys::GGML_OP_ARGSORT => Of(rows::argsort),
        sys::GGML_OP_TOP_K => Of(rows::top_k),
        sys::GGML_OP_ARGMAX => Of(rows::argmax),

        sys::GGML_OP_IM2COL => Of(conv::im2col),
        sys::GGML_OP_IM2COL_BACK => Of(conv::im2col_back),
        sys::GGML_OP_POOL_1D => Of(conv::pool_1d),
        sys::GGML_OP_POOL_2D => Of(conv::pool_2d),
        sys::GGML_OP_POOL_2D_BACK => Of(conv::pool_2d_back),

        sys::GGML_OP_IM2COL_3D => Of(convolve::im2col_3d),
        sys::GGML_OP_COL2IM_1D => Of(convolve::col2im_1d),
        sys::GGML_OP_CONV_2D => Of(convolve::conv_2d),
        sys::GGML_OP_CONV_2D_DW => Of(convolve::conv_2d_dw),
        sys::GGML_OP_CONV_3D => Of(convolve::conv_3d),
        sys::GGML_OP_CONV_TRANSPOSE_1D => Of(convolve::conv_transpose_1d),
        sys::GGML_OP_CONV_TRANSPOSE_2D => Of(convolve::conv_transpose_2d),

        sys::GGML_OP_UPSCALE => Of(image::upscale),
        sys::GGML_OP_TIMESTEP_EMBEDDING => Of(image::timestep_embedding),
        sys::GGML_OP_PAD_REFLECT_1D => Of(window::pad_reflect_1d),
        sys::GGML_OP_ROLL => Of(window::roll),
        sys::GGML_OP_WIN_PART => Of(window::win_part),
        sys::GGML_OP_WIN_UNPART => Of(window::win_unpart),
        sys::GGML_OP_GET_REL_POS => Of(window::get_rel_pos),
        sys::GGML_OP_ADD_REL_POS => Of(window::add_rel_pos),

        sys::GGML_OP_TRI => Of(triangle::tri),
        sys::GGML_OP_SOLVE_TRI => Of(triangle::solve_tri),

        sys::GGML_OP_FLASH_ATTN_EXT => Of(attention::flash_attn_ext),
        sys::GGML_OP_LIGHTNING_INDEXER => Of(attention::lightning_indexer),
        sys::GGML_OP_SSM_CONV => Of(recurrent::ssm_conv),
        sys::GGML_OP_SSM_SCAN => Of(recurrent::ssm_scan),
        sys::GGML_OP_RWKV_WKV6 => Of(recurrent::rwkv_wkv6),
        sys::GGML_OP_RWKV_WKV7 => Of(recurrent::rwkv_wkv7),
        sys::GGML_OP_GATED_LINEAR_ATTN => Of(recurrent::gated_linear_attn),
        sys::GGML_OP_GATED_DELTA_NET => Of(recurrent::gated_delta_net),
        sys::GGML_OP_DSV4_HC_COMB => Of(streams::comb),
        sys::GGML_OP_DSV4_HC_PRE => Of(streams::pre),
        sys::GGML_OP_DSV4_HC_POST => Of(streams::post),

        sys::GGML_OP_OPT_STEP_ADAMW => Definition::Writes(optimizer::adamw),
        sys::GGML_OP_OPT_STEP_SGD => Of(optimizer::sgd),
        _ => return None,
    })
}

//! The ops that graphs are made of, as data: a step names one, and can be made again in another graph.

use ggml_rs::{
    Builder, DType, ExpertIds, GatedDeltaNet, GluOp, Result, Rope, RopeMode, RowIds, SoftMax,
    SortOrder, Staging, Tensor, TriPart,
};

use crate::fill::Fill;

/// What a step made.
#[derive(Clone, Copy)]
pub enum Value<'g> {
    Tensor(Tensor<'g>),
    Rows(RowIds<'g>),
    Experts(ExpertIds<'g>),
}

impl<'g> From<Tensor<'g>> for Value<'g> {
    fn from(tensor: Tensor<'g>) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'g> From<RowIds<'g>> for Value<'g> {
    fn from(ids: RowIds<'g>) -> Self {
        Self::Rows(ids)
    }
}

impl<'g> From<ExpertIds<'g>> for Value<'g> {
    fn from(ids: ExpertIds<'g>) -> Self {
        Self::Experts(ids)
    }
}

/// How a step is made.
#[derive(Clone, Copy)]
pub enum Make {
    /// An input; `n` is its shape.
    Input,
    /// A parameter, marked as trainable; `n` is its shape.
    Param,
    /// A parameter that is not.
    Weight,
    /// Ids of rows: `n` is the shape, and the number of rows.
    Rows,
    /// Ids of experts: for a token, tokens, and of how many.
    Experts,
    Node(for<'g> fn(&Operands<'_, 'g>) -> Result<Value<'g>>),
}

/// An op.
pub struct Op {
    pub name: &'static str,
    pub make: Make,
    /// The operand whose memory the result lies in.
    pub shares: Option<usize>,
    /// It writes there.
    pub writes: bool,
}

/// One op with its operands, which are earlier steps, and its numbers.
#[derive(Clone)]
pub struct Step {
    pub op: &'static Op,
    pub args: Vec<usize>,
    pub n: Vec<usize>,
    pub x: Vec<f32>,
    pub dtype: DType,
    pub fill: Fill,
    /// The pattern that it was drawn for.
    pub pattern: usize,
}

/// A step's operands, while its node is made.
pub struct Operands<'a, 'g> {
    pub g: Builder<'g>,
    pub step: &'a Step,
    pub values: &'a [Option<Value<'g>>],
}

impl<'g> Operands<'_, 'g> {
    fn value(&self, i: usize) -> Value<'g> {
        self.values[self.step.args[i]].expect("operands come first")
    }

    fn t(&self, i: usize) -> Tensor<'g> {
        match self.value(i) {
            Value::Tensor(tensor) => tensor,
            Value::Rows(_) | Value::Experts(_) => panic!("operand {i} is no tensor"),
        }
    }

    fn optional(&self, i: usize) -> Option<Tensor<'g>> {
        (i < self.step.args.len()).then(|| self.t(i))
    }

    fn rows(&self, i: usize) -> RowIds<'g> {
        match self.value(i) {
            Value::Rows(ids) => ids,
            Value::Tensor(_) | Value::Experts(_) => panic!("operand {i} names no rows"),
        }
    }

    fn experts(&self, i: usize) -> ExpertIds<'g> {
        match self.value(i) {
            Value::Experts(ids) => ids,
            Value::Tensor(_) | Value::Rows(_) => panic!("operand {i} names no experts"),
        }
    }

    fn n(&self, i: usize) -> usize {
        self.step.n[i]
    }

    fn x(&self, i: usize) -> f32 {
        self.step.x[i]
    }

    fn four(&self, at: usize) -> [usize; 4] {
        self.step.n[at..at + 4].try_into().unwrap()
    }

    /// A shape for ops that take it from a tensor which they do not read.
    fn like(&self) -> Result<Tensor<'g>> {
        self.g.empty("", DType::F32, self.four(0))
    }

    fn three(&self, at: usize) -> [usize; 3] {
        self.step.n[at..at + 3].try_into().unwrap()
    }

    fn dtype(&self) -> DType {
        self.step.dtype
    }

    fn glu(&self) -> GluOp {
        GATES[self.n(0)]
    }

    fn soft_max(&self) -> SoftMax<'g> {
        SoftMax {
            mask: self.optional(1),
            sinks: self.optional(2),
            scale: self.x(0),
            max_bias: self.x(1),
        }
    }

    /// `n` is the mode and the number of dimensions that turn, 0 for all.
    fn rope(&self) -> Rope<'g> {
        let dims = self.n(1);
        Rope {
            mode: [RopeMode::Normal, RopeMode::Neox][self.n(0)],
            dims: (dims > 0).then_some(dims),
            ..Rope::default()
        }
    }
}

pub const GATES: [GluOp; 5] = [
    GluOp::Reglu,
    GluOp::Geglu,
    GluOp::Swiglu,
    GluOp::GegluErf,
    GluOp::GegluQuick,
];

/// `name => ..` makes a tensor of its own, `name in 0 => ..` is another look at operand 0's memory, and
/// `name into 0 => ..` writes there.
macro_rules! ops {
    ($($name:ident $(in $shares:literal)? $(into $writes:literal)? => |$o:ident| $body:expr;)*) => {
        &[
            Op { name: "input", make: Make::Input, shares: None, writes: false },
            Op { name: "param", make: Make::Param, shares: None, writes: false },
            Op { name: "weight", make: Make::Weight, shares: None, writes: false },
            Op { name: "row_ids", make: Make::Rows, shares: None, writes: false },
            Op { name: "expert_ids", make: Make::Experts, shares: None, writes: false },
            $(Op {
                name: stringify!($name),
                make: Make::Node({
                    fn make<'g>($o: &Operands<'_, 'g>) -> Result<Value<'g>> {
                        Ok($body?.into())
                    }
                    make
                }),
                shares: [$(Some($shares),)? $(Some($writes),)? None][0],
                writes: [$($writes == $writes,)? false][0],
            }),*
        ]
    };
}

pub static OPS: &[Op] = ops! {
    // Views.
    reshape in 0 => |o| o.t(0).reshape(o.four(0));
    view in 0 => |o| o.t(0).view(o.four(0), o.three(4), o.n(7));
    permute in 0 => |o| o.t(0).permute(o.four(0));
    transpose in 0 => |o| o.t(0).transpose();
    narrow in 0 => |o| o.rows(0).narrow(o.n(0), o.n(1), o.n(2));
    // Copies.
    cont => |o| o.t(0).cont();
    cont_reshaped => |o| o.t(0).cont_reshaped(o.four(0));
    dup => |o| o.t(0).dup();
    dup_inplace into 0 => |o| o.t(0).dup_inplace();
    cast => |o| o.t(0).cast(o.dtype());
    cpy into 1 => |o| o.t(0).cpy(o.t(1));
    ids_to_tensor => |o| o.rows(0).to_tensor();
    ids_as_experts in 0 => |o| o.rows(0).experts();
    // Arithmetic.
    add => |o| o.t(0).add(o.t(1));
    sub => |o| o.t(0).sub(o.t(1));
    mul => |o| o.t(0).mul(o.t(1));
    div => |o| o.t(0).div(o.t(1));
    add1 => |o| o.t(0).add1(o.t(1));
    add_inplace into 0 => |o| o.t(0).add_inplace(o.t(1));
    sub_inplace into 0 => |o| o.t(0).sub_inplace(o.t(1));
    mul_inplace into 0 => |o| o.t(0).mul_inplace(o.t(1));
    div_inplace into 0 => |o| o.t(0).div_inplace(o.t(1));
    add_id => |o| o.t(0).add_id(o.t(1), o.experts(2));
    scale => |o| o.t(0).scale(o.x(0));
    scale_inplace into 0 => |o| o.t(0).scale_inplace(o.x(0));
    scale_bias => |o| o.t(0).scale_bias(o.x(0), o.x(1));
    scale_bias_inplace into 0 => |o| o.t(0).scale_bias_inplace(o.x(0), o.x(1));
    clamp => |o| o.t(0).clamp(o.x(0), o.x(1));
    clamp_inplace into 0 => |o| o.t(0).clamp_inplace(o.x(0), o.x(1));
    fill_inplace into 0 => |o| o.t(0).fill_inplace(o.x(0));
    leaky_relu => |o| o.t(0).leaky_relu(o.x(0));
    // Functions.
    abs => |o| o.t(0).abs();
    neg => |o| o.t(0).neg();
    sgn => |o| o.t(0).sgn();
    step => |o| o.t(0).step();
    relu => |o| o.t(0).relu();
    tanh => |o| o.t(0).tanh();
    sigmoid => |o| o.t(0).sigmoid();
    silu => |o| o.t(0).silu();
    gelu => |o| o.t(0).gelu();
    gelu_erf => |o| o.t(0).gelu_erf();
    gelu_quick => |o| o.t(0).gelu_quick();
    elu => |o| o.t(0).elu();
    hardswish => |o| o.t(0).hardswish();
    softplus => |o| o.t(0).softplus();
    floor => |o| o.t(0).floor();
    round => |o| o.t(0).round();
    sqr => |o| o.t(0).sqr();
    sin => |o| o.t(0).sin();
    cos => |o| o.t(0).cos();
    relu_inplace into 0 => |o| o.t(0).relu_inplace();
    neg_inplace into 0 => |o| o.t(0).neg_inplace();
    abs_inplace into 0 => |o| o.t(0).abs_inplace();
    tanh_inplace into 0 => |o| o.t(0).tanh_inplace();
    silu_inplace into 0 => |o| o.t(0).silu_inplace();
    sqr_inplace into 0 => |o| o.t(0).sqr_inplace();
    sin_inplace into 0 => |o| o.t(0).sin_inplace();
    // Gates.
    glu => |o| o.t(0).glu(o.glu());
    glu_swapped => |o| o.t(0).glu_swapped(o.glu());
    glu_split => |o| o.t(0).glu_split(o.t(1), o.glu());
    swiglu_oai => |o| o.t(0).swiglu_oai(o.t(1), o.x(0), o.x(1));
    // Norms and softmax.
    norm => |o| o.t(0).norm(o.x(0));
    rms_norm => |o| o.t(0).rms_norm(o.x(0));
    l2_norm => |o| o.t(0).l2_norm(o.x(0));
    group_norm => |o| o.t(0).group_norm(o.n(0), o.x(0));
    norm_inplace into 0 => |o| o.t(0).norm_inplace(o.x(0));
    rms_norm_inplace into 0 => |o| o.t(0).rms_norm_inplace(o.x(0));
    rms_norm_back => |o| o.t(0).rms_norm_back(o.t(1), o.x(0));
    soft_max => |o| o.t(0).soft_max();
    soft_max_inplace into 0 => |o| o.t(0).soft_max_inplace();
    soft_max_ext => |o| o.t(0).soft_max_ext(o.soft_max());
    soft_max_ext_back => |o| o.t(0).soft_max_ext_back(o.t(1), o.x(0));
    cross_entropy_loss => |o| o.t(0).cross_entropy_loss(o.t(1));
    rope => |o| o.t(0).rope(o.t(1), o.rope());
    rope_inplace into 0 => |o| o.t(0).rope_inplace(o.t(1), o.rope());
    rope_back => |o| o.t(0).rope_back(o.t(1), o.rope());
    // Windows that are written to.
    acc => |o| o.t(0).acc(o.t(1), o.three(0), o.n(3));
    acc_inplace into 0 => |o| o.t(0).acc_inplace(o.t(1), o.three(0), o.n(3));
    set => |o| o.t(0).set(o.t(1), o.three(0), o.n(3));
    set_inplace into 0 => |o| o.t(0).set_inplace(o.t(1), o.three(0), o.n(3));
    // Rows.
    get_rows => |o| o.t(0).get_rows(o.rows(1));
    get_rows_back => |o| o.t(0).get_rows_back(o.rows(1), o.like()?);
    set_rows into 0 => |o| o.t(0).set_rows(o.t(1), o.rows(2));
    argsort => |o| o.t(0).argsort([SortOrder::Ascending, SortOrder::Descending][o.n(0)]);
    argmax => |o| o.t(0).argmax();
    // Arrangements.
    concat => |o| o.t(0).concat(o.t(1), o.n(0));
    repeat => |o| o.t(0).repeat(o.four(0));
    repeat_back => |o| o.t(0).repeat_back(o.like()?);
    pad_ext => |o| o.t(0).pad_ext(o.four(0), o.four(4));
    pad_reflect_1d => |o| o.t(0).pad_reflect_1d(o.n(0), o.n(1));
    roll => |o| o.t(0).roll(o.four(0).map(|shift| shift as i32 - 2));
    diag => |o| o.t(0).diag();
    diag_mask_zero => |o| o.t(0).diag_mask_zero(o.n(0));
    tri => |o| o.t(0).tri([TriPart::Lower, TriPart::Upper][o.n(0)]);
    // Reductions.
    sum => |o| o.t(0).sum();
    sum_rows => |o| o.t(0).sum_rows();
    mean => |o| o.t(0).mean();
    max_rows => |o| o.t(0).max_rows();
    cumsum => |o| o.t(0).cumsum();
    // Products.
    mul_mat => |o| o.t(0).mul_mat(o.t(1));
    mul_mat_float => |o| o.t(0).mul_mat(o.t(1))?.set_staging(Staging::Float);
    out_prod => |o| o.t(0).out_prod(o.t(1));
    mul_mat_id => |o| o.t(0).mul_mat_id(o.t(1), o.experts(2));
    // Recurrent ops.
    ssm_conv => |o| o.t(0).ssm_conv(o.t(1));
    gated_delta_net => |o| o.t(0).gated_delta_net(GatedDeltaNet {
        k: o.t(1),
        v: o.t(2),
        g: o.t(3),
        beta: o.t(4),
        state: o.t(5),
        states: o.n(0),
    });
    // Steps of optimizers.
    opt_step_sgd into 0 => |o| o.t(0).opt_step_sgd(o.t(1), o.t(2));
    opt_step_adamw into 0 => |o| o.t(0).opt_step_adamw(o.t(1), o.t(2), o.t(3), o.t(4));
};

/// The op of a name.
pub fn op(name: &str) -> &'static Op {
    let found = OPS.iter().find(|op| op.name == name);
    found.unwrap_or_else(|| panic!("no op is called {name}"))
}

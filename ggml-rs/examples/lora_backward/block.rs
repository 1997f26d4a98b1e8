//! A transformer block with LoRA adapters, a loss, and the gradients of the adapters.

use ggml_rs::{
    BackwardOptions, Builder, DType, GluOp, Graph, Input, IntoShape, Output, Result, Rope,
    RopeMode, SoftMax, Staging, Tensor,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Width of the residual stream: rows of q4_K are whole blocks of 256.
const WIDTH: usize = 256;
/// Width of the feed-forward network.
const HIDDEN: usize = 512;
const HEADS: usize = 4;
/// Width of a head.
const HEAD: usize = WIDTH / HEADS;
/// Enough for Metal's batched products, which stage their operands.
const TOKENS: usize = 32;
/// Of the adapters.
const RANK: usize = 8;
/// An adapter's product is scaled by this, alpha / rank.
const LORA_SCALE: f32 = 2.0;
const EPS: f32 = 1e-5;
/// Losses are scaled up in training with half precision, so that small gradients are not lost. Large ones then are.
const LOSS_SCALE: f32 = 1e9;

/// How the products of the two directions stage their operands.
#[derive(Debug, Clone, Copy)]
pub struct Stagings {
    pub forward: Staging,
    pub backward: Staging,
}

/// What a graph of the block takes and gives.
pub struct Block {
    pub inputs: Vec<(Input, Vec<f32>)>,
    pub positions: (Input, Vec<i32>),
    pub loss: Output,
    /// The loss's gradient at the end of the block, where the backward begins.
    pub at_the_end: Output,
    /// Of each adapter.
    pub gradients: Vec<Output>,
    /// The places in `inputs` of the adapters, in the order of `gradients`.
    pub adapters: Vec<usize>,
}

/// Builds the block, its loss and the gradients of its adapters.
pub fn build(seed: u64, stagings: Stagings) -> Result<(Graph, Block)> {
    Graph::build(|g| {
        let mut net = Net::new(g, seed, stagings.forward)?;
        let x = net.input("x", DType::F32, [WIDTH, TOKENS], 1.0)?;
        let x = x.add(net.attention(x)?)?;
        let y = x.add(net.feed_forward(x)?)?;
        let target = net.input("target", DType::F32, [WIDTH, TOKENS], 1.0)?;

        // The mean square, scaled.
        let error = y.sub(target)?;
        let factor = LOSS_SCALE / (WIDTH * TOKENS) as f32;
        let loss = error.mul(error)?.sum()?.scale(factor)?;
        let at_the_end = g.output("gradient at the end", error.scale(2.0 * factor)?)?;

        let options = BackwardOptions::default().staging(stagings.backward);
        let gradients = g.backward_with(loss, options)?;
        let mut outputs = Vec::new();
        for (adapter, name) in &net.adapters {
            outputs.push(g.output(name, gradients.of(*adapter)?.cont()?)?);
        }
        let loss = g.output("loss", loss)?;
        Ok(net.finish(loss, at_the_end, outputs))
    })
}

/// A block under construction.
struct Net<'g> {
    g: Builder<'g>,
    random: ChaCha8Rng,
    forward: Staging,
    positions: (Tensor<'g>, Input),
    mask: Tensor<'g>,
    inputs: Vec<(Input, Vec<f32>)>,
    adapters: Vec<(Tensor<'g>, String)>,
    adapter_inputs: Vec<usize>,
}

impl<'g> Net<'g> {
    fn new(g: Builder<'g>, seed: u64, forward: Staging) -> Result<Self> {
        let (mask, mask_in) = g.input("mask", DType::F16, [TOKENS, TOKENS])?;
        Ok(Self {
            g,
            random: ChaCha8Rng::seed_from_u64(seed),
            forward,
            positions: g.input("positions", DType::I32, [TOKENS])?,
            mask,
            inputs: vec![(mask_in, causal())],
            adapters: Vec::new(),
            adapter_inputs: Vec::new(),
        })
    }

    /// An input of uniformly distributed values up to `limit`.
    fn input(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoShape,
        limit: f32,
    ) -> Result<Tensor<'g>> {
        let (tensor, input) = self.g.input(name, dtype, shape)?;
        let uniform = |random: &mut ChaCha8Rng| {
            (random.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0) * limit
        };
        let values = (0..input.shape().elements())
            .map(|_| uniform(&mut self.random))
            .collect();
        self.inputs.push((input, values));
        Ok(tensor)
    }

    /// A frozen quantized matrix, `[from, to]`.
    fn weight(&mut self, name: &str, from: usize, to: usize) -> Result<Tensor<'g>> {
        self.input(name, DType::Q4_K, [from, to], (3.0 / from as f32).sqrt())
    }

    /// One matrix of an adapter. Neither starts at zero, as one would in training: then the other had no gradient.
    fn adapter(&mut self, name: String, from: usize, to: usize) -> Result<Tensor<'g>> {
        let tensor = self
            .input(&name, DType::F32, [from, to], (3.0 / from as f32).sqrt())?
            .set_param()?;
        self.adapter_inputs.push(self.inputs.len() - 1);
        self.adapters.push((tensor, format!("gradient of {name}")));
        Ok(tensor)
    }

    fn product(&self, a: Tensor<'g>, b: Tensor<'g>) -> Result<Tensor<'g>> {
        a.mul_mat(b)?.set_staging(self.forward)
    }

    /// `W x + scale * B (A x)`: a frozen W, trained A and B.
    fn adapted(&mut self, name: &str, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let weight = self.weight(name, WIDTH, WIDTH)?;
        let a = self.adapter(format!("{name}.a"), WIDTH, RANK)?;
        let b = self.adapter(format!("{name}.b"), RANK, WIDTH)?;
        let low = self.product(b, self.product(a, x)?)?.scale(LORA_SCALE)?;
        self.product(weight, x)?.add(low)
    }

    /// Causal attention with rotary positions, written out: ggml has no backward of its attention in one op.
    fn attention(&mut self, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let x = x.rms_norm(EPS)?;
        let heads = [HEAD, HEADS, TOKENS];
        let rope = Rope {
            mode: RopeMode::Neox,
            ..Rope::default()
        };
        let query = self
            .adapted("query", x)?
            .reshape(heads)?
            .rope(self.positions.0, rope)?;
        let key = self.weight("key", WIDTH, WIDTH)?;
        let key = self
            .product(key, x)?
            .reshape(heads)?
            .rope(self.positions.0, rope)?;
        let value = self.adapted("value", x)?.reshape(heads)?;

        // [head, tokens, heads] each; of the values [tokens, head, heads].
        let (query, key) = (query.permute([0, 2, 1, 3])?, key.permute([0, 2, 1, 3])?);
        let value = value.permute([1, 2, 0, 3])?.cont()?;
        let options = SoftMax {
            mask: Some(self.mask),
            scale: 1.0 / (HEAD as f32).sqrt(),
            ..SoftMax::default()
        };
        let weights = self.product(key, query)?.soft_max_ext(options)?;
        let mixed = self
            .product(value, weights)?
            .permute([0, 2, 1, 3])?
            .cont()?;
        let out = self.weight("out", WIDTH, WIDTH)?;
        self.product(out, mixed.reshape([WIDTH, TOKENS])?)
    }

    /// `W_down (silu(W_gate x) * (W_up x))`.
    fn feed_forward(&mut self, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let x = x.rms_norm(EPS)?;
        let (gate, up) = (
            self.weight("gate", WIDTH, HIDDEN)?,
            self.weight("up", WIDTH, HIDDEN)?,
        );
        let hidden = self
            .product(gate, x)?
            .glu_split(self.product(up, x)?, GluOp::Swiglu)?;
        let down = self.weight("down", HIDDEN, WIDTH)?;
        self.product(down, hidden)
    }

    fn finish(self, loss: Output, at_the_end: Output, gradients: Vec<Output>) -> Block {
        Block {
            inputs: self.inputs,
            positions: (self.positions.1, (0..TOKENS as i32).collect()),
            loss,
            at_the_end,
            gradients,
            adapters: self.adapter_inputs,
        }
    }
}

/// 0 where a token sees another, -inf where that comes later: `[keys, queries]`.
fn causal() -> Vec<f32> {
    let seen = |query: usize, key: usize| if key <= query { 0.0 } else { f32::NEG_INFINITY };
    (0..TOKENS)
        .flat_map(|query| (0..TOKENS).map(move |key| seen(query, key)))
        .collect()
}

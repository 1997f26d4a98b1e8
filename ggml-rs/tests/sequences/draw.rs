//! What a sequence is drawn from: operands that fit, and now and then some that do not.

use ggml_rs::DType::{self, F32};
use ggml_rs::{
    Builder, ExpertIds, Gradients, Input, Param, Params, Result, RowIds, RowIdsOptions, Shape,
    Tensor,
};

use crate::common::Random;
use crate::fill::Fill;
use crate::table::Bits;

/// How often something does not fit, in 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    pub wild: usize,
    /// Inputs are marked as trainable.
    pub trains: bool,
    /// Leaves are parameters.
    pub stores: bool,
}

/// An input, what it is set to, and whether ids that do not exist are tried first.
#[derive(Debug, Clone, Copy)]
pub struct Set {
    pub input: Input,
    pub fill: Fill,
}

/// What a move makes.
pub enum Made<'g> {
    Tensor(Tensor<'g>),
    Rows(RowIds<'g>),
}

impl<'g> From<Tensor<'g>> for Made<'g> {
    fn from(tensor: Tensor<'g>) -> Self {
        Self::Tensor(tensor)
    }
}

impl<'g> From<RowIds<'g>> for Made<'g> {
    fn from(ids: RowIds<'g>) -> Self {
        Self::Rows(ids)
    }
}

/// A tensor, and the moves that it is the result of.
#[derive(Clone, Copy)]
pub struct Entry<'g> {
    pub tensor: Tensor<'g>,
    pub history: Bits,
}

/// A sequence under construction.
pub struct Draw<'g> {
    pub g: Builder<'g>,
    pub random: Random,
    pub style: Style,
    pub pool: Vec<Entry<'g>>,
    pub sets: Vec<Set>,
    /// Trainable leaves.
    pub marked: Vec<Tensor<'g>>,
    pub gradients: Option<Gradients<'g>>,
    /// The moves behind the operands that were drawn since the current move began.
    pub used: Bits,
    /// Something was made that is not to be allocated.
    pub large: bool,
    pub ids: Vec<(RowIds<'g>, Bits)>,
    params: Option<Params>,
}

/// Tensors beyond this are made, and not used: runs are short.
const LARGEST: usize = 1 << 19;

/// Numbers that no op expects.
const SIZES: [usize; 14] = [
    0,
    1,
    2,
    3,
    5,
    31,
    256,
    1000,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    (1 << 62) + 1,
    isize::MAX as usize,
    usize::MAX,
];
const FLOATS: [f32; 12] = [
    0.0,
    -0.0,
    -1.0,
    1.0,
    1e-40,
    3e9,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    -f32::NAN,
];

impl<'g> Draw<'g> {
    pub fn new(g: Builder<'g>, random: Random, style: Style, params: Option<Params>) -> Self {
        Self {
            g,
            random,
            style,
            pool: Vec::new(),
            sets: Vec::new(),
            marked: Vec::new(),
            gradients: None,
            used: Bits::default(),
            large: false,
            ids: Vec::new(),
            params,
        }
    }

    /// Takes what a move made.
    pub fn keep(&mut self, made: Made<'g>, history: Bits) {
        match made {
            Made::Rows(ids) => self.ids.push((ids, history)),
            Made::Tensor(tensor) => {
                let small = |bytes| bytes <= LARGEST;
                match tensor.shape().bytes(tensor.dtype()).is_ok_and(small) {
                    true => self.pool.push(Entry { tensor, history }),
                    false => self.large = true,
                }
            }
        }
    }

    /// Whether what comes next shall not fit.
    pub fn wild(&mut self) -> bool {
        self.style.wild > 0 && self.random.below(256) < self.style.wild
    }

    /// Once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.random.pick(from)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.random.below(n.max(1))
    }

    /// A number that fits: this one.
    pub fn size(&mut self, fits: usize) -> usize {
        match self.wild() {
            true => match self.random.below(4) {
                0 => fits.wrapping_add(1),
                1 => fits.wrapping_sub(1),
                _ => self.pick(&SIZES),
            },
            false => fits,
        }
    }

    pub fn sizes<const N: usize>(&mut self, fits: [usize; N]) -> [usize; N] {
        fits.map(|size| self.size(size))
    }

    /// 1 to `most`.
    pub fn up_to(&mut self, most: usize) -> usize {
        let fits = 1 + self.below(most);
        self.size(fits)
    }

    pub fn float(&mut self, fits: f32) -> f32 {
        match self.wild() {
            true => self.pick(&FLOATS),
            false => fits,
        }
    }

    /// A small dimension.
    pub fn dim(&mut self) -> usize {
        self.pick(&[1, 1, 2, 3, 4, 5, 6, 8, 9, 16])
    }

    /// The length of a row of this type.
    pub fn row(&mut self, dtype: DType) -> usize {
        match dtype.block_len() {
            1 => self.pick(&[1, 2, 3, 4, 5, 7, 8, 16, 17, 32, 33, 64]),
            len => len * self.pick(&[1, 1, 1, 2, 3]),
        }
    }

    pub fn batch(&mut self) -> usize {
        self.pick(&[1, 1, 1, 2, 3])
    }

    /// A shape for this type.
    pub fn shape(&mut self, dtype: DType) -> [usize; 4] {
        let rank = 1 + self.below(4);
        let mut ne = [self.row(dtype), self.dim(), self.batch(), self.batch()];
        ne[rank..].fill(1);
        ne
    }

    /// Any shape of these that ggml cannot have, or that does not fit.
    fn bend(&mut self, mut ne: [usize; 4]) -> [usize; 4] {
        let at = self.below(4);
        ne[at] = match self.random.below(4) {
            0 => self.pick(&SIZES),
            1 => ne[at].wrapping_add(1),
            2 => ne[at].wrapping_mul(2),
            _ => self.dim(),
        };
        ne
    }

    /// Anything at all.
    pub fn any(&mut self) -> Result<Tensor<'g>> {
        if self.pool.is_empty() || self.one_in(3) {
            let dtype = self.pick(&DType::ALL);
            let mut ne = self.shape(dtype);
            if self.one_in(4) {
                ne = self.bend(ne);
            }
            return self.leaf(dtype, ne);
        }
        let entry = self.pool[self.random.below(self.pool.len())];
        Ok(self.take(entry))
    }

    fn take(&mut self, entry: Entry<'g>) -> Tensor<'g> {
        self.used = self.used.or(entry.history);
        entry.tensor
    }

    /// A tensor of the pool for which this holds.
    pub fn find(&mut self, fits: impl Fn(Tensor<'g>) -> bool) -> Option<Tensor<'g>> {
        let start = self.below(self.pool.len());
        let (before, after) = self.pool.split_at(start);
        let mut around = after.iter().chain(before);
        let found = around.find(|entry| fits(entry.tensor)).copied()?;
        Some(self.take(found))
    }

    /// One of these types, in any shape.
    pub fn of(&mut self, dtypes: &[DType]) -> Result<Tensor<'g>> {
        if self.wild() {
            return self.any();
        }
        if !self.one_in(3)
            && let Some(found) = self.find(|tensor| dtypes.contains(&tensor.dtype()))
        {
            return Ok(found);
        }
        let dtype = self.pick(dtypes);
        let ne = self.shape(dtype);
        self.leaf(dtype, ne)
    }

    /// F32 in any shape.
    pub fn f32(&mut self) -> Result<Tensor<'g>> {
        self.of(&[F32])
    }

    /// One of these types, contiguous.
    pub fn packed(&mut self, dtypes: &[DType]) -> Result<Tensor<'g>> {
        let tensor = self.of(dtypes)?;
        match tensor.is_contiguous() || self.wild() {
            true => Ok(tensor),
            false => tensor.cont(),
        }
    }

    /// This type and shape.
    pub fn tensor(&mut self, dtype: DType, ne: [usize; 4]) -> Result<Tensor<'g>> {
        self.fitting(dtype, ne, false)
    }

    /// This type and shape, contiguous.
    pub fn plain(&mut self, dtype: DType, ne: [usize; 4]) -> Result<Tensor<'g>> {
        self.fitting(dtype, ne, true)
    }

    fn fitting(&mut self, dtype: DType, ne: [usize; 4], plain: bool) -> Result<Tensor<'g>> {
        if self.wild() {
            return match self.random.below(4) {
                0 => self.any(),
                1 => {
                    let dtype = self.pick(&DType::ALL);
                    self.leaf(dtype, ne)
                }
                2 => {
                    let ne = self.bend(ne);
                    self.leaf(dtype, ne)
                }
                _ => self.leaf(dtype, ne),
            };
        }
        let fits = |tensor: Tensor<'g>| {
            tensor.dtype() == dtype
                && tensor.shape().ne() == ne
                && (!plain || tensor.is_contiguous())
        };
        if self.one_in(2)
            && let Some(found) = self.find(fits)
        {
            return Ok(found);
        }
        match plain {
            true if self.one_in(6) => self.odd(dtype, ne),
            true => self.input(dtype, ne),
            false => self.leaf(dtype, ne),
        }
    }

    /// The type and shape of another.
    pub fn like(&mut self, other: Tensor<'g>) -> Result<Tensor<'g>> {
        self.tensor(other.dtype(), other.shape().ne())
    }

    /// A shape that is repeated to become this one.
    pub fn part(&mut self, ne: [usize; 4]) -> [usize; 4] {
        match self.random.below(4) {
            0 => [1; 4],
            1 => [ne[0], 1, 1, 1],
            2 => ne.map(|n| if n % 2 == 0 { n / 2 } else { n }),
            _ => ne,
        }
    }

    /// A new leaf, whose elements may lie anywhere.
    pub fn leaf(&mut self, dtype: DType, ne: [usize; 4]) -> Result<Tensor<'g>> {
        let [n0, n1, n2, n3] = ne;
        match self.random.below(12) {
            0 => self.input(dtype, [n0, n2, n1, n3])?.permute([0, 2, 1, 3]),
            1 if dtype.block_len() == 1 => self.input(dtype, [n1, n0, n2, n3])?.transpose(),
            4 => self.odd(dtype, ne),
            2 => {
                // A window of something larger.
                let whole = self.input(dtype, [n0, n1.wrapping_add(1), n2, n3])?;
                let [_, nb1, nb2, nb3] = whole.strides();
                let offset = nb1 * self.below(2);
                whole.view(ne, [nb1, nb2, nb3], offset)
            }
            3 if dtype.block_len() == 1 => {
                let whole = self.input(dtype, [n0.wrapping_add(3), n1, n2, n3])?;
                let [nb0, nb @ ..] = whole.strides();
                let offset = nb0 * self.below(4);
                whole.view(ne, nb, offset)
            }
            _ => self.input(dtype, ne),
        }
    }

    /// A new leaf, contiguous, whose strides along dimensions of 1 are those of no new tensor.
    fn odd(&mut self, dtype: DType, ne: [usize; 4]) -> Result<Tensor<'g>> {
        let whole = self.input(dtype, ne)?;
        let [nb0, mut nb @ ..] = whole.strides();
        for (nb, n) in nb.iter_mut().zip(&ne[1..]) {
            if *n == 1 {
                *nb = nb0 * self.below(40);
            }
        }
        whole.view(ne, nb, 0)
    }

    /// A new leaf, contiguous.
    pub fn input(&mut self, dtype: DType, ne: [usize; 4]) -> Result<Tensor<'g>> {
        if self.style.stores
            && let Some(tensor) = self.stored(dtype, ne)?
        {
            return Ok(tensor);
        }
        // An input is a part of the graph even where nothing reads it.
        let large = Shape::new(&ne)?.bytes(dtype)? > LARGEST;
        self.large |= large;
        if large || (self.wild() && self.one_in(4)) {
            return self.g.empty("", dtype, ne);
        }
        let (mut tensor, input) = self.g.input("", dtype, ne)?;
        let fill = Fill::draw(&mut self.random, dtype, self.style.wild > 0);
        self.sets.push(Set { input, fill });
        if self.style.trains && dtype == F32 && self.one_in(2) {
            tensor = tensor.set_param()?;
            self.marked.push(tensor);
        }
        Ok(tensor)
    }

    /// A trainable F32 leaf.
    pub fn trained(&mut self, ne: [usize; 4]) -> Result<Tensor<'g>> {
        let is_marked = |tensor: &&Tensor<'g>| tensor.shape().ne() == ne;
        if let Some(&tensor) = self.marked.iter().find(is_marked)
            && self.one_in(2)
        {
            return Ok(tensor);
        }
        let tensor = self.input(F32, ne)?;
        if self.wild() {
            return Ok(tensor);
        }
        let tensor = tensor.set_param()?;
        self.marked.push(tensor);
        Ok(tensor)
    }

    /// A parameter of this type and shape.
    fn stored(&mut self, dtype: DType, ne: [usize; 4]) -> Result<Option<Tensor<'g>>> {
        let Some(params) = self.params.clone() else {
            return Ok(None);
        };
        let fits = |param: &Param| param.dtype() == dtype && param.shape().ne() == ne;
        let Some(param) = params.iter().find(fits) else {
            return Ok(None);
        };
        if dtype == F32 && self.style.trains {
            let tensor = self.g.param(&param)?;
            self.marked.push(tensor);
            return Ok(Some(tensor));
        }
        self.g.weight(&param).map(Some)
    }

    /// Ids of this shape below `rows`.
    pub fn rows(&mut self, ne: &[usize], rows: usize, distinct: bool) -> Result<RowIds<'g>> {
        if !self.ids.is_empty() && (self.one_in(3) || self.wild()) {
            let (ids, history) = self.ids[self.random.below(self.ids.len())];
            let full = |n: usize| ne.get(n).copied().unwrap_or(1);
            let shape: [usize; 4] = std::array::from_fn(full);
            if self.wild() || (ids.rows() <= rows && ids.shape().ne() == shape) {
                self.used = self.used.or(history);
                return Ok(ids);
            }
        }
        let list = ne.first().copied().unwrap_or(1);
        if self.one_in(4) && list <= rows && rows < 1 << 12 && ne.len() < 4 {
            return self.sorted(ne, rows);
        }
        let rows = self.size(rows);
        let mut options = RowIdsOptions::new(rows);
        if distinct != self.wild() {
            options = options.distinct();
        }
        if self.wild() {
            options = options.wide();
        }
        self.new_rows(ne, options)
    }

    /// Ids that a sort makes.
    fn sorted(&mut self, ne: &[usize], rows: usize) -> Result<RowIds<'g>> {
        let mut from = [1; 4];
        from[..ne.len()].copy_from_slice(ne);
        from[0] = rows;
        let values = self.plain(F32, from)?;
        match self.one_in(2) {
            true => values.top_k(ne[0]),
            false => values.argsort_top_k(ne[0]),
        }
    }

    fn new_rows(&mut self, ne: &[usize], options: RowIdsOptions) -> Result<RowIds<'g>> {
        self.note_ids(ne);
        let (ids, input) = self.g.row_ids_with("", ne, options)?;
        let fill = Fill::Ids {
            rows: options.rows,
            distinct: options.distinct,
            wrong: self.style.wild > 0 && self.one_in(8),
        };
        self.sets.push(Set { input, fill });
        Ok(ids)
    }

    fn note_ids(&mut self, ne: &[usize]) {
        let count = ne.iter().fold(1_usize, |count, &n| count.saturating_mul(n));
        self.large |= count > LARGEST / 8;
    }

    /// Ids of experts.
    pub fn experts(
        &mut self,
        per_token: usize,
        tokens: usize,
        experts: usize,
    ) -> Result<ExpertIds<'g>> {
        if self.one_in(4) {
            return self.rows(&[per_token, tokens], experts, true)?.experts();
        }
        let [per_token, tokens, experts] = self.sizes([per_token, tokens, experts]);
        self.note_ids(&[per_token, tokens]);
        let (ids, input) = self.g.expert_ids("", per_token, tokens, experts)?;
        let fill = Fill::Ids {
            rows: experts,
            distinct: true,
            wrong: self.style.wild > 0 && self.one_in(8),
        };
        self.sets.push(Set { input, fill });
        Ok(ids)
    }

    /// Ids that an op made, or new ones.
    pub fn made_rows(&mut self) -> Result<RowIds<'g>> {
        if self.ids.is_empty() || self.one_in(3) {
            let (list, lists) = (self.dim(), self.batch());
            return self.rows(&[list, lists], list + 2, true);
        }
        let (ids, history) = self.ids[self.random.below(self.ids.len())];
        self.used = self.used.or(history);
        Ok(ids)
    }
}

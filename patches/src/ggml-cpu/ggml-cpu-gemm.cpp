#include "ggml-cpu-gemm.h"

#include "ggml-cpu-gemm-kernel.h"
#include "ggml-cpu-gemm-pack.h"

// The product is cut as GotoBLAS does it. A thread computes a tile of the result at a time. For each block of k it copies the
// tile's rows of q, a part of its rows of p (which then stays in the second level of cache), and multiplies panels of both:
// a panel of q stays in the first level while those of p pass by.
//
// p is the operand whose rows become the lanes of vectors, q the one whose rows become columns of a kernel. p is a, which lies
// along dim 0 as the result does, unless that is short.

namespace {

// Steps of k that are summed in registers before they are added to the result. This bounds rounding errors, too.
constexpr int64_t K_MOST = 384;

// Floats of p that are packed at a time, and rows of q.
constexpr int64_t P_FLOATS = 256*K_MOST;
constexpr int64_t Q_MOST   = (1024 + PANEL_Q - 1)/PANEL_Q*PANEL_Q;

// Rows of p in a tile, at most.
constexpr int64_t P_MOST = 4096;

// With so few columns a row of p is read about as often as packing reads it.
constexpr int64_t Q_DIRECT = 2*PANEL_Q;

// A tile of fewer multiply-adds is not worth a thread.
constexpr int64_t SMALLEST = 1 << 16;

// What packing a float costs, in multiply-adds: about the time, with all lanes busy.
constexpr int64_t COST_P = 4;
constexpr int64_t COST_Q = 8;

constexpr size_t ALIGNMENT = 64;

constexpr int64_t parts(int64_t n, int64_t of) { return (n + of - 1)/of; }
constexpr int64_t round_up(int64_t n, int64_t to) { return parts(n, to)*to; }

// How a product is computed: everything that decides about bits depends on its shape alone.
struct shape {
    bool    swapped; // p is b
    int64_t p;
    int64_t q;
    int64_t k;
    int64_t k_block;
    int64_t p_unit; // a tile starts at a multiple of it
    int64_t p_most; // rows packed at a time
    int64_t matrices;
};

// Whether lanes would be wasted along dim 0 and less so along dim 1.
bool better_swapped(const ggml_cpu_gemm & g) {
    const int64_t m = g.dst->ne[0];
    const int64_t n = g.dst->ne[1];

    return !ggml_is_quantized(g.a.tensor->type) && g.k >= 32 && m < n &&
        10*round_up(m, LANES)*n > 11*round_up(n, LANES)*m;
}

shape shape_of(const ggml_cpu_gemm & g) {
    shape s;
    s.swapped  = better_swapped(g);
    s.p        = g.dst->ne[s.swapped ? 1 : 0];
    s.q        = g.dst->ne[s.swapped ? 0 : 1];
    s.k        = g.k;
    s.k_block  = parts(g.k, std::max<int64_t>(1, parts(g.k, K_MOST)));
    s.p_unit   = ggml_is_quantized(g.a.tensor->type) ? CONVERTED : PANEL_P;
    s.matrices = g.dst->ne[2]*g.dst->ne[3];

    const int64_t fit = P_FLOATS/std::max<int64_t>(1, s.k_block)/CONVERTED*CONVERTED;
    s.p_most = std::clamp(fit, CONVERTED, P_MOST);
    return s;
}

// One thread's part of the work buffer, in floats.
struct buffers {
    int64_t p;
    int64_t q;

    explicit buffers(const shape & s)
        : p(round_up(std::min(round_up(s.p, PANEL_P), s.p_most)*s.k_block, ALIGNMENT)),
          q(round_up(std::min(s.q, Q_MOST)*s.k_block, ALIGNMENT)) {}

    size_t bytes() const { return (p + q + SCRATCH)*sizeof(float); }
};

// Tiles of equal size, but for the last ones.
struct tiling {
    int64_t p_rows;
    int64_t q_rows;
    int64_t along_p;
    int64_t along_q;

    tiling(const shape & s, int64_t wanted_p, int64_t wanted_q)
        : p_rows(round_up(parts(s.p, wanted_p), s.p_unit)),
          q_rows(round_up(parts(s.q, wanted_q), PANEL_Q)),
          along_p(parts(s.p, p_rows)),
          along_q(parts(s.q, q_rows)) {}

    int64_t count(const shape & s) const { return along_p*along_q*s.matrices; }

    // of the thread with most tiles, for one step of k
    int64_t cost(const shape & s, int nth) const {
        return parts(count(s), nth)*(p_rows*q_rows + p_rows*COST_P + q_rows*COST_Q);
    }
};

// The tiling that ends first, or a finer one that ends almost as soon: a thread that is interrupted leaves its tiles to others.
tiling best_tiling(const shape & s, int nth) {
    const int64_t least_p = parts(s.p, P_MOST);
    const int64_t least_q = parts(s.q, Q_MOST);
    const int64_t work    = s.p*s.q*std::max<int64_t>(1, s.k)*s.matrices;
    const int64_t most    = std::min<int64_t>(4*nth, work/SMALLEST);

    tiling best(s, least_p, least_q);
    if (nth == 1) {
        return best;
    }
    for (int64_t tiles = nth; tiles <= most; tiles *= 2) {
        for (int64_t q = least_q; q <= parts(s.q, PANEL_Q) && q <= least_q*tiles; q *= 2) {
            const tiling other(s, std::max(least_p, parts(tiles, q*s.matrices)), q);
            if (100*other.cost(s, nth) <= 102*best.cost(s, nth)) {
                best = other;
            }
        }
    }
    return best;
}

// Where a tile lies.
struct tile {
    source  p;
    source  q;
    int64_t p_rows;
    int64_t q_rows;
    float * out;
    int64_t out_p; // floats between results of neighbouring rows of p
    int64_t out_q;
};

// A matrix of an operand, from row i on.
source source_at(const ggml_cpu_gemm_operand & x, const ggml_tensor * dst, int64_t i, int64_t i2, int64_t i3) {
    const ggml_tensor * t = x.tensor;
    const char * data = (const char *) t->data + i2/(dst->ne[2]/t->ne[2])*t->nb[2] + i3/(dst->ne[3]/t->ne[3])*t->nb[3];
    return { t->type, data + i/ggml_blck_size(t->type)*x.row, x.row, x.step };
}

tile tile_at(const ggml_cpu_gemm & g, const shape & s, const tiling & tiles, int64_t index) {
    const ggml_tensor * dst = g.dst;

    const int64_t p  = index % tiles.along_p*tiles.p_rows;
    const int64_t q  = index / tiles.along_p % tiles.along_q*tiles.q_rows;
    const int64_t i  = index / tiles.along_p / tiles.along_q;
    const int64_t i2 = i % dst->ne[2];
    const int64_t i3 = i / dst->ne[2];

    const int64_t column = dst->nb[1]/sizeof(float);

    tile t;
    t.p      = source_at(s.swapped ? g.b : g.a, dst, p, i2, i3);
    t.q      = source_at(s.swapped ? g.a : g.b, dst, q, i2, i3);
    t.p_rows = std::min(tiles.p_rows, s.p - p);
    t.q_rows = std::min(tiles.q_rows, s.q - q);
    t.out_p  = s.swapped ? column : 1;
    t.out_q  = s.swapped ? 1 : column;
    t.out    = (float *) ((char *) dst->data + i2*dst->nb[2] + i3*dst->nb[3]) + p*t.out_p + q*t.out_q;
    return t;
}

source part(source s, int64_t i, int64_t k) {
    s.data += i/ggml_blck_size(s.type)*s.row + k*s.step;
    return s;
}

// Some rows of p, as the kernel reads them: packed, or where they are.
struct rows_of_p {
    const float * packed;
    const float * direct; // whole panels are read from here; NULL if all are packed
    int64_t       step;
    int64_t       rows;
    int64_t       k;

    bool is_direct(int64_t i) const { return direct && i + PANEL_P <= rows; }
    const float * at(int64_t i) const { return is_direct(i) ? direct + i : packed + i*k; }
    int64_t step_at(int64_t i) const { return is_direct(i) ? step : PANEL_P; }
};

rows_of_p take_p(const source & from, int64_t rows, int64_t k, bool may_be_direct, float * out, float * scratch) {
    rows_of_p p = { out, nullptr, 0, rows, k };

    int64_t first = 0;
    if (may_be_direct && from.type == GGML_TYPE_F32 && from.row == sizeof(float) && from.step % sizeof(float) == 0) {
        p.direct = (const float *) from.data;
        p.step   = from.step/sizeof(float);
        first    = rows/PANEL_P*PANEL_P;
    }
    if (first < rows) {
        pack<PANEL_P>(part(from, first, 0), { out + first*k, rows - first, k, true }, scratch);
    }
    return p;
}

// A panel of p times one of q where the kernel cannot write to the result: lanes beyond its end stay out of it.
void multiply_aside(kernel_t kernel, const rows_of_p & p, int64_t i, const float * q, int n, const tile & t, float * out, bool add) {
    alignas(ALIGNMENT) float sums[PANEL_Q*PANEL_P];
    kernel(p.k, p.at(i), p.step_at(i), q, sums, PANEL_P, false);

    const int64_t rows = std::min<int64_t>(PANEL_P, p.rows - i);
    for (int j = 0; j < n; ++j) {
        for (int64_t r = 0; r < rows; ++r) {
            float * to = out + r*t.out_p + j*t.out_q;
            *to = add ? *to + sums[j*PANEL_P + r] : sums[j*PANEL_P + r];
        }
    }
}

// Some rows of p times all rows of q that are packed.
void multiply(const rows_of_p & p, const float * q, const tile & t, float * out, bool add) {
    for (int64_t j = 0; j < t.q_rows; j += PANEL_Q) {
        const int      n      = (int) std::min<int64_t>(PANEL_Q, t.q_rows - j);
        const kernel_t whole  = kernel_for(VECTORS, n);
        float *        column = out + j*t.out_q;

        for (int64_t i = 0; i < p.rows; i += PANEL_P) {
            float *       to   = column + i*t.out_p;
            const int64_t left = p.rows - i;

            if (left >= PANEL_P && t.out_p == 1) {
                if (add) {
                    for (int c = 0; c < n; ++c) {
                        GEMM_PREFETCHW(to + c*t.out_q);
                        GEMM_PREFETCHW(to + c*t.out_q + PANEL_P - 1);
                    }
                }
                whole(p.k, p.at(i), p.step_at(i), q + j*p.k, to, t.out_q, add);
            } else {
                multiply_aside(left <= LANES ? kernel_for(1, n) : whole, p, i, q + j*p.k, n, t, to, add);
            }
        }
    }
}

void compute_tile(const shape & s, const tile & t, float * memory) {
    const buffers size(s);
    float * const packed_p = memory;
    float * const packed_q = packed_p + size.p;
    float * const scratch  = packed_q + size.q;

    int64_t k = 0;
    do {
        const int64_t steps = std::min(s.k_block, s.k - k);

        pack<PANEL_Q>(part(t.q, 0, k), { packed_q, t.q_rows, steps, false }, scratch);

        for (int64_t i = 0; i < t.p_rows; i += s.p_most) {
            const int64_t   rows = std::min(s.p_most, t.p_rows - i);
            const rows_of_p p    = take_p(part(t.p, i, k), rows, steps, t.q_rows <= Q_DIRECT, packed_p, scratch);
            multiply(p, packed_q, t, t.out + i*t.out_p, k > 0);
        }
        k += steps;
    } while (k < s.k);
}

float * aligned(void * memory) {
    return (float *) (((uintptr_t) memory + ALIGNMENT - 1)/ALIGNMENT*ALIGNMENT);
}

} // namespace

size_t ggml_cpu_gemm_work_size(const ggml_cpu_gemm * product, int n_tasks) {
    return buffers(shape_of(*product)).bytes()*n_tasks + ALIGNMENT;
}

void ggml_cpu_gemm_run(const ggml_compute_params * params, const ggml_cpu_gemm * product) {
    if (ggml_is_empty(product->dst)) {
        return;
    }

    const shape   s     = shape_of(*product);
    const tiling  tiles = best_tiling(s, params->nth);
    const int64_t count = tiles.count(s);
    float * const memory = aligned(params->wdata) + params->ith*(buffers(s).bytes()/sizeof(float));

    // Threads take the next tile when they are done with one, if there are enough to make up for a barrier.
    const bool shared = params->nth > 1 && count > params->nth;
    if (shared) {
        if (params->ith == 0) {
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);
    }

    for (int64_t i = params->ith; i < count; ) {
        compute_tile(s, tile_at(*product, s, tiles, i), memory);
        i = shared ? ggml_threadpool_chunk_add(params->threadpool, 1) : i + params->nth;
    }
}

/* Vectors of floats in a register, functions of them, and products of matrices whose rows are vectors; for one core. */

#include <string.h>

/* Tiles: rows x columns of accumulators that stay in registers while a product's tile is summed. */
#ifdef __AVX512F__
#define LANES 16
#define TILE_ROWS 5 /* 20 of 32 registers */
#define TILE_COLS 4
#define OUTER_ROWS 4
#define OUTER_COLS 4
#else
#define LANES 8
#define TILE_ROWS 5 /* 10 of 16 registers */
#define TILE_COLS 2
#define OUTER_ROWS 5
#define OUTER_COLS 2
#endif

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4 * LANES)));
typedef int ivec __attribute__((vector_size(4 * LANES), aligned(4 * LANES)));
typedef vec loose __attribute__((aligned(4), may_alias)); /* for loads and stores at any address */
typedef float quad __attribute__((vector_size(16), aligned(4)));
#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("GCC unroll 16") for

/* --- small pieces --- */

INLINE vec splat(float a) { return a - (vec){0}; }

INLINE vec least(vec a, vec b) {
    ivec above = b < a; /* false for NaN, which stays */
    return (vec)((above & (ivec)b) | (~above & (ivec)a));
}

/* tanh as x P(x^2) / Q(x^2), a least-maximum fit on [-8, 8]: off by 5e-7 at most in float32. NaN stays NaN. */
INLINE vec vtanh(vec x) {
    const vec top = splat(8.0f);
    x = least(x, top);
    x = -least(-x, top);
    vec s = x * x;
    vec p = ((1.131063254e-5f * s + 2.938871505e-3f) * s + 1.291368455e-1f) * s + 9.999993443e-1f;
    vec q = (((2.423959415e-7f * s + 2.370342845e-4f) * s + 2.376401424e-2f) * s + 4.624678493e-1f) * s + 1.0f;
    return x * p / q;
}

INLINE vec magnitude(vec a) { return (vec)((ivec)a & 0x7fffffff); }

/* `yes` where a < 0, else `no`, also where a is NaN */
INLINE vec where_negative(vec a, vec yes, vec no) {
    ivec negative = a < 0.0f;
    return (vec)((negative & (ivec)yes) | (~negative & (ivec)no));
}

/* exp of x <= 0, off by 1e-7 of 1 at most; below -87 it is exp(-87). NaN stays NaN. */
INLINE vec vexp(vec x) {
    x = -least(-x, splat(87.0f));
    ivec n = __builtin_convertvector(1.44269504f * x - 0.5f, ivec); /* truncated: the nearest, as x is negative */
    vec r = x - 0.693147181f * __builtin_convertvector(n, vec);
    vec p = ((((1.3981999508e-3f * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 0.5f);
    return ((p * r) * r + r + 1.0f) * (vec)((n + 127) << 23);
}

/* Mills' ratio Phi(-a) / phi(a) of the normal distribution, for 0 <= a <= 14: off by 5e-7 of it at most. */
INLINE vec vmills(vec a) {
    vec t = 1.0f / (1.0f + 0.3f * a);
    vec p = (((8.942383003e-2f * t - 3.940513918e-1f) * t + 5.172542704e-1f) * t - 1.345672714e-1f) * t;
    return ((((p + 3.222573383e-1f) * t + 2.504456734e-1f) * t + 3.026853254e-1f) * t + 2.998661803e-1f) * t;
}

/* sin and cos, off by 2e-7 at most for |x| < 1e4; beyond 1e7, where floats are further apart than waves, anything in
   [-1, 1]. NaN stays NaN. */
INLINE void vsincos(vec x, vec *sine, vec *cosine) {
    const vec edge = splat(0.8f);
    vec half = (vec)(((ivec)x & (int)0x80000000) | (ivec)splat(0.5f));
    ivec n = __builtin_convertvector(0.636619772f * x + half, ivec);
    vec q = __builtin_convertvector(n, vec), r = x - 1.57079637f * q;
    __asm__("" : "+v"(r)); /* or fast mathematics adds up the two parts of pi / 2 */
    r += 4.37113883e-8f * q;
    r = -least(-least(r, edge), edge);
    vec s = r * r;
    vec a = ((-1.9515295891e-4f * s + 8.3321608736e-3f) * s - 1.6666654611e-1f) * s * r + r;
    vec b = ((2.4433157118e-5f * s - 1.3887316255e-3f) * s + 4.1666645683e-2f) * s * s - 0.5f * s + 1.0f;
    ivec odd = -(n & 1);
    *sine = (vec)(((odd & (ivec)b) | (~odd & (ivec)a)) ^ ((n & 2) << 30));
    *cosine = (vec)(((odd & (ivec)a) | (~odd & (ivec)b)) ^ (((n + 1) & 2) << 30));
}

INLINE float total(vec a) {
    float sum = 0.0f;
    EACH(int i = 0; i < LANES; i++) sum += a[i];
    return sum;
}

/* sums[i] = the sum of the lanes of a[i], for 16 vectors */
#define PICK(x, y, ...) __builtin_shuffle(x, y, (ivec){__VA_ARGS__})

#if LANES == 16
INLINE void totals(const vec *a, float *sums) {
    vec pair[8], four[4], eight[2];
    EACH(int i = 0; i < 8; i++) {
        vec x = a[2 * i], y = a[2 * i + 1];
        pair[i] = PICK(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
                  PICK(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    EACH(int i = 0; i < 4; i++) {
        vec x = pair[2 * i], y = pair[2 * i + 1];
        four[i] = PICK(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                  PICK(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
    EACH(int i = 0; i < 2; i++) {
        vec x = four[2 * i], y = four[2 * i + 1];
        eight[i] = PICK(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                   PICK(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    vec x = eight[0], y = eight[1];
    *(vec *)sums = PICK(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                   PICK(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
#else
INLINE void totals(const vec *a, float *sums) {
    EACH(int at = 0; at < 16; at += 8) {
        vec pair[4], four[2];
        EACH(int i = 0; i < 4; i++) {
            vec x = a[at + 2 * i], y = a[at + 2 * i + 1];
            pair[i] = PICK(x, y, 0, 8, 1, 9, 4, 12, 5, 13) + PICK(x, y, 2, 10, 3, 11, 6, 14, 7, 15);
        }
        EACH(int i = 0; i < 2; i++) {
            vec x = pair[2 * i], y = pair[2 * i + 1];
            four[i] = PICK(x, y, 0, 1, 8, 9, 4, 5, 12, 13) + PICK(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
        }
        vec x = four[0], y = four[1];
        *(vec *)(sums + at) = PICK(x, y, 0, 1, 2, 3, 8, 9, 10, 11) + PICK(x, y, 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#endif

/* out[i] += the sum of the lanes of rows[i]; rows has room for 15 more */
static void add_totals(float *out, const vec *rows, int count) {
    for (int i = 0; i < count; i += 16) {
        float sums[16] __attribute__((aligned(64)));
        totals(rows + i, sums);
        for (int j = 0; j < 16 && i + j < count; j++) out[i + j] += sums[j];
    }
}

/* --- matrix products --- */

INLINE void product_tile(const int R, const int C, vec *restrict out, const vec *restrict in, int cols, int depth,
                         const float *a, int step_in, int step_out) {
    vec sum[TILE_ROWS][4], x[4]; /* of constant size, so that they are registers */
    EACH(int r = 0; r < R; r++) EACH(int c = 0; c < C; c++) sum[r][c] = (vec){0};
    for (int i = 0; i < depth; i++) {
        EACH(int c = 0; c < C; c++) x[c] = in[i * cols + c];
        EACH(int r = 0; r < R; r++) {
            float w = a[i * step_in + r * step_out];
            EACH(int c = 0; c < C; c++) sum[r][c] += w * x[c];
        }
    }
    EACH(int r = 0; r < R; r++) EACH(int c = 0; c < C; c++) out[r * cols + c] = sum[r][c];
}

INLINE void product_rows(const int R, vec *restrict out, const vec *restrict in, int cols, int depth, const float *a,
                         int step_in, int step_out) {
    int c = 0;
    for (; c + TILE_COLS <= cols; c += TILE_COLS)
        product_tile(R, TILE_COLS, out + c, in + c, cols, depth, a, step_in, step_out);
    if (cols - c == 3) product_tile(R, 3, out + c, in + c, cols, depth, a, step_in, step_out);
    if (cols - c == 2) product_tile(R, 2, out + c, in + c, cols, depth, a, step_in, step_out);
    if (cols - c == 1) product_tile(R, 1, out + c, in + c, cols, depth, a, step_in, step_out);
}

/* out[j, :] = sum over i of a[i * step_in + j * step_out] in[i, :] */
INLINE void product(vec *restrict out, const vec *restrict in, int cols, int rows, int depth, const float *a,
                    int step_in, int step_out) {
    int j = 0;
    for (; j + TILE_ROWS <= rows; j += TILE_ROWS)
        product_rows(TILE_ROWS, out + j * cols, in, cols, depth, a + j * step_out, step_in, step_out);
    out += j * cols, a += j * step_out;
    if (rows - j == 4) product_rows(4, out, in, cols, depth, a, step_in, step_out);
    if (rows - j == 3) product_rows(3, out, in, cols, depth, a, step_in, step_out);
    if (rows - j == 2) product_rows(2, out, in, cols, depth, a, step_in, step_out);
    if (rows - j == 1) product_rows(1, out, in, cols, depth, a, step_in, step_out);
}

static void __attribute__((noinline))
product_forward(vec *out, const vec *in, int cols, int n_out, int n_in, const float *w) {
    product(out, in, cols, n_out, n_in, w, n_out, 1);
}

static void __attribute__((noinline))
product_backward(vec *out, const vec *in, int cols, int n_in, int n_out, const float *w) {
    product(out, in, cols, n_in, n_out, w, 1, n_out);
}

INLINE void outer_tile(const int R, const int C, float *restrict gw, const vec *restrict t, const vec *restrict g,
                       int cols, int n_out) {
    vec sum[16], x[OUTER_COLS];
    float sums[16] __attribute__((aligned(64)));
    EACH(int i = 0; i < 16; i++) sum[i] = (vec){0};
    for (int c = 0; c < cols; c++) {
        EACH(int j = 0; j < C; j++) x[j] = g[j * cols + c];
        EACH(int i = 0; i < R; i++) {
            vec y = t[i * cols + c];
            EACH(int j = 0; j < C; j++) sum[OUTER_COLS * i + j] += y * x[j];
        }
    }
    totals(sum, sums);
    EACH(int i = 0; i < R; i++) {
        if (C == 4 && OUTER_COLS == 4)
            *(quad *)(gw + i * n_out) += *(quad *)(sums + 4 * i);
        else
            EACH(int j = 0; j < C; j++) gw[i * n_out + j] += sums[OUTER_COLS * i + j];
    }
}

/* gw[i, j] += sum over columns of t[i, :] g[j, :] */
static void __attribute__((noinline))
outer(float *restrict gw, const vec *restrict t, const vec *restrict g, int cols, int n_in, int n_out) {
    for (int i = 0; i < n_in; i += OUTER_ROWS)
        for (int j = 0; j < n_out; j += OUTER_COLS) {
            float *to = gw + i * n_out + j;
            const vec *x = t + i * cols, *y = g + j * cols;
            int rows = n_in - i, columns = n_out - j;
            if (rows >= OUTER_ROWS && columns >= OUTER_COLS)
                outer_tile(OUTER_ROWS, OUTER_COLS, to, x, y, cols, n_out);
            else if (columns >= OUTER_COLS)
                for (int r = 0; r < rows; r++) outer_tile(1, OUTER_COLS, to + r * n_out, x + r * cols, y, cols, n_out);
            else if (rows >= OUTER_ROWS)
                for (int c = 0; c < columns; c++) outer_tile(OUTER_ROWS, 1, to + c, x, y + c * cols, cols, n_out);
            else
                for (int r = 0; r < rows; r++)
                    for (int c = 0; c < columns; c++)
                        outer_tile(1, 1, to + r * n_out + c, x + r * cols, y + c * cols, cols, n_out);
        }
}

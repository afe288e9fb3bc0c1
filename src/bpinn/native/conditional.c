/* The Gaussian of the fields' linear parameters given everything else, forwards and backwards, for one core.

   A = diag(d) + S S' spans ten orders of magnitude, so all sums are in double precision; what comes in and goes out is
   float32. A = U' U with U upper triangular. Matrices of p x p lie in strips: strip v has the columns of one vector, row
   after row, so that products read memory in order. p is padded to whole vectors, with ones on the diagonal.

   The adjoint of the factor needs no p x p matrix: with y = U^-T S t, w = y + v = U a and q = U^-T (adjoint of a),
   U (adjoint of A) U' = -(w q' + q y') below its diagonal, so that with Z = U^-T S the adjoint of S is
   U^-1 (P Z + q t'), where P Z takes running sums over the rows of Z only. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
#define COLS 3 /* vectors beside each other in a tile of LANES rows: 24 of 32 registers, or 12 of 16 */

typedef double vec __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int64_t ivec __attribute__((vector_size(8 * LANES)));
#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("GCC unroll 16") for

/* --- what is to be computed --- */

typedef struct {
    int fields, rows, columns, wide; /* all fields' columns, and padded to whole vectors */
    int size, padded, vectors;       /* parameters, and whole vectors of them */
    int row_vectors, stride;         /* of a row of S */
    const int32_t *field;            /* for each: size, blocks, and for each block: columns, first row, width */
} Plan;

static void read_plan(const int32_t *n, Plan *p) {
    p->fields = n[0], p->rows = n[1], p->field = n += 2;
    p->size = p->columns = 0;
    for (int f = 0; f < p->fields; f++) {
        p->size += n[0];
        int blocks = n[1];
        n += 2;
        for (int b = 0; b < blocks; b++, n += 3) p->columns += n[0];
    }
    p->wide = (p->columns + LANES - 1) / LANES * LANES;
    p->vectors = (p->size + LANES - 1) / LANES, p->padded = p->vectors * LANES;
    p->row_vectors = (p->rows + LANES - 1) / LANES, p->stride = p->row_vectors * LANES;
}

typedef struct {
    int size, blocks, columns;
    const int32_t *block;
} Field;

static const int32_t *read_field(const int32_t *n, Field *f) {
    f->size = n[0], f->blocks = n[1], f->block = n + 2, f->columns = 0;
    for (int b = 0; b < f->blocks; b++) f->columns += f->block[3 * b];
    return f->block + 3 * f->blocks;
}

/* What the backward pass takes from the forward pass. */
typedef struct {
    double *factor, *inverse, *y, *a, *s; /* U, 1 / its diagonal, y, a, S */
} Tape;

static Tape read_tape(const Plan *p, void *memory) {
    Tape t;
    size_t n = p->padded;
    t.factor = memory, t.inverse = t.factor + n * n, t.y = t.inverse + n, t.a = t.y + n, t.s = t.a + n;
    return t;
}

static size_t tape_size(const Plan *p) {
    size_t n = p->padded;
    return n * (n + 3 + p->stride);
}

/* Floats of the tape. */
int64_t bpinn_conditional_tape_size(const int32_t *numbers) {
    Plan p;
    read_plan(numbers, &p);
    return (int64_t)(2 * tape_size(&p));
}

/* --- small pieces --- */

typedef struct {
    size_t size;
    double *memory;
} Arena;

static _Thread_local Arena arena;

static double *reserve(size_t doubles) {
    if (arena.size < doubles) {
        free(arena.memory);
        arena.memory = aligned_alloc(64, (doubles * sizeof(double) + 63) / 64 * 64);
        arena.size = arena.memory ? doubles : 0;
    }
    return arena.memory;
}

INLINE vec load(const double *from) { return *(const vec *)from; }
INLINE void store(double *to, vec x) { *(vec *)to = x; }

#define SWAP(s, low, high)                              \
    EACH(int i = 0; i < LANES; i++) if (!(i & (s))) {   \
        vec a = x[i], b = x[i + (s)];                   \
        x[i] = __builtin_shuffle(a, b, (ivec)low);      \
        x[i + (s)] = __builtin_shuffle(a, b, (ivec)high); \
    }
#define L(...) {__VA_ARGS__}

INLINE void transpose(vec *x) {
#if LANES == 8
    SWAP(1, L(0, 8, 2, 10, 4, 12, 6, 14), L(1, 9, 3, 11, 5, 13, 7, 15))
    SWAP(2, L(0, 1, 8, 9, 4, 5, 12, 13), L(2, 3, 10, 11, 6, 7, 14, 15))
    SWAP(4, L(0, 1, 2, 3, 8, 9, 10, 11), L(4, 5, 6, 7, 12, 13, 14, 15))
#else
    SWAP(1, L(0, 4, 2, 6), L(1, 5, 3, 7))
    SWAP(2, L(0, 1, 4, 5), L(2, 3, 6, 7))
#endif
}

/* Lane i: the sum of the lanes of x[i]. */
INLINE vec totals(vec *x) {
    vec sum = {0};
    transpose(x);
    EACH(int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

/* --- S, and products with the features --- */

/* row[r] = the sum of slopes[c] features[c] over the columns c of reading r */
static void fill_row(const Field *f, const float *restrict features, const double *restrict slopes,
                     double *restrict row) {
    for (int b = 0; b < f->blocks; b++) {
        int count = f->block[3 * b], width = f->block[3 * b + 2];
        double *to = row + f->block[3 * b + 1];
        if (width == 1)
            for (int c = 0; c < count; c++) to[c] += slopes[c] * features[c];
        else
            for (int c = 0; c < count; c += width) {
                double sum = 0.0;
                int end = c + width < count ? c + width : count;
                for (int i = c; i < end; i++) sum += slopes[i] * features[i];
                *to++ += sum;
            }
        features += count, slopes += count;
    }
}

/* out[c] = row[r] for the columns c of reading r */
static void spread_row(const Field *f, const double *restrict row, double *restrict out) {
    for (int b = 0; b < f->blocks; b++) {
        int count = f->block[3 * b], width = f->block[3 * b + 2];
        const double *from = row + f->block[3 * b + 1];
        if (width == 1)
            for (int c = 0; c < count; c++) out[c] = from[c];
        else
            for (int c = 0; c < count; c++) out[c] = from[c / width];
        out += count;
    }
}

static void fill(const Plan *p, float *const *features, const double *slopes, double *s) {
    memset(s, 0, (size_t)p->padded * p->stride * sizeof(double));
    const int32_t *at = p->field;
    for (int i = 0; i < p->fields; i++) {
        Field f;
        at = read_field(at, &f);
        for (int j = 0; j < f.size; j++, s += p->stride)
            fill_row(&f, features[i] + (size_t)j * f.columns, slopes, s);
        slopes += f.columns;
    }
}

/* out[c] = the sum over j of features[j, c] a[j] */
static void values(const Plan *p, float *const *features, const double *a, double *sum, float *out) {
    const int32_t *at = p->field;
    for (int i = 0; i < p->fields; i++) {
        Field f;
        at = read_field(at, &f);
        for (int c = 0; c < f.columns; c++) sum[c] = 0.0;
        for (int j = 0; j < f.size; j++) {
            const float *row = features[i] + (size_t)j * f.columns;
            for (int c = 0; c < f.columns; c++) sum[c] += a[j] * row[c];
        }
        for (int c = 0; c < f.columns; c++) out[c] = (float)sum[c];
        a += f.size, out += f.columns;
    }
}

/* --- the factor --- */

/* S, transposed, in strips: the LANES parameters of strip v, for one reading after another */
static void transpose_rows(const Plan *p, const double *s, double *strips) {
    for (int v = 0; v < p->vectors; v++)
        for (int r = 0; r < p->stride; r += LANES, strips += LANES * LANES) {
            vec x[LANES];
            EACH(int i = 0; i < LANES; i++) x[i] = load(s + (size_t)(v * LANES + i) * p->stride + r);
            transpose(x);
            EACH(int i = 0; i < LANES; i++) store(strips + i * LANES, x[i]);
        }
}

/* Rows of strip `v` and the columns of N strips from `w` on: S S' - U' U of the first `known` rows, added to what is
   in `before`, if anything is. */
INLINE void gram_tile(const int N, const Plan *p, const double *strips, const double *before, double *factor, int known,
                      int v, int w) {
    vec sum[LANES][COLS], x[COLS];
    size_t across = (size_t)p->stride * LANES, down = (size_t)p->padded * LANES, at = w * down + v * LANES * LANES;
    EACH(int i = 0; i < LANES; i++)
        EACH(int c = 0; c < N; c++) sum[i][c] = before ? load(before + at + c * down + i * LANES) : (vec){0};
    const double *a = strips + v * across, *b = strips + w * across;
    for (int r = 0; r < p->rows; r++, a += LANES, b += LANES) {
        EACH(int c = 0; c < N; c++) x[c] = load(b + c * across);
        EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) sum[i][c] += a[i] * x[c];
    }
    a = factor + v * down, b = factor + w * down;
    for (int k = 0; k < known; k++, a += LANES, b += LANES) {
        EACH(int c = 0; c < N; c++) x[c] = load(b + c * down);
        EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) sum[i][c] -= a[i] * x[c];
    }
    double *out = factor + at;
    EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) store(out + c * down + i * LANES, sum[i][c]);
}

/* The same for all columns from `v` on. */
INLINE void gram_row(const Plan *p, const double *strips, const double *before, double *factor, int known, int v) {
    int w = v;
    for (; w + COLS <= p->vectors; w += COLS) gram_tile(COLS, p, strips, before, factor, known, v, w);
    if (p->vectors - w == 2) gram_tile(2, p, strips, before, factor, known, v, w);
    if (p->vectors - w == 1) gram_tile(1, p, strips, before, factor, known, v, w);
}

/* The factor of a block on the diagonal, in place; false if there is none. */
static int factor_block(double *block, double *inverse) {
    int fine = 1;
    vec x[LANES];
    EACH(int i = 0; i < LANES; i++) x[i] = load(block + i * LANES);
    EACH(int k = 0; k < LANES; k++) {
        double d = x[k][k];
        fine &= d > 0.0 && d < INFINITY;
        inverse[k] = 1.0 / sqrt(d);
        x[k] *= inverse[k];
        EACH(int i = k + 1; i < LANES; i++) x[i] -= x[k][i] * x[k];
    }
    EACH(int i = 0; i < LANES; i++) {
        store(block + i * LANES, x[i]);
        EACH(int j = 0; j < i; j++) block[i * LANES + j] = 0.0;
    }
    return fine;
}

/* x = U^-T x for a block U on the diagonal, x of LANES rows */
INLINE void solve_block(const double *block, const double *inverse, vec *x) {
    EACH(int k = 0; k < LANES; k++) {
        x[k] *= inverse[k];
        EACH(int i = k + 1; i < LANES; i++) x[i] -= block[k * LANES + i] * x[k];
    }
}

/* U of diag(d) + S S' + `before`; false if it is not positive definite or not finite */
static int factorise(const Plan *p, const double *strips, const double *before, const float *precision, double *factor,
                     double *inverse) {
    size_t down = (size_t)p->padded * LANES;
    int fine = 1;
    for (int v = 0; v < p->vectors; v++) {
        double *block = factor + v * down + v * LANES * LANES;
        gram_row(p, strips, before, factor, v * LANES, v);
        for (int i = 0; i < LANES; i++) {
            int j = v * LANES + i;
            block[i * LANES + i] += j < p->size ? precision[j] : 1.0;
        }
        fine &= factor_block(block, inverse + v * LANES);
        for (int w = v + 1; w < p->vectors; w++) {
            double *at = factor + w * down + v * LANES * LANES;
            vec x[LANES];
            EACH(int i = 0; i < LANES; i++) x[i] = load(at + i * LANES);
            solve_block(block, inverse + v * LANES, x);
            EACH(int i = 0; i < LANES; i++) store(at + i * LANES, x[i]);
        }
    }
    return fine;
}

/* x = U^-T x */
static void solve_down(const Plan *p, const double *factor, const double *inverse, double *x) {
    for (int v = 0; v < p->vectors; v++) {
        const double *u = factor + (size_t)v * p->padded * LANES;
        vec part[4] = {load(x + v * LANES)};
        for (int k = 0; k < v * LANES; k += 4)
            EACH(int i = 0; i < 4; i++) part[i] -= x[k + i] * load(u + (k + i) * LANES);
        vec rest = (part[0] + part[1]) + (part[2] + part[3]);
        u += v * LANES * LANES;
        EACH(int i = 0; i < LANES; i++) {
            double found = rest[i] * inverse[v * LANES + i];
            x[v * LANES + i] = found;
            rest -= found * load(u + i * LANES);
        }
    }
}

/* For the rows of strip `v`: the sum of U x over the strips from `w` on. */
INLINE vec times(const Plan *p, const double *factor, const double *x, int v, int w) {
    vec sum[LANES];
    EACH(int i = 0; i < LANES; i++) sum[i] = (vec){0};
    for (; w < p->vectors; w++) {
        const double *u = factor + (size_t)w * p->padded * LANES + v * LANES * LANES;
        vec some = load(x + w * LANES);
        EACH(int i = 0; i < LANES; i++) sum[i] += some * load(u + i * LANES);
    }
    return totals(sum);
}

/* x = U^-1 x */
static void solve_up(const Plan *p, const double *factor, const double *inverse, double *x) {
    for (int v = p->vectors - 1; v >= 0; v--) {
        vec rest = load(x + v * LANES) - times(p, factor, x, v, v + 1), u[LANES];
        const double *block = factor + (size_t)v * p->padded * LANES + v * LANES * LANES;
        EACH(int i = 0; i < LANES; i++) u[i] = load(block + i * LANES);
        transpose(u);
        EACH(int i = LANES - 1; i >= 0; i--) {
            double found = rest[i] * inverse[v * LANES + i];
            x[v * LANES + i] = found;
            rest -= found * u[i];
        }
    }
}

/* --- the adjoint of S --- */

/* N vectors of columns of the p rows of z */
INLINE void solve_rows_down(const int N, const Plan *p, const double *factor, const double *inverse, double *z) {
    for (int v = 0; v < p->vectors; v++) {
        const double *u = factor + (size_t)v * p->padded * LANES;
        double *own = z + (size_t)v * LANES * N * LANES;
        const double *known = z;
        vec sum[LANES][COLS], x[COLS];
        EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) sum[i][c] = load(own + (i * N + c) * LANES);
        for (int k = 0; k < v * LANES; k++, u += LANES, known += N * LANES) {
            EACH(int c = 0; c < N; c++) x[c] = load(known + c * LANES);
            EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) sum[i][c] -= u[i] * x[c];
        }
        EACH(int k = 0; k < LANES; k++) {
            EACH(int c = 0; c < N; c++) store(own + (k * N + c) * LANES, sum[k][c] *= inverse[v * LANES + k]);
            EACH(int i = k + 1; i < LANES; i++)
                EACH(int c = 0; c < N; c++) sum[i][c] -= u[k * LANES + i] * sum[k][c];
        }
    }
}

INLINE void solve_rows_up(const int N, const Plan *p, const double *factor, const double *inverse, double *z) {
    for (int v = p->vectors - 1; v >= 0; v--) {
        double *own = z + (size_t)v * LANES * N * LANES;
        const double *known = own + LANES * N * LANES;
        vec sum[LANES][COLS], x[COLS];
        EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) sum[i][c] = load(own + (i * N + c) * LANES);
        for (int w = v + 1; w < p->vectors; w++) {
            const double *u = factor + (size_t)w * p->padded * LANES + v * LANES * LANES;
            for (int k = 0; k < LANES; k++, known += N * LANES) {
                EACH(int c = 0; c < N; c++) x[c] = load(known + c * LANES);
                EACH(int i = 0; i < LANES; i++) EACH(int c = 0; c < N; c++) sum[i][c] -= u[i * LANES + k] * x[c];
            }
        }
        const double *block = factor + (size_t)v * p->padded * LANES + v * LANES * LANES;
        EACH(int k = LANES - 1; k >= 0; k--) {
            EACH(int c = 0; c < N; c++) store(own + (k * N + c) * LANES, sum[k][c] *= inverse[v * LANES + k]);
            EACH(int i = 0; i < k; i++)
                EACH(int c = 0; c < N; c++) sum[i][c] -= block[i * LANES + k] * sum[k][c];
        }
    }
}

/* N vectors of readings from `at` on: the adjoints of S (which may lie where S lies) and of the targets. */
INLINE void adjoint_columns(const int N, const Plan *p, const Tape *tape, const double *q, const double *v,
                            const double *targets, double of_logdet, double *z, int at, double *s_bar, double *t_bar) {
    vec of_t[COLS], rest[COLS], so_far[COLS];
    for (int j = 0; j < p->padded; j++)
        EACH(int c = 0; c < N; c++)
            store(z + (j * N + c) * LANES, load(tape->s + (size_t)j * p->stride + at + c * LANES));
    solve_rows_down(N, p, tape->factor, tape->inverse, z);
    EACH(int c = 0; c < N; c++) {
        rest[c] = -load(targets + at + c * LANES);
        of_t[c] = so_far[c] = (vec){0};
    }
    for (int j = 0; j < p->padded; j++)
        EACH(int c = 0; c < N; c++) {
            vec x = load(z + (j * N + c) * LANES);
            of_t[c] += q[j] * x;
            rest[c] += (tape->y[j] + v[j]) * x;
        }
    for (int j = 0; j < p->padded; j++)
        EACH(int c = 0; c < N; c++) {
            vec x = load(z + (j * N + c) * LANES);
            so_far[c] += q[j] * x;
            rest[c] -= v[j] * x;
            vec sum = tape->y[j] * of_t[c] + v[j] * so_far[c] + q[j] * rest[c] + of_logdet * x;
            store(z + (j * N + c) * LANES, -sum);
        }
    solve_rows_up(N, p, tape->factor, tape->inverse, z);
    EACH(int c = 0; c < N; c++) store(t_bar + at + c * LANES, of_t[c]);
    for (int j = 0; j < p->size; j++)
        EACH(int c = 0; c < N; c++)
            store(s_bar + (size_t)j * p->stride + at + c * LANES, load(z + (j * N + c) * LANES));
}

/* --- the interface --- */

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, const char *message) {
    XLA_FFI_Error_Create_Args args = {0};
    args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
    args.message = message;
    args.errc = XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    return frame->api->XLA_FFI_Error_Create(&args);
}

/* Answers XLA's question for the version; true if that is all that was asked. */
static int asked_for_version(XLA_FFI_CallFrame *frame) {
    XLA_FFI_Extension_Base *extension = frame->extension_start;
    if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = 0;
    return 1;
}

static void *argument(XLA_FFI_CallFrame *frame, int i) { return ((XLA_FFI_Buffer *)frame->args.args[i])->data; }
static void *result(XLA_FFI_CallFrame *frame, int i) { return ((XLA_FFI_Buffer *)frame->rets.rets[i])->data; }

static const char *no_memory = "bpinn: no memory for the conditional distribution of linear parameters";

/* `count` numbers as doubles, padded with zeros; returns where the next may lie */
static double *widen(double *to, const float *from, int count, int padded) {
    for (int i = 0; i < count; i++) to[i] = from[i];
    for (int i = count; i < padded; i++) to[i] = 0.0;
    return to + padded;
}

static void narrow(float *to, const double *from, int count) {
    for (int i = 0; i < count; i++) to[i] = (float)from[i];
}

static void gather(XLA_FFI_CallFrame *frame, const Plan *p, float **features, int results) {
    for (int i = 0; i < p->fields; i++) features[i] = results ? result(frame, i) : argument(frame, 1 + i);
}

/* to += S t */
static void add_products(const Plan *p, const double *strips, const double *targets, double *to) {
    for (int v = 0; v < p->vectors; v++) {
        vec sum = load(to + v * LANES);
        for (int r = 0; r < p->rows; r++) sum += targets[r] * load(strips + ((size_t)v * p->stride + r) * LANES);
        store(to + v * LANES, sum);
    }
}

/* y = U^-T S t */
static void project(const Plan *p, const double *strips, const double *targets, const Tape *tape) {
    memset(tape->y, 0, p->padded * sizeof(double));
    add_products(p, strips, targets, tape->y);
    solve_down(p, tape->factor, tape->inverse, tape->y);
}

/* S, U and y on the tape; false if there is no factor. `work`: of columns, readings and S. The precision is
   the argument `precision_at`. */
static int find_factor(XLA_FFI_CallFrame *frame, const Plan *p, float *const *features, const Tape *tape,
                       double *work, int precision_at) {
    int at = 1 + p->fields;
    double *slopes = work, *targets = widen(slopes, argument(frame, at), p->columns, p->wide);
    double *strips = widen(targets, argument(frame, at + 1), p->rows, p->stride);
    fill(p, features, slopes, tape->s);
    transpose_rows(p, tape->s, strips);
    int fine = factorise(p, strips, 0, argument(frame, precision_at), tape->factor, tape->inverse);
    project(p, strips, targets, tape);
    return fine;
}

static size_t work_size(const Plan *p) { return p->wide + p->stride + (size_t)p->padded * p->stride; }

/* a = U^-1 (y + v) on the tape; the log determinant of its derivative by v */
static float find_parameters(const Plan *p, const Tape *tape, const float *v, int fine) {
    widen(tape->a, v, p->size, p->padded);
    for (int j = 0; j < p->padded; j++) tape->a[j] += tape->y[j];
    solve_up(p, tape->factor, tape->inverse, tape->a);
    double log_determinant = 0.0;
    for (int j = 0; j < p->padded; j += 4) { /* four float32 roots at a time neither overflow nor vanish */
        const double *i = tape->inverse + j;
        log_determinant += log((i[0] * i[1]) * (i[2] * i[3]));
    }
    if (fine) return (float)log_determinant;
    for (int j = 0; j < p->padded; j++) tape->a[j] = tape->inverse[j] = NAN;
    return NAN;
}

/* (plan, features of each field, slopes, targets, v, precision) -> (a, streams, log determinant, tape) */
XLA_FFI_Error *bpinn_conditional_forward(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    Tape tape = read_tape(&p, result(frame, 3));
    float *features[p.fields];
    gather(frame, &p, features, 0);
    double *work = reserve(work_size(&p) + p.wide);
    if (!work) return fail(frame, no_memory);
    int fine = find_factor(frame, &p, features, &tape, work, 4 + p.fields);
    *(float *)result(frame, 2) = find_parameters(&p, &tape, argument(frame, 3 + p.fields), fine);
    narrow(result(frame, 0), tape.a, p.size);
    values(&p, features, tape.a, work + work_size(&p), result(frame, 1));
    return 0;
}

/* U^-1 y as a result, which overwrites y */
static void hand_out_mean(const Plan *p, const Tape *tape, int fine, float *mean) {
    solve_up(p, tape->factor, tape->inverse, tape->y);
    for (int i = 0; i < p->size; i++) mean[i] = fine ? (float)tape->y[i] : NAN;
}

/* U^-1 and U as results, row after row. `x`: of parameters. */
static void hand_out(XLA_FFI_CallFrame *frame, const Plan *p, const Tape *tape, int fine, double *x) {
    float *root = result(frame, 1), *inverse = result(frame, 2);
    for (int j = 0; j < p->size; j++) {
        memset(x, 0, p->padded * sizeof(double));
        x[j] = 1.0;
        for (int v = 0; v < p->vectors; v++) {
            vec sum = times(p, tape->factor, x, v, v);
            for (int i = 0; i < LANES && v * LANES + i < p->size; i++)
                inverse[(size_t)(v * LANES + i) * p->size + j] = fine ? (float)sum[i] : NAN;
        }
        solve_up(p, tape->factor, tape->inverse, x);
        for (int i = 0; i < p->size; i++) root[(size_t)i * p->size + j] = fine ? (float)x[i] : NAN;
    }
}

/* (plan, features of each field, slopes, targets, precision) -> (mean U^-1 y, U^-1, U), matrices row after row; there
   may be several rows of targets, each with its mean */
XLA_FFI_Error *bpinn_conditional_factor(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    float *features[p.fields];
    gather(frame, &p, features, 0);
    double *work = reserve(work_size(&p) + p.padded + tape_size(&p));
    if (!work) return fail(frame, no_memory);
    double *x = work + work_size(&p);
    Tape tape = read_tape(&p, x + p.padded);
    int fine = find_factor(frame, &p, features, &tape, work, 3 + p.fields);
    const float *more = argument(frame, 2 + p.fields);
    double *targets = work + p.wide, *strips = targets + p.stride;
    for (int t = 0, count = ((XLA_FFI_Buffer *)frame->rets.rets[0])->dims[0]; t < count; t++) {
        if (t) {
            widen(targets, more += p.rows, p.rows, p.stride);
            project(&p, strips, targets, &tape);
        }
        hand_out_mean(&p, &tape, fine, (float *)result(frame, 0) + (size_t)t * p.size);
    }
    hand_out(frame, &p, &tape, fine, x);
    return 0;
}

/* (plan, features, slopes, targets, v, tape, adjoints of a, streams and log determinant)
   -> (adjoints of features, slopes, targets and v). The tape of a chunk does not have its S. */
static XLA_FFI_Error *backward(XLA_FFI_CallFrame *frame, int of_chunk) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    int in = 1 + p.fields, out = p.fields;
    Tape tape = read_tape(&p, argument(frame, in + 3));
    float *features[p.fields], *adjoints[p.fields];
    gather(frame, &p, features, 0);
    gather(frame, &p, adjoints, 1);
    size_t tile = (size_t)p.padded * COLS * LANES, matrix = (size_t)p.padded * p.stride;
    size_t own = of_chunk ? matrix : 0;
    double *slopes = reserve(4 * (size_t)p.wide + 2 * p.padded + 2 * p.stride + tile + matrix + own);
    if (!slopes) return fail(frame, no_memory);
    double *of_streams = widen(slopes, argument(frame, in), p.columns, p.wide);
    double *targets = widen(of_streams, argument(frame, in + 5), p.columns, p.wide);
    double *v = widen(targets, argument(frame, in + 1), p.rows, p.stride);
    double *q = widen(v, argument(frame, in + 2), p.size, p.padded);
    double *of_targets = widen(q, argument(frame, in + 4), p.size, p.padded);
    double *z = of_targets + p.stride, *of_s = z + tile, *of_slopes = of_s + matrix;
    double *spread = of_slopes + p.wide, of_logdet = *(const float *)argument(frame, in + 6);
    if (of_chunk) {
        tape.s = spread + p.wide;
        fill(&p, features, slopes, tape.s);
    }

    const int32_t *at = p.field;
    for (int i = 0, column = 0, row = 0; i < p.fields; i++) {
        Field f;
        at = read_field(at, &f);
        for (int j = 0; j < f.size; j++, row++) {
            const float *own = features[i] + (size_t)j * f.columns;
            double sum = 0.0;
            for (int c = 0; c < f.columns; c++) sum += of_streams[column + c] * own[c];
            q[row] += sum;
        }
        column += f.columns;
    }
    solve_down(&p, tape.factor, tape.inverse, q);

    int r = 0;
    for (; r + COLS <= p.row_vectors; r += COLS)
        adjoint_columns(COLS, &p, &tape, q, v, targets, of_logdet, z, r * LANES, of_s, of_targets);
    if (p.row_vectors - r == 2)
        adjoint_columns(2, &p, &tape, q, v, targets, of_logdet, z, r * LANES, of_s, of_targets);
    if (p.row_vectors - r == 1)
        adjoint_columns(1, &p, &tape, q, v, targets, of_logdet, z, r * LANES, of_s, of_targets);

    memset(of_slopes, 0, p.columns * sizeof(double));
    at = p.field;
    for (int i = 0, column = 0, row = 0; i < p.fields; i++) {
        Field f;
        at = read_field(at, &f);
        for (int j = 0; j < f.size; j++, row++) {
            const float *restrict own = features[i] + (size_t)j * f.columns;
            float *restrict to = adjoints[i] + (size_t)j * f.columns;
            double a = tape.a[row], *restrict sum = of_slopes + column;
            const double *restrict slope = slopes + column, *restrict stream = of_streams + column;
            spread_row(&f, of_s + (size_t)row * p.stride, spread);
            for (int c = 0; c < f.columns; c++) {
                to[c] = (float)(slope[c] * spread[c] + a * stream[c]);
                sum[c] += own[c] * spread[c];
            }
        }
        column += f.columns;
    }
    narrow(result(frame, out), of_slopes, p.columns);
    narrow(result(frame, out + 1), of_targets, p.rows);
    narrow(result(frame, out + 2), q, p.size);
    return 0;
}

XLA_FFI_Error *bpinn_conditional_backward(XLA_FFI_CallFrame *frame) { return backward(frame, 0); }

/* --- in chunks of readings --- */

/* Doubles of the sums S S' and S t, and of the tape without S. */
int64_t bpinn_conditional_sums_size(const int32_t *numbers) {
    Plan p;
    read_plan(numbers, &p);
    return (int64_t)p.padded * (p.padded + 1);
}

int64_t bpinn_conditional_chunk_tape_size(const int32_t *numbers) {
    Plan p;
    read_plan(numbers, &p);
    return (int64_t)p.padded * (p.padded + 3);
}

/* (plan, features of each field, slopes, targets, sums) -> sums with those of this chunk added */
XLA_FFI_Error *bpinn_conditional_add(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    float *features[p.fields];
    gather(frame, &p, features, 0);
    size_t matrix = (size_t)p.padded * p.stride, square = (size_t)p.padded * p.padded;
    double *slopes = reserve(p.wide + p.stride + 2 * matrix);
    if (!slopes) return fail(frame, no_memory);
    double *targets = widen(slopes, argument(frame, 1 + p.fields), p.columns, p.wide);
    double *s = widen(targets, argument(frame, 2 + p.fields), p.rows, p.stride), *strips = s + matrix;
    const double *before = argument(frame, 3 + p.fields);
    double *after = result(frame, 0);
    fill(&p, features, slopes, s);
    transpose_rows(&p, s, strips);
    for (int v = 0; v < p.vectors; v++) gram_row(&p, strips, before, after, 0, v);
    memcpy(after + square, before + square, p.padded * sizeof(double));
    add_products(&p, strips, targets, after + square);
    return 0;
}

/* U and y on the tape, from sums and the precision */
static int factor_sums(const Plan *p, const double *sums, const float *precision, const Tape *tape) {
    Plan none = *p;
    none.rows = none.stride = none.row_vectors = 0;
    int fine = factorise(&none, sums, sums, precision, tape->factor, tape->inverse);
    memcpy(tape->y, sums + (size_t)p->padded * p->padded, p->padded * sizeof(double));
    solve_down(p, tape->factor, tape->inverse, tape->y);
    return fine;
}

/* (plan, sums, v, precision) -> (a, log determinant, tape) */
XLA_FFI_Error *bpinn_conditional_solve(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    Tape tape = read_tape(&p, result(frame, 2));
    int fine = factor_sums(&p, argument(frame, 1), argument(frame, 3), &tape);
    *(float *)result(frame, 1) = find_parameters(&p, &tape, argument(frame, 2), fine);
    narrow(result(frame, 0), tape.a, p.size);
    return 0;
}

/* (plan, sums, precision) -> (mean U^-1 y, U^-1, U), matrices row after row */
XLA_FFI_Error *bpinn_conditional_matrices(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    double *x = reserve((size_t)p.padded * (p.padded + 4));
    if (!x) return fail(frame, no_memory);
    Tape tape = read_tape(&p, x + p.padded);
    int fine = factor_sums(&p, argument(frame, 1), argument(frame, 2), &tape);
    hand_out_mean(&p, &tape, fine, result(frame, 0));
    hand_out(frame, &p, &tape, fine, x);
    return 0;
}

/* As `bpinn_conditional_backward`, for the readings of one chunk, with the tape of `bpinn_conditional_solve` */
XLA_FFI_Error *bpinn_conditional_chunk_backward(XLA_FFI_CallFrame *frame) { return backward(frame, 1); }

/* (plan, features, slopes, targets, a, precision) -> v = U a - y */
XLA_FFI_Error *bpinn_conditional_residual(XLA_FFI_CallFrame *frame) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    float *features[p.fields], *out = result(frame, 0);
    gather(frame, &p, features, 0);
    double *work = reserve(work_size(&p) + p.padded + tape_size(&p));
    if (!work) return fail(frame, no_memory);
    double *a = work + work_size(&p);
    Tape tape = read_tape(&p, widen(a, argument(frame, 3 + p.fields), p.size, p.padded));
    int fine = find_factor(frame, &p, features, &tape, work, 4 + p.fields);
    for (int v = 0; v < p.vectors; v++) {
        vec sum = times(&p, tape.factor, a, v, v);
        for (int i = 0; i < LANES && v * LANES + i < p.size; i++)
            out[v * LANES + i] = fine ? (float)(sum[i] - tape.y[v * LANES + i]) : NAN;
    }
    return 0;
}

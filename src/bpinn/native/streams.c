/* A tanh network with its first and second derivative streams, forwards and backwards, for one core and float32.

   XLA runs a gradient as dozens of small loops; here it is a few, in registers and first-level cache. The matrices are
   (neurons, columns): a column is a vector of points of one stream. Points come in groups that carry the same streams;
   columns lie as the values of all groups, then each group's first and second derivatives. Points go through the
   network in blocks that stay in the cache.

   Compiled with cc -O3 -march=native -ffast-math -shared -fPIC, and called through XLA's foreign function interface. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#if !defined(__AVX2__) || !defined(__FMA__)
#error "with vectors of less than eight floats XLA is quicker"
#endif

#include "vectors.h"

#define MAX_LAYERS 16
#define MAX_INPUTS 8
#define MAX_GROUPS 16
#define MAX_SECONDS 36
#define MAX_STREAMS (1 + MAX_INPUTS + MAX_SECONDS)
#define BLOCK 48 /* vectors of columns that go through the network together */


/* --- what is to be computed --- */

typedef struct {
    int points, vectors, at, out_at; /* `at`: of its first point in x; `out_at`: of its first number in the output */
    int firsts, seconds, pure;
    int along[MAX_INPUTS];           /* the coordinate of each first derivative */
    int a[MAX_SECONDS], b[MAX_SECONDS]; /* each second derivative's two first ones, as numbers of `along` */
    int wanted, stream[MAX_STREAMS];    /* the streams handed out as features: 0 is the value, then firsts, seconds */
    int feature_at;                     /* of its first number in a row of features */
} Group;

typedef struct {
    int inputs, layers, widest, groups, blocks, features; /* `features`: numbers in a row of features */
    int width[MAX_LAYERS];
    Group group[MAX_GROUPS];
} Plan;

/* numbers: inputs, layers, widths, groups; for each group: points, firsts, along..., seconds, a, b, ..., wanted,
   stream... */
static void read_plan(const int32_t *n, Plan *p) {
    p->inputs = *n++, p->layers = *n++, p->widest = 0;
    for (int l = 0; l < p->layers; l++) {
        p->width[l] = *n++;
        if (p->width[l] > p->widest) p->widest = p->width[l];
    }
    p->groups = *n++, p->features = 0;
    int at = 0, out_at = 0, cols = 0;
    for (int i = 0; i < p->groups; i++) {
        Group *g = p->group + i;
        g->points = *n++, g->firsts = *n++, g->at = at, g->out_at = out_at;
        for (int f = 0; f < g->firsts; f++) g->along[f] = *n++;
        g->seconds = *n++, g->pure = g->seconds == g->firsts;
        for (int s = 0; s < g->seconds; s++) {
            g->a[s] = *n++, g->b[s] = *n++;
            if (g->a[s] != s || g->b[s] != s) g->pure = 0;
        }
        g->wanted = *n++, g->feature_at = p->features;
        for (int w = 0; w < g->wanted; w++) g->stream[w] = *n++;
        p->features += g->points * g->wanted;
        g->vectors = (g->points + LANES - 1) / LANES;
        at += g->points, out_at += g->points * (1 + g->firsts + g->seconds);
        cols += g->vectors * (1 + g->firsts + g->seconds);
    }
    p->blocks = (cols + BLOCK - 1) / BLOCK;
}

/* A part of each group: its vectors from `from`, `count` of them, whose values start at column `value`, and whose
   derivatives at column `slope`, one stream after the other. */
typedef struct {
    int points, cols;
    int from[MAX_GROUPS], count[MAX_GROUPS], value[MAX_GROUPS], slope[MAX_GROUPS];
} Block;

static void read_block(const Plan *p, int number, Block *b) {
    b->points = 0;
    for (int i = 0; i < p->groups; i++) {
        int v = p->group[i].vectors;
        b->from[i] = v * number / p->blocks;
        b->count[i] = v * (number + 1) / p->blocks - b->from[i];
        b->value[i] = b->points;
        b->points += b->count[i];
    }
    b->cols = b->points;
    for (int i = 0; i < p->groups; i++) {
        b->slope[i] = b->cols;
        b->cols += b->count[i] * (p->group[i].firsts + p->group[i].seconds);
    }
}

/* Vectors of one block on the tape: the first layer's values after tanh (the rest of it follows from the weights), and
   of the others what is before tanh, but for the value, which is after it. */
static size_t block_tape(const Plan *p, const Block *b) {
    size_t size = (size_t)p->width[0] * b->points;
    for (int l = 1; l < p->layers; l++) size += (size_t)p->width[l] * b->cols;
    return size;
}

int64_t bpinn_tape_size(const int32_t *numbers) {
    Plan p;
    Block b;
    read_plan(numbers, &p);
    size_t size = 0;
    for (int i = 0; i < p.blocks; i++) {
        read_block(&p, i, &b);
        size += block_tape(&p, &b);
    }
    return (int64_t)(size * LANES);
}

/* --- tanh of one row's streams --- */

/* t from z, where z's values are already those after tanh; FIRST: z has values only, and derivatives are `w`, 0. */
INLINE void spread(const int F, const int S, const int pure, const int FIRST, const Group *g, const vec *restrict z,
                   vec *restrict t, int value, int slope, int count, const float *w, int width) {
    for (int v = 0; v < count; v++) {
        vec y = z[value + v], s = 1.0f - y * y, twice = 2.0f * y;
        t[value + v] = y;
        const vec *h = z + slope + v;
        vec *r = t + slope + v;
        EACH(int f = 0; f < F; f++) r[f * count] = s * (FIRST ? splat(w[g->along[f] * width]) : h[f * count]);
        EACH(int k = 0; k < S; k++) {
            int a = pure ? k : g->a[k], b = pure ? k : g->b[k];
            vec ha = FIRST ? splat(w[g->along[a] * width]) : h[a * count];
            vec hb = FIRST ? splat(w[g->along[b] * width]) : h[b * count];
            vec bend = FIRST ? (vec){0} : h[(F + k) * count];
            r[(F + k) * count] = s * (bend - twice * ha * hb);
        }
    }
}

/* g (adjoints before tanh) from a (after it); returns the sum of the value's. */
INLINE vec gather(const int F, const int S, const int pure, const int FIRST, const Group *g, const vec *restrict z,
                  const vec *restrict a, vec *restrict out, int value, int slope, int count, const float *w, int width) {
    vec sum = {0};
    for (int v = 0; v < count; v++) {
        vec y = z[value + v], s = 1.0f - y * y, twice = 2.0f * y, curve = 6.0f * y * y - 2.0f;
        vec back = a[value + v], along = {0};
        const vec *h = z + slope + v, *c = a + slope + v;
        vec *r = out + slope + v;
        EACH(int f = 0; f < F; f++) {
            vec hf = FIRST ? splat(w[g->along[f] * width]) : h[f * count];
            along += c[f * count] * hf;
            r[f * count] = s * c[f * count];
        }
        EACH(int k = 0; k < S; k++) {
            int i = pure ? k : g->a[k], j = pure ? k : g->b[k];
            vec hi = FIRST ? splat(w[g->along[i] * width]) : h[i * count];
            vec hj = FIRST ? splat(w[g->along[j] * width]) : h[j * count];
            vec ck = c[(F + k) * count], bend = s * twice * ck;
            if (!FIRST) along += ck * h[(F + k) * count];
            back += curve * hi * hj * ck;
            r[i * count] -= bend * hj;
            r[j * count] -= bend * hi;
            r[(F + k) * count] = s * ck;
        }
        back = s * (back - twice * along);
        out[value + v] = back;
        sum += back;
    }
    return sum;
}

/* The common shapes are compiled with constant counts. */
#define DISPATCH(call)                                           \
    if (g->firsts == 0) { call(0, 0, 1); }                       \
    else if (g->firsts == 1 && g->seconds == 0) { call(1, 0, 1); } \
    else if (g->firsts == 2 && g->seconds == 0) { call(2, 0, 1); } \
    else if (g->firsts == 1 && g->pure) { call(1, 1, 1); }       \
    else if (g->firsts == 2 && g->pure) { call(2, 2, 1); }       \
    else if (g->firsts == 3 && g->pure) { call(3, 3, 1); }       \
    else { call(g->firsts, g->seconds, 0); }

INLINE void spread_row(const int FIRST, const Plan *p, const Block *b, const vec *z, vec *t, const float *w, int width) {
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
#define CALL(F, S, PURE) spread(F, S, PURE, FIRST, g, z, t, b->value[i], b->slope[i], b->count[i], w, width)
        DISPATCH(CALL)
#undef CALL
    }
}

INLINE vec gather_row(const int FIRST, const Plan *p, const Block *b, const vec *z, const vec *a, vec *out,
                      const float *w, int width) {
    vec sum = {0};
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
#define CALL(F, S, PURE) sum += gather(F, S, PURE, FIRST, g, z, a, out, b->value[i], b->slope[i], b->count[i], w, width)
        DISPATCH(CALL)
#undef CALL
    }
    return sum;
}

/* --- a block, forwards and backwards --- */

typedef struct {
    size_t size;
    vec *memory;
} Arena;

static _Thread_local Arena arena;

static vec *reserve(size_t vectors) {
    if (arena.size < vectors) {
        free(arena.memory);
        arena.memory = aligned_alloc(64, ((vectors * sizeof(vec) + 63) / 64) * 64);
        arena.size = arena.memory ? vectors : 0;
    }
    return arena.memory;
}

static void pack(const Plan *p, const Block *b, const float *x, vec *packed) {
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
        for (int v = 0; v < b->count[i]; v++)
            for (int lane = 0; lane < LANES; lane++) {
                int point = (b->from[i] + v) * LANES + lane;
                if (point >= g->points) point = g->points - 1; /* padding repeats the last; its adjoints are zero */
                for (int d = 0; d < p->inputs; d++)
                    ((float *)(packed + d * b->points + b->value[i] + v))[lane] = x[(g->at + point) * p->inputs + d];
            }
    }
}

/* Numbers between a block's columns and the array of all streams of all points. */
static void exchange(const Plan *p, const Block *b, vec *columns, float *array, int inwards) {
    if (inwards) memset(columns, 0, b->cols * sizeof(vec));
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
        int first = b->from[i] * LANES, last = (b->from[i] + b->count[i]) * LANES;
        if (last > g->points) last = g->points;
        for (int s = 0; s <= g->firsts + g->seconds && last > first; s++) {
            float *here = (float *)(columns + (s ? b->slope[i] + (s - 1) * b->count[i] : b->value[i]));
            float *there = array + g->out_at + s * g->points + first;
            memcpy(inwards ? here : there, inwards ? there : here, (last - first) * sizeof(float));
        }
    }
}

/* Numbers between a row of a block and a row of features. Inwards, the rest of the block's row must be zero. */
INLINE void exchange_row(const int inwards, const Plan *p, const Block *b, vec *row, float *features) {
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
        int first = b->from[i] * LANES, last = (b->from[i] + b->count[i]) * LANES;
        if (last > g->points) last = g->points;
        for (int w = 0; w < g->wanted && last > first; w++) {
            int s = g->stream[w], n = last - first;
            vec *here = row + (s ? b->slope[i] + (s - 1) * b->count[i] : b->value[i]);
            float *there = features + g->feature_at + (size_t)w * g->points + first;
            for (; n >= LANES; n -= LANES, here++, there += LANES) {
                if (inwards) *here = *(loose *)there;
                else *(loose *)there = *here;
            }
            if (n) memcpy(inwards ? (float *)here : there, inwards ? there : (float *)here, n * sizeof(float));
        }
    }
}

/* The features' last row: what the output's bias is multiplied by. */
static void fill_bias(const Plan *p, float *row) {
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
        for (int w = 0; w < g->wanted; w++)
            for (int k = 0; k < g->points; k++) *row++ = g->stream[w] ? 0.0f : 1.0f;
    }
}

/* The first layer's values after tanh. */
static void first_layer(const Plan *p, const Block *b, const float *theta, const vec *x, vec *tape) {
    int width = p->width[0];
    const float *bias = theta + p->inputs * width;
    for (int i = 0; i < width; i++)
        for (int v = 0; v < b->points; v++) {
            vec sum = splat(bias[i]);
            for (int d = 0; d < p->inputs; d++) sum += theta[d * width + i] * x[d * b->points + v];
            tape[i * b->points + v] = vtanh(sum);
        }
}

/* Up to the streams of the output, `out`; or, if `features` is given, up to the last hidden layer. */
static void forward_block(const Plan *p, const Block *b, const float *theta, const vec *x, vec *tape, vec *after,
                          vec *row, vec *out, float *features) {
    int fan_in = p->inputs;
    first_layer(p, b, theta, x, tape);
    const float *end = theta;
    for (int l = 0; l < p->layers; l++) end += (l ? p->width[l - 1] + 1 : p->inputs + 1) * p->width[l];
    for (int c = 0; c < b->cols && !features; c++) out[c] = c < b->points ? splat(end[p->width[p->layers - 1]]) : (vec){0};
    for (int l = 0; l < p->layers; l++) {
        int width = p->width[l], last = l == p->layers - 1;
        const float *bias = theta + fan_in * width;
        if (l) product_forward(tape, after, b->cols, width, fan_in, theta);
        for (int i = 0; i < width; i++) {
            vec *t = last ? row : after + i * b->cols;
            if (l) {
                vec *z = tape + i * b->cols;
                for (int v = 0; v < b->points; v++) z[v] = vtanh(z[v] + bias[i]);
                spread_row(0, p, b, z, t, 0, 0);
            } else {
                spread_row(1, p, b, tape + i * b->points, t, theta + i, width);
            }
            if (last && features)
                exchange_row(0, p, b, t, features + (size_t)i * p->features);
            else if (last)
                for (int c = 0; c < b->cols; c++) out[c] += end[i] * t[c];
        }
        tape += (size_t)width * (l ? b->cols : b->points);
        theta = bias + width, fan_in = width;
    }
}

/* From the adjoint of the output's streams, `out`, or from that of the features, if they are given. */
static void backward_block(const Plan *p, const Block *b, const float *theta, const vec *x, const vec *tape, vec *after,
                           vec *back, vec *before, vec *rows, vec *row, const vec *out, float *features,
                           float *gradient) {
    size_t weights_at[MAX_LAYERS + 1], tape_at[MAX_LAYERS + 1];
    weights_at[0] = tape_at[0] = 0;
    for (int l = 0; l < p->layers; l++) {
        weights_at[l + 1] = weights_at[l] + (size_t)((l ? p->width[l - 1] : p->inputs) + 1) * p->width[l];
        tape_at[l + 1] = tape_at[l] + (size_t)p->width[l] * (l ? b->cols : b->points);
    }
    int top = p->layers - 1;
    const float *end = theta + weights_at[p->layers];
    if (features) {
        memset(back, 0, b->cols * sizeof(vec));
    } else {
        vec constant = {0};
        for (int v = 0; v < b->points; v++) constant += out[v];
        gradient[weights_at[p->layers] + p->width[top]] += total(constant);
    }
    for (int l = top; l >= 0; l--) {
        int width = p->width[l], fan_in = l ? p->width[l - 1] : p->inputs;
        const float *weights = theta + weights_at[l];
        float *g_weights = gradient + weights_at[l], *g_bias = g_weights + (size_t)fan_in * width;
        for (int i = 0; i < width; i++) {
            const vec *z = tape + tape_at[l] + (size_t)i * (l ? b->cols : b->points);
            vec *g = before + i * b->cols;
            const vec *a = back + i * b->cols;
            if (l == top && features) {
                exchange_row(1, p, b, back, features + (size_t)i * p->features);
                a = back;
            } else if (l == top) {
                vec share = {0};
                /* `back` is used as the row's own: what it held is not needed any more */
                if (l) spread_row(0, p, b, z, row, 0, 0);
                else spread_row(1, p, b, z, row, weights + i, width);
                for (int c = 0; c < b->cols; c++) {
                    share += row[c] * out[c];
                    back[c] = end[i] * out[c];
                }
                rows[p->widest + 16 + i] = share;
                a = back;
            }
            rows[i] = l ? gather_row(0, p, b, z, a, g, 0, 0) : gather_row(1, p, b, z, a, g, weights + i, width);
        }
        add_totals(g_bias, rows, width);
        if (l == top && !features) add_totals(gradient + weights_at[p->layers], rows + p->widest + 16, width);
        if (l) {
            for (int i = 0; i < fan_in; i++) {
                const vec *z = tape + tape_at[l - 1] + (size_t)i * (l > 1 ? b->cols : b->points);
                if (l > 1) spread_row(0, p, b, z, after + i * b->cols, 0, 0);
                else spread_row(1, p, b, z, after + i * b->cols, theta + i, fan_in);
            }
            outer(g_weights, after, before, b->cols, fan_in, width);
            product_backward(back, before, b->cols, fan_in, width, weights);
            continue;
        }
        for (int d = 0; d < p->inputs; d++) {
            for (int i = 0; i < width; i++) {
                const vec *g = before + i * b->cols;
                vec sum = {0};
                for (int v = 0; v < b->points; v++) sum += g[v] * x[d * b->points + v];
                for (int j = 0; j < p->groups; j++)
                    for (int f = 0; f < p->group[j].firsts; f++)
                        if (p->group[j].along[f] == d)
                            for (int v = 0; v < b->count[j]; v++) sum += g[b->slope[j] + f * b->count[j] + v];
                rows[i] = sum;
            }
            add_totals(g_weights + (size_t)d * width, rows, width);
        }
    }
}

/* --- the interface --- */

static size_t most_columns(const Plan *p) {
    size_t most = 0;
    Block b;
    for (int i = 0; i < p->blocks; i++) {
        read_block(p, i, &b);
        if ((size_t)b.cols > most) most = b.cols;
    }
    return most;
}

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

static XLA_FFI_Error *forward(XLA_FFI_CallFrame *frame, int to_features) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    const float *theta = argument(frame, 1), *x = argument(frame, 2);
    float *results = result(frame, 0);
    vec *tape = result(frame, 1);
    size_t cols = most_columns(&p);
    vec *memory = reserve((p.inputs + p.widest + 2) * cols);
    if (!memory || (uintptr_t)tape % sizeof(vec)) return fail(frame, "bpinn: no memory for a network's streams");
    vec *packed = memory, *after = packed + p.inputs * cols, *row = after + p.widest * cols, *out = row + cols;
    if (to_features) fill_bias(&p, results + (size_t)p.width[p.layers - 1] * p.features);
    for (int i = 0; i < p.blocks; i++) {
        Block b;
        read_block(&p, i, &b);
        pack(&p, &b, x, packed);
        forward_block(&p, &b, theta, packed, tape, after, row, out, to_features ? results : 0);
        if (!to_features) exchange(&p, &b, out, results, 0);
        tape += block_tape(&p, &b);
    }
    return 0;
}

static XLA_FFI_Error *backward(XLA_FFI_CallFrame *frame, int from_features) {
    if (asked_for_version(frame)) return 0;
    Plan p;
    read_plan(argument(frame, 0), &p);
    const float *theta = argument(frame, 1), *x = argument(frame, 2);
    const vec *tape = argument(frame, 3);
    float *adjoint = argument(frame, 4), *gradient = result(frame, 0);
    XLA_FFI_Buffer *out_buffer = (XLA_FFI_Buffer *)frame->rets.rets[0];
    memset(gradient, 0, out_buffer->dims[0] * sizeof(float));
    size_t cols = most_columns(&p);
    vec *memory = reserve((p.inputs + 3 * p.widest + 2) * cols + 2 * (p.widest + 16));
    if (!memory || (uintptr_t)tape % sizeof(vec)) return fail(frame, "bpinn: no memory for a network's streams");
    vec *packed = memory, *after = packed + p.inputs * cols, *back = after + p.widest * cols;
    vec *before = back + p.widest * cols, *row = before + p.widest * cols, *out = row + cols, *rows = out + cols;
    for (int i = 0; i < p.blocks; i++) {
        Block b;
        read_block(&p, i, &b);
        pack(&p, &b, x, packed);
        if (!from_features) exchange(&p, &b, out, adjoint, 1);
        backward_block(&p, &b, theta, packed, tape, after, back, before, rows, row, out, from_features ? adjoint : 0,
                       gradient);
        tape += block_tape(&p, &b);
    }
    return 0;
}

/* (plan, theta, x) -> (streams, tape) */
XLA_FFI_Error *bpinn_streams_forward(XLA_FFI_CallFrame *frame) { return forward(frame, 0); }

/* (plan, theta, x, tape, adjoint of streams) -> (adjoint of theta) */
XLA_FFI_Error *bpinn_streams_backward(XLA_FFI_CallFrame *frame) { return backward(frame, 0); }

/* (plan, theta, x) -> (features, tape); features are (width of the last hidden layer + 1, features) */
XLA_FFI_Error *bpinn_features_forward(XLA_FFI_CallFrame *frame) { return forward(frame, 1); }

/* (plan, theta, x, tape, adjoint of features) -> (adjoint of theta, zero for the output layer) */
XLA_FFI_Error *bpinn_features_backward(XLA_FFI_CallFrame *frame) { return backward(frame, 1); }

/* A network with its derivative streams, forwards and backwards, for one core and float32.

   XLA runs a gradient as dozens of small loops; here it is a few, in registers and first-level cache. The matrices are
   (neurons, columns): a column is a vector of points of one stream. Points come in groups that carry the same streams;
   columns lie as the values of all groups, then each group's derivatives. Points go through the
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
#include "plan.h"
#include "activations.h"

/* Vectors of one block on the tape: the first layer's values (the rest of it follows from the weights), and all streams
   of the others; before the activation, but the values are after tanh, if it is that. */
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
        for (int s = 0; s <= g->firsts + g->higher && last > first; s++) {
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

/* The first layer's values. */
static void first_layer(const Plan *p, const Block *b, const float *theta, const vec *x, vec *tape) {
    int width = p->width[0];
    const float *bias = theta + p->inputs * width;
    for (int i = 0; i < width; i++)
        for (int v = 0; v < b->points; v++) {
            vec sum = splat(bias[i]);
            for (int d = 0; d < p->inputs; d++) sum += theta[d * width + i] * x[d * b->points + v];
            tape[i * b->points + v] = base(p->activation, sum);
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
                for (int v = 0; v < b->points; v++) z[v] = base(p->activation, z[v] + bias[i]);
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

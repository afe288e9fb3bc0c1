/* The yardstick: one gradient of the log density of a small physics-informed network, by hand, on one core.

   A network of `inputs` coordinates, any number of tanh layers and one output is pushed through together with its
   second derivatives along each coordinate (and the first, which they need), then differentiated backwards by hand.
   The matrices are (neurons, columns): a column is one stream of one point, points are padded to whole vectors, and
   columns lie as values | first, second along x | first, second along y | ... Points that need no derivatives carry
   none and come after those that do. Weights are read as single numbers, so widths need no padding.

   `streams_forward` and `streams_backward` know nothing of equations or likelihoods; the rest is the two problems
   that are timed. Compile with gcc -O3 -march=native -ffast-math -shared -fPIC. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#define TILE_ROWS 5 /* rows x columns of accumulators in a product: 20 of 32 registers */
#define TILE_COLS 4
#else
#define LANES 8
#define TILE_ROWS 3 /* 9 of 16 registers */
#define TILE_COLS 3
#endif
#define MAX_LAYERS 16
#define MAX_INPUTS 4
#define BLOCK 48 /* vectors of columns that go through the network together, so that they stay in the cache */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4 * LANES)));
typedef int ivec __attribute__((vector_size(4 * LANES), aligned(4 * LANES)));
typedef float quad __attribute__((vector_size(16), aligned(4)));
#define INLINE static inline __attribute__((always_inline))
#define EACH _Pragma("GCC unroll 16") for

/* --- small pieces --- */

INLINE vec splat(float a) { return a - (vec){0}; }

INLINE vec least(vec a, vec b) {
    ivec below = a < b;
    return (vec)((below & (ivec)a) | (~below & (ivec)b));
}

/* tanh as x P(x^2) / Q(x^2), a least-maximum fit on [-8, 8]: off by 5e-7 at most in float32. */
INLINE vec vtanh(vec x) {
    const vec top = splat(8.0f);
    x = least(x, top);
    x = -least(-x, top);
    vec s = x * x;
    vec p = ((1.131063254e-5f * s + 2.938871505e-3f) * s + 1.291368455e-1f) * s + 9.999993443e-1f;
    vec q = (((2.423959415e-7f * s + 2.370342845e-4f) * s + 2.376401424e-2f) * s + 4.624678493e-1f) * s + 1.0f;
    return x * p / q;
}

INLINE float total(vec a) {
    float sum = 0.0f;
    EACH(int i = 0; i < LANES; i++) sum += a[i];
    return sum;
}

/* sums[i] = the sum of the lanes of a[i], for 16 vectors at once */
INLINE void totals(const vec *a, float *sums) {
#if LANES == 16
#define PICK(x, y, ...) __builtin_shuffle(x, y, (ivec){__VA_ARGS__})
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
#else
    for (int i = 0; i < 16; i++) sums[i] = total(a[i]);
#endif
}

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
    for (; j < rows; j++) product_rows(1, out + j * cols, in, cols, depth, a + j * step_out, step_in, step_out);
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
    vec sum[16], x[4];
    float sums[16] __attribute__((aligned(64)));
    EACH(int i = 0; i < 16; i++) sum[i] = (vec){0};
    for (int c = 0; c < cols; c++) {
        EACH(int j = 0; j < C; j++) x[j] = g[j * cols + c];
        EACH(int i = 0; i < R; i++) {
            vec y = t[i * cols + c];
            EACH(int j = 0; j < C; j++) sum[4 * i + j] += y * x[j];
        }
    }
    totals(sum, sums);
    EACH(int i = 0; i < R; i++) {
        if (C == 4)
            *(quad *)(gw + i * n_out) += *(quad *)(sums + 4 * i);
        else
            EACH(int j = 0; j < C; j++) gw[i * n_out + j] += sums[4 * i + j];
    }
}

/* gw[i, j] += sum over columns of t[i, :] g[j, :] */
static void __attribute__((noinline))
outer(float *restrict gw, const vec *restrict t, const vec *restrict g, int cols, int n_in, int n_out) {
    for (int i = 0; i < n_in; i += 4)
        for (int j = 0; j < n_out; j += 4) {
            float *to = gw + i * n_out + j;
            const vec *x = t + i * cols, *y = g + j * cols;
            int rows = n_in - i, columns = n_out - j;
            if (rows >= 4 && columns >= 4)
                outer_tile(4, 4, to, x, y, cols, n_out);
            else if (columns >= 4)
                for (int r = 0; r < rows; r++) outer_tile(1, 4, to + r * n_out, x + r * cols, y, cols, n_out);
            else if (rows >= 4)
                for (int c = 0; c < columns; c++) outer_tile(4, 1, to + c, x, y + c * cols, cols, n_out);
            else
                for (int r = 0; r < rows; r++)
                    for (int c = 0; c < columns; c++)
                        outer_tile(1, 1, to + r * n_out + c, x + r * cols, y + c * cols, cols, n_out);
        }
}

/* --- the network with its derivative streams --- */

typedef struct {
    int inputs, layers, widest; /* layers: the hidden ones */
    int width[MAX_LAYERS];
} Network;

typedef struct {
    int with, without; /* vectors of points with and without derivatives */
    const vec *x;      /* (inputs, with + without) */
} Points;

typedef struct {
    vec *before[MAX_LAYERS], *after[MAX_LAYERS]; /* each layer's streams before and after tanh: (width, columns) */
    vec *back, *back_before;                     /* adjoints of a layer's streams after and before tanh */
    vec *rows[MAX_INPUTS + 1];                   /* sums of rows on their way to single numbers */
} Workspace;

typedef struct {
    vec *value, *second[MAX_INPUTS]; /* of the output, over points */
} Streams;

static int columns_of(const Network *net, Points p) { return p.with + p.without + 2 * net->inputs * p.with; }

/* tanh of one row's streams: z becomes y | h' | h'', t (where given) y | t' | t'' */
INLINE void activate(const int inputs, vec *restrict z, vec *restrict t, float bias, Points p) {
    int points = p.with + p.without;
    for (int v = 0; v < points; v++) {
        vec y = vtanh(z[v] + bias);
        z[v] = y;
        t[v] = y;
        if (v >= p.with) continue;
        vec s = 1.0f - y * y, twice = 2.0f * y;
        EACH(int d = 0; d < inputs; d++) {
            int first = points + 2 * d * p.with + v, second = first + p.with;
            vec h = z[first];
            t[first] = s * h;
            t[second] = s * (z[second] - twice * h * h);
        }
    }
}

/* The last layer's tanh, and its share of the output, which needs no first derivatives. */
INLINE void activate_last(const int inputs, vec *restrict z, float bias, float w, Points p, Streams out) {
    int points = p.with + p.without;
    for (int v = 0; v < points; v++) {
        vec y = vtanh(z[v] + bias);
        z[v] = y;
        out.value[v] += w * y;
        if (v >= p.with) continue;
        vec ws = w * (1.0f - y * y), twice = 2.0f * y;
        EACH(int d = 0; d < inputs; d++) {
            int first = points + 2 * d * p.with + v, second = first + p.with;
            out.second[d][v] += ws * (z[second] - twice * z[first] * z[first]);
        }
    }
}

/* Adjoints before tanh (g) from those after it (a); returns the sum of those of the value, which is the bias's. */
INLINE vec deactivate(const int inputs, const vec *restrict z, const vec *restrict a, vec *restrict g, Points p) {
    int points = p.with + p.without;
    vec sum = {0};
    for (int v = 0; v < points; v++) {
        vec y = z[v], s = 1.0f - y * y, back = a[v];
        if (v < p.with) {
            vec curve = 6.0f * y * y - 2.0f, twice = 2.0f * y, slope = {0};
            EACH(int d = 0; d < inputs; d++) {
                int first = points + 2 * d * p.with + v, second = first + p.with;
                vec h = z[first], a1 = a[first], a2 = a[second];
                slope += a1 * h + a2 * z[second];
                back += curve * h * h * a2;
                g[first] = s * (a1 - 2.0f * twice * h * a2);
                g[second] = s * a2;
            }
            back -= twice * slope;
        }
        g[v] = s * back;
        sum += g[v];
    }
    return sum;
}

/* The same for the last layer, from the output's adjoints; *gw becomes the adjoint of the output's weight. */
INLINE vec deactivate_last(const int inputs, const vec *restrict z, vec *restrict g, float w, Points p, Streams back_out,
                           vec *gw) {
    int points = p.with + p.without;
    vec sum = {0}, weight = {0};
    for (int v = 0; v < points; v++) {
        vec y = z[v], s = 1.0f - y * y, ws = w * s, back = back_out.value[v];
        weight += y * back;
        if (v < p.with) {
            vec twice = 2.0f * y, curve = 6.0f * y * y - 2.0f;
            EACH(int d = 0; d < inputs; d++) {
                int first = points + 2 * d * p.with + v, second = first + p.with;
                vec h = z[first], hh = z[second], a2 = back_out.second[d][v];
                weight += s * (hh - twice * h * h) * a2;
                back += (curve * h * h - twice * hh) * a2;
                g[first] = -2.0f * twice * h * ws * a2;
                g[second] = ws * a2;
            }
        }
        g[v] = ws * back;
        sum += g[v];
    }
    *gw = weight;
    return sum;
}

INLINE void forward(const int inputs, const Network *net, const float *theta, Points p, Workspace *w, Streams out) {
    int points = p.with + p.without, cols = columns_of(net, p), fan_in = inputs;
    for (int l = 0; l < net->layers; l++) {
        int width = net->width[l], last = l == net->layers - 1;
        const float *weights = theta, *bias = theta + fan_in * width;
        theta = bias + width;
        if (l > 0) product_forward(w->before[l], w->after[l - 1], cols, width, fan_in, weights);
        if (last) {
            float end = theta[width];
            for (int v = 0; v < points; v++) out.value[v] = splat(end);
            for (int d = 0; d < inputs; d++) memset(out.second[d], 0, p.with * sizeof(vec));
        }
        for (int i = 0; i < width; i++) {
            vec *z = w->before[l] + i * cols;
            if (l == 0) {
                for (int v = 0; v < points; v++) {
                    vec sum = {0};
                    EACH(int d = 0; d < inputs; d++) sum += weights[d * width + i] * p.x[d * points + v];
                    z[v] = sum;
                }
                for (int d = 0; d < inputs; d++)
                    for (int v = 0; v < p.with; v++) {
                        z[points + 2 * d * p.with + v] = splat(weights[d * width + i]);
                        z[points + (2 * d + 1) * p.with + v] = (vec){0};
                    }
            }
            if (last)
                activate_last(inputs, z, bias[i], theta[i], p, out);
            else
                activate(inputs, z, w->after[l] + i * cols, bias[i], p);
        }
        fan_in = width;
    }
}

INLINE void backward(const int inputs, const Network *net, const float *theta, Points p, Workspace *w, Streams back,
                     float *gradient) {
    int points = p.with + p.without, cols = columns_of(net, p), at[MAX_LAYERS + 1], fan_in = inputs;
    at[0] = 0;
    for (int l = 0; l < net->layers; l++) {
        at[l + 1] = at[l] + (fan_in + 1) * net->width[l];
        fan_in = net->width[l];
    }
    vec end = {0};
    for (int v = 0; v < points; v++) end += back.value[v];
    gradient[at[net->layers] + fan_in] += total(end);
    for (int l = net->layers - 1; l >= 0; l--) {
        int width = net->width[l];
        fan_in = l ? net->width[l - 1] : inputs;
        float *g_weights = gradient + at[l], *g_bias = g_weights + fan_in * width;
        for (int i = 0; i < width; i++) {
            const vec *z = w->before[l] + i * cols;
            vec *g = w->back_before + i * cols;
            w->rows[0][i] = l == net->layers - 1
                                ? deactivate_last(inputs, z, g, theta[at[l + 1] + i], p, back, &w->rows[1][i])
                                : deactivate(inputs, z, w->back + i * cols, g, p);
        }
        add_totals(g_bias, w->rows[0], width);
        if (l == net->layers - 1) add_totals(gradient + at[l + 1], w->rows[1], width);
        if (l > 0) {
            outer(g_weights, w->after[l - 1], w->back_before, cols, fan_in, width);
            product_backward(w->back, w->back_before, cols, fan_in, width, theta + at[l]);
            continue;
        }
        for (int i = 0; i < width; i++) {
            const vec *g = w->back_before + i * cols;
            EACH(int d = 0; d < inputs; d++) {
                vec sum = {0};
                for (int v = 0; v < points; v++) sum += g[v] * p.x[d * points + v];
                for (int v = 0; v < p.with; v++) sum += g[points + 2 * d * p.with + v];
                w->rows[1 + d][i] = sum;
            }
        }
        for (int d = 0; d < inputs; d++) add_totals(g_weights + d * width, w->rows[1 + d], width);
    }
}

/* The output and its second derivatives at points; keeps in the workspace what `streams_backward` needs.
   theta: weights (in, out) and biases of each layer in turn, first layer first. */
void streams_forward(const Network *net, const float *theta, Points p, Workspace *w, Streams out) {
    if (net->inputs == 1) forward(1, net, theta, p, w, out);
    else if (net->inputs == 2) forward(2, net, theta, p, w, out);
    else forward(net->inputs, net, theta, p, w, out);
}

/* Adds to `gradient` the derivative by theta, given that by the output's streams. */
void streams_backward(const Network *net, const float *theta, Points p, Workspace *w, Streams back, float *gradient) {
    if (net->inputs == 1) backward(1, net, theta, p, w, back, gradient);
    else if (net->inputs == 2) backward(2, net, theta, p, w, back, gradient);
    else backward(net->inputs, net, theta, p, w, back, gradient);
}

/* --- the two problems --- */

enum { REACTION, PHASE }; /* 0.01 u_xx + k tanh(u), k the last parameter; 0.01 (u_xx + u_yy) + u^3 - u */

typedef struct {
    Points points;
    const vec *value, *precision; /* of the readings; precision is zero in the padding */
} Block;

typedef struct {
    Network net;
    int equation, dim, blocks;
    float constant; /* of the log likelihood and the prior */
    Block *block;
    Workspace work;
    Streams out, back;
} Problem;

static vec *room(size_t vectors) {
    vec *p = aligned_alloc(sizeof(vec), vectors * sizeof(vec));
    memset(p, 0, vectors * sizeof(vec));
    return p;
}

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

/* Copies the points of blocks; x is (points, inputs), the first n_with points read the equation, the rest u. */
Problem *problem_new(int inputs, int layers, const int *width, int equation, int n_with, int n_without, const float *x,
                     const float *value, const float *noise) {
    Problem *q = calloc(1, sizeof(Problem));
    Network *net = &q->net;
    net->inputs = inputs, net->layers = layers, q->equation = equation;
    int fan_in = inputs;
    for (int l = 0; l < layers; l++) {
        net->width[l] = width[l];
        if (width[l] > net->widest) net->widest = width[l];
        q->dim += (fan_in + 1) * width[l];
        fan_in = width[l];
    }
    q->dim += fan_in + 1 + (equation == REACTION);
    double constant = -0.5 * q->dim * log(2 * M_PI);
    for (int i = 0; i < n_with + n_without; i++) constant -= 0.5 * log(2 * M_PI) + log(noise[i]);
    q->constant = constant;
    int with = ceil_div(n_with, LANES), without = ceil_div(n_without, LANES);
    q->blocks = ceil_div((1 + 2 * inputs) * with + without, BLOCK);
    int most_with = ceil_div(with, q->blocks), most_without = ceil_div(without, q->blocks);
    q->blocks = 0;
    q->block = calloc(with + without, sizeof(Block));
    for (int a = 0, b = 0; a < with || b < without; a += most_with, b += most_without) {
        Points p = {0};
        p.with = a < with ? (with - a < most_with ? with - a : most_with) : 0;
        p.without = b < without ? (without - b < most_without ? without - b : most_without) : 0;
        int points = p.with + p.without;
        float *px = (float *)room(inputs * points), *pv = (float *)room(points), *pp = (float *)room(points);
        for (int i = 0; i < points * LANES; i++) {
            int extra = i - p.with * LANES;
            int from = extra < 0 ? a * LANES + i : b * LANES + extra;
            if (from >= (extra < 0 ? n_with : n_without)) continue;
            if (extra >= 0) from += n_with;
            for (int d = 0; d < inputs; d++) px[d * points * LANES + i] = x[from * inputs + d];
            pv[i] = value[from], pp[i] = 1.0f / noise[from];
        }
        p.x = (vec *)px;
        q->block[q->blocks++] = (Block){p, (vec *)pv, (vec *)pp};
    }
    int points = most_with + most_without, cols = points + 2 * inputs * most_with;
    for (int l = 0; l < layers; l++) {
        q->work.before[l] = room((size_t)width[l] * cols);
        q->work.after[l] = room((size_t)width[l] * cols);
    }
    q->work.back = room((size_t)net->widest * cols);
    q->work.back_before = room((size_t)net->widest * cols);
    for (int d = 0; d <= inputs; d++) q->work.rows[d] = room(net->widest + 16);
    q->out.value = room(points), q->back.value = room(points);
    for (int d = 0; d < inputs; d++) q->out.second[d] = room(most_with + 1), q->back.second[d] = room(most_with + 1);
    return q;
}

int problem_dim(const Problem *q) { return q->dim; }

/* Residuals of the readings: the log likelihood, and the output's adjoints in q->back. */
INLINE void likelihood(const int equation, Problem *q, const Block *b, float k, vec *misfit, vec *gk) {
    int inputs = q->net.inputs, points = b->points.with + b->points.without;
    for (int v = 0; v < points; v++) {
        vec u = q->out.value[v], predicted = u, slope = splat(1.0f), t = u;
        if (v < b->points.with) {
            vec laplacian = {0};
            for (int d = 0; d < inputs; d++) laplacian += q->out.second[d][v];
            if (equation == REACTION) {
                t = vtanh(u);
                predicted = 0.01f * laplacian + k * t;
                slope = k * (1.0f - t * t);
            } else {
                predicted = 0.01f * laplacian + u * (u * u - 1.0f);
                slope = 3.0f * u * u - 1.0f;
            }
        }
        vec scaled = (predicted - b->value[v]) * b->precision[v], back = -scaled * b->precision[v];
        *misfit += scaled * scaled;
        q->back.value[v] = back * slope;
        if (v < b->points.with) {
            *gk += back * t;
            for (int d = 0; d < inputs; d++) q->back.second[d][v] = 0.01f * back;
        }
    }
}

float log_density(Problem *q, const float *z, float *gradient) {
    vec misfit = {0}, gk = {0};
    float squares = 0.0f, k = z[q->dim - 1];
    for (int i = 0; i < q->dim; i++) {
        squares += z[i] * z[i];
        gradient[i] = -z[i];
    }
    for (int i = 0; i < q->blocks; i++) {
        const Block *b = q->block + i;
        streams_forward(&q->net, z, b->points, &q->work, q->out);
        if (q->equation == REACTION) likelihood(REACTION, q, b, k, &misfit, &gk);
        else likelihood(PHASE, q, b, 0.0f, &misfit, &gk);
        streams_backward(&q->net, z, b->points, &q->work, q->back, gradient);
    }
    if (q->equation == REACTION) gradient[q->dim - 1] += total(gk);
    return q->constant - 0.5f * (squares + total(misfit));
}

/* Leapfrog steps as a sampler takes them; gradient must be that at z. Returns the last log density. */
float leapfrog(Problem *q, float *restrict z, float *restrict p, float *restrict gradient, float step, int steps) {
    float value = 0.0f;
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < q->dim; i++) {
            p[i] += 0.5f * step * gradient[i];
            z[i] += step * p[i];
        }
        value = log_density(q, z, gradient);
        for (int i = 0; i < q->dim; i++) p[i] += 0.5f * step * gradient[i];
    }
    return value;
}

/* Only the products between hidden layers (forwards, backwards, weights) and every tanh of one gradient. */
void products(Problem *q, const float *theta, float *gradient, int steps) {
    const Network *net = &q->net;
    Workspace *w = &q->work;
    for (int s = 0; s < steps; s++)
        for (int b = 0; b < q->blocks; b++) {
            Points p = q->block[b].points;
            int cols = columns_of(net, p), points = p.with + p.without;
            for (int l = 0; l < net->layers; l++) {
                int width = net->width[l], fan_in = l ? net->width[l - 1] : 0;
                if (l > 0) {
                    product_forward(w->before[l], w->after[l - 1], cols, width, fan_in, theta);
                    outer(gradient, w->after[l - 1], w->back_before, cols, fan_in, width);
                    product_backward(w->back, w->back_before, cols, fan_in, width, theta);
                }
                for (int i = 0; i < width; i++)
                    for (int v = 0; v < points; v++) w->after[l][i * cols + v] = vtanh(w->after[l][i * cols + v]);
            }
        }
}

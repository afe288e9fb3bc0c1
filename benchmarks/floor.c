/* The yardstick: one gradient of the log density of a small physics-informed network, hand-written, on one core.

   A network of `inputs` coordinates, any number of tanh layers and one output is pushed through together with its
   second derivatives along each coordinate (and the first, which they need), then differentiated backwards explicitly.
   The matrices are (neurons, columns): a column is one stream of one point, points are padded to whole vectors, and
   columns lie as values | first, second along x | first, second along y | ... Points that need no derivatives carry
   none and come after those that do. Weights are read as single numbers, so widths need no padding.

   `streams_forward` and `streams_backward` know nothing of equations or likelihoods; the rest is the two problems
   that are timed. Compile with gcc -O3 -march=native -ffast-math -shared -fPIC. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../src/bpinn/native/vectors.h"

#define MAX_LAYERS 16
#define MAX_INPUTS 4
#define BLOCK 48 /* vectors of columns that go through the network together, so that they stay in the cache */


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

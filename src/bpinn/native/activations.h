/* The activation of one row's streams, by the chain rule, and its adjoint. */

/* --- tanh, up to second derivatives --- */

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
    else if (g->firsts == 1 && g->higher == 0) { call(1, 0, 1); } \
    else if (g->firsts == 2 && g->higher == 0) { call(2, 0, 1); } \
    else if (g->firsts == 1 && g->pure) { call(1, 1, 1); }       \
    else if (g->firsts == 2 && g->pure) { call(2, 2, 1); }       \
    else if (g->firsts == 3 && g->pure) { call(3, 3, 1); }       \
    else { call(g->firsts, g->higher, 0); }

/* --- any activation and order, by the tables of the chain rule --- */

/* phi, and in d[1], ..., d[order] its derivatives, at y: the value after tanh, or before the other activations. Up to
   MAX_ORDER + 1, which the adjoint of the highest derivative needs. */
INLINE vec slopes(int activation, int order, vec y, vec *d) {
    if (activation == TANH) {
        vec q = y * y, s = 1.0f - q;
        d[1] = s, d[2] = -2.0f * y * s, d[3] = (6.0f * q - 2.0f) * s;
        if (order > 3) d[4] = (16.0f - 24.0f * q) * y * s, d[5] = ((120.0f * q - 120.0f) * q + 16.0f) * s;
        return y;
    }
    if (activation == SIN) {
        vec s, c;
        vsincos(y, &s, &c);
        d[1] = c, d[2] = -s, d[3] = -c, d[4] = s, d[5] = c;
        return s;
    }
    if (activation == SWISH) {
        /* From exp(-|y|), so that nothing cancels: s is the sigmoid, p its derivative s (1 - s), m is 1 - 2 s. */
        vec e = vexp(-magnitude(y)), inverse = 1.0f / (1.0f + e), p = e * inverse * inverse;
        vec s = where_negative(y, e * inverse, inverse), m = (e - 1.0f) * inverse;
        m = where_negative(y, -m, m);
        vec s2 = m * p;
        d[1] = y * p + s, d[2] = y * s2 + 2.0f * p;
        if (order < 3) return y * s;
        vec s3 = (1.0f - 6.0f * p) * p;
        d[3] = y * s3 + 3.0f * s2;
        if (order < 4) return y * s;
        vec s4 = (1.0f - 12.0f * p) * s2, s5 = ((120.0f * p - 30.0f) * p + 1.0f) * p;
        d[4] = y * s4 + 4.0f * s3, d[5] = y * s5 + 5.0f * s4;
        return y * s;
    }
    /* gelu, y Phi(y); where the density is zero, its argument stays finite. */
    vec h = -least(-least(y, splat(14.0f)), splat(14.0f)), q = h * h;
    vec density = 0.3989422804f * vexp(-0.5f * q), tail = density * vmills(magnitude(h));
    vec cdf = where_negative(h, tail, 1.0f - tail);
    d[1] = cdf + h * density, d[2] = (2.0f - q) * density, d[3] = (q - 4.0f) * h * density;
    d[4] = -((q - 7.0f) * q + 4.0f) * density, d[5] = ((q - 11.0f) * q + 18.0f) * h * density;
    return y * cdf;
}

/* A stream before the activation; in the first layer first derivatives are weights, and higher ones zero. */
#define INNER(s, j) (FIRST ? splat(w[g->along[(s) - 1] * width]) : h[((s) - 1) * count + (j)])

/* In the first layer, whether a term has factors that are zero. */
INLINE int vanishes(const Group *g, const int32_t *factors, int k) {
    for (int m = 0; m < k; m++)
        if (factors[m] > g->firsts) return 1;
    return 0;
}

/* One term of the chain rule, of K vectors: `times` phi^(k) and k factors. */
INLINE void add_term(const int K, const int k, const int FIRST, const Group *g, const int32_t *factors, float times,
                     vec d[][MAX_ORDER + 2], const vec *h, int count, const float *w, int width, vec *total) {
    EACH(int j = 0; j < K; j++) {
        vec product = times * d[j][k];
        EACH(int m = 0; m < k; m++) product *= INNER(factors[m], j);
        total[j] += product;
    }
}

/* Its adjoint, from that of the result in c: each factor's share is what is before it times what is after. */
INLINE void add_adjoint(const int K, const int k, const int FIRST, const Group *g, const int32_t *factors, float times,
                        vec d[][MAX_ORDER + 2], const vec *h, const vec *c, int count, const float *w, int width,
                        vec *back, vec *r) {
    EACH(int j = 0; j < K; j++) {
        vec before[MAX_ORDER + 1], rest = d[j][k];
        before[0] = times * c[j];
        EACH(int m = 0; m < k; m++) before[m + 1] = before[m] * INNER(factors[m], j);
        back[j] += d[j][k + 1] * before[k];
        EACH(int m = k - 1; m >= 0; m--) {
            r[(factors[m] - 1) * count + j] += before[m] * rest;
            rest *= INNER(factors[m], j);
        }
    }
}

/* As `spread`, of K vectors at once, so that the tables are read less often. */
INLINE void spread_any(const int K, const int FIRST, int activation, const Group *g, const vec *restrict z,
                       vec *restrict t, int value, int slope, int count, const float *w, int width) {
    vec d[4][MAX_ORDER + 2], total[4]; /* of constant size, so that they are registers */
    const vec *h = z + slope;
    vec *r = t + slope;
    EACH(int j = 0; j < K; j++) t[value + j] = slopes(activation, g->order, z[value + j], d[j]);
    for (int f = 0; f < g->firsts; f++) EACH(int j = 0; j < K; j++) r[f * count + j] = d[j][1] * INNER(f + 1, j);
    for (int s = 0; s < g->higher; s++) {
        const int32_t *n = g->rule[s];
        EACH(int j = 0; j < K; j++) total[j] = (vec){0};
        for (int terms = *n++; terms; terms--) {
            int k = n[0];
            float times = n[1];
            const int32_t *factors = n + 2;
            n = factors + k;
            if (FIRST && vanishes(g, factors, k)) continue;
#define TERM(k) add_term(K, k, FIRST, g, factors, times, d, h, count, w, width, total)
            if (k == 1) TERM(1);
            else if (k == 2) TERM(2);
            else if (k == 3) TERM(3);
            else TERM(4);
#undef TERM
        }
        EACH(int j = 0; j < K; j++) r[(g->firsts + s) * count + j] = total[j];
    }
}

/* As `gather`, of K vectors at once. */
INLINE vec gather_any(const int K, const int FIRST, int activation, const Group *g, const vec *restrict z,
                      const vec *restrict a, vec *restrict out, int value, int slope, int count, const float *w,
                      int width) {
    vec d[4][MAX_ORDER + 2], back[4], sum = {0};
    const vec *h = z + slope, *c = a + slope;
    vec *r = out + slope;
    EACH(int j = 0; j < K; j++) {
        slopes(activation, g->order + 1, z[value + j], d[j]);
        back[j] = d[j][1] * a[value + j];
    }
    for (int s = 0; s < g->firsts + g->higher; s++)
        EACH(int j = 0; j < K; j++) {
            r[s * count + j] = d[j][1] * c[s * count + j];
            if (!FIRST || s < g->firsts) back[j] += d[j][2] * c[s * count + j] * INNER(s + 1, j);
        }
    for (int s = 0; s < g->higher; s++) {
        const int32_t *n = g->rule[s];
        const vec *from = c + (g->firsts + s) * count;
        for (int terms = *n++; terms; terms--) {
            int k = n[0];
            float times = n[1];
            const int32_t *factors = n + 2;
            n = factors + k;
            if (k == 1 || (FIRST && vanishes(g, factors, k))) continue; /* k = 1 is done above */
#define TERM(k) add_adjoint(K, k, FIRST, g, factors, times, d, h, from, count, w, width, back, r)
            if (k == 2) TERM(2);
            else if (k == 3) TERM(3);
            else TERM(4);
#undef TERM
        }
    }
    EACH(int j = 0; j < K; j++) {
        out[value + j] = back[j];
        sum += back[j];
    }
    return sum;
}

/* Derivatives along one coordinate, up to N: the chain rule written out. As `spread` and `gather`. */
INLINE void spread_line(const int N, const int FIRST, int activation, const Group *g, const vec *restrict z,
                        vec *restrict t, int value, int slope, int count, const float *w, int width) {
    for (int v = 0; v < count; v++) {
        vec d[MAX_ORDER + 2], h[MAX_ORDER + 1];
        t[value + v] = slopes(activation, N, z[value + v], d);
        EACH(int k = 1; k <= N; k++)
            h[k] = !FIRST ? z[slope + (k - 1) * count + v] : k == 1 ? splat(w[g->along[0] * width]) : (vec){0};
        vec *r = t + slope + v, q = h[1] * h[1];
        if (N > 0) r[0] = d[1] * h[1];
        if (N > 1) r[count] = d[1] * h[2] + d[2] * q;
        if (N > 2) r[2 * count] = d[1] * h[3] + h[1] * (3.0f * d[2] * h[2] + d[3] * q);
        if (N > 3)
            r[3 * count] = d[1] * h[4] + d[2] * (4.0f * h[1] * h[3] + 3.0f * h[2] * h[2]) +
                           q * (6.0f * d[3] * h[2] + d[4] * q);
    }
}

INLINE vec gather_line(const int N, const int FIRST, int activation, const Group *g, const vec *restrict z,
                       const vec *restrict a, vec *restrict out, int value, int slope, int count, const float *w,
                       int width) {
    vec sum = {0};
    for (int v = 0; v < count; v++) {
        vec d[MAX_ORDER + 2], h[MAX_ORDER + 1], c[MAX_ORDER + 1];
        slopes(activation, N + 1, z[value + v], d);
        EACH(int k = 1; k <= N; k++) {
            h[k] = !FIRST ? z[slope + (k - 1) * count + v] : k == 1 ? splat(w[g->along[0] * width]) : (vec){0};
            c[k] = a[slope + (k - 1) * count + v];
        }
        vec back = d[1] * a[value + v], r1 = {0}, r2 = {0}, r3 = {0}, q = h[1] * h[1];
        if (N > 0) back += d[2] * c[1] * h[1], r1 += d[1] * c[1];
        if (N > 1) {
            back += c[2] * (d[2] * h[2] + d[3] * q);
            r1 += 2.0f * d[2] * h[1] * c[2], r2 += d[1] * c[2];
        }
        if (N > 2) {
            back += c[3] * (d[2] * h[3] + h[1] * (3.0f * d[3] * h[2] + d[4] * q));
            r1 += 3.0f * c[3] * (d[2] * h[2] + d[3] * q), r2 += 3.0f * d[2] * h[1] * c[3], r3 += d[1] * c[3];
        }
        if (N > 3) {
            vec pairs = 4.0f * h[1] * h[3] + 3.0f * h[2] * h[2];
            back += c[4] * (d[2] * h[4] + d[3] * pairs + q * (6.0f * d[4] * h[2] + d[5] * q));
            r1 += 4.0f * c[4] * (d[2] * h[3] + h[1] * (3.0f * d[3] * h[2] + d[4] * q));
            r2 += 6.0f * c[4] * (d[2] * h[2] + d[3] * q), r3 += 4.0f * d[2] * h[1] * c[4];
            out[slope + 3 * count + v] = d[1] * c[4];
        }
        if (N > 0) out[slope + v] = r1;
        if (N > 1) out[slope + count + v] = r2;
        if (N > 2) out[slope + 2 * count + v] = r3;
        out[value + v] = back;
        sum += back;
    }
    return sum;
}

/* --- one row's streams --- */

/* Along one coordinate by its order; else for `v` from 0 to `count`, four, two or one vectors at once. */
#define EITHER(line, any)                             \
    if (g->firsts <= 1) {                             \
        if (g->order == 0) line(0);                   \
        else if (g->order == 1) line(1);              \
        else if (g->order == 2) line(2);              \
        else if (g->order == 3) line(3);              \
        else line(4);                                 \
    } else {                                          \
        int v = 0;                                    \
        for (; v + 4 <= count; v += 4) any(4);        \
        for (; v + 2 <= count; v += 2) any(2);        \
        for (; v < count; v++) any(1);                \
    }

static void __attribute__((noinline))
spread_general(int activation, const Group *g, const vec *z, vec *t, int value, int slope, int count) {
#define LINE(N) spread_line(N, 0, activation, g, z, t, value, slope, count, 0, 0)
#define ANY(K) spread_any(K, 0, activation, g, z, t, value + v, slope + v, count, 0, 0)
    EITHER(LINE, ANY)
#undef LINE
#undef ANY
}

static void __attribute__((noinline))
spread_general_first(int activation, const Group *g, const vec *z, vec *t, int value, int slope, int count,
                     const float *w, int width) {
#define LINE(N) spread_line(N, 1, activation, g, z, t, value, slope, count, w, width)
#define ANY(K) spread_any(K, 1, activation, g, z, t, value + v, slope + v, count, w, width)
    EITHER(LINE, ANY)
#undef LINE
#undef ANY
}

static vec __attribute__((noinline))
gather_general(int activation, const Group *g, const vec *z, const vec *a, vec *out, int value, int slope, int count) {
    vec sum = {0};
#define LINE(N) sum += gather_line(N, 0, activation, g, z, a, out, value, slope, count, 0, 0)
#define ANY(K) sum += gather_any(K, 0, activation, g, z, a, out, value + v, slope + v, count, 0, 0)
    EITHER(LINE, ANY)
#undef LINE
#undef ANY
    return sum;
}

static vec __attribute__((noinline))
gather_general_first(int activation, const Group *g, const vec *z, const vec *a, vec *out, int value, int slope,
                     int count, const float *w, int width) {
    vec sum = {0};
#define LINE(N) sum += gather_line(N, 1, activation, g, z, a, out, value, slope, count, w, width)
#define ANY(K) sum += gather_any(K, 1, activation, g, z, a, out, value + v, slope + v, count, w, width)
    EITHER(LINE, ANY)
#undef LINE
#undef ANY
    return sum;
}

/* The values as `slopes` takes them. */
INLINE vec base(int activation, vec h) { return activation == TANH ? vtanh(h) : h; }

INLINE void spread_row(const int FIRST, const Plan *p, const Block *b, const vec *z, vec *t, const float *w, int width) {
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
#define CALL(F, S, PURE) spread(F, S, PURE, FIRST, g, z, t, b->value[i], b->slope[i], b->count[i], w, width)
        if (g->special) {
            DISPATCH(CALL)
        } else if (FIRST) {
            spread_general_first(p->activation, g, z, t, b->value[i], b->slope[i], b->count[i], w, width);
        } else {
            spread_general(p->activation, g, z, t, b->value[i], b->slope[i], b->count[i]);
        }
#undef CALL
    }
}

INLINE vec gather_row(const int FIRST, const Plan *p, const Block *b, const vec *z, const vec *a, vec *out,
                      const float *w, int width) {
    vec sum = {0};
    for (int i = 0; i < p->groups; i++) {
        const Group *g = p->group + i;
#define CALL(F, S, PURE) sum += gather(F, S, PURE, FIRST, g, z, a, out, b->value[i], b->slope[i], b->count[i], w, width)
        if (g->special) {
            DISPATCH(CALL)
        } else if (FIRST) {
            sum += gather_general_first(p->activation, g, z, a, out, b->value[i], b->slope[i], b->count[i], w, width);
        } else {
            sum += gather_general(p->activation, g, z, a, out, b->value[i], b->slope[i], b->count[i]);
        }
#undef CALL
    }
    return sum;
}

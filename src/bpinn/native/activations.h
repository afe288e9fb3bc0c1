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

/* As `spread`, of K vectors at once, so that the tables are read less often. */
INLINE void spread_any(const int K, const int FIRST, int activation, const Group *g, const vec *restrict z,
                       vec *restrict t, int value, int slope, int count, const float *w, int width) {
    vec d[4][MAX_ORDER + 2], total[4], product[4]; /* of constant size, so that they are registers */
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
            EACH(int j = 0; j < K; j++) product[j] = times * d[j][k];
            for (int m = 0; m < k; m++) EACH(int j = 0; j < K; j++) product[j] *= INNER(factors[m], j);
            EACH(int j = 0; j < K; j++) total[j] += product[j];
        }
        EACH(int j = 0; j < K; j++) r[(g->firsts + s) * count + j] = total[j];
    }
}

/* As `gather`, of K vectors at once. */
INLINE vec gather_any(const int K, const int FIRST, int activation, const Group *g, const vec *restrict z,
                      const vec *restrict a, vec *restrict out, int value, int slope, int count, const float *w,
                      int width) {
    vec d[4][MAX_ORDER + 2], back[4], rest[4], before[MAX_ORDER + 1][4], sum = {0};
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
        for (int terms = *n++; terms; terms--) {
            int k = n[0];
            float times = n[1];
            const int32_t *factors = n + 2;
            n = factors + k;
            if (k == 1 || (FIRST && vanishes(g, factors, k))) continue; /* k = 1 is done above */
            EACH(int j = 0; j < K; j++) before[0][j] = times * c[(g->firsts + s) * count + j];
            for (int m = 0; m < k; m++)
                EACH(int j = 0; j < K; j++) before[m + 1][j] = before[m][j] * INNER(factors[m], j);
            EACH(int j = 0; j < K; j++) {
                back[j] += d[j][k + 1] * before[k][j];
                rest[j] = d[j][k];
            }
            for (int m = k - 1; m >= 0; m--) { /* each factor's share is what is before it times what is after */
                EACH(int j = 0; j < K; j++) {
                    r[(factors[m] - 1) * count + j] += before[m][j] * rest[j];
                    rest[j] *= INNER(factors[m], j);
                }
            }
        }
    }
    EACH(int j = 0; j < K; j++) {
        out[value + j] = back[j];
        sum += back[j];
    }
    return sum;
}

/* --- one row's streams --- */

/* Calls for `v` from 0 to `count`, four, two or one vectors at once. */
#define BY_FOUR(call)                  \
    int v = 0;                         \
    for (; v + 4 <= count; v += 4) call(4); \
    if (v + 2 <= count) { call(2); v += 2; } \
    if (v < count) call(1);

static void __attribute__((noinline)) spread_general(int activation, const Group *g, const vec *z, vec *t, int value,
                                                     int slope, int count) {
#define CALL(K) spread_any(K, 0, activation, g, z, t, value + v, slope + v, count, 0, 0)
    BY_FOUR(CALL)
#undef CALL
}

static void __attribute__((noinline)) spread_general_first(int activation, const Group *g, const vec *z, vec *t,
                                                           int value, int slope, int count, const float *w, int width) {
#define CALL(K) spread_any(K, 1, activation, g, z, t, value + v, slope + v, count, w, width)
    BY_FOUR(CALL)
#undef CALL
}

static vec __attribute__((noinline)) gather_general(int activation, const Group *g, const vec *z, const vec *a,
                                                    vec *out, int value, int slope, int count) {
    vec sum = {0};
#define CALL(K) sum += gather_any(K, 0, activation, g, z, a, out, value + v, slope + v, count, 0, 0)
    BY_FOUR(CALL)
#undef CALL
    return sum;
}

static vec __attribute__((noinline)) gather_general_first(int activation, const Group *g, const vec *z, const vec *a,
                                                          vec *out, int value, int slope, int count, const float *w,
                                                          int width) {
    vec sum = {0};
#define CALL(K) sum += gather_any(K, 1, activation, g, z, a, out, value + v, slope + v, count, w, width)
    BY_FOUR(CALL)
#undef CALL
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

/* What is to be computed: a network, groups of points and their streams, and blocks of points. */

#define MAX_LAYERS 16
#define MAX_INPUTS 8
#define MAX_GROUPS 16
#define MAX_STREAMS 128
#define MAX_ORDER 4
#define BLOCK 48 /* vectors of columns that go through the network together */

enum { TANH, SIN, SWISH, GELU };

/* Streams are numbered: 0 is the value, then come the first derivatives, then the higher ones by order. */
typedef struct {
    int points, vectors, at, out_at;  /* `at`: of its first point in x; `out_at`: of its first number in the output */
    int order, firsts, higher;
    int along[MAX_INPUTS];            /* the coordinate of each first derivative */
    const int32_t *rule[MAX_STREAMS]; /* the chain rule of each higher derivative: terms, then of each term the order
                                         k of the activation's derivative, a factor, and k streams to multiply */
    int special, pure;                /* tanh and second order at most: without tables; `pure`: nothing is mixed */
    int a[MAX_STREAMS], b[MAX_STREAMS]; /* if special, each second derivative's two first ones, as numbers of `along` */
    int wanted, stream[MAX_STREAMS];  /* the streams handed out as features */
    int feature_at;                   /* of its first number in a row of features */
} Group;

typedef struct {
    int inputs, layers, widest, activation, groups, blocks, features; /* `features`: numbers in a row of features */
    int width[MAX_LAYERS];
    Group group[MAX_GROUPS];
} Plan;

/* numbers: points, order, firsts, along..., higher, their rules, wanted, stream...; returns what follows them */
static const int32_t *read_group(const int32_t *n, Group *g, int activation) {
    g->points = *n++, g->order = *n++, g->firsts = *n++;
    for (int f = 0; f < g->firsts; f++) g->along[f] = *n++;
    g->higher = *n++, g->pure = g->higher == g->firsts, g->special = activation == TANH && g->order <= 2;
    for (int s = 0; s < g->higher; s++) {
        g->rule[s] = n;
        for (int terms = *n++; terms; terms--) {
            int k = n[0];
            if (k == 2) g->a[s] = n[2] - 1, g->b[s] = n[3] - 1;
            n += 2 + k;
        }
        if (g->a[s] != s || g->b[s] != s) g->pure = 0;
    }
    g->wanted = *n++;
    for (int w = 0; w < g->wanted; w++) g->stream[w] = *n++;
    g->vectors = (g->points + LANES - 1) / LANES;
    return n;
}

/* numbers: inputs, layers, widths, activation, groups, and those of each group */
static void read_plan(const int32_t *n, Plan *p) {
    p->inputs = *n++, p->layers = *n++, p->widest = 0;
    for (int l = 0; l < p->layers; l++) {
        p->width[l] = *n++;
        if (p->width[l] > p->widest) p->widest = p->width[l];
    }
    p->activation = *n++, p->groups = *n++, p->features = 0;
    int at = 0, out_at = 0, cols = 0;
    for (int i = 0; i < p->groups; i++) {
        Group *g = p->group + i;
        n = read_group(n, g, p->activation);
        int streams = 1 + g->firsts + g->higher;
        g->at = at, g->out_at = out_at, g->feature_at = p->features;
        at += g->points, out_at += g->points * streams, p->features += g->points * g->wanted;
        cols += g->vectors * streams;
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
        b->cols += b->count[i] * (p->group[i].firsts + p->group[i].higher);
    }
}

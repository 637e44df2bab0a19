/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-sampler-private.h"

#include "lychee-sampling.h"

#include <float.h>
#include <math.h>
#include <string.h>

/**
 * LycheeSampler:
 *
 * Chooses tokens from logits.
 *
 * In this order: the repetition penalty, the temperature, then [property@Lychee.Sampler:top-k],
 * [property@Lychee.Sampler:min-p] and [property@Lychee.Sampler:top-p], each of what the one before
 * it left; the best token always stays. At temperature 0 the best token is taken: the lowest id of
 * equals.
 *
 * By default that is so, with a repetition penalty of 1.1 over the last 64 tokens of the answer
 * (tokens sampled, and those given to [method@Lychee.Sampler.accept]).
 *
 * Probabilities are integers: multiples of 2^-40 of the best token's. Their sums are exact in any
 * order, and neither the library's exp() nor contracted operations have a part in them, so the same
 * logits give the same token on every machine. What is 2^-40 times less likely than the best token
 * is never chosen.
 */

#define DEFAULT_PENALTY 1.1
#define DEFAULT_WINDOW 64
#define MAX_WINDOW 65536
/* So many weights cannot overflow their sum. */
#define MAX_VOCAB (1 << 22)

/* A token that cannot be chosen. */
#define EXCLUDED G_MAXUINT32

/* Logits are first looked at in blocks of so many, of which most hold nothing worth a second look.
 */
#define BLOCK 256

/* PCG32 (XSH-RR 64/32), M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically
 * Good Algorithms for Random Number Generation", 2014. */
typedef struct {
  guint64 state;
  guint64 increment;
} Pcg32;

#define PCG_STREAM 54

static guint32
pcg32_next (Pcg32 *pcg)
{
  guint64 old = pcg->state;
  guint32 shifted = (guint32) (((old >> 18) ^ old) >> 27);
  guint32 rotation = (guint32) (old >> 59);

  pcg->state = old * G_GUINT64_CONSTANT (6364136223846793005) + pcg->increment;
  return (shifted >> rotation) | (shifted << ((32 - rotation) & 31));
}

static void
pcg32_seed (Pcg32 *pcg, guint64 seed)
{
  pcg->state = 0;
  pcg->increment = ((guint64) PCG_STREAM << 1) | 1;
  pcg32_next (pcg);
  pcg->state += seed;
  pcg32_next (pcg);
}

static guint64
pcg32_next_64 (Pcg32 *pcg)
{
  guint64 high = pcg32_next (pcg);

  return high << 32 | pcg32_next (pcg);
}

/* 64 random bits, scaled to 0 .. @bound - 1. The bias is @bound / 2^64, of which @bound, below
 * 2^63, leaves nothing that could be seen: probabilities are multiples of 2^-40. */
static guint64
pcg32_below (Pcg32 *pcg, guint64 bound)
{
  guint64 random = pcg32_next_64 (pcg), high = random >> 32, low = random & 0xFFFFFFFF;
  guint64 bound_high = bound >> 32, bound_low = bound & 0xFFFFFFFF;
  guint64 middle = high * bound_low + ((low * bound_low) >> 32);
  guint64 middle_2 = low * bound_high + (middle & 0xFFFFFFFF);

  return high * bound_high + (middle >> 32) + (middle_2 >> 32);
}

struct _LycheeSampler {
  GObject parent;

  double temperature;
  guint top_k;
  double top_p;
  double min_p;
  double penalty;
  guint window;
  guint64 seed;

  Pcg32 pcg;
  gint32 *history; /* a ring of window ids */
  guint n_history;
  guint next_history;

  /* Room for n_room tokens, kept from call to call. */
  guint n_room;
  float *logits;    /* those penalised */
  float *block_max; /* the best of each block */
  /* The tokens that can be chosen, in the order of their ids: */
  guint n_candidates;
  gint32 *ids;
  guint32 *distance; /* from the best, or EXCLUDED */
  guint64 *sorted;   /* those of one bucket */
  guint32 counts[LYCHEE_N_BUCKETS];
  guint64 masses[LYCHEE_N_BUCKETS];
};

enum {
  PROP_TEMPERATURE = 1,
  PROP_TOP_K,
  PROP_TOP_P,
  PROP_MIN_P,
  PROP_REPETITION_PENALTY,
  PROP_REPETITION_WINDOW,
  PROP_SEED,
  N_PROPS,
};

static GParamSpec *props[N_PROPS];

G_DEFINE_FINAL_TYPE (LycheeSampler, lychee_sampler, G_TYPE_OBJECT)

static guint64 weight_table[LYCHEE_TABLE_SIZE];

/* By square roots and products alone, which IEEE 754 rounds the same everywhere. */
static void
fill_weight_table (void)
{
  double roots[LYCHEE_TABLE_BITS], root = 0.5;

  for (guint i = 0; i < LYCHEE_TABLE_BITS; i++)
    roots[i] = root = sqrt (root);
  for (guint k = 0; k < 1 << LYCHEE_TABLE_BITS; k++) {
    double power = 1;

    for (guint i = 0; i < LYCHEE_TABLE_BITS; i++)
      if (k >> (LYCHEE_TABLE_BITS - 1 - i) & 1)
        power *= roots[i];
    weight_table[k] = (guint64) (power * (double) (G_GUINT64_CONSTANT (1) << LYCHEE_WEIGHT_BITS));
  }
  weight_table[1 << LYCHEE_TABLE_BITS] = G_GUINT64_CONSTANT (1) << (LYCHEE_WEIGHT_BITS - 1);
}

/* The weight of a token at @distance: 2^-distance, where the best token's is 2^LYCHEE_WEIGHT_BITS.
 */
static inline guint64
get_weight (guint32 distance)
{
  guint32 octaves = distance >> LYCHEE_OCTAVE_BITS;
  guint32 i = (distance >> LYCHEE_TABLE_FRACTION_BITS) & ((1 << LYCHEE_TABLE_BITS) - 1);
  guint64 fraction = distance & ((1 << LYCHEE_TABLE_FRACTION_BITS) - 1);
  guint64 step = weight_table[i] - weight_table[i + 1];

  return (weight_table[i] - ((step * fraction) >> LYCHEE_TABLE_FRACTION_BITS)) >> octaves;
}

typedef float Floats __attribute__ ((vector_size (16)));
typedef gint32 Ints __attribute__ ((vector_size (16)));

/* The best finite logit, or -infinity: NaN compares false, and infinity is no logit. */
static float
find_max (const float *logits, guint n)
{
  const Floats zeros = { 0 }, limit = zeros + FLT_MAX;
  Floats max[4] = { zeros - INFINITY, zeros - INFINITY, zeros - INFINITY, zeros - INFINITY };
  float best = -INFINITY;
  guint i = 0;

  /* Four at a time keep the processor from waiting for each comparison. */
  for (; i + 16 <= n; i += 16)
    for (guint j = 0; j < 4; j++) {
      Floats l;
      Ints better;

      memcpy (&l, logits + i + 4 * j, sizeof l);
      better = (l > max[j]) & (l <= limit);
      max[j] = (Floats) (((Ints) l & better) | ((Ints) max[j] & ~better));
    }
  for (; i < n; i++)
    if (logits[i] > best && logits[i] <= FLT_MAX)
      best = logits[i];
  for (guint j = 0; j < 4; j++)
    for (guint k = 0; k < 4; k++)
      best = MAX (best, max[j][k]);
  return best;
}

static float
find_block_maxima (LycheeSampler *sampler, const float *logits, guint n_vocab)
{
  float best = -INFINITY;

  for (guint block = 0; block * BLOCK < n_vocab; block++) {
    float max = find_max (logits + block * BLOCK, MIN (BLOCK, n_vocab - block * BLOCK));

    sampler->block_max[block] = max;
    best = MAX (best, max);
  }
  return best;
}

/* Sorts ascending; in place, n log n at worst. */
static void
heap_sort (guint64 *a, guint n)
{
  for (guint start = n / 2, end = n; end > 1;) {
    guint64 value;
    guint hole;

    if (start > 0) {
      value = a[--start];
      hole = start;
    } else {
      value = a[--end];
      a[end] = a[0];
      hole = 0;
    }
    for (;;) {
      guint child = 2 * hole + 1;

      if (child >= end)
        break;
      if (child + 1 < end && a[child + 1] > a[child])
        child++;
      if (a[child] <= value)
        break;
      a[hole] = a[child];
      hole = child;
    }
    a[hole] = value;
  }
}

/* A key that ascends as @logit descends. */
static guint32
get_key (float logit)
{
  guint32 bits;

  /* As integers, floats ascend if those below zero are turned around; + 0 makes -0 0. */
  logit += 0.0f;
  memcpy (&bits, &logit, sizeof bits);
  return ~(bits >> 31 ? ~bits : bits | 0x80000000);
}

/* Puts the candidates of @bucket into sorted, best first (the lower id of equals), their indices
 * in the low halves. Returns how many. */
static guint
sort_bucket (LycheeSampler *sampler, const float *logits, guint bucket)
{
  guint n = 0;

  for (guint i = 0; i < sampler->n_candidates; i++)
    if (sampler->distance[i] >> LYCHEE_BUCKET_SHIFT == bucket)
      sampler->sorted[n++] = (guint64) get_key (logits[sampler->ids[i]]) << 32 | i;
  heap_sort (sampler->sorted, n);
  return n;
}

static void
exclude_sorted (LycheeSampler *sampler, guint first, guint n)
{
  for (guint i = first; i < n; i++)
    sampler->distance[(guint32) sampler->sorted[i]] = EXCLUDED;
}

static guint64
get_min_weight (LycheeSampler *sampler)
{
  const double one = (double) (G_GUINT64_CONSTANT (1) << LYCHEE_WEIGHT_BITS);

  return MAX ((guint64) (sampler->min_p * one), 1);
}

static float
get_scale (LycheeSampler *sampler)
{
  return (float) (M_LOG2E * (1 << LYCHEE_OCTAVE_BITS) / sampler->temperature);
}

/* A logit below which none can be chosen; not the highest such. */
static float
find_floor (LycheeSampler *sampler, guint n_vocab, float best)
{
  guint n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
  double nats = LYCHEE_MAX_OCTAVES * M_LN2;
  float floor;

  /* Where log() differs by machine, the margin takes it in; weights decide. */
  if (sampler->min_p > 0)
    nats = MIN (nats, -log (sampler->min_p));
  floor = (float) (best - sampler->temperature * (nats * 1.001 + 0.001));
  /* As many blocks as top-k have a token as good as the worst of their best. */
  if (sampler->top_k > 0 && sampler->top_k < n_blocks) {
    guint i = sampler->top_k - 1;

    for (guint block = 0; block < n_blocks; block++)
      sampler->sorted[block] = (guint64) get_key (sampler->block_max[block]) << 32 | block;
    heap_sort (sampler->sorted, n_blocks);
    floor = MAX (floor, sampler->block_max[(guint32) sampler->sorted[i]]);
  }
  return floor;
}

/* Adds candidate @i's weight to its bucket, and returns it; 0 if it is below min-p. */
static inline guint64
weigh_candidate (LycheeSampler *sampler, guint i, guint64 min_weight)
{
  guint64 weight = get_weight (sampler->distance[i]);

  if (weight < min_weight)
    return 0;
  sampler->masses[sampler->distance[i] >> LYCHEE_BUCKET_SHIFT] += weight;
  return weight;
}

/* Lists the tokens that can be chosen. With top-k, counts them by bucket; without it, weighs them
 * at once, as there may be many, and returns the sum. */
static guint64
list_candidates (LycheeSampler *sampler, const float *logits, guint n_vocab, float best)
{
  const float limit = (float) LYCHEE_MAX_OCTAVES * (1 << LYCHEE_OCTAVE_BITS);
  const float scale = get_scale (sampler);
  const float floor = find_floor (sampler, n_vocab, best);
  const guint64 min_weight = get_min_weight (sampler);
  const gboolean count = sampler->top_k > 0;
  guint64 total = 0;
  guint n = 0;

  memset (sampler->counts, 0, sizeof sampler->counts);
  memset (sampler->masses, 0, sizeof sampler->masses);
  for (guint start = 0; start < n_vocab; start += BLOCK) {
    guint end = MIN (start + BLOCK, n_vocab);

    if (sampler->block_max[start / BLOCK] < floor)
      continue;
    for (guint i = start; i < end; i++) {
      float distance;

      /* Not NaN either. */
      if (!(logits[i] >= floor && logits[i] <= FLT_MAX))
        continue;
      /* A difference and a product, each rounded once: never contracted, the same everywhere. Near
       * a temperature of 0 the scale is infinite, and the best one's distance NaN. */
      distance = logits[i] == best ? 0 : (best - logits[i]) * scale;
      if (!(distance < limit))
        continue;
      sampler->ids[n] = i;
      sampler->distance[n] = (guint32) distance;
      if (count) {
        sampler->counts[sampler->distance[n++] >> LYCHEE_BUCKET_SHIFT]++;
      } else {
        guint64 weight = weigh_candidate (sampler, n, min_weight);

        total += weight;
        n += weight > 0;
      }
    }
  }
  sampler->n_candidates = n;
  return total;
}

/* Excludes all but the top-k best, and weighs those; returns the sum. */
static guint64
keep_top_k (LycheeSampler *sampler, const float *logits)
{
  const guint64 min_weight = get_min_weight (sampler);
  guint64 total = 0;
  guint n = 0, bucket;

  for (bucket = 0; bucket < LYCHEE_N_BUCKETS && n + sampler->counts[bucket] < sampler->top_k;
       bucket++)
    n += sampler->counts[bucket];
  if (bucket < LYCHEE_N_BUCKETS)
    exclude_sorted (sampler, sampler->top_k - n, sort_bucket (sampler, logits, bucket));
  for (guint i = 0; i < sampler->n_candidates; i++) {
    guint64 weight = 0;

    if (sampler->distance[i] >> LYCHEE_BUCKET_SHIFT <= bucket)
      weight = weigh_candidate (sampler, i, min_weight);
    if (weight == 0)
      sampler->distance[i] = EXCLUDED;
    total += weight;
  }
  return total;
}

/* Leaves the best ones that together have top-p of @total; returns what they have. The buckets
 * after theirs are left as they were: nothing is drawn from there. */
static guint64
keep_top_p (LycheeSampler *sampler, const float *logits, guint64 total)
{
  const guint64 wanted = (guint64) (sampler->top_p * (double) total);
  guint64 sum = 0;
  guint bucket = 0;

  if (sampler->top_p >= 1 || wanted >= total)
    return total;
  while (sum + sampler->masses[bucket] < wanted || sampler->masses[bucket] == 0)
    sum += sampler->masses[bucket++];
  if (sum + sampler->masses[bucket] > wanted) {
    guint n = sort_bucket (sampler, logits, bucket), keep = 0;

    /* The token that reaches the share is still in. */
    sampler->masses[bucket] = 0;
    do {
      guint i = (guint32) sampler->sorted[keep++];

      sampler->masses[bucket] += get_weight (sampler->distance[i]);
    } while (keep < n && sum + sampler->masses[bucket] < wanted);
    exclude_sorted (sampler, keep, n);
  }
  return sum + sampler->masses[bucket];
}

static gint32
draw (LycheeSampler *sampler, const float *logits, guint n_vocab, float best)
{
  guint64 at, total;
  guint bucket = 0;

  total = list_candidates (sampler, logits, n_vocab, best);
  if (sampler->top_k > 0)
    total = keep_top_k (sampler, logits);
  total = keep_top_p (sampler, logits, total);

  /* Which bucket, then which of it in the order of ids. */
  at = pcg32_below (&sampler->pcg, total);
  for (; at >= sampler->masses[bucket]; bucket++)
    at -= sampler->masses[bucket];
  for (guint i = 0; i < sampler->n_candidates; i++) {
    guint64 weight;

    if (sampler->distance[i] >> LYCHEE_BUCKET_SHIFT != bucket)
      continue;
    weight = get_weight (sampler->distance[i]);
    if (at < weight)
      return sampler->ids[i];
    at -= weight;
  }
  g_assert_not_reached ();
}

static gint32
choose_best (LycheeSampler *sampler, const float *logits, float best)
{
  guint block = 0, i;

  while (sampler->block_max[block] != best)
    block++;
  for (i = block * BLOCK; logits[i] != best;)
    i++;
  return i;
}

static void
make_room (LycheeSampler *sampler, guint n)
{
  if (n <= sampler->n_room)
    return;
  sampler->logits = g_renew (float, sampler->logits, n);
  sampler->block_max = g_renew (float, sampler->block_max, (n + BLOCK - 1) / BLOCK);
  sampler->ids = g_renew (gint32, sampler->ids, n);
  sampler->distance = g_renew (guint32, sampler->distance, n);
  sampler->sorted = g_renew (guint64, sampler->sorted, n);
  sampler->n_room = n;
}

/* The penalty of N. S. Keskar et al., "CTRL: A Conditional Transformer Language Model for
 * Controllable Generation", 2019, section 4.1, with negative logits multiplied, as they would
 * otherwise be raised. Once for each token, however often it was used. */
static const float *
penalise (LycheeSampler *sampler, const float *logits, guint n_vocab)
{
  float penalty = (float) sampler->penalty;

  if (sampler->penalty == 1 || sampler->n_history == 0)
    return logits;
  memcpy (sampler->logits, logits, n_vocab * sizeof (float));
  for (guint i = 0; i < sampler->n_history; i++) {
    gint32 id = sampler->history[i];

    if (id >= 0 && (guint) id < n_vocab)
      sampler->logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
  }
  return sampler->logits;
}

/**
 * lychee_sampler_sample:
 * @sampler: a sampler
 * @logits: (array length=n_vocab): the model's logits
 * @n_vocab: how many
 *
 * Chooses a token and notes it.
 *
 * Returns: its id, or -1 if no logit is finite
 */
gint32
lychee_sampler_sample (LycheeSampler *sampler, const float *logits, guint n_vocab)
{
  float best;
  gint32 id;

  g_return_val_if_fail (LYCHEE_IS_SAMPLER (sampler), -1);
  g_return_val_if_fail (logits != NULL || n_vocab == 0, -1);
  g_return_val_if_fail (n_vocab <= MAX_VOCAB, -1);

  make_room (sampler, n_vocab);
  logits = penalise (sampler, logits, n_vocab);
  best = find_block_maxima (sampler, logits, n_vocab);
  if (best == -INFINITY)
    return -1;
  id = sampler->temperature > 0 ? draw (sampler, logits, n_vocab, best)
                                : choose_best (sampler, logits, best);
  lychee_sampler_accept (sampler, id);
  return id;
}

void
lychee_sampler_describe (LycheeSampler *sampler, LycheeSampling *sampling)
{
  gboolean greedy = !(sampler->temperature > 0);

  *sampling = (LycheeSampling){
    .greedy = greedy,
    .scale = greedy ? 0 : get_scale (sampler),
    .penalty = (float) sampler->penalty,
    .top_k = sampler->top_k,
    .top_p = sampler->top_p,
    .min_weight = get_min_weight (sampler),
    .random = greedy ? 0 : pcg32_next_64 (&sampler->pcg),
    .history = sampler->history,
    .n_history = sampler->penalty == 1 ? 0 : sampler->n_history,
  };
}

const guint64 *
lychee_sampler_get_weights (void)
{
  g_type_class_unref (g_type_class_ref (LYCHEE_TYPE_SAMPLER)); /* fills the table */
  return weight_table;
}

/**
 * lychee_sampler_accept:
 * @sampler: a sampler
 * @id: a token's id
 *
 * Notes a token that the repetition penalty is to know of.
 */
void
lychee_sampler_accept (LycheeSampler *sampler, gint32 id)
{
  g_return_if_fail (LYCHEE_IS_SAMPLER (sampler));

  if (sampler->window == 0)
    return;
  sampler->history[sampler->next_history] = id;
  sampler->next_history = (sampler->next_history + 1) % sampler->window;
  sampler->n_history = MIN (sampler->n_history + 1, sampler->window);
}

/**
 * lychee_sampler_reset:
 * @sampler: a sampler
 *
 * Forgets the tokens noted, and starts again from the seed.
 */
void
lychee_sampler_reset (LycheeSampler *sampler)
{
  g_return_if_fail (LYCHEE_IS_SAMPLER (sampler));

  sampler->n_history = 0;
  sampler->next_history = 0;
  pcg32_seed (&sampler->pcg, sampler->seed);
}

/**
 * lychee_sampler_new:
 *
 * Makes a sampler with the default settings.
 *
 * Returns: (transfer full): a greedy sampler with a mild repetition penalty
 */
LycheeSampler *
lychee_sampler_new (void)
{
  return g_object_new (LYCHEE_TYPE_SAMPLER, NULL);
}

/**
 * lychee_sampler_copy:
 * @sampler: a sampler
 *
 * Copies the settings, and not the state.
 *
 * Returns: (transfer full): a sampler with the same settings, which has noted nothing and starts
 *   from the seed
 */
LycheeSampler *
lychee_sampler_copy (LycheeSampler *sampler)
{
  g_return_val_if_fail (LYCHEE_IS_SAMPLER (sampler), NULL);

  return g_object_new (LYCHEE_TYPE_SAMPLER, "temperature", sampler->temperature, "top-k",
      sampler->top_k, "top-p", sampler->top_p, "min-p", sampler->min_p, "repetition-penalty",
      sampler->penalty, "repetition-window", sampler->window, "seed", sampler->seed, NULL);
}

static void
lychee_sampler_set_property (GObject *object, guint id, const GValue *value, GParamSpec *pspec)
{
  LycheeSampler *sampler = LYCHEE_SAMPLER (object);

  switch (id) {
  case PROP_TEMPERATURE:
    sampler->temperature = g_value_get_double (value);
    break;
  case PROP_TOP_K:
    sampler->top_k = g_value_get_uint (value);
    break;
  case PROP_TOP_P:
    sampler->top_p = g_value_get_double (value);
    break;
  case PROP_MIN_P:
    sampler->min_p = g_value_get_double (value);
    break;
  case PROP_REPETITION_PENALTY:
    sampler->penalty = g_value_get_double (value);
    break;
  case PROP_REPETITION_WINDOW:
    sampler->window = g_value_get_uint (value);
    sampler->history = g_renew (gint32, sampler->history, sampler->window);
    sampler->n_history = sampler->next_history = 0;
    break;
  case PROP_SEED:
    sampler->seed = g_value_get_uint64 (value);
    pcg32_seed (&sampler->pcg, sampler->seed);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_sampler_get_property (GObject *object, guint id, GValue *value, GParamSpec *pspec)
{
  LycheeSampler *sampler = LYCHEE_SAMPLER (object);

  switch (id) {
  case PROP_TEMPERATURE:
    g_value_set_double (value, sampler->temperature);
    break;
  case PROP_TOP_K:
    g_value_set_uint (value, sampler->top_k);
    break;
  case PROP_TOP_P:
    g_value_set_double (value, sampler->top_p);
    break;
  case PROP_MIN_P:
    g_value_set_double (value, sampler->min_p);
    break;
  case PROP_REPETITION_PENALTY:
    g_value_set_double (value, sampler->penalty);
    break;
  case PROP_REPETITION_WINDOW:
    g_value_set_uint (value, sampler->window);
    break;
  case PROP_SEED:
    g_value_set_uint64 (value, sampler->seed);
    break;
  default:
    G_OBJECT_WARN_INVALID_PROPERTY_ID (object, id, pspec);
  }
}

static void
lychee_sampler_finalize (GObject *object)
{
  LycheeSampler *sampler = LYCHEE_SAMPLER (object);

  g_free (sampler->history);
  g_free (sampler->logits);
  g_free (sampler->block_max);
  g_free (sampler->ids);
  g_free (sampler->distance);
  g_free (sampler->sorted);
  G_OBJECT_CLASS (lychee_sampler_parent_class)->finalize (object);
}

static void
lychee_sampler_class_init (LycheeSamplerClass *klass)
{
  GObjectClass *object_class = G_OBJECT_CLASS (klass);
  GParamFlags flags = G_PARAM_READWRITE | G_PARAM_CONSTRUCT | G_PARAM_STATIC_STRINGS;

  object_class->set_property = lychee_sampler_set_property;
  object_class->get_property = lychee_sampler_get_property;
  object_class->finalize = lychee_sampler_finalize;
  fill_weight_table ();

  /**
   * LycheeSampler:temperature:
   *
   * What logits are divided by: 1 is the model's own distribution, less is surer of itself; 0
   * takes the best token.
   */
  props[PROP_TEMPERATURE] = g_param_spec_double ("temperature", "Temperature",
      "What logits are divided by; 0 takes the best token", 0, 1000, 0, flags);
  /**
   * LycheeSampler:top-k:
   *
   * Only so many of the best tokens are chosen from; 0 for all.
   */
  props[PROP_TOP_K] = g_param_spec_uint ("top-k", "Top k",
      "How many of the best tokens to choose from; 0 for all", 0, G_MAXUINT, 0, flags);
  /**
   * LycheeSampler:top-p:
   *
   * Only the best tokens that together have this share of the probability are chosen from (nucleus
   * sampling); 1 for all.
   */
  props[PROP_TOP_P] = g_param_spec_double ("top-p", "Top p",
      "The share of the probability that the tokens to choose from have; 1 for all", 0, 1, 1,
      flags);
  /**
   * LycheeSampler:min-p:
   *
   * Only tokens at least so likely, as a share of the best one's probability, are chosen from; 0
   * for all.
   */
  props[PROP_MIN_P] = g_param_spec_double ("min-p", "Minimum p",
      "How likely a token must be, as a share of the best one's probability; 0 for all", 0, 1, 0,
      flags);
  /**
   * LycheeSampler:repetition-penalty:
   *
   * What positive logits of tokens in the repetition window are divided by, and negative ones
   * multiplied by; 1 for no penalty.
   */
  props[PROP_REPETITION_PENALTY] = g_param_spec_double ("repetition-penalty", "Repetition penalty",
      "What divides the logits of tokens just used; 1 for no penalty", 0.01, 100, DEFAULT_PENALTY,
      flags);
  /**
   * LycheeSampler:repetition-window:
   *
   * How many tokens of the answer, the last ones, the repetition penalty is for. Setting it forgets
   * the tokens noted.
   */
  props[PROP_REPETITION_WINDOW] = g_param_spec_uint ("repetition-window", "Repetition window",
      "How many of the last tokens the repetition penalty is for", 0, MAX_WINDOW, DEFAULT_WINDOW,
      flags);
  /**
   * LycheeSampler:seed:
   *
   * Where the random numbers begin. Setting it begins again.
   */
  props[PROP_SEED] = g_param_spec_uint64 (
      "seed", "Seed", "Where the random numbers begin", 0, G_MAXUINT64, 0, flags);
  g_object_class_install_properties (object_class, N_PROPS, props);
}

static void
lychee_sampler_init (LycheeSampler *sampler)
{}

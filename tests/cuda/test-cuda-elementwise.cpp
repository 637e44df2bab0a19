/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The kernels that go over each element once, against float64. */

#include <algorithm>

#include "cuda-rows.h"

using test::Array;
using test::Random;

static const LycheeCudaType types[] = { LYCHEE_CUDA_F16, LYCHEE_CUDA_BF16 };

static double
unit (LycheeCudaType type)
{
  return type == LYCHEE_CUDA_F32 ? 1e-6 : type == LYCHEE_CUDA_F16 ? 1.0 / 2048 : 1.0 / 256;
}

static bool
near (double x, double wanted, double tolerance)
{
  return fabs (x - wanted) <= tolerance * (1 + fabs (wanted));
}

static void
test_embed ()
{
  for (LycheeCudaType type : types)
    for (int n_tokens : { 0, 1, 7 }) {
      const int n_embd = 67, n_vocab = 13;
      bool bf16 = type == LYCHEE_CUDA_BF16;
      Random random (1);
      std::vector<float> values = random.normals ((size_t) n_vocab * n_embd);
      std::vector<int> ids (n_tokens + 1);
      std::vector<uint16_t> bits = test::to_bits (bf16, values);

      for (int &id : ids)
        id = random.below (n_vocab);
      Array<int> id_array (ids);
      Array<uint16_t> embedding (bits);
      Array<float> x ((size_t) n_tokens * n_embd + 1);
      LycheeCudaEmbed params = { type, n_tokens, n_embd, id_array.data, embedding.data, 2.5f,
        x.data };

      CHECK (lychee_cuda_embed (&params, nullptr) == 0);
      std::vector<float> got = x.get ();
      for (int i = 0; i < n_tokens * n_embd; i++)
        CHECK (got[i] ==
               2.5f * test::from_bits (bf16, bits[(size_t) ids[i / n_embd] * n_embd + i % n_embd]));
      CHECK (isnan (got[(size_t) n_tokens * n_embd]));
      test::result ("embed %s, %d tokens", bf16 ? "bf16" : "f16", n_tokens);
    }
}

static void
test_norm ()
{
  for (LycheeCudaType type : { LYCHEE_CUDA_F16, LYCHEE_CUDA_BF16, LYCHEE_CUDA_F32 })
    for (int n : { 1, 64, 576, 1001 })
      for (int what = 0; what < 4; what++) { /* weight, + bias, added, nothing but bias added */
        const int rows = 3;
        Random random (n);
        std::vector<float> x = random.normals ((size_t) rows * n), weight = random.normals (n);
        std::vector<float> bias = random.normals (n), add = random.normals ((size_t) rows * n);
        Array<float> x_array (x), weight_array (weight), bias_array (bias), add_array (add);
        Array<uint16_t> narrow ((size_t) rows * n);
        Array<float> wide ((size_t) rows * n);
        LycheeCudaNorm params = {};

        params.type = type;
        params.n_rows = rows;
        params.n = n;
        params.eps = 1e-5f;
        params.x = x_array.data;
        params.bias = what == 1 || what == 3 ? bias_array.data : nullptr;
        params.weight = what < 3 ? weight_array.data : nullptr;
        params.output = what >= 2                 ? nullptr
                        : type == LYCHEE_CUDA_F32 ? (void *) wide.data
                                                  : (void *) narrow.data;
        params.add = what >= 2 ? add_array.data : nullptr;
        params.factor = 0.5f;
        CHECK (lychee_cuda_norm (&params, nullptr) == 0);
        std::vector<uint16_t> narrow_got = narrow.get ();
        std::vector<float> wide_got = wide.get (), added = add_array.get ();
        for (int row = 0; row < rows; row++) {
          double sum = 0, factor;

          for (int i = 0; i < n; i++) {
            double y = x[(size_t) row * n + i] + (params.bias ? bias[i] : 0);

            sum += y * y;
          }
          factor = params.weight ? 1 / sqrt (sum / n + 1e-5) : 1;
          for (int i = 0; i < n; i++) {
            size_t at = (size_t) row * n + i;
            double y =
                (x[at] + (params.bias ? bias[i] : 0)) * factor * (params.weight ? weight[i] : 1);

            if (what >= 2)
              CHECK (near (added[at], add[at] + 0.5 * y, 2e-6));
            else if (type == LYCHEE_CUDA_F32)
              CHECK (near (wide_got[at], y, 2e-6));
            else
              CHECK (near (
                  test::from_bits (type == LYCHEE_CUDA_BF16, narrow_got[at]), y, unit (type)));
          }
        }
        test::result ("norm of %d, type %d, case %d", n, type, what);
      }
}

static void
test_rope ()
{
  const struct {
    int dim, heads, kv_heads, n_tokens, first, n_rot, neox, norms, bias;
  } cases[] = {
    { 64, 3, 1, 1, 0, 64, 0, 0, 0 },
    { 64, 4, 2, 5, 254, 64, 1, 0, 1 }, /* over the end of a page */
    { 80, 2, 2, 3, 40, 32, 1, 0, 0 },  /* a part is rotated */
    { 80, 2, 1, 3, 40, 32, 0, 1, 0 },
    { 96, 3, 3, 2, 100000, 96, 1, 1, 1 },
    { 128, 8, 2, 4, 511, 128, 0, 1, 1 },
    { 256, 4, 1, 2, 7, 256, 1, 1, 0 },
  };

  for (auto &c : cases)
    for (LycheeCudaType type : { LYCHEE_CUDA_F16, LYCHEE_CUDA_BF16, LYCHEE_CUDA_Q8_0 }) {
      if (!test::has_form (type, c.dim))
        continue;
      bool bf16 = type == LYCHEE_CUDA_BF16, q8 = type == LYCHEE_CUDA_Q8_0;
      int all = c.heads + 2 * c.kv_heads, n_pairs = c.n_rot / 2;
      int n_pages = (c.first + c.n_tokens + 255) / 256, first_page = c.first / 256;
      int own_first = c.first % 256; /* of the pages that there are */
      const int n_parts = 2 * c.kv_heads, units = lychee_cuda_row_units (type, c.dim);
      Random random (c.dim + c.first);
      std::vector<float> qkv = random.normals ((size_t) c.n_tokens * all * c.dim);
      std::vector<float> bias = random.normals ((size_t) all * c.dim);
      std::vector<float> q_norm = random.normals (c.dim), k_norm = random.normals (c.dim);
      std::vector<double> frequency (n_pairs + 1, 1.25);
      std::vector<void *> table (n_pages, nullptr);
      test::Parts pages (type, c.dim, 2 * n_parts, own_first + c.n_tokens); /* two layers */

      for (int i = 0; i < n_pairs; i++)
        frequency[i] = pow (10000, -2.0 * i / c.n_rot);
      pages.upload ();
      for (int i = first_page; i < n_pages; i++)
        table[i] = pages.pages[i - first_page]->data;
      Array<float> qkv_array (qkv), bias_array (bias), q_norm_array (q_norm), k_norm_array (k_norm);
      Array<double> frequency_array (frequency);
      Array<void *> table_array (table);
      Array<float> turns ((size_t) c.n_tokens * n_pairs * 2);
      Array<float> q ((size_t) c.n_tokens * c.heads * c.dim);
      Array<uint16_t> copy ((size_t) n_parts * c.n_tokens * units);
      Array<LycheeCudaStep> step (std::vector<LycheeCudaStep>{ { c.first, c.n_tokens, 0, 0, 7 } });
      LycheeCudaRopeTable table_params = { c.n_tokens, n_pairs, step.data, frequency_array.data,
        turns.data };
      LycheeCudaRope params = {};

      params.type = type;
      params.head_dim = c.dim;
      params.n_heads = c.heads;
      params.n_kv_heads = c.kv_heads;
      params.n_tokens = c.n_tokens;
      params.n_rot = c.n_rot;
      params.neox = c.neox;
      params.eps = 1e-6f;
      params.qkv = qkv_array.data;
      params.bias = c.bias ? bias_array.data : nullptr;
      params.q_norm = c.norms ? q_norm_array.data : nullptr;
      params.k_norm = c.norms ? k_norm_array.data : nullptr;
      params.table = turns.data;
      params.step = step.data;
      params.pages = table_array.data;
      params.layer_offset = n_parts * pages.size;
      params.q = q.data;
      params.copy = copy.data;
      CHECK (lychee_cuda_rope_table (&table_params, nullptr) == 0);
      CHECK (lychee_cuda_rope (&params, nullptr) == 0);
      std::vector<float> got_q = q.get ();
      std::vector<uint16_t> got_copy = copy.get ();
      size_t written = 0,
             expected = (size_t) c.n_tokens * n_parts * lychee_cuda_part_size (type, c.dim) / 256;
      pages.download ();
      for (int token = 0; token < c.n_tokens; token++)
        for (int head = 0; head < all; head++) {
          int kind = head < c.heads ? 0 : head < c.heads + c.kv_heads ? 1 : 2;
          const std::vector<float> &norm = kind == 0 ? q_norm : k_norm;
          std::vector<double> x (c.dim), y;
          double sum = 0;

          for (int d = 0; d < c.dim; d++) {
            x[d] = qkv[((size_t) token * all + head) * c.dim + d];
            if (c.bias)
              x[d] += bias[(size_t) head * c.dim + d];
            sum += x[d] * x[d];
          }
          if (c.norms && kind < 2)
            for (int d = 0; d < c.dim; d++)
              x[d] *= norm[d] / sqrt (sum / c.dim + 1e-6);
          y = x;
          for (int i = 0; kind < 2 && i < n_pairs; i++) {
            int a = c.neox ? i : 2 * i, b = c.neox ? i + n_pairs : 2 * i + 1;
            double angle = (7 + c.first + token) * frequency[i];

            y[a] = 1.25 * (x[a] * cos (angle) - x[b] * sin (angle));
            y[b] = 1.25 * (x[a] * sin (angle) + x[b] * cos (angle));
          }
          double most = 0; /* of a block of q8_0 */
          for (int d = 0; d < c.dim; d++)
            if (kind == 0) {
              CHECK (near (got_q[((size_t) token * c.heads + head) * c.dim + d], y[d], 3e-6));
            } else {
              int kv = (head - c.heads) % c.kv_heads;
              double stored = pages.get (n_parts + 2 * kv + kind - 1, own_first + token, d);
              const uint16_t *row =
                  &got_copy[(size_t) (((kind - 1) * c.kv_heads + kv) * c.n_tokens + token) * units];

              if (q8) {
                const uint16_t *block = row + d / 32 * LYCHEE_CUDA_BLOCK_UNITS;

                CHECK (stored == (double) test::from_bits (false, *block) *
                                     reinterpret_cast<const int8_t *> (block + 1)[d % 32]);
                for (int i = 0; d % 32 == 0 && i < 32; i++)
                  most = std::max (i ? most : 0, fabs (y[d + i]));
                CHECK (fabs (stored - y[d]) <= most / 254 * 1.01 + 1e-6);
              } else {
                CHECK (stored == test::from_bits (bf16, row[d]));
                CHECK (near (stored, y[d], unit (type)));
              }
            }
        }
      for (const std::vector<uint8_t> &page : pages.host)
        for (uint8_t x : page)
          written += x != 0xff;
      /* Some of what is written is as it was, and the last scales of 96 dimensions stay so. */
      CHECK (written <= expected && written > expected * 0.9);
      test::result ("rope of %d at %d, %s%s%s", c.dim, c.first, test::name_type (type),
          c.neox ? ", neox" : "", c.norms ? ", norms" : "");
    }
}

static void
test_gate ()
{
  for (LycheeCudaType type : types)
    for (int gelu = 0; gelu < 2; gelu++)
      for (int n : { 1, 96, 513 }) {
        const int rows = 2;
        Random random (n);
        std::vector<float> x = random.normals ((size_t) rows * 2 * n, 3),
                           bias = random.normals (2 * n);
        Array<float> x_array (x), bias_array (bias);
        Array<uint16_t> output ((size_t) rows * n);
        LycheeCudaGate params = { type, gelu ? LYCHEE_CUDA_GELU : LYCHEE_CUDA_SILU, rows, n,
          x_array.data, n == 96 ? bias_array.data : nullptr, output.data };

        CHECK (lychee_cuda_gate (&params, nullptr) == 0);
        std::vector<uint16_t> got = output.get ();
        for (int i = 0; i < rows * n; i++) {
          size_t at = (size_t) (i / n) * 2 * n + i % n;
          double g = x[at] + (n == 96 ? bias[i % n] : 0),
                 u = x[at + n] + (n == 96 ? bias[n + i % n] : 0);
          double a = gelu ? 0.5 * g * (1 + tanh (0.7978845608028654 * (g + 0.044715 * g * g * g)))
                          : g / (1 + exp (-g));

          CHECK (near (test::from_bits (type == LYCHEE_CUDA_BF16, got[i]), a * u, unit (type)));
        }
        test::result (
            "%s of %d, %s", gelu ? "gelu" : "silu", n, type == LYCHEE_CUDA_BF16 ? "bf16" : "f16");
      }
}

/* What half floats cannot hold becomes the largest that they can; what is no number stays so. */
static void
test_saturation ()
{
  const float inputs[] = { 300, -300, 3e20f, NAN, 2 };
  const int n = 5;

  for (LycheeCudaType type : { LYCHEE_CUDA_F16, LYCHEE_CUDA_BF16 }) {
    bool bf16 = type == LYCHEE_CUDA_BF16;
    std::vector<float> gate_up (2 * n, 300), norm_weight (4, 40000);
    Array<uint16_t> output (n), normed (4);
    LycheeCudaGate gate = {};
    LycheeCudaNorm norm = {};

    for (int i = 0; i < n; i++) /* 300 of them through the gate */
      gate_up[(size_t) (n + i)] = inputs[i];
    Array<float> gate_up_array (gate_up), x (std::vector<float>{ 1, -1, 2, 0 }),
        weight (norm_weight);
    gate.type = norm.type = type;
    gate.activation = LYCHEE_CUDA_SILU;
    gate.n_rows = norm.n_rows = 1;
    gate.n = n;
    gate.gate_up = gate_up_array.data;
    gate.output = output.data;
    CHECK (lychee_cuda_gate (&gate, nullptr) == 0);
    for (int i = 0; i < n; i++) {
      float got = test::from_bits (bf16, output.get ()[(size_t) i]), wanted = 300 * inputs[i];

      if (!bf16)
        wanted = wanted > 65504 ? 65504 : wanted < -65504 ? -65504 : wanted;
      CHECK (std::isnan (wanted) ? std::isnan (got) : near (got, wanted, unit (type)));
    }
    norm.n = 4;
    norm.x = x.data;
    norm.weight = weight.data;
    norm.output = normed.data;
    CHECK (lychee_cuda_norm (&norm, nullptr) == 0);
    /* 2 / sqrt (1.5) * 40000 is 65320: in its range; with twice the weight it is not. */
    CHECK (near (test::from_bits (bf16, normed.get ()[2]), 65319.7, unit (type)));
    weight.put (std::vector<float> (4, 80000));
    CHECK (lychee_cuda_norm (&norm, nullptr) == 0);
    CHECK (near (test::from_bits (bf16, normed.get ()[2]), bf16 ? 130639 : 65504, unit (type)));
    CHECK (near (test::from_bits (bf16, normed.get ()[1]), -65320, unit (type)));
  }
  test::result ("what half floats cannot hold");
}

static void
test_logits ()
{
  for (int cap = 0; cap < 2; cap++) {
    const int rows = 3, n = 301;
    Random random (cap);
    std::vector<float> x = random.normals ((size_t) rows * n, 20), bias = random.normals (n);
    Array<float> x_array (x), bias_array (bias);
    LycheeCudaLogits params = { rows, n, cap ? nullptr : bias_array.data, 0.7f, cap ? 30.0f : 0,
      x_array.data };

    CHECK (lychee_cuda_logits (&params, nullptr) == 0);
    std::vector<float> got = x_array.get ();
    for (int i = 0; i < rows * n; i++) {
      double y = 0.7 * (x[i] + (cap ? 0 : bias[i % n]));

      CHECK (near (got[i], cap ? 30 * tanh (y / 30) : y, 2e-6));
    }
    test::result ("logits%s", cap ? " with a cap" : "");
  }
}

/* Every number of 16 bits goes there and back, and what lies between goes to the nearest even. */
static void
test_convert ()
{
  for (LycheeCudaType type : types) {
    bool bf16 = type == LYCHEE_CUDA_BF16;
    const int n = 1 << 16;
    std::vector<uint16_t> bits (n);

    for (int i = 0; i < n; i++)
      bits[i] = (uint16_t) i;
    Array<uint16_t> narrow (bits), back (n);
    Array<float> wide (n);
    LycheeCudaConvert there = { type, n, narrow.data, wide.data };
    LycheeCudaConvert again = { type, n, wide.data, back.data };

    CHECK (lychee_cuda_to_float (&there, nullptr) == 0);
    CHECK (lychee_cuda_from_float (&again, nullptr) == 0);
    std::vector<float> values = wide.get ();
    std::vector<uint16_t> got = back.get ();
    for (int i = 0; i < n; i++)
      CHECK (isnan (values[i]) ? isnan (test::from_bits (bf16, got[i])) : got[i] == bits[i]);
    test::result ("convert all of %s", bf16 ? "bf16" : "f16");

    std::vector<float> between (1000);
    Random random (3);
    for (float &x : between)
      x = random.normal () * powf (10, (float) random.below (12) - 8);
    Array<float> from (between);
    Array<uint16_t> to (between.size ());
    LycheeCudaConvert rounding = { type, between.size (), from.data, to.data };
    CHECK (lychee_cuda_from_float (&rounding, nullptr) == 0);
    got = to.get ();
    for (size_t i = 0; i < between.size (); i++) {
      double x = between[i], y = test::from_bits (bf16, got[i]);
      double step =
          bf16 ? ldexp (1, ilogb (x) - 7) : ldexp (1, ilogb (x) < -14 ? -24 : ilogb (x) - 10);

      CHECK (fabs (x - y) <= step / 2);
    }
    test::result ("round to %s", bf16 ? "bf16" : "f16");
  }
}

static void
test_scatter ()
{
  Array<unsigned> first (5), second (300);
  std::vector<unsigned> from (400);

  for (size_t i = 0; i < from.size (); i++)
    from[i] = (unsigned) i;
  Array<unsigned> source (from);
  Array<LycheeCudaPiece> pieces (std::vector<LycheeCudaPiece>{
      { first.data + 1, 12, 12 }, { second.data, 400, 1200 }, { first.data, 0, 0 } });
  LycheeCudaScatter params = { 3, pieces.data, source.data };

  CHECK (lychee_cuda_scatter (&params, nullptr) == 0);
  std::vector<unsigned> got = first.get ();
  CHECK (got[0] == ~0u && got[1] == 3 && got[3] == 5 && got[4] == ~0u);
  got = second.get ();
  for (unsigned i = 0; i < 300; i++)
    CHECK (got[i] == 100 + i);
  test::result ("scatter");
}

/* Blocks are what the processor makes of the same numbers, to the bit. */
static void
test_blocks ()
{
  const int dim = 256, n = 40;
  Random random (8);
  std::vector<float> qkv ((size_t) n * 3 * dim);
  test::Parts pages (LYCHEE_CUDA_Q8_0, dim, 2, n);
  Array<uint16_t> copy ((size_t) 2 * n * lychee_cuda_row_units (LYCHEE_CUDA_Q8_0, dim));
  Array<float> q ((size_t) n * dim), turns (1);
  Array<LycheeCudaStep> step (std::vector<LycheeCudaStep>{ { 0, n, 0, 0, 0 } });
  LycheeCudaRope params = {};

  for (float &x : qkv)
    x = random.normal () * powf (10, (float) random.below (4) - 2);
  for (int d = 0; d < dim; d++) {
    float *x = &qkv[dim + d]; /* keys of the first tokens */

    x[0] = d < 32 ? 0 : d < 64 ? 1e-9f : d < 96 ? 1e9f : d < 128 ? (d % 3 ? 0.5f : -127) : x[0];
    x[3 * dim] = d == 40 ? NAN : d == 70 ? -INFINITY : x[3 * dim];
    /* Halfway between two bytes, as 32 is the largest: steps are a 4th. */
    x[6 * dim] = d % 32 == 7 ? 31.75f : 0.125f * (float) (2 * (d % 100) - 99);
  }
  pages.upload ();
  Array<float> qkv_array (qkv);
  Array<void *> table (std::vector<void *>{ pages.pages[0]->data });
  params.type = LYCHEE_CUDA_Q8_0;
  params.head_dim = dim;
  params.n_heads = params.n_kv_heads = 1;
  params.n_tokens = n;
  params.qkv = qkv_array.data;
  params.table = turns.data;
  params.step = step.data;
  params.pages = table.data;
  params.q = q.data;
  params.copy = copy.data;
  CHECK (lychee_cuda_rope (&params, nullptr) == 0);
  std::vector<uint16_t> got = copy.get ();
  for (int value = 0; value < 2; value++)
    for (int token = 0; token < n; token++)
      for (int block = 0; block < dim / 32; block++) {
        const float *x = &qkv[((size_t) token * 3 + 1 + value) * dim + block * 32];
        const uint16_t *at = &got[((size_t) (value * n + token) * (dim / 32) + block) * 17];
        bool bad = false;

        for (int i = 0; i < 32; i++)
          bad = bad || !isfinite (x[i]);
        if (bad)
          CHECK (isnan (test::from_bits (false, at[0])));
        else
          CHECK (at[0] == test::find_scale (x));
        for (int i = 0; i < 32; i++)
          CHECK (reinterpret_cast<const int8_t *> (at + 1)[i] ==
                 (bad ? 0 : test::find_byte (x[i], at[0])));
      }
  params.head_dim = 80;
  CHECK (lychee_cuda_rope (&params, nullptr) != 0);
  test::result ("blocks of q8_0");
}

int
main ()
{
  test_embed ();
  test_norm ();
  test_rope ();
  test_blocks ();
  test_gate ();
  test_saturation ();
  test_logits ();
  test_convert ();
  test_scatter ();
  return test::finish ();
}

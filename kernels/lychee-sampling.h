/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How tokens are weighed when one is drawn: the same on the processor (lib/lychee-sampler.c, which
 * says what for) and on CUDA devices, which must draw the same ones. */

/* The distance of a logit from the best one is kept in units of 2^-25 of an octave (a factor of
 * two in probability). */
#define LYCHEE_OCTAVE_BITS 25
#define LYCHEE_MAX_OCTAVES 40

/* 2^-x for one octave, between whose entries 2^-40 fixed-point weights are interpolated linearly;
 * the error is below 6e-8 of the weight. */
#define LYCHEE_TABLE_BITS 10
#define LYCHEE_TABLE_SIZE ((1 << LYCHEE_TABLE_BITS) + 1)
#define LYCHEE_TABLE_FRACTION_BITS (LYCHEE_OCTAVE_BITS - LYCHEE_TABLE_BITS)
#define LYCHEE_WEIGHT_BITS 40

/* Tokens are sorted into buckets of a sixteenth of an octave, best first. */
#define LYCHEE_BUCKET_SHIFT (LYCHEE_OCTAVE_BITS - 4)
#define LYCHEE_N_BUCKETS (LYCHEE_MAX_OCTAVES * 16)

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How a search ranks and opens nodes: the same on the processor and on CUDA devices, which must
 * find the same rows. */

/* By default nodes are opened until they hold so many rows, and so many times the budget, of which
 * there is not much to gain beyond: for small budgets that is more, and costs little. Large heads
 * have larger leaves, of which more have to be seen, and their rows cost more beside. */
#define LYCHEE_OPEN_ROWS(head_dim) ((head_dim) < 128 ? 3072 : 6144)
#define LYCHEE_OPEN_BEAM 2
/* A leaf is ranked as if its mean key were so many times its spread nearer to the query: of two
 * that are as near, the wider one has the nearest keys. (Measured: 1 takes 1 to 9 % off the error;
 * 2 takes a little more off SmolLM2's, but adds a third to that of a layer of Gemma 3, where leaves
 * are wide in directions that queries do not have.) */
#define LYCHEE_LEAF_SPREADS 1

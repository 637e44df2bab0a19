/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* All public headers of Lychee. */
#include "lychee-answer.h"
#include "lychee-enums.h"
#include "lychee-model.h"
#include "lychee-question.h"
#include "lychee-sampler.h"
#include "lychee-session.h"
#include "lychee-types.h"
#include "lychee-version.h"

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lychee-version.h"

/**
 * lychee_check_version:
 * @major: major version
 * @minor: minor version
 * @micro: micro version
 *
 * Whether the library that is running is of this version or a later one. %LYCHEE_CHECK_VERSION
 * tells the same of the headers that a program was built with. From any thread.
 *
 * Returns: %TRUE if it is
 */
gboolean
lychee_check_version (guint major, guint minor, guint micro)
{
  const guint have[] = { LYCHEE_MAJOR_VERSION, LYCHEE_MINOR_VERSION, LYCHEE_MICRO_VERSION };
  const guint want[] = { major, minor, micro };

  for (guint i = 0; i < G_N_ELEMENTS (have); i++) {
    if (have[i] != want[i])
      return have[i] > want[i];
  }
  return TRUE;
}

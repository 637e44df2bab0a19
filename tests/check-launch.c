/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Makes the pipeline that gst-launch-1.0 would make of the same arguments, and does not run it:
 * every element, property and value must exist, and every link be possible. Usage: check-launch
 * ARGUMENT... The exit status is 0, 1 with a message, or 77 where an element of somebody else's is
 * not installed. */

#include <gst/gst.h>

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  g_autoptr (GstElement) pipeline = NULL;
  g_autoptr (GstParseContext) context = NULL;

  gst_init (NULL, NULL);
  context = gst_parse_context_new ();
  pipeline = gst_parse_launchv_full (
      (const char **) argv + 1, context, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  if (error == NULL)
    return 0;
  g_print ("%s\n", error->message);
  if (g_error_matches (error, GST_PARSE_ERROR, GST_PARSE_ERROR_NO_SUCH_ELEMENT)) {
    g_auto (GStrv) missing = gst_parse_context_get_missing_elements (context);

    for (guint i = 0; missing != NULL && missing[i] != NULL; i++)
      if (g_str_has_prefix (missing[i], "lychee"))
        return 1;
    return 77;
  }
  return 1;
}

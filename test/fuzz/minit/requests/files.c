/* The server of files, for main.c. */
#include "stubs.h"

#include "files-mode.h"

#include "../../../../runtimes/minit/files.c"

void files_serve(const struct request *request) { serve(request); }

void files_reset(void) { abandon_write(); }

/* What main.c needs of the server of files. */
#ifndef FUZZ_MODE_FILES_H
#define FUZZ_MODE_FILES_H

struct request;

void files_serve(const struct request *request);
void files_reset(void);

#endif

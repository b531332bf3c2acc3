/* The server of files as main.c drives it. */
#ifndef FUZZ_MODE_FILES_H
#define FUZZ_MODE_FILES_H

struct request;

void files_serve(const struct request *request);
void files_reset(void);

#endif

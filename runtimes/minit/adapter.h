/* The adapter: the resident process of the runtime `custom`. See adapter.c. */
#ifndef MINIT_ADAPTER_H
#define MINIT_ADAPTER_H

/* `code`: the directory of the version's files. Descriptor 3 is minit's socket (protocol.h, "A resident process"). */
int adapter_main(const char *code);

#endif

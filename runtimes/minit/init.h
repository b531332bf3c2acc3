#ifndef MINIT_INIT_H
#define MINIT_INIT_H

/* Serves as PID 1 on the listening socket at fd 3. Returns only by ending the process. */
int init_main(void);

#endif

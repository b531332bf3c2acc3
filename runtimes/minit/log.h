/*
 * The log of the main command: a ring of segment files, as protocol.h describes them. Leaves reading to the daemon.
 *
 * G1 Every entry has the next number, also after a restart: where the last run stopped is found in the files.
 * G2 A file ends with a whole entry after each write, and a whole entry stays. Lines that the disk does not take are
 *    counted into a later entry.
 * G3 Nothing waits here but for the disk.
 * G4 A log that grows faster than BYTES_PER_US for long is not read on: its pipes stay full and hold the writer back.
 *    One `yes` would keep a processor busy otherwise, with lines that the ring loses before anybody reads them. Output that a
 *    reader gets as it comes is left out here instead, and an entry says how many lines.
 */
#ifndef MINIT_LOG_H
#define MINIT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The segments are the descriptors from `first_fd` on. Ends the process where they are no files. */
void log_open(int first_fd);
/* Output of a stream, in pieces as they come. */
void log_bytes(int stream, const uint8_t *bytes, size_t len);
/* Whether more output is to be read now (G4). Where not, `log_wake_us` tells when. */
bool log_takes(uint64_t now_us);
/* Output that the log does not take (G4) and somebody else has got: counted into a later entry. */
void log_skip(int stream, const uint8_t *bytes, size_t len);
/* A line of minit's own. */
void log_line(const char *text);
/* Writes lines that have begun and not gone on for a while: a prompt, the last words before a kill. */
void log_turn(uint64_t now_us);
/* When there is something to do next; UINT64_MAX: never. */
uint64_t log_wake_us(void);
/* Writes whatever line has begun. */
void log_finish(void);

#endif

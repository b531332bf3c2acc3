/*
 * The kernel's table of tracked connections. An entry outlives the container whose address it holds: whoever gets the
 * address next would receive the packets of that connection.
 */
#ifndef MINIT_CONNTRACK_H
#define MINIT_CONNTRACK_H

#include <stddef.h>
#include <stdint.h>

/* Addresses `first` + n of each bit n that is set, in host byte order, the lowest bit of a byte first. */
struct address_set {
  uint32_t first;
  const uint8_t *bits;
  size_t bytes;
};

/*
 * Deletes every IPv4 entry one of whose ends is in the set, before or after translation. One pass over the table for
 * all of them: a pass costs about a millisecond for the empty buckets alone. Returns 0 or an errno.
 */
int conntrack_flush(const struct address_set *set);

#endif

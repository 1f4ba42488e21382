// Package bench is a benchmark of a cluster's network as data: the bounds that a user agrees to, the measurements that
// follow from them, what they cost, and the table of their results. Package load carries the measurements out.
package bench

// Package benching puts a bounded load on the network of a live cluster, for the command bench network and for those
// that measure before and after a change.
package benching

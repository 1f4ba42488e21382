// Package benching puts a bounded load on the network of a live cluster, for the command bench network and for the
// commands that measure before and after a change (--bench).
package benching

// Package image makes container images out of programs, without a container engine and without a
// registry: OCI layouts in a tar, for `ctr images import`.
//
// An image is one layer with its programs, and under it, where a program calls iptables, nft, ipset
// and the like, one layer that all such images share: those tools as this machine has them, with the
// libraries they need. Images get the same tools as the nodes, so that all programs on a node use the
// same versions of them.
package image

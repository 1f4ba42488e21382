// Package path chooses which paths are measured: it makes the set of paths from the nodes, their probe pods and the
// cluster's services. The same input makes the same paths. The package does nothing else.
//
// # Which nodes measure which
//
// Measuring every pair of N nodes takes N(N-1) paths, 25 million at 5,000 nodes. Build uses a graph of
// fixed degree instead, the union of Degree = 3 rings: the nodes in the order of their names, that ring
// backwards, and a ring in the order of a hash of their names. Each ring enters and leaves every node
// once, so every node is a source and a target on each, and each alone connects all nodes. The two named
// rings measure each neighbour both ways; the third makes an expander of them (a cycle and a random one:
// with high probability any set of nodes has many edges out of it, and the distance between two nodes
// grows with log N), so that a cut between any two large sets of nodes crosses many measured edges.
// A node that joins splits one edge of each ring and leaves the others, their ids and their counts alone.
//
// # How many paths
//
// While both networks are everywhere a node is the source of at most:
//
//	pod to pod, other node   UDP, 3 rings x 4 pairs (old-old, old-new, new-old, new-new)   12
//	pod to pod, other node   kept TCP, first ring x 4 pairs                                  4
//	pod to pod, other node   full-MTU UDP, first ring x 4 pairs                              4
//	pod to pod, same node    UDP, old to new and new to old                                  2
//	host to pod              UDP, own node and next node x 2 networks                        4
//	pod to host              UDP, own node and next node x 2 networks                        4
//	pod to Service           UDP and new TCP connections, 2 networks x 2 Services            8
//	host to Service          kept TCP and new TCP connections x 2 Services                   4
//	DNS                      x 2 networks                                                    2
//	host to node port        new TCP connections x 2 Services, on the next node              2
//	denied by policy         UDP and new TCP connections, first ring x 4 pairs               8
//	pod to outside           new TCP, kept TCP and new UDP, 2 networks, to the next node     6
//	pod, host to outside     1 for each responder x 2 networks and the host                  3
//	                                                                                   sum  63
//
// so 63 N paths: 13,356 at 212 nodes, 315,000 at 5,000. At 3 nodes the third ring only repeats edges of
// the first two and is left out: 59 each, 177 in all. While there is one network a node has 22. Each
// further responder adds 3.
//
// A guard has one network, and 5 paths more from each node, of new TCP connections and of DNS: from the pod and from
// the host to a Service that leads to the same node alone, from the host to two ports of the next node, and from the
// pod to the name server of its node.
//
// # How often
//
// Three intervals, with their defaults: Fast (10 ms) for UDP from pod to pod on the first ring, on which
// every node is a source and a target on every pair of networks; Medium (50 ms) for all other UDP and for
// kept TCP, where a lost segment shows as a retransmission of 200 ms and more anyway; Slow (100 ms) for
// full-MTU datagrams, new connections, DNS, node ports and denied UDP; and ten times Slow for denied TCP,
// whose every probe keeps a connection attempt open until its timeout, or a second if that is less, since
// gates wait for it. Probes to servers of others, and kept TCP to the next node, has 500 ms. That makes at most
//
//	4/10ms + 28/50ms + 22/100ms + 5/500ms + 4/1s = 400 + 560 + 220 + 10 + 4 = 1,194 probes a second and node
//
// (1,114 at 3 nodes, 3,342 in all), each answered by one datagram or segment; and 367 while there is
// one network, and 417 in a guard. It depends on the degree and not on N. Intervals.Fast scales all of it except paths
// to the outside.
package path

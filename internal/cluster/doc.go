// Package cluster holds the snapshot: one immutable, serialisable picture of a cluster, which every check
// and plan is made from. Nobody changes a snapshot once it is made.
//
// Belongs here: a cluster as data, and the one way to a live cluster: document (snapshots and Kubernetes
// files as a stream), selector (Calico's selectors) and selector/nodes (those of Kubernetes), whatif
// (labels and taints after an upgrade), finding (what is said of a cluster), manifest (Theseus' own
// objects), kube (clients, live snapshots, the engine's actor and gate), outage (which errors of API calls
// pass by themselves).
//
// Does not belong here: what is known of one network (network), and what should be done about a finding
// (preflight).
//
// Door: cluster, document, finding, kube, manifest, outage, selector, selector/nodes, whatif.
// Hands: kube, outage.
// Tests: clustertest.
package cluster

// Package cluster has the snapshot: an immutable, serialisable picture of a cluster, from which all checks
// and plans are made. A snapshot never changes after it was taken.
//
// Belongs here: the cluster as data, and the only access to a live cluster: document (streams of snapshots
// and Kubernetes files), selector (Calico's selectors) and selector/nodes (Kubernetes' selectors), whatif
// (labels and taints after an upgrade), owner (what maintains an object: Argo CD, Flux, Helm, an operator),
// finding (the results of checks), observe (what happened in a cluster between two looks), manifest (Theseus' own
// objects), apiserver (connections to the API servers' own addresses), kube (clients, live snapshots, the engine's
// actor and gate), outage (which errors of API calls are transient).
//
// Does not belong here: knowledge about one network (network), and the checks themselves (preflight).
//
// Door: cluster, apiserver, document, finding, kube, manifest, observe, outage, owner, selector, selector/nodes,
// whatif.
// Hands: apiserver, kube, outage.
// Tests: clustertest, kube/kubetest.
package cluster

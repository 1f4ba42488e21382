// Package observe says what happened in a cluster: nodes that are not Ready, restart, or run another kubelet,
// DaemonSets that roll out, pods that were made, restarted or evicted, in numbers, and the Events of Kubernetes that
// explain a loss. It compares two looks at the cluster, and reads no cluster and no clock itself (cluster/kube does).
package observe

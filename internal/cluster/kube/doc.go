// Package kube is the interface between Theseus and Kubernetes: clients, live snapshots, snapshot files and plain
// Kubernetes files, and the actor that executes actions through the API.
package kube

// Package kube is the edge between Theseus and Kubernetes: clients, the live snapshot, snapshot files and
// plain Kubernetes files, and the actor that carries out actions through the API.
package kube

// Package controllers stands in for sigs.k8s.io/mcs-api/controllers, which the Go module proxy does not have.
// Cilium's operator uses one constant of it, for clusters that share Services.
package controllers

const DerivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"

//go:build tools

// Package kuberouter pins kube-router, of which the lab uses the NetworkPolicy controller alone:
// flannel enforces no policies, and distributions that ship flannel pair it with this.
package kuberouter

import _ "github.com/cloudnativelabs/kube-router/cmd/kube-router"

// Package app is what all commands share: the streams, the cluster of the kubeconfig, the output format, and the
// retries while the API server is unavailable. A command gets it as a parameter; there are no globals.
package app

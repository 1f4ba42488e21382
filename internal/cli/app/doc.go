// Package app is what every command shares: the streams, the cluster of the kubeconfig, the form of output, and
// the patience with an API server that is away. A command is given it; there are no globals.
package app

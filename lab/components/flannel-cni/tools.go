//go:build tools

// Package flannelcni pins the flannel CNI plugin that the lab builds: 0.9.1 is the last release
// of containernetworking/plugins that carries it.
package flannelcni

import _ "github.com/containernetworking/plugins/plugins/meta/flannel"
